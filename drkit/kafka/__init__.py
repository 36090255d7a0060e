"""All communication with Kafka: protocol, clients, administration, group offsets, client configurations.

Admin and coordinator calls go through kafka-python, because librdkafka's admin client can abort the
whole process while brokers restart; records go through confluent-kafka (see `drkit.mirror`).
"""

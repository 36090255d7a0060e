"""Kafka's message schemas that kafka-python doesn't carry yet, as Kafka's own source states them."""

"""The drill's applications: a producer and a consumer, each a process of its own on plain confluent-kafka.

They know nothing of drkit: what they keep is the independent witness that the checkers judge by.
"""

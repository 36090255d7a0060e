"""The drill's applications: a producer and a consumer, each a separate process with plain confluent-kafka.

They know nothing about drkit: their ledgers are the independent evidence for the checkers.
"""

"""Kafka's message schemas that kafka-python lacks, as in Kafka's own source."""

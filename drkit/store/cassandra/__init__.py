"""The distributed backend: Cassandra."""

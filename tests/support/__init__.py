"""Helpers for tests of every kind: a lab, a Cassandra node, waiting for conditions."""

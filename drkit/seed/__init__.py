"""Bulk seed: Spark's tasks copy a link's backlog, under the mirror's own session on the driver."""

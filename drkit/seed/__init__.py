"""Bulk seed: a link's backlog brought over by Spark's tasks, under the mirror's own session on the driver."""

"""Keeping clients out of a cluster, showing that they are out, letting them in again."""

"""Detects partitions that don't progress and targets that lost records; records and clears these problems."""

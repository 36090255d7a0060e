"""Captures consumer groups of the source over time."""

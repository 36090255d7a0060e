"""Experiment files: their types, and how they are read."""

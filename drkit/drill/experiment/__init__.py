"""Experiment files: what they may say, and how they are read."""

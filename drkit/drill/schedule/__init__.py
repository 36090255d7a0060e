"""Drills by the clock."""

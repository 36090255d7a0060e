"""Faults of a node: they stop it, its disk or its connections."""

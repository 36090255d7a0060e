"""Faults of the network between drkit and primary."""

"""Faults of the workload's topic on one cluster: an operator's mistake, an attack, a bad disk."""

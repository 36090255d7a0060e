"""Faults of what the applications have on a cluster: their credentials, its certificate, their clock."""

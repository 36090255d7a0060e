"""The faults of a drill: each injects one and returns what was done, in words."""

"""The faults of a drill by what they hit: one file each, which injects the fault and returns a description of it."""

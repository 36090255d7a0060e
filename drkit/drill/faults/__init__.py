"""The faults of a drill, one file each, which injects the fault and returns a description of it."""

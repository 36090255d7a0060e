"""The faults of a drill, one file each: it injects the fault and returns what was done, in words."""

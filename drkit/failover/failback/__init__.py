"""What a failback knows of both logs before it acts: what either holds alone, carried offsets, obstacles."""

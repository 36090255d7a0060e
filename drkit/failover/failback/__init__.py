"""What a failback decides before it acts: both logs, committed offsets, obstacles, plan."""

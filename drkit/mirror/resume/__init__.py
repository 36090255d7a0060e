"""Where a partition continues after it stopped, proven by both logs."""

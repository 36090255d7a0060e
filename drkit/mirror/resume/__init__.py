"""Where a partition continues after it stopped, shown by both logs."""

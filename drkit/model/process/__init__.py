"""What belongs to the running process: signals, umask, the context of its log."""

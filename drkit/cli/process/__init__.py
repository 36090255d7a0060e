"""A command as a process: signals, reloading, worker processes, its end."""

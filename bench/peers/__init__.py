"""The mirrors that are compared. Each starts its real command as a child process."""

"""drkit's commands, run as a person or a program does."""

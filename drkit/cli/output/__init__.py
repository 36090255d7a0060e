"""What a command writes: data to stdout, logs and errors to stderr, each for people or as JSON."""

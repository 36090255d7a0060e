"""Real clusters and servers that tests start."""

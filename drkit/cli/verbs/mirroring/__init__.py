"""A mirror, and how its links are doing."""

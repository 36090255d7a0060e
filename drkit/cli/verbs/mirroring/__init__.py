"""Running a mirror, and the state of its links."""

"""What can be seen of the links right now: the status snapshot, readiness checks, the status page."""

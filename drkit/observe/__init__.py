"""Observing links: the status snapshot, readiness checks, metrics, the status page."""

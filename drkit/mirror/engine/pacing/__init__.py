"""How fast a backlog is copied: bandwidth, quotas, the target's own users."""

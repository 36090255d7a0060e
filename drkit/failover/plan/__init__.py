"""A failover's decision: snapshot, preconditions, plan."""

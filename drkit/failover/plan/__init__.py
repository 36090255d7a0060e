"""What a failover decides before it acts: snapshot, preconditions, plan."""

"""Making a plan: a failover's and a failback's, from snapshots, by the stages they will go through."""

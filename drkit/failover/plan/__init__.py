"""Plans as values: of a failover, a failback and a site, with preconditions, loss, waves and approvals."""

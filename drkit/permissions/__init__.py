"""What drkit's commands must be allowed on the clusters: one table, resolved for a configuration, compared with what
a principal may do."""

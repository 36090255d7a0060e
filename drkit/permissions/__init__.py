"""The ACLs that drkit's commands need on the clusters: one table, resolved for a configuration, and compared with a
principal's ACLs."""

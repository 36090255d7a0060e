"""How much of a link's source is not on its target: the same for a status and for a failover."""

"""Would a failover now succeed? One check for each question."""

"""The lag of a link, computed the same way for a status and for a failover."""

"""Failover and failback: before, during, and what a run leaves."""

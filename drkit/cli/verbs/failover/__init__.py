"""Failover and failback: before, during and after a run."""

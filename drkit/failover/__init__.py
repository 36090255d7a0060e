"""Failover and failback: a pure plan, a journaled and resumable run, and evidence in numbers."""

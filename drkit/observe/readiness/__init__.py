"""Readiness checks: would a failover now succeed? One check for each question."""

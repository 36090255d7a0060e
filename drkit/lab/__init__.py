"""Real Kafka clusters and Cassandra on one machine: see `Lab` (docs/lab.md)."""

from __future__ import annotations

from drkit.lab.lab import Lab, NodeStatus, default_dir

__all__ = ["Lab", "NodeStatus", "default_dir"]

"""drkit: a disaster-recovery failover toolkit for Apache Kafka."""

__version__ = "0.1.0"

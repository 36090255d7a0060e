"""Data for the lab: flights and orders as Kafka records, and groups that read and commit them.

    dataset = open_dataset("flights", limit=10_000)
    result = load(dataset, confluent_config(cluster), ClusterAdmin("primary", cluster), LoadOptions(rate=2000))

`DatasetWorkload` only writes, in its own thread; `GroupReader` is one reading group.
"""

from drkit.lab.datasets.catalogue import DATASETS, open_dataset
from drkit.lab.datasets.events import Dataset, DatasetRecord, Event, TimestampMode, TopicSpec
from drkit.lab.datasets.readers import GroupReader, readers_for
from drkit.lab.datasets.report import (
    Behaviour,
    GroupReport,
    LoadOutcome,
    LoadProgress,
    LoadReport,
    PartitionReport,
    TopicReport,
    Transactions,
)
from drkit.lab.datasets.workload import DatasetWorkload, LoadOptions, LoadResult, load, prepare_topics

__all__ = [
    "DATASETS",
    "Behaviour",
    "Dataset",
    "DatasetRecord",
    "DatasetWorkload",
    "Event",
    "GroupReader",
    "GroupReport",
    "LoadOptions",
    "LoadOutcome",
    "LoadProgress",
    "LoadReport",
    "LoadResult",
    "PartitionReport",
    "TimestampMode",
    "TopicReport",
    "TopicSpec",
    "Transactions",
    "load",
    "open_dataset",
    "prepare_topics",
    "readers_for",
]

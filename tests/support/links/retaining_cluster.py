"""A cluster in memory that answers about its logs' starts, sizes and retention, like `ClusterAdmin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drkit.kafka.client.record_probe import NOTHING, LogPosition, ProbedRecord
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition


class RetainingCluster:
    """Answers with what a test sets: records are stamped by `stamps`, the last one at offset 99."""

    def __init__(self) -> None:
        self.alias = "primary"
        self.settings = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        self.stamps: dict[int, int] = {}
        self.start = 0
        self.size: int | None = None
        self.asked = 0

    def topic_configs(self, topics: Iterable[str], **_: Any) -> dict[str, dict[str, str]]:
        self.asked += 1
        return {topic: dict(self.settings) for topic in topics}

    def offsets_for_times(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {tp: next((o for o, stamp in sorted(self.stamps.items()) if stamp >= ms), None) for tp, ms in at.items()}

    def probe_records(self, places: Iterable[LogPosition], **_: Any) -> dict[LogPosition, ProbedRecord]:
        return {p: next((ProbedRecord(o) for o in sorted(self.stamps) if o >= p.offset), NOTHING) for p in places}

    def start_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start)

    def log_sizes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.size is None:
            raise Refused("no right")
        return dict.fromkeys(tps, self.size)

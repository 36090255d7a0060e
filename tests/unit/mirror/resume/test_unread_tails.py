"""The last records of a partition could not be read in time: nothing is concluded from that."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.mirror.resume.misplaced_records import MisplacedRecords
from drkit.mirror.resume.tail_verification import TailVerifier
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store

LATE = ProbedRecord(reason="not read in time: no leader", late=True)
TPS = [TopicPartition("t", number) for number in range(3)]


class Side:
    """A cluster: each offset holds a record with the same checksum; `found`: what is at some partition's places."""

    def __init__(self, found: dict[TopicPartition, ProbedRecord]) -> None:
        self._found = found

    def probe_records(self, places: Iterable[LogPosition], **_: Any) -> dict[LogPosition, ProbedRecord]:
        return {place: self._found.get(place.tp, ProbedRecord(place.offset, 1, 2)) for place in places}


def seen(tp: TopicPartition) -> Any:
    state = SimpleNamespace(target_topic="t", epoch=1)
    return SimpleNamespace(
        tp=tp,
        topic=SimpleNamespace(state=state, compacted=False),
        source_start=0,
        target_start=0,
        target_end=10,
        watermark=SimpleNamespace(target_end=10),
    )


@pytest.mark.parametrize("side", ["target", "source"])
def test_what_was_not_read_in_time_is_neither_right_nor_wrong(side: str) -> None:
    found = {TPS[0]: LATE, TPS[1]: ProbedRecord(reason="its checksum is wrong")}
    sides = {"source": Side({}), "target": Side({}), side: Side(found)}
    rows = SimpleNamespace(last_valid_mapping=lambda _, tp, *__: OffsetMapping(*tp, 1, 0, 0))
    misplaced = MisplacedRecords(
        LinkId("a", "b"),
        cast("ClusterAdmin", sides["source"]),
        cast("ClusterAdmin", sides["target"]),
        cast("Store", rows),
        cast("TailVerifier", SimpleNamespace(alteration=None)),
    )
    doubted, late = misplaced.doubted([seen(tp) for tp in TPS])
    assert doubted == {TPS[1]}
    assert late == {TPS[0]: "t:0 not read in time: no leader"}

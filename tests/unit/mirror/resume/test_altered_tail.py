"""Verifying a tail by provenance: each record names the source record that the mapping gives it, or it is foreign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Message

from drkit.kafka.transform.provenance import Hop, stamped
from drkit.mirror.resume.tail_verification import Tail
from drkit.mirror.resume.transformed_tail import compare_provenance
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition

# source 10 11 (12 13 left out) 14 15 -> target 5 6 7 8
ROWS = [OffsetMapping("t", 2, 1, 10, 5), OffsetMapping("t", 2, 1, 14, 7)]
TAIL = Tail(
    tp=TopicPartition("t", 2),
    target_topic="t",
    begin=5,
    end=9,
    rows=ROWS,
    source_start=0,
    target_start=0,
    compacted=False,
    source_end=16,
)


def record(target: int, hop: Hop | None) -> Message:
    headers = [] if hop is None else stamped([], [], hop)
    return Message(topic="t", partition=2, offset=target, value=b"v", headers=headers, timestamp=(1, 0))


def log(*sources: int, cluster: str = "id-a", topic: str = "t") -> list[Message]:
    return [record(5 + n, Hop(cluster, topic, 2, offset)) for n, offset in enumerate(sources)]


def test_what_was_written_is_recognised() -> None:
    assert compare_provenance(TAIL, 5, iter(log(10, 11, 14, 15)), "id-a") is None


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (log(10, 11, 14), "target offset 8 holds no record"),
        (log(10, 11, 12, 15), "target offset 7 stands for source offset 14"),
        (log(10, 11, 14, 15, cluster="id-x"), "was mirrored from"),
        (log(10, 11, 14, 15, topic="u"), "was mirrored from"),
        ([*log(10, 11, 14), record(8, None)], "names no record"),
        ([*log(10), *log(10, 11, 14, 15)[2:]], "target offset 6 holds no record"),
    ],
)
def test_what_was_not_is_named(records: Sequence[Message], says: str) -> None:
    found = compare_provenance(TAIL, 5, iter(records), "id-a")
    assert found is not None
    assert says in found.what


def test_a_compacted_log_may_have_gaps() -> None:
    compacted = replace(TAIL, compacted=True)
    assert compare_provenance(compacted, 5, iter([*log(10), *log(10, 11, 14, 15)[3:]]), "id-a") is None

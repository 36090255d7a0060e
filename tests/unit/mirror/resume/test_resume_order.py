"""A worker that looks where to continue while another mirrors: what that one did meanwhile is no loss."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.lag.fence_markers import EndsBelow
from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.resume.partition_resume import Resumer
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
STATE = SimpleNamespace(topic="t", target_topic="t", epoch=1, source_topic_id="s", target_topic_id="d")
READY: Any = SimpleNamespace(
    state=STATE, max_message_bytes=1_000, preserve=False, alignable=False, compacted=False, diverged=frozenset()
)


def probed(places: Iterable[LogPosition], **_: Any) -> dict[LogPosition, ProbedRecord]:
    """Both sides hold the same record at each offset."""
    return {place: ProbedRecord(place.offset, 1, 2) for place in places}


class Moving:
    """Both clusters and the store, while somebody else mirrors: each look finds more on both, and recorded."""

    def __init__(self) -> None:
        self.mirrored = 100
        self.problems: list[tuple[Any, ...]] = []
        self.order: list[object] = []

    def _looked(self) -> int:
        self.mirrored += 10
        return self.mirrored

    def offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self._looked())

    def starts(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def log_ends(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.mirrored)  # as two reads in a row agree about

    def watermarks(self, _: LinkId) -> dict[TopicPartition, Watermark]:
        at = self._looked()
        return {TP: Watermark("t", 0, 1, at, at, 0, at, 0, now())}

    def resumer(self) -> Resumer:
        row = OffsetMapping("t", 0, 1, 0, 0)
        source = SimpleNamespace(
            start_offsets=self.starts,
            end_offsets=self.offsets,
            topics=lambda _, **__: {"t": SimpleNamespace(topic_id="s")},
            leader_epochs=lambda tps: dict.fromkeys(tps, 3),
            epoch_ends=lambda _: {},
            epochs_below=lambda offsets: dict.fromkeys(offsets, 3),
            probe_records=probed,
        )
        target = SimpleNamespace(
            start_offsets=self.starts,
            probe_records=probed,
            log_ends=self.log_ends,
            topics=lambda _, **__: {"t": SimpleNamespace(topic_id="d")},
        )
        store = SimpleNamespace(
            watermarks=self.watermarks,
            put_watermarks=lambda *_: self.order.append("written"),
            last_valid_mapping=lambda *_: row,
            next_mapping=lambda *_: None,
        )
        problems = SimpleNamespace(
            put=lambda *said, **_: self.problems.append(said),
            settle=lambda *_, **__: None,
            standing=lambda *_, **__: None,
        )
        verifier = SimpleNamespace(difference=lambda _: None, alteration=None)
        producer = SimpleNamespace(
            id=lambda: 7,
            next_sequence=LinkProducer.next_sequence,
            ends_below_markers=lambda _: EndsBelow(),
            last_sequences=lambda tps: dict.fromkeys(tps, 5),
        )
        whole = SimpleNamespace(notes=lambda *_: {}, put_notes=lambda *_: None, topic_states=lambda _: {})
        parts: Any = (source, target, store, problems, verifier, producer, whole)
        return Resumer(LinkId("a", "b"), *parts, committed=True)


def test_what_another_worker_mirrors_meanwhile_is_no_loss() -> None:
    world = Moving()
    (resumed,) = world.resumer().resume({TP: READY}, threading.Event())
    assert world.problems == []
    assert resumed.start.target_offset <= world.mirrored


def test_the_running_mirror_leaves_a_partition_before_its_stored_watermark_changes() -> None:
    """Its next save would write what it had mirrored before: after a kill in between the mirror would go on there."""
    world = Moving()
    world.resumer().resume({TP: READY}, threading.Event(), leave=lambda tps: world.order.append(list(tps)))
    assert world.order == [[TP], "written"]


def test_a_partition_without_a_leader_on_the_target_keeps_no_other_from_starting() -> None:
    class Leaderless(Moving):
        """As `ClusterAdmin.log_ends` with `partial`: what answered; where nothing did, an error."""

        def log_ends(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
            found = {tp: self.mirrored for tp in tps if tp == TP}
            if not found:
                raise Unreachable("t:1 has no leader")
            return found

        def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
            (mark,) = super().watermarks(link).values()
            return {TP: mark, OTHER: replace(mark, partition=OTHER.partition)}

    started = Leaderless().resumer().resume({TP: READY, OTHER: READY}, threading.Event())
    assert [resumed.start.tp for resumed in started] == [TP]

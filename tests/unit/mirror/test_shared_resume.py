"""Where a link goes on whose target has other writers: behind the newest of its own records that it finds there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.mirror.resume.partition_resume import Resumed
from drkit.mirror.resume.shared_target import SharedResumer
from drkit.model.clock import now
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("t", 0)
MARK = Watermark(
    topic="t",
    partition=0,
    epoch=1,
    source_through=50,
    target_end=80,
    source_start=0,
    source_end=60,
    target_start=0,
    observed_at=now(),
)
TOPIC: Any = SimpleNamespace(
    state=SimpleNamespace(target_topic="t", epoch=1, source_topic_id="s", target_topic_id="d"),
    max_message_bytes=1_000,
    preserve=False,
    compacted=False,
)
SEEN = Observed(TP, TOPIC, 0, 60, 60, 0, 90, MARK, 41, leader_epoch=3)


class World:
    """A resumer whose target holds own records of these source offsets at these places."""

    def __init__(self, landed: dict[int, int]) -> None:
        self.problems: list[tuple[Any, ...]] = []
        self.looked: list[tuple[int, int]] = []
        self._landed = landed
        store = SimpleNamespace(put_watermarks=lambda *_: None)
        problems = SimpleNamespace(put=lambda *said, **_: self.problems.append(said))
        producer = SimpleNamespace(id=lambda: 7, next_sequence=LinkProducer.next_sequence)
        source = SimpleNamespace(epochs_below=lambda offsets: dict.fromkeys(offsets, 3))
        parts: Any = (source, SimpleNamespace(), store, problems, self, producer, store)
        self._resumer = SharedResumer(LinkId("a", "b"), *parts, committed=True)
        self._resumer.use(self, SimpleNamespace(source_id="id-a"))  # type: ignore[arg-type]  # what is asked of them

    def newest(self, _seen: Observed, _source: str, begin: int, end: int) -> int | None:
        self.looked.append((begin, end))
        return max((offset for place, offset in self._landed.items() if begin <= place < end), default=None)

    def decide(self, seen: Observed) -> Resumed:
        found = self._resumer._decide(seen)
        assert isinstance(found, Resumed)
        return found


@pytest.mark.parametrize(("landed", "goes_on_at"), [({}, 50), ({70: 49, 85: 53}, 54)])
def test_it_goes_on_behind_what_landed_unrecorded(landed: dict[int, int], goes_on_at: int) -> None:
    world = World(landed)
    start = world.decide(SEEN).start
    assert (start.source_offset, start.target_offset, start.shared) == (goes_on_at, 90, True)
    assert start.leader_epoch == 3, "as the source says of the batch below"
    assert (start.producer_id, start.sequence) == (7, 42), "conditional on the link's own last append"
    assert world.looked == [(80, 90)]
    assert world.problems == []


@pytest.mark.parametrize(("landed", "goes_on_at"), [({}, 0), ({30: 20}, 21)])
def test_a_target_that_lost_its_end_gets_the_lost_records_again(landed: dict[int, int], goes_on_at: int) -> None:
    world = World(landed)
    start = world.decide(replace(SEEN, target_end=40)).start
    assert (start.source_offset, start.target_offset) == (goes_on_at, 40)
    assert world.looked == [(0, 40)]
    (problem,) = world.problems
    assert problem[0] == "target_lost_data"
    assert f"From source offset {goes_on_at} on" in problem[-1]


def test_where_only_others_records_went_nothing_is_said() -> None:
    world = World({30: 49})
    assert world.decide(replace(SEEN, target_end=40)).start.source_offset == 50
    assert world.problems == []

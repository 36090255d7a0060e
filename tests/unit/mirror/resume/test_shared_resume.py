"""Where a link continues whose target has other writers: behind the newest of its own records that it finds there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.kafka.protocol import record_body
from drkit.kafka.transform.provenance import Hop, origin
from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.mirror.resume.partition_resume import Halt, Resumed
from drkit.mirror.resume.shared_target import SharedResumer
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.link_notes import NewestOwn

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

NEWEST = "shared_target_newest"


def own(place: int, offset: int, source: str = "id-a") -> ProbedRecord:
    """A record that the link (or another source's) wrote."""
    body = record_body.encode(b"k", b"v", origin(Hop(source, *TP, offset)))
    return ProbedRecord(place, 0, 0, body=body)


class Consumed:
    """A record as a consumer gives it."""

    def __init__(self, value: bytes) -> None:
        self._key, self._value, self._headers = b"k", value, []

    def topic(self) -> str:
        return TP.topic

    def partition(self) -> int:
        return TP.partition

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def set_key(self, key: bytes) -> None:
        self._key = key

    def set_value(self, value: bytes) -> None:
        self._value = value

    def set_headers(self, headers: list[tuple[str, bytes]]) -> None:
        self._headers = headers


class World:
    """A resumer whose target holds own records of these source offsets at these places."""

    def __init__(self, landed: dict[int, int]) -> None:
        self.problems: list[tuple[Any, ...]] = []
        self.looked: list[tuple[int, int]] = []
        self.at_place = own(79, 49)
        self.there, self.here = b"v", b"v"
        self._landed = landed
        self.notes: dict[str, dict[str, str]] = {NEWEST: {str(TP): "1:10:69:0"}}
        store = SimpleNamespace(
            put_watermarks=lambda *_: None,
            notes=lambda _, kind: self.notes.get(kind, {}),
            put_notes=lambda _, kind, notes: self.notes.setdefault(kind, {}).update(notes),
        )
        problems = SimpleNamespace(put=lambda *said, **_: self.problems.append(said))
        producer = SimpleNamespace(id=lambda: 7, next_sequence=LinkProducer.next_sequence)
        source = SimpleNamespace(epochs_below=lambda offsets: dict.fromkeys(offsets, 3))
        parts: Any = (source, SimpleNamespace(), store, problems, self, producer, store)
        target = SimpleNamespace(probe_records=self._probe, end_offsets=lambda tps, **_: dict.fromkeys(tps, self.high))
        self.high = 90
        parts = (source, target, *parts[2:])
        self._resumer = SharedResumer(LinkId("a", "b"), *parts, committed=True)
        self._resumer.use(self, SimpleNamespace(source_id="id-a", apply=lambda record: record))  # type: ignore[arg-type]  # what is asked of them

    def newest(self, _seen: Observed, _source: str, begin: int, end: int) -> tuple[int, int] | None:
        self.looked.append((begin, end))
        return max(((offset, place) for place, offset in self._landed.items() if begin <= place < end), default=None)

    def of_target(self, *_: Any) -> Iterator[Consumed]:
        return iter([Consumed(self.there)])

    def of_source(self, *_: Any) -> Iterator[Consumed]:
        return iter([Consumed(self.here)])

    def _probe(self, places: Any, **_: Any) -> dict[LogPosition, ProbedRecord]:
        return dict.fromkeys(places, self.at_place)

    def asked(self, seen: Observed) -> Resumed | Halt:
        for unread in self._resumer._doubted([seen])[1].values():
            raise unread  # it is left out, and asked for again; the others continue
        return self._resumer._decide(seen)

    def decide(self, seen: Observed) -> Resumed:
        found = self.asked(seen)
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


@pytest.mark.parametrize(
    ("ends", "holds", "says"), [(60, b"other", "its value is another"), (53, b"v", "there is none: it ends at 53")]
)
def test_what_landed_unrecorded_and_is_gone_from_the_source_is_told(ends: int, holds: bytes, says: str) -> None:
    world = World({70: 49, 85: 53})
    world.here = holds
    found = world.asked(replace(SEEN, source_end=ends))
    assert isinstance(found, Halt)
    assert (found.kind, found.unsure_from) == ("source_truncated", 50)
    assert says in found.reason


@pytest.mark.parametrize(("landed", "goes_on_at"), [({}, 0), ({30: 20}, 21)])
def test_a_target_that_lost_its_end_gets_the_lost_records_again(landed: dict[int, int], goes_on_at: int) -> None:
    world = World(landed)
    start = world.decide(replace(SEEN, target_end=40)).start
    assert (start.source_offset, start.target_offset) == (goes_on_at, 40)
    assert world.looked == [(0, 40)]
    (problem,) = world.problems
    assert problem[0] == "target_lost_data"
    assert f"from source offset {goes_on_at} on" in problem[-1]


def test_where_only_others_records_went_nothing_is_said() -> None:
    world = World({30: 49})
    assert world.decide(replace(SEEN, target_end=40)).start.source_offset == 50
    assert world.problems == []


def test_a_target_that_was_cut_and_grew_beyond_what_was_acknowledged_gets_the_lost_records_again() -> None:
    """Its end tells nothing; at the place of the link's newest record is somebody else's."""
    for stands in (own(79, 49, "id-b"), ProbedRecord(79, 0, 0, body=record_body.encode(None, None, ())), own(79, 77)):
        world = World({30: 20, 85: 3})
        world.at_place = stands
        start = world.decide(SEEN).start
        assert (start.source_offset, start.target_offset) == (21, 90)
        assert world.looked == [(0, 90)]
        (problem,) = world.problems
        assert problem[0] == "target_lost_data"
        assert world.notes[NEWEST][str(TP)] == "1:90:30:0"


def test_a_record_that_compaction_may_have_taken_is_no_loss_and_one_that_cannot_be_read_waits() -> None:
    compacted = replace(SEEN, topic=SimpleNamespace(**{**vars(TOPIC), "compacted": True}))
    for seen, lost in ((SEEN, True), (compacted, False)):
        world = World({30: 20})
        world.at_place = own(81, 3, "id-b")
        world.decide(seen)
        assert bool(world.problems) is lost
    world = World({})
    world.at_place = ProbedRecord(reason="no leader")
    with pytest.raises(Unreachable, match="no leader"):
        world.decide(SEEN)
    world.at_place, world.high = ProbedRecord(), 79
    with pytest.raises(Unreachable, match="replicated"):
        world.decide(SEEN)


def test_where_the_newest_own_record_stands_is_noted_and_unknown_it_is_looked_for_in_the_whole_log() -> None:
    world = World({30: 20, 70: 49})
    world.notes.clear()
    assert world.decide(SEEN).start.source_offset == 50
    assert world.looked == [(0, 90)]
    assert world.problems == []
    assert world.notes[NEWEST][str(TP)] == "1:90:70:0"
    later = NewestOwn(1, 90, 70, 0)
    assert (later.now(replace(MARK, target_end=90)), later.now(replace(MARK, target_end=96))) == (70, 95)
    assert later.now(replace(MARK, epoch=2)) is None


def test_own_records_below_an_epoch_are_of_a_former_topic() -> None:
    """Only who takes it up first sees where it begins; the next one looks from there on."""
    accepted: Any = SimpleNamespace(**{**vars(TOPIC), "state": SimpleNamespace(**{**vars(TOPIC.state), "epoch": 2})})
    anew = replace(SEEN, topic=accepted, watermark=None)
    world = World({30: 20, 85: 55})
    start = world.decide(anew).start
    assert (start.source_offset, start.target_offset) == (0, 90)
    assert world.notes[NEWEST][str(TP)] == "2:90:-1:90"
    world._landed[92] = 7
    assert world.decide(replace(anew, target_end=95)).start.source_offset == 8, "killed before its first watermark"
    assert world.looked == [(90, 90), (90, 95)]
    assert world.notes[NEWEST][str(TP)] == "2:95:92:90"


def test_a_target_that_lost_more_than_an_epoch_holds_has_it_begin_at_its_end() -> None:
    world = World({30: 20, 45: 3})
    accepted: Any = SimpleNamespace(**{**vars(TOPIC), "state": SimpleNamespace(**{**vars(TOPIC.state), "epoch": 2})})
    seen = replace(SEEN, topic=accepted, watermark=replace(MARK, epoch=2), target_end=40)
    world.notes[NEWEST][str(TP)] = "2:80:79:70"
    assert world.decide(seen).start.source_offset == 0
    assert world.notes[NEWEST][str(TP)] == "2:40:-1:40"
    assert world.decide(replace(seen, target_end=50)).start.source_offset == 4, "what it has copied since counts"

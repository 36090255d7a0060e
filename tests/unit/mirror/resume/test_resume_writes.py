"""What a start of many partitions writes: a few writes for all of them, each partition's in the order that a crash
between any two of them needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.lag.fence_markers import EndsBelow
from drkit.mapping.mapping_rows import former_ranges
from drkit.mapping.translate import translate_by_rows
from drkit.mapping.unmapped_records import rows_of_unmapped
from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.partition_resume import Resumer
from drkit.mirror.resume.tail_verification import MOST_UNREAD, Tail, TailUnread
from drkit.model.link_state import RECORDS_UNMAPPED, TopicState
from drkit.model.offsets import Certainty, OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.state_topic.guard import BEGUN_ANEW, RECOVERY, STATE
from drkit.store import open_store
from drkit.store.api import Store

LINK = LinkId("a", "b")
TPS = [TopicPartition("t", number) for number in range(300)]
TOPIC_STATE = SimpleNamespace(topic="t", target_topic="t", epoch=1, source_topic_id="s", target_topic_id="d")
READY: Any = SimpleNamespace(
    state=TOPIC_STATE, max_message_bytes=1_000, preserve=False, alignable=False, compacted=False, diverged=frozenset()
)


class Counted:
    """A store that notes its writes: the name of each, and of which partitions it is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes: list[tuple[str, list[TopicPartition]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_watermarks(self, link: LinkId, marks: Iterable[Watermark], *rest: Any) -> None:
        self.writes.append(("watermarks", [mark.tp for mark in marks]))
        self._store.put_watermarks(link, list(marks), *rest)

    def append_mappings(self, link: LinkId, rows: Iterable[OffsetMapping], *rest: Any) -> None:
        self.writes.append(("rows", [row.tp for row in rows]))
        self._store.append_mappings(link, list(rows), *rest)

    def supersede_mappings(self, link: LinkId, tp: TopicPartition, *rest: Any) -> int:
        self.writes.append(("superseded", [tp]))
        return self._store.supersede_mappings(link, tp, *rest)


@pytest.fixture
def store() -> Iterator[Counted]:
    """An empty store."""
    opened = open_store("sqlite:///:memory:")
    yield Counted(opened)
    opened.close()


def resumer(
    store: Counted,
    ends: dict[TopicPartition, int],
    difference: Callable[[Tail, int], None] = lambda *_: None,
    *,
    sequence: int | None = None,
    whole: Any = None,
) -> Resumer:
    """Of a source whose partitions hold a hundred records, and a target whose logs end there. `sequence`: of the link's
    producer there; `whole`: the store, where problems and notes are kept."""

    def start_offsets(tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    source = SimpleNamespace(
        start_offsets=start_offsets,
        end_offsets=lambda tps, **_: dict.fromkeys(tps, 100),
        topics=lambda _, **__: {"t": SimpleNamespace(topic_id="s")},
        leader_epochs=lambda tps: dict.fromkeys(tps, 3),
        epoch_ends=lambda _: {},
        epochs_below=lambda offsets: dict.fromkeys(offsets, 3),
    )
    target = SimpleNamespace(
        start_offsets=start_offsets,
        log_ends=lambda tps, **_: {tp: ends.get(tp, 0) for tp in tps},
        topics=lambda _, **__: {"t": SimpleNamespace(topic_id="d")},
    )
    problems: Any = SimpleNamespace(
        put=lambda *_, **__: None, settle=lambda *_, **__: None, standing=lambda *_, **__: None
    )
    verifier = SimpleNamespace(difference=difference, alteration=object())
    producer = SimpleNamespace(
        id=lambda: 7,
        next_sequence=LinkProducer.next_sequence,
        ends_below_markers=lambda _: EndsBelow(),
        last_sequences=lambda tps: dict.fromkeys(tps, sequence),
    )
    if whole is not None:
        problems = Problems(whole, LINK, lambda _: None)
        problems.follow()
    whole = whole or SimpleNamespace(notes=lambda *_: {}, put_notes=lambda *_: None, topic_states=lambda _: {})
    parts: Any = (source, target, store, problems, verifier, producer, whole)
    return Resumer(LINK, *parts, committed=True)


def test_many_partitions_that_begin_are_two_writes(store: Counted) -> None:
    resumed = resumer(store, {}).resume(dict.fromkeys(TPS, READY), threading.Event())
    assert [each.start.tp for each in resumed] == TPS
    assert store.writes == [("watermarks", TPS), ("rows", TPS)]
    assert {tp: mark.source_through for tp, mark in store.watermarks(LINK).items()} == dict.fromkeys(TPS, 0)
    assert all(store.mappings(LINK, tp, 1) == [OffsetMapping("t", tp.partition, 1, 0, 0)] for tp in TPS)


def test_a_row_that_is_ahead_of_the_log_is_removed_after_the_watermark_and_only_there(store: Counted) -> None:
    begun, ahead = TPS[:10], TPS[3]
    store.append_mappings(LINK, [OffsetMapping("t", tp.partition, 1, 0, 0) for tp in begun])
    store.append_mappings(LINK, [OffsetMapping("t", ahead.partition, 1, 60, 58)])
    store.writes.clear()
    ends = dict.fromkeys(begun, 50)
    resumed = resumer(store, ends).resume(dict.fromkeys(begun, READY), threading.Event())
    assert [(each.start.source_offset, each.start.target_offset) for each in resumed] == [(50, 50)] * len(begun)
    assert store.writes == [("watermarks", begun), ("superseded", [ahead])]
    assert all(len(store.mappings(LINK, tp, 1)) == 1 for tp in begun)


def test_a_tail_that_can_t_be_read_keeps_no_other_partition_from_starting(store: Counted) -> None:
    begun = TPS[:20]
    store.append_mappings(LINK, [OffsetMapping("t", tp.partition, 1, 0, 0) for tp in begun])
    unreadable, asked = set(begun[:2]), list[TopicPartition]()

    def difference(tail: Tail, _: int) -> None:
        asked.append(tail.tp)
        if tail.tp in unreadable:
            raise TailUnread("not read")

    mirror = resumer(store, dict.fromkeys(begun, 50), difference)
    assert mirror.resume(dict.fromkeys(begun[:2], READY), threading.Event()) == []
    asked.clear()
    resumed = mirror.resume(dict.fromkeys(begun, READY), threading.Event())
    assert [each.start.tp for each in resumed] == begun[2:]
    assert set(mirror.denied) == unreadable
    assert asked == [*begun[2:], *begun[:2]], "those that couldn't be read come last"


def test_tails_that_were_not_tried_come_before_those_that_were_not_readable(store: Counted) -> None:
    begun, asked = TPS[:20], list[TopicPartition]()
    store.append_mappings(LINK, [OffsetMapping("t", tp.partition, 1, 0, 0) for tp in begun])

    def difference(tail: Tail, _: int) -> None:
        asked.append(tail.tp)
        raise TailUnread("not read")

    mirror = resumer(store, dict.fromkeys(begun, 50), difference)
    for _ in range(2):
        assert mirror.resume(dict.fromkeys(begun, READY), threading.Event()) == []
        assert set(mirror.denied) == set(begun)
    assert asked == [*begun, *begun[MOST_UNREAD:], *begun[:MOST_UNREAD]]


# -- records of which the store has nothing ----------------------------------------------------------------


def ready(epoch: int = 1, *, created: bool = False) -> Any:
    """A topic that may be mirrored; `created`: by drkit."""
    state = TopicState("t", "t", "s", "d", epoch, 1, created_by_drkit=created)
    return SimpleNamespace(**vars(READY) | {"state": state})


@pytest.mark.parametrize(
    ("created", "sequence", "noted", "epoch", "end", "halts"),
    [
        (True, None, None, 1, 40, False),  # nor does who made the topic tell
        (False, 7, None, 1, 40, True),  # and this link's producer is its mirror
        (False, None, STATE, 1, 40, True),  # a copy may have lacked the topic
        (False, None, BEGUN_ANEW, 1, 40, True),  # another store's mirror was there, and left an empty copy
        (False, None, None, 1, 40, False),  # it was there before drkit
        (True, 7, STATE, 1, 0, False),  # there is nothing that it could begin behind
        (True, 7, STATE, 2, 40, False),  # an operator has accepted what is there
    ],
)
def test_a_partition_does_not_begin_behind_records_that_may_be_the_mirrors_own(
    store: Counted, created: bool, sequence: int | None, noted: str | None, epoch: int, end: int, halts: bool
) -> None:
    tp = TPS[0]
    if noted is not None:
        store.put_notes(LINK, RECOVERY, {noted: "2026-01-01T00:00:00Z"})
    mirror = resumer(store, {tp: end}, sequence=sequence, whole=store)
    resumed = mirror.resume({tp: ready(epoch, created=created)}, threading.Event())
    problems = [(each.kind, each.halted) for each in store.problems(LINK)]
    assert (problems, len(resumed)) == ([(RECORDS_UNMAPPED, True)] if halts else [], 0 if halts else 1)
    assert (store.writes == []) is halts
    if halts:  # and as long as nobody accepts it, whoever made the topic
        again = resumer(store, {tp: end}, whole=store)
        assert again.resume({tp: ready()}, threading.Event()) == []
        assert again.resume({tp: ready(2)}, threading.Event()) != []


def test_behind_accepted_records_no_group_is_moved_past_what_may_be_among_them(store: Counted) -> None:
    """Ten records are copied again behind 40: a group at 30 hasn't read what lies at 30 to 39."""
    tp = TPS[0]
    store.append_mappings(LINK, rows_of_unmapped(tp, 1, (0, 100), (0, 40)))
    resumer(store, {tp: 40}, whole=store).resume({tp: ready(2)}, threading.Event())
    rows, mark = store.mappings(LINK, tp, 2), store.watermarks(LINK)[tp]
    former = former_ranges(rows, 2, (0, 50), lambda epoch: store.mappings(LINK, tp, epoch))
    assert former == ((0, 100),)

    def certainty(offset: int, through: int) -> Certainty:
        moved = replace(mark, source_through=through, target_end=40 + through)
        return translate_by_rows(offset, rows, moved, former).certainty

    assert certainty(30, 10) is Certainty.UNAVAILABLE
    assert certainty(30, 30) is Certainty.EXACT
    assert certainty(100, 10) is Certainty.CONSERVATIVE, "it has read all that the source held"

"""What a source holds that was never mirrored, where the cleaner of a compacted target has removed some of it: logs as
lists, one mapping row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from drkit.kafka.client import log_reader
from drkit.kafka.protocol import record_body
from drkit.kafka.protocol.records import RawRecord
from drkit.lag.unmirrored_tail import SECONDS, LinkSides, UnmirroredTail, unmirrored_tail
from drkit.model.clock import now, to_millis
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition

TP, DAY = TopicPartition("t", 0), 86_400_000
OLD, YOUNG = to_millis(now()) - 2 * DAY, to_millis(now())


class Written(NamedTuple):
    """A record; `value` None: a tombstone."""

    key: str
    value: str | None
    timestamp: int = OLD


Log = Mapping[int, Written]


class Reader:
    def __init__(self, log: Log) -> None:
        self.log = log

    def records(self, _topic: str, _partition: int, begin: int, end: int) -> Iterator[RawRecord]:
        for offset, each in sorted(self.log.items()):
            if begin <= offset < end:
                value = None if each.value is None else each.value.encode()
                yield RawRecord(offset, each.timestamp, record_body.encode(each.key.encode(), value, []))


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compares logs that have both ended at an offset, of a topic that is compacted on the target; tombstones are kept
    for a day there. `left`: its clients write behind that; `seconds`: in which that is done."""

    def ask(end: int, source: Log, target: Log, *, left: bool = False, seconds: float = SECONDS) -> UnmirroredTail:
        logs = {"primary": source, "dr": target}

        def reader(alias: str, *_: Any, **__: Any) -> AbstractContextManager[Reader]:
            return nullcontext(Reader(logs[alias]))

        monkeypatch.setattr(log_reader, "LogReader", reader)
        settings = {"cleanup.policy": "compact", "delete.retention.ms": str(DAY)}
        admins: list[Any] = [
            SimpleNamespace(
                alias=alias,
                cluster=None,
                start_offsets=lambda tps, **_: dict.fromkeys(tps, 0),
                end_offsets=lambda tps, **_: dict.fromkeys(tps, end),
                topic_configs=lambda names, **_: dict.fromkeys(names, settings),
            )
            for alias in logs
        ]
        row = OffsetMapping("t", 0, 1, 0, 0)
        rows: Any = SimpleNamespace(
            next_mapping=lambda _link, _tp, _epoch, after: row if after < 0 else None,
            last_valid_mapping=lambda *_: row,
        )
        sides = LinkSides(LinkId(*logs), *admins, lambda topic: topic, rows, None, committed=True, left=left)
        mark = Watermark("t", 0, 1, end, end, 0, end, 0, datetime(2026, 11, 29, tzinfo=UTC))
        return unmirrored_tail(sides, [mark], seconds=seconds)

    return ask


A, B, GONE = Written("a", "1"), Written("b", "1"), Written("a", None)
SAME = UnmirroredTail({}, {}, {})


def test_a_tombstone_that_the_targets_cleaner_removed_first_is_no_other_record(compare: Any) -> None:
    assert compare(3, {0: A, 1: B, 2: GONE}, {1: B}) == SAME, "with what it deletes"
    assert compare(3, {1: B, 2: GONE}, {1: B}, left=True) == SAME
    assert compare(1, {0: GONE}, {}) == SAME, "nor where the target holds nothing"


def test_a_tombstone_that_no_cleaner_can_have_removed_yet_was_never_mirrored(compare: Any) -> None:
    assert compare(3, {0: A, 1: B, 2: Written("a", None, YOUNG)}, {1: B}).first == {TP: 0}
    assert compare(3, {0: A, 1: B, 2: Written("a", None, YOUNG)}, {0: A, 1: B}).first == {TP: 2}


def test_a_tombstone_was_never_there_where_the_target_still_holds_what_it_deletes(compare: Any) -> None:
    """A target that was set back to before it: no cleaner removes a tombstone before that."""
    assert compare(3, {0: A, 1: B, 2: GONE}, {0: A, 1: B}).first == {TP: 2}
    assert compare(3, {1: B, 2: GONE}, {0: A, 1: B}).first == {TP: 2}, "the source's cleaner has removed it"


def test_a_tombstone_behind_which_both_hold_a_later_record_of_its_key_is_no_other_record(compare: Any) -> None:
    assert compare(3, {0: GONE, 1: B, 2: A}, {1: B, 2: A}) == SAME


def test_a_value_behind_a_tombstone_that_was_removed_was_never_mirrored(compare: Any) -> None:
    found = compare(3, {0: B, 1: GONE, 2: A}, {0: B})
    assert (found.first, found.same_until) == ({TP: 2}, {TP: 1})


def test_another_record_where_the_target_holds_one_is_another_one_also_if_it_is_a_tombstone(compare: Any) -> None:
    assert compare(3, {0: B, 2: GONE}, {0: B, 2: A}).first == {TP: 2}


def test_where_clients_write_to_the_target_they_may_have_written_the_key_again(compare: Any) -> None:
    found = compare(3, {0: B, 2: A}, {0: B}, left=True)
    assert "clients write there" in found.unread[TP]
    assert found.first == {}


def test_what_is_not_read_in_time_is_unread_and_costs_nothing(compare: Any) -> None:
    found = compare(3, {0: A, 1: B, 2: GONE}, {1: B}, seconds=-1.0)
    assert found.first == {}
    assert "wasn't read in time" in found.unread[TP]

"""What a batch of the source says about all below it: nothing where the cleaner works, or where it can't be read.

And which of many batches a source still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.lag.batch_comparison import compare_batches, held_below
from drkit.model.errors import Unreachable
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import TopicPartition

MARK = Watermark("t", 0, 1, 100, 100, 0, 100, 0, datetime(2026, 11, 27, tzinfo=UTC), source_batch=SourceBatch(99, 7))
SAME, OTHER, HOLE = LogBatch(90, 99, 3, 7), LogBatch(90, 99, 3, 8), LogBatch(100, 109, 3, 7)
LONGER = LogBatch(95, 104, 3, 9)


class Source:
    """Answers with what a test sets; a topic without a policy may not be described."""

    def __init__(self, batches: Mapping[str, LogBatch | None], policies: Mapping[str, str]) -> None:
        self.batches, self.policies = batches, policies

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogBatch | None]:
        assert set(offsets.values()) == {99}
        return {tp: self.batches[tp.topic] for tp in offsets if tp.topic in self.batches}

    def topic_configs(self, topics: set[str], *, keys: object, denied: set[str]) -> dict[str, dict[str, str]]:
        del keys
        denied |= topics - self.policies.keys()
        return {topic: {"cleanup.policy": self.policies[topic]} for topic in topics & self.policies.keys()}


def test_another_batch_tells_unless_the_cleaner_may_have_written_it() -> None:
    batches = {"same": SAME, "other": OTHER, "hole": HOLE, "gone": None, "denied": OTHER}
    batches |= {"cleaned": OTHER, "removed": HOLE, "longer": LONGER}
    policies = {"other": "delete", "hole": "delete", "cleaned": "compact,delete"}
    policies |= dict.fromkeys(("removed", "longer"), "compact")
    marks = [replace(MARK, topic=topic) for topic in (*batches, "silent")]
    found = compare_batches(Source(batches, policies), [*marks, replace(MARK, topic="x", source_batch=None)])  # type: ignore[arg-type]  # as it answers here
    assert {tp.topic for tp in found.replaced} == {"other", "hole", "longer"}, "the cleaner joins no batches"
    assert {tp.topic for tp in found.rewritten} == {"cleaned", "removed"}, "only records tell there"
    assert set(found.replaced.values()) == {SourceBatch(99, 7)}
    assert {tp.topic for tp in found.silent} == {"silent", "denied"}
    assert {tp.topic for tp in found.same} == {"same"}


def test_nobody_is_asked_where_no_batch_is_known() -> None:
    assert not any(compare_batches(None, [replace(MARK, source_batch=None)]))  # type: ignore[arg-type]  # it isn't asked


class Log:
    """Partitions whose log is what was read up to an offset (`kept`), and another one from there to `end`; batches of
    ten records, the first at `start`. `silent`: no leader answers any more after so many questions."""

    def __init__(
        self, kept: int, *, start: int = 0, end: int = 10_000, silent: int | None = None, aborted: int | None = None
    ) -> None:
        self.kept, self.start, self.end, self.silent, self.aborted = kept, start, end, silent, aborted
        self.asked: list[int] = []

    def batch_at(self, offset: int) -> LogBatch | None:
        self.asked.append(offset)
        if not self.start <= offset < self.end:
            return None
        last = offset - offset % 10 + 9
        return LogBatch(last - 9, last, 3, last if last < self.kept else -last, self.aborted)


class Logs:
    """A source with one of these as each partition; counts requests."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self.logs = logs
        self.requests = 0

    def batches_at(
        self, offsets: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, LogBatch | None]:
        assert committed
        self.requests += 1
        asked = ((tp, self.logs[tp], offset) for tp, offset in offsets.items())
        found = {tp: log.batch_at(offset) for tp, log, offset in asked if log.silent != len(log.asked)}
        if not found:
            raise Unreachable("no leader answers", remedy="wait")
        return found


TP = TopicPartition("t", 0)


def read(*ends: int) -> list[SourceBatch]:
    """The batches that were read and end there."""
    return [SourceBatch(end - 1, end - 1) for end in ends]


def held(log: Log, *ends: int) -> int:
    return held_below(Logs({TP: log}), {TP: read(*ends)})[TP]  # type: ignore[arg-type]  # as it answers here


@given(st.sets(st.integers(1, 300)), st.integers(0, 3_000))
def test_a_source_holds_all_below_the_last_batch_that_it_still_holds(tens: set[int], kept: int) -> None:
    ends = [10 * each for each in tens]
    log = Log(kept)
    assert held(log, *ends) == max((end for end in ends if end <= kept), default=0)
    assert len(log.asked) <= 2 + len(ends).bit_length()
    if ends and kept >= max(ends):
        assert len(log.asked) == 1, "mostly all is there"


def test_many_partitions_are_asked_at_once() -> None:
    logs = {TopicPartition("t", number): Log(100 * number) for number in range(50)}
    source = Logs(logs)
    found = held_below(source, {tp: read(*range(100, 5_100, 100)) for tp in logs})  # type: ignore[arg-type]  # as above
    assert found == {tp: log.kept for tp, log in logs.items()}
    assert source.requests <= 7


@pytest.mark.parametrize(
    ("log", "below"),
    [
        (Log(5_000), 400),
        (Log(200, end=250), 200),  # its log ends below what was mirrored
        (Log(250), 200),  # within a batch that was read
        (Log(0), 0),
        (Log(5_000, start=5_000), 0),  # retention took them while they were asked for
        (Log(5_000, silent=0), 0),
        (Log(200, silent=1), 0),
        (Log(200, silent=2), 200),  # it was told before that it holds so much
        (Log(5_000, aborted=120), 120),  # a transaction that was undecided below the batch is an aborted one now
        (Log(5_000, aborted=0), 0),
    ],
)
def test_what_does_not_show_that_the_source_holds_it_proves_nothing(log: Log, below: int) -> None:
    assert held(log, 100, 200, 300, 400) == below


def test_a_silent_partition_keeps_none_of_the_others_from_being_asked() -> None:
    silent = TopicPartition("silent", 0)
    source = Logs({TP: Log(200), silent: Log(5_000, silent=0)})
    ends = read(100, 200, 300, 400)
    assert held_below(source, {TP: ends, silent: ends}) == {TP: 200, silent: 0}  # type: ignore[arg-type]  # as above


def test_partitions_without_batches_are_not_asked() -> None:
    assert held_below(None, {TP: []}) == {TP: 0}  # type: ignore[arg-type]  # it isn't asked

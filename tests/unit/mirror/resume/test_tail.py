from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError

from drkit.config.schema.config import ClusterConfig
from drkit.mirror.resume.tail_verification import Tail, TailVerifier, compare
from drkit.model.errors import Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition


@dataclass
class Message:
    """As much of confluent-kafka's Message as a comparison reads (its class can't be made in Python)."""

    at: int
    body: bytes | None = b"v"
    name: bytes | None = None
    stamp: int = 1
    extra: list[tuple[str, bytes | None]] | None = field(default=None)

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.extra

    def timestamp(self) -> tuple[int, int]:
        return (1, self.stamp)


def tail(begin: int, end: int, *rows: tuple[int, int], source_start: int = 0, compacted: bool = False) -> Tail:
    mapped = [OffsetMapping("t", 0, 1, source, target) for source, target in rows]
    return Tail(TopicPartition("t", 0), "t", begin, end, mapped, source_start, 0, compacted, 1 << 40)


def check(stretch: Tail, ours: list[Message], theirs: list[Message]) -> str | None:
    left: Iterator[Message] = iter(ours)
    right: Iterator[Message] = iter(theirs)
    found = compare(stretch, stretch.begin, left, right)  # type: ignore[arg-type]  # see Message
    return None if found is None else found.what


def test_the_same_records_through_a_change_of_the_delta() -> None:
    stretch = tail(5, 9, (0, 0), (10, 7))
    ours = [Message(5, b"a"), Message(6, b"b"), Message(7, b"c"), Message(8, b"d")]
    theirs = [Message(5, b"a"), Message(6, b"b"), Message(10, b"c"), Message(11, b"d")]
    assert check(stretch, ours, theirs) is None


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (Message(1, b"x"), "value"),
        (Message(1, None), "value"),
        (Message(1, b"v", b""), "key"),
        (Message(1, stamp=2), "timestamp"),
        (Message(1, extra=[("h", None)]), "headers"),
    ],
)
def test_a_difference_is_named(other: Message, what: str) -> None:
    assert (
        check(tail(1, 2, (0, 0)), [other], [Message(1)])
        == f"target offset 1 differs from source offset 1 in its {what}"
    )


def test_no_headers_and_an_empty_list_are_the_same() -> None:
    assert check(tail(1, 2, (0, 0)), [Message(1, extra=[])], [Message(1)]) is None


def test_a_record_that_stands_for_none_on_the_source() -> None:
    assert check(tail(1, 2, (0, 0)), [Message(1)], [Message(2)]) is not None
    assert check(tail(1, 2, (0, 0)), [Message(1)], []) is not None


def test_a_target_offset_without_a_record() -> None:
    assert check(tail(1, 4, (0, 0)), [Message(1), Message(3)], [Message(n) for n in (1, 2, 3)]) == (
        "the record at source offset 2 is missing where the target's log has continued"
    )
    assert check(tail(1, 3, (0, 0)), [Message(1)], [Message(n) for n in (1, 2)]) == (
        "the record at source offset 2 is missing where the target's log has continued"
    )


def test_a_marker_where_the_source_has_no_record_either() -> None:
    assert check(tail(1, 5, (0, 0)), [Message(1), Message(3)], [Message(1), Message(3)]) is None


def test_what_retention_or_compaction_took_from_the_source_can_not_be_compared() -> None:
    assert check(tail(1, 3, (0, 0), source_start=2), [Message(1), Message(2)], [Message(2)]) is None
    assert check(tail(1, 3, (0, 0), compacted=True), [Message(2)], [Message(2)]) is None
    assert check(tail(1, 3, (0, 0), compacted=True), [Message(1), Message(2, b"x")], [Message(2)]) is not None


class Event:
    """The end of what a consumer sees, or a record."""

    def __init__(self, at: int, *, end: bool = False) -> None:
        self._at = at
        self._end = end

    def offset(self) -> int:
        return self._at

    def error(self) -> Event | None:
        return self if self._end else None

    def code(self) -> int:
        return int(KafkaError._PARTITION_EOF)


def read_back(monkeypatch: pytest.MonkeyPatch, events: list[Event | None], *, silence: float = 10.0) -> list[int]:
    left = iter(events)

    class Scripted:
        """A consumer that gives what the test says, then nothing."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def assign(self, _: object) -> None:
            pass

        def poll(self, _: float) -> Event | None:
            return next(left, None)

        def consume(self, *_: object) -> list[Event]:
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr("drkit.mirror.resume.tail_verification.Consumer", Scripted)
    cluster = ClusterConfig(bootstrap_servers="127.0.0.1:1")
    verifier = TailVerifier(cluster, cluster, committed=True, silence_seconds=silence)
    return [int(each.offset() or 0) for each in verifier._read(cluster, "t", 0, 5, 8, "read_uncommitted")]


def test_a_log_is_read_to_its_end_though_its_high_watermark_lags_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    lagging = [Event(5), Event(6, end=True), None, Event(6), Event(7), Event(8, end=True)]
    assert read_back(monkeypatch, lagging) == [5, 6, 7]
    assert read_back(monkeypatch, [Event(5), Event(8, end=True)]) == [5], "markers at the end"
    assert read_back(monkeypatch, [Event(5), Event(9)]) == [5]


def test_a_high_watermark_that_stays_behind_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match="could not be read back"):
        read_back(monkeypatch, [Event(5), Event(6, end=True)], silence=0.01)

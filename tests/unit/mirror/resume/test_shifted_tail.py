"""A tail whose records are the source's, in order, but not where they were meant to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drkit.mirror.resume.offset_alignment.shifted_tail import Realigned, realign


@dataclass
class Found:
    at: int
    body: str

    def offset(self) -> int:
        return self.at


def check(ours: str, theirs: str, *, begin: int = 0, end: int, source_end: int = 100) -> Realigned | None:
    """Both sides as text: a letter is a record, a dot an offset without one."""
    left = iter([Found(begin + at, body) for at, body in enumerate(ours) if body != "."])
    right = iter([Found(at, body) for at, body in enumerate(theirs) if body != "."])

    def pairs() -> Iterator[tuple[Found | None, Found | None, bool]]:
        for record in left:
            source = next(right, None)
            yield record, source, source is not None and source.body == record.body
        yield None, next(right, None), True

    return realign(pairs(), source_offset=0, source_end=source_end, target_end=end, delta=0)


def test_a_marker_that_came_late() -> None:
    assert check(".ab", "abc", end=3) == Realigned(2, ((0, 1),))


def test_a_marker_that_is_missing() -> None:
    assert check("ab", "a.bc", end=2) == Realigned(3, ((2, 1),))


def test_what_is_where_it_was_meant_needs_no_row() -> None:
    assert check("a.b", "a.bc", end=3) == Realigned(3, ())


def test_markers_at_the_end_stand_for_what_the_source_has_none_of() -> None:
    assert check("a", "a...b", end=3) == Realigned(3, ())
    assert check("a", "a.b", end=3) == Realigned(1, ((1, 3),)), "one too many: the next record moves"
    assert check("", "", end=1, source_end=0) == Realigned(0, ((0, 1),)), "caught up, then a marker came late"


def test_what_the_mirror_did_not_write() -> None:
    assert check("ax", "abc", end=2) is None
    assert check("aab", "abc", end=3) is None, "twice"
    assert check("ac", "abc", end=2) is None, "one missing"
    assert check("abc", "ab", end=3) is None, "more than the source has"

"""A stretch of the log found again further on in another, by content and order alone."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.resume.copied_run import find_run


def log(text: str, step: int = 1) -> Iterator[tuple[int, bytes]]:
    return ((step * number, letter.encode()) for number, letter in enumerate(text))


def wanted(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


def test_records_are_found_where_they_follow_each_other() -> None:
    assert find_run(wanted("cde"), log("abcdefg")) == (2, 4)
    assert find_run(wanted("ced"), log("abcdefg")) is None, "another order is somebody else's"
    assert find_run(wanted("g"), log("abcdefg")) == (6, 6)
    assert find_run(wanted("fgh"), log("abcdefg")) is None, "the log ends too early"


def test_holes_of_the_log_lie_between() -> None:
    assert find_run(wanted("cd"), log("abcd", step=3)) == (6, 9)


def test_nothing_is_read_behind_what_was_found() -> None:
    records = log("abcdefg")
    find_run(wanted("bc"), records)
    assert next(records) == (3, b"d")


@given(st.text("ab", min_size=1, max_size=6), st.text("ab", max_size=40))
def test_it_is_the_first_place_that_a_plain_search_finds(part: str, whole: str) -> None:
    first = whole.find(part)
    expected = None if first < 0 else (first, first + len(part) - 1)
    assert find_run(wanted(part), log(whole)) == expected

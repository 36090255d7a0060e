"""Instants and Kafka's timestamps are the same to the millisecond, also far from now."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.model.clock import YEAR_10000, age_seconds, date_of, from_millis, iso, oldest_age, to_millis


@given(st.integers(0, YEAR_10000 - 1))
def test_there_and_back_again(millis: int) -> None:
    assert to_millis(from_millis(millis)) == millis


def test_the_last_millisecond_is_whole() -> None:
    assert iso(from_millis(YEAR_10000 - 1)) == "9999-12-31T23:59:59.999Z"
    assert to_millis(from_millis(YEAR_10000 - 1)) == YEAR_10000 - 1
    assert date_of(YEAR_10000) is None


def test_an_instant_is_rounded_down() -> None:
    assert to_millis(datetime(2026, 11, 20, 4, 3, 10, 123_999, tzinfo=UTC)) == 1_795_147_390_123


def test_what_is_no_date_is_refused() -> None:
    with pytest.raises(OverflowError):
        from_millis(2**62)


def test_a_stamp_of_the_future_has_no_known_age() -> None:
    at = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
    old, slightly, ahead = at - timedelta(hours=1), at + timedelta(seconds=29), at + timedelta(minutes=10)
    assert [age_seconds(each, at) for each in (old, slightly, ahead)] == [3600.0, 0.0, None]
    assert oldest_age([slightly, old], at) == 3600.0
    assert oldest_age([old, ahead], at) is None, "how old the other one is isn't known"
    assert oldest_age([], at) is None

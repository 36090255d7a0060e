from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.failover.snapshot.point_in_time import parse_moment
from drkit.model.errors import ConfigError, ExitCode

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("04:03", "UTC", "2026-11-20T04:03:00+00:00"),
        ("4:03", "UTC", "2026-11-20T04:03:00+00:00"),
        ("04:03:20", "UTC", "2026-11-20T04:03:20+00:00"),
        ("04:03:20.5", "UTC", "2026-11-20T04:03:20.500000+00:00"),
        ("13:00", "UTC", "2026-11-19T13:00:00+00:00"),  # today's is still to come
        ("12:00", "UTC", "2026-11-20T12:00:00+00:00"),  # this very moment
        ("12:30", "Europe/Berlin", "2026-11-20T11:30:00+00:00"),
        ("20:30", "Asia/Tokyo", "2026-11-20T11:30:00+00:00"),
        ("03:00", "Asia/Tokyo", "2026-11-19T18:00:00+00:00"),
        ("2026-11-20T04:03", "Europe/Berlin", "2026-11-20T03:03:00+00:00"),
        ("2026-11-20 04:03:20", "Europe/Berlin", "2026-11-20T03:03:20+00:00"),
        ("2026-11-20T04:03:00Z", "Europe/Berlin", "2026-11-20T04:03:00+00:00"),
        ("2026-11-20T04:03:00.250+02:00", "UTC", "2026-11-20T02:03:00.250000+00:00"),
        ("2026-11-20T04:03:00.250+0200", "UTC", "2026-11-20T02:03:00.250000+00:00"),
        ("-2m", "UTC", "2026-11-20T11:58:00+00:00"),
        ("-90s", "UTC", "2026-11-20T11:58:30+00:00"),
        ("-1h", "UTC", "2026-11-20T11:00:00+00:00"),
        ("-1h30m", "UTC", "2026-11-20T10:30:00+00:00"),
        ("-0.5s", "UTC", "2026-11-20T11:59:59.500000+00:00"),
        ("-1d", "UTC", "2026-11-19T12:00:00+00:00"),
    ],
)
def test_what_an_operator_types_is_this_instant(text, zone, expected):
    assert parse_moment(text, now=NOW, timezone=zone).instant == datetime.fromisoformat(expected)


def test_the_moment_echoes_zone_and_local_reading():
    moment = parse_moment("04:03", now=NOW, timezone="Europe/Berlin")
    assert (moment.text, moment.timezone, moment.local) == ("04:03", "Europe/Berlin", "2026-11-20T04:03:00+01:00")
    assert moment.millis == 1795143780000


def test_without_a_zone_the_machines_is_meant():
    moment = parse_moment("-1m", now=NOW)
    assert moment.instant == NOW - timedelta(minutes=1)
    assert moment.timezone
    assert datetime.fromisoformat(moment.local) == moment.instant


@pytest.mark.parametrize(
    ("text", "now", "word", "readings"),
    [
        (
            "2026-10-25T02:30",
            "2026-11-20T12:00+00:00",
            "happened twice",
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"],
        ),
        ("02:30", "2026-10-25T12:00+00:00", "happened twice", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
        # Between the two readings only one of them is past; it is refused all the same: two were possible.
        ("02:30", "2026-10-25T01:00+00:00", "happened twice", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
        (
            "2026-03-29T02:30",
            "2026-11-20T12:00+00:00",
            "never happened",
            ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"],
        ),
        ("02:30", "2026-03-29T12:00+00:00", "never happened", ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]),
    ],
)
def test_a_repeated_or_skipped_local_time_is_refused_with_both_readings(text, now, word, readings):
    with pytest.raises(ConfigError) as caught:
        parse_moment(text, now=datetime.fromisoformat(now), timezone="Europe/Berlin")
    assert caught.value.exit_code is ExitCode.USAGE
    assert word in caught.value.what
    for reading in readings:
        assert reading in caught.value.what


def test_a_gap_still_to_come_does_not_hide_yesterdays_time():
    now = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)  # 00:30 on the 29th in Berlin, before the gap
    moment = parse_moment("02:30", now=now, timezone="Europe/Berlin")
    assert moment.instant == datetime(2026, 3, 28, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-11-20T12:00:01Z", "2026-11-21 04:03", "2027-01-01T00:00:00+14:00"])
def test_the_future_is_refused(text):
    with pytest.raises(ConfigError, match="in the future") as caught:
        parse_moment(text, now=NOW, timezone="UTC")
    assert "2026-11-20T12:00:00Z" in str(caught.value)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "04:60", "4", "-", "-2", "-2x", "+2m", "2026-13-01T00:00", "-m"])
def test_what_is_no_time_is_refused_with_the_forms(text):
    with pytest.raises(ConfigError, match="is not a time") as caught:
        parse_moment(text, now=NOW, timezone="UTC")
    assert "04:03" in caught.value.remedy


def test_an_unknown_zone_is_refused():
    with pytest.raises(ConfigError, match="no such time zone"):
        parse_moment("04:03", now=NOW, timezone="Mars/Olympus")


@given(
    at=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - hypothesis adds the zone
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    clock=st.times(),
)
def test_a_bare_time_is_the_most_recent_one_or_refused(at, zone, clock):
    now = at.replace(tzinfo=UTC)
    text = clock.replace(microsecond=0).isoformat()
    try:
        moment = parse_moment(text, now=now, timezone=zone)
    except ConfigError as error:
        assert "happened" in error.what  # noqa: PT017 - either answer is right, each in its case
        return
    assert timedelta(0) <= now - moment.instant <= timedelta(hours=25)
    assert datetime.fromisoformat(moment.local).time().replace(microsecond=0) == clock.replace(microsecond=0)

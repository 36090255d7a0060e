"""Cron expressions mean what cron means by them, not what APScheduler's own reading makes of them."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from drkit.drill.schedule.times import MACROS, next_times, trigger, zone
from drkit.model.errors import ConfigError

UTC = ZoneInfo("UTC")
FRIDAY = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def days(expression, count=4, after=FRIDAY):
    return [f"{at:%a %d %H:%M}" for at in next_times(trigger(expression, UTC), after, count)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 4 * * 0", ["Sun 22 04:00", "Sun 29 04:00"]),
        ("0 4 * * 7", ["Sun 22 04:00", "Sun 29 04:00"]),
        ("0 4 * * 1", ["Mon 23 04:00", "Mon 30 04:00"]),
        ("0 4 * * sun", ["Sun 22 04:00", "Sun 29 04:00"]),
        ("0 4 * * MON-WED", ["Mon 23 04:00", "Tue 24 04:00", "Wed 25 04:00"]),
        ("0 4 * * 1-5/2", ["Mon 23 04:00", "Wed 25 04:00", "Fri 27 04:00", "Mon 30 04:00"]),
        ("0 4 * * fri-sun", ["Sat 21 04:00", "Sun 22 04:00", "Fri 27 04:00"]),
        ("0 4 * * 1,3", ["Mon 23 04:00", "Wed 25 04:00"]),
        ("*/30 12-13 * * *", ["Fri 20 12:00", "Fri 20 12:30", "Fri 20 13:00", "Fri 20 13:30", "Sat 21 12:00"]),
        ("30 4 25 * 1", ["Mon 23 04:30", "Wed 25 04:30", "Mon 30 04:30"]),
        ("30 4 25 * *", ["Wed 25 04:30", "Fri 25 04:30"]),
        ("@weekly", ["Sun 22 00:00"]),
        ("@Daily", ["Sat 21 00:00"]),
    ],
)
def test_it_fires_when_cron_would(expression, expected):
    assert days(expression, len(expected)) == expected


def test_every_macro_is_one():
    for macro, expression in MACROS.items():
        assert days(macro) == days(expression)


def test_it_is_on_the_clock_of_its_zone():
    vienna = zone("Europe/Vienna")
    times = next_times(trigger("30 2 * * *", vienna), datetime(2026, 10, 24, tzinfo=vienna), 3)
    assert [at.utcoffset() for at in times] == [timedelta(hours=2), timedelta(hours=2), timedelta(hours=1)]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "has 0 fields"),
        ("0 4 * *", "has 4 fields"),
        ("0 0 4 * * *", "has 6 fields"),
        ("61 * * * *", "'61' is not a minute"),
        ("0 24 * * *", "'24' is not a hour"),
        ("0 4 32 * *", "'32' is not a day of the month"),
        ("0 4 * 13 *", "'13' is not a month"),
        ("0 4 * * 8", "'8' is not a day of the week"),
        ("0 4 * * someday", "'someday' is not a day of the week"),
        ("0 4 * * mon-xyz", "'xyz' is not a day of the week"),
        ("0 4 * * fri-tue", "runs backwards"),
        ("0 4 30 2 *", "never fires"),
        ("@reboot", "has 1 fields"),
    ],
)
def test_what_cron_would_not_take_is_refused_by_field(expression, said):
    with pytest.raises(ConfigError, match="--cron") as caught:
        trigger(expression, UTC)
    assert said in caught.value.what
    assert "five fields" in caught.value.remedy


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused(name):
    with pytest.raises(ConfigError, match="no time zone"):
        zone(name)


def test_the_machine_has_a_zone():
    assert datetime.now(zone(None)).utcoffset() is not None

"""Calendars: in a blackout no drill begins; what a file says wrongly is named with its entry."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from drkit.drill.schedule.times import Blackouts, read_calendars, trigger
from drkit.model.errors import ConfigError

VIENNA = ZoneInfo("Europe/Vienna")
CALENDAR = """\
[[blackout]]
from = 2026-12-19
until = 2027-01-06
reason = "year-end freeze"

[[blackout]]
from = 2026-11-30T22:00:00
until = 2026-12-01T06:00:00Z
reason = "release night"

[[blackout]]
cron = "0 18 28-31 * *"
hours = 36
reason = "end of the month"
"""


def read(tmp_path, text=CALENDAR):
    file = tmp_path / "calendar.toml"
    file.write_text(text)
    return read_calendars([file], VIENNA)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=VIENNA)


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        ("2026-12-18T23:59:59", None),
        ("2026-12-19T00:00:00", "year-end freeze"),
        ("2027-01-06T23:59:59", "year-end freeze"),
        ("2027-01-07T00:00:00", None),
        ("2027-02-28T17:59:59", None),
        ("2027-02-28T18:00:00", "end of the month"),
        ("2027-03-02T05:59:59", "end of the month"),
        ("2027-03-02T06:00:00", None),
        ("2026-12-01T06:59:59", "end of the month"),
    ],
)
def test_a_moment_lies_in_a_blackout_or_not(tmp_path, moment, reason):
    found = read(tmp_path).covering(at(moment))
    assert (None if found is None else found.reason) == reason


def test_the_zone_is_the_schedules_and_an_offset_is_its_own(tmp_path):
    found = read(tmp_path, CALENDAR.replace("0 18 28-31", "0 18 1")).covering(at("2026-11-30T22:00:00"))
    assert (found.begins, found.ends) == (
        datetime(2026, 11, 30, 21, 0, tzinfo=UTC),
        datetime(2026, 12, 1, 6, 0, tzinfo=UTC),
    )


def test_of_several_blackouts_the_one_that_ends_last_is_told(tmp_path):
    found = read(tmp_path).covering(at("2026-12-29T03:00:00"))
    assert found.reason == "year-end freeze"
    assert read(tmp_path).covering(at("2026-12-30T20:00:00")).ends == datetime(2027, 1, 6, 23, 0, tzinfo=UTC)


def test_hours_are_hours_when_the_clock_is_changed(tmp_path):
    """On 28 March 2027 the clock in Vienna continues by an hour at 02:00."""
    calendar = read(tmp_path, '[[blackout]]\ncron = "0 1 28 3 *"\nhours = 2\nreason = "r"\n')
    assert calendar.covering(datetime(2027, 3, 28, 1, 59, tzinfo=UTC)).reason == "r"
    assert calendar.covering(datetime(2027, 3, 28, 2, 0, tzinfo=UTC)) is None


def test_coming_times_are_those_outside(tmp_path):
    monday = trigger("0 4 * * 1", VIENNA)
    days = [each.strftime("%d.%m.") for each in read(tmp_path).outside(monday, at("2026-12-01T12:00:00"), 4)]
    assert days == ["07.12.", "14.12.", "11.01.", "18.01."]
    days = [each.strftime("%d.%m.") for each in Blackouts().outside(monday, at("2026-12-01T12:00:00"), 4)]
    assert days == ["07.12.", "14.12.", "21.12.", "28.12."]


def test_where_all_is_blacked_out_there_are_none(tmp_path):
    always = read(tmp_path, '[[blackout]]\ncron = "0 * * * *"\nhours = 1\nreason = "never"\n')
    assert always.outside(trigger("@monthly", VIENNA), at("2026-12-01T12:00:00"), 1) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("until = 2027-01-06\n", "", "blackout 1: it has from, reason"),
        ("until = 2027-01-06", "until = 2026-12-18", "blackout 1: it ends (2026-12-18) before it begins (2026-12-19)"),
        ("until = 2027-01-06", 'until = "soon"', "blackout 1: `until` is 'soon', neither a date"),
        ('reason = "release night"', 'reason = " "', "blackout 2: `reason` is empty"),
        ("hours = 36", "hours = 0", "blackout 3: `hours` is 0"),
        ("hours = 36", "hours = true", "blackout 3: `hours` is True"),
        ('cron = "0 18 28-31 * *"', 'cron = "0 25 * * *"', "blackout 3: --cron: '25' is not a hour"),
        ("hours = 36", "hours = 36\nuntil = 2027-01-01", "blackout 3: it has cron, hours, reason, until"),
        ("[[blackout]]\nfrom = 2026-12-19", "[[freeze]]\nfrom = 2026-12-19", "has freeze"),
        ('reason = "release night"', "reason = ", "can't be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, before, after, said):
    assert before in CALENDAR
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, CALENDAR.replace(before, after, 1))
    assert str(tmp_path / "calendar.toml") in caught.value.what
    assert said in caught.value.what


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml can't be read"):
        read_calendars([tmp_path / "none.toml"], VIENNA)
    with pytest.raises(ConfigError, match=r"has no \[\[blackout\]\]"):
        read(tmp_path, "")

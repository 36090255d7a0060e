"""The mirror's watermarks as a Spark stream of closed ranges (Python Data Source API, `drkit-watermarks`).

The stream's offsets are how far each partition is mirrored:
`{"at": ms, "through": {"epoch/partition/topic source-topic-id target-topic-id": offset}}`; the ids are missing where
they are unknown. Epochs alone would not do: a topic whose record was forgotten begins with epoch 1 again. Where a
mirror went back, `most` has by the same names how far it had been: up to there, ranges are closed `again`.
Spark keeps them in its checkpoint before a batch runs, so a batch that was cut short is run again with the same ranges.
A row is a range that was closed between two such offsets. The range of a partition (or incarnation) that is new is
`opening` and begins at offset 0, whatever the logs still hold: `begin` in `closed_ranges.py` looks at that.

Spark plans a stream in a process of its own, which opens the store by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from drkit.model.audit.audit_result import TopicChoice
from drkit.model.audit.continuous_audit import ClosedRange
from drkit.model.clock import now, to_millis
from drkit.model.errors import DrkitError
from drkit.model.link_state import TopicState
from drkit.model.topology import LinkId, is_canary
from drkit.store import open_store
from drkit.store.api import Store

WATERMARKS = "drkit-watermarks"
_STORE, _LINK, _WANTED, _FROM_NOW = "secret_store", "link", "wanted", "from_now"
CLOSED_ROW = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("epoch", IntegerType()),
        StructField("first", LongType()),
        StructField("until", LongType()),
        StructField("closed_ms", LongType()),
        StructField("opening", BooleanType()),
        StructField("incarnation", StringType()),
        StructField("again", BooleanType()),
    ]
)
"""As `ClosedRange`."""

Position = Mapping[str, Any]
"""An offset of the stream."""


def closed_ranges(
    spark: SparkSession, store_url: str, link: LinkId, wanted: Sequence[str], *, from_now: bool
) -> DataFrame:
    """The stream.

    Args:
        spark: where it runs.
        store_url: the store; it may hold a password, and is redacted.
        link: whose watermarks.
        wanted: what `TopicChoice` reads; empty: all.
        from_now: a new stream begins at what is mirrored now, not at the beginning.
    """
    spark.dataSource.register(WatermarkStream)
    options = {
        _STORE: from_anywhere(store_url),
        _LINK: str(link),
        _WANTED: json.dumps(list(wanted)),
        _FROM_NOW: "1" if from_now else "",
    }
    return spark.readStream.format(WATERMARKS).options(**options).load()


def from_anywhere(store_url: str) -> str:
    """The store's URL as it is understood in any folder: Spark's processes run in others."""
    location, mark, query = store_url.partition("?")
    path = location.removeprefix("sqlite:///")
    return store_url if path == location else f"sqlite:///{Path(path).resolve()}{mark}{query}"


def between(start: Position, end: Position) -> list[ClosedRange]:
    """The ranges closed between two offsets of the stream, by topic and partition. Pure."""
    before, most, at = start.get("through", {}), start.get("most", {}), int(end["at"])
    found = []
    for name, until in end["through"].items():
        place, _, incarnation = name.partition(" ")
        epoch, partition, topic = place.split("/", 2)
        first = before.get(name, before.get(place, 0))
        if first < until:
            opens, again = first == 0, first < most.get(name, most.get(place, 0))
            found.append(ClosedRange(topic, int(partition), int(epoch), first, until, at, opens, incarnation, again))
    return sorted(found)


def position(throughs: Mapping[tuple[str, int, int, str], int], at: int, last: Position | None) -> Position:
    """The stream's offset for what is mirrored: by topic, partition, epoch and incarnation. Pure.

    `last` stays where nothing moved on, so that no batch is made of it. Where a mirror went
    back, it copies again from there: that is closed again first, alone. A partition of which nothing is recorded any
    more is forgotten, and what is recorded under its name later is new. Where the incarnation is unknown, it is the one
    that was known of that epoch.
    """
    before = {} if last is None else last["through"]
    farthest = {} if last is None else last.get("most", {})
    places = {name.partition(" ")[0]: name for name in before}
    known: dict[str, int] = {}
    most: dict[str, int] = {}
    for (topic, partition, epoch, incarnation), through in throughs.items():
        place = f"{epoch}/{partition}/{topic}"
        name = f"{place} {incarnation}" if incarnation else places.get(place, place)
        been = before.get(name, before.get(place, 0))
        end = max(been, farthest.get(name, farthest.get(place, 0)))
        known[name] = min(through, end) if been < end else through
        if known[name] < end:
            most[name] = end
    if last is not None and known == before:
        return last
    return {"at": at, "through": dict(sorted(known.items()))} | ({"most": dict(sorted(most.items()))} if most else {})


class _RangePartition(InputPartition):
    """ClosedRange ranges as tuples."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        super().__init__(None)
        self.rows = rows


class WatermarkReader(DataSourceStreamReader):
    """Reads the watermarks, in the process that plans.

    Spark asks a new stream for `latestOffset`, then for `initialOffset`. Where a stream continues, what it asks the new
    reader first is the `partitions` between the newest offset of the checkpoint and that same one: so it tells what was
    seen last, and the next offset is counted from that.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url = options[_STORE]
        self._link = LinkId.parse(options[_LINK])
        self._wanted = [TopicChoice.parse(text) for text in json.loads(options[_WANTED])]
        self._from_now = bool(options.get(_FROM_NOW))
        self._store: Store | None = None
        self._last: Position | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins."""
        return dict(self._last or self._look()) if self._from_now else {"at": 0, "through": {}}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """What is mirrored now; what was seen last while the store doesn't answer."""
        try:
            self._last = self._look()
        except DrkitError:
            self._forget_store()
            if self._last is None:
                raise
        return dict(self._last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task with the ranges between two offsets."""
        if self._last is None or self._last["at"] < end["at"]:  # where the stream continues
            self._last = end
        rows = [tuple(each) for each in between(start, end)]
        return [_RangePartition(rows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The task's rows."""
        assert isinstance(partition, _RangePartition)  # noqa: S101 - those that `partitions` made
        return iter(partition.rows)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done; the next offset is counted from its end."""
        if self._last is None:
            self._last = end

    def stop(self) -> None:
        """The stream ends."""
        self._forget_store()

    def _look(self) -> Position:
        if self._store is None:
            self._store = open_store(self._url, create=False)
        while True:  # a watermark is of the incarnation that was on record before it was read and after
            states = self._store.topic_states(self._link)
            marks = self._store.watermarks(self._link).values()
            if _incarnations(states) == _incarnations(self._store.topic_states(self._link)):
                break
        known = _incarnations(states)
        throughs = {
            (mark.topic, mark.partition, mark.epoch, known.get((mark.topic, mark.epoch), "")): mark.source_through
            for mark in marks
            if not is_canary(mark.topic)
            and (not self._wanted or any(each.covers(mark.topic, mark.partition) for each in self._wanted))
        }
        return position(throughs, to_millis(now()), self._last)

    def _forget_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _incarnations(states: Mapping[str, TopicState]) -> dict[tuple[str, int], str]:
    return {(name, state.epoch): state.incarnation for name, state in states.items()}


class WatermarkStream(DataSource):
    """`drkit-watermarks`."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return WATERMARKS

    def schema(self) -> StructType:
        """Its rows."""
        return CLOSED_ROW

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's name; one schema
        """Plans and reads."""
        return WatermarkReader(self.options)

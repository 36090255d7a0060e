"""Checks declared foreign keys between topics: child records on the target whose parent is missing.

A mirror keeps order within partitions, not between topics, so after a failover line items may exist whose orders had
not arrived. A parent exists if any record of its key is on the log, whatever came later, but a tombstone alone doesn't
count. The source is read in the same way: an orphan there, too, was never complete. What can't be read of either topic
is neither child nor parent, and named: whoever has a parent there seems an orphan.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from drkit.audit.compare.first_pass import within
from drkit.audit.compare.record_frames import ScopeReader, keep
from drkit.audit.compare.scope import Scope, observe_scope
from drkit.audit.spark.session import SparkRuntime, spark_session
from drkit.config import Config
from drkit.config.schema.base import named_callable
from drkit.config.schema.config import RECORD_KEY, ForeignKeyConfig
from drkit.model.audit.audit_result import AuditRequest, ForeignKeyAudit, Orphan, TopicChoice
from drkit.model.clock import date_of, to_millis
from drkit.model.offsets import merged_ranges
from drkit.store.api import Store

_SHOWN = 100
_WHERE = "where drkit and Spark's workers run"


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Children and parents of one side, and a row for each stretch that can't be read: `p`, `offset`, `ts`, `parent`,
    `unreadable_until`; and `parent`, `unread`, distinct, kept. Either `parent` or the other is null, or both."""

    children: DataFrame
    parents: DataFrame

    def without_parents(self) -> DataFrame:
        """The children that have none, and the stretches of children that can't be read; kept."""
        asked = self.children.where("parent is not null or unreadable_until is not null")
        return keep(asked.join(self.parents.where("parent is not null").select("parent"), "parent", "left_anti"))


def concerned(request: AuditRequest, config: Config) -> list[ForeignKeyConfig]:
    """The foreign keys that an audit checks: both topics are the link's, and the child was asked for."""
    return [
        each
        for each in config.foreign_keys
        if request.link.covers_topic(each.child)
        and request.link.covers_topic(each.parent)
        and (not request.topics or any(choice.names(each.child) for choice in request.topics))
    ]


def check_decoders(foreign_keys: Sequence[ForeignKeyConfig]) -> None:
    """See that every decoder is there, before anything is read.

    Raises:
        ConfigError: one can't be imported, or is no function.
    """
    for foreign_key in foreign_keys:
        for key in ("decoder", "parent_decoder"):
            name: str | None = getattr(foreign_key, key)
            if name is not None:
                named_callable(name, f"foreign_keys.{key} of {foreign_key.child}", _WHERE)


def audit_foreign_key(
    foreign_key: ForeignKeyConfig, request: AuditRequest, store: Store, config: Config, spark: SparkRuntime
) -> ForeignKeyAudit:
    """Find the orphans of one foreign key. Reads both topics on both sides.

    Raises:
        ConfigError: one of the topics exists on neither side.
        Unreachable: a cluster or the store doesn't answer.
    """
    both = (TopicChoice(foreign_key.child), TopicChoice(foreign_key.parent))
    scope = observe_scope(replace(request, topics=both, since=None, until=None), store, config)
    reader = ScopeReader(spark_session(spark), scope)
    window = _window(request, reader)
    target = _keyed(reader, foreign_key, window, of_source=False)
    source = _keyed(reader, foreign_key, window, of_source=True)
    alone, alone_there = target.without_parents(), source.without_parents()
    unread = (
        *_unread(scope, target, alone, of_source=False),
        *_unread(scope, source, alone_there, of_source=True),
    )
    orphans, elsewhere = (each.where("unreadable_until is null") for each in (alone, alone_there))
    counted = (
        target.children.where("unreadable_until is null")
        .agg(F.count("parent").alias("children"), F.count("*").alias("all"))
        .first()
    )
    same = elsewhere.select("parent").distinct().withColumn("there", F.lit(True))
    marked = orphans.join(same, "parent", "left").withColumn("there", F.coalesce("there", F.lit(False)))
    sums = marked.groupBy("there").count().collect()
    by_side = {row["there"]: row["count"] for row in sums}
    numbers = {each.number: each.partition for each in scope.partitions}
    first = marked.orderBy("there", "p", "offset").limit(_SHOWN).collect()
    children = 0 if counted is None else counted["children"]
    return ForeignKeyAudit(
        child=foreign_key.child,
        parent=foreign_key.parent,
        key=foreign_key.key,
        parent_key=foreign_key.parent_key,
        children=children,
        keyless=0 if counted is None else counted["all"] - children,
        orphans=sum(by_side.values()),
        orphans_on_source=elsewhere.count(),
        brought=by_side.get(False, 0),
        first=tuple(
            Orphan(numbers[row["p"]], row["offset"], row["parent"], date_of(row["ts"]), row["there"]) for row in first
        ),
        unread=unread,
    )


def _unread(scope: Scope, side: _Keyed, alone: DataFrame, *, of_source: bool) -> Iterator[str]:
    """What can't be read of both topics on one side, in words."""
    stretches: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in alone.where("unreadable_until is not null").collect():
        stretches[row["p"]].append((row["offset"], row["unreadable_until"]))
    for (row,) in side.parents.where("unread is not null").select("unread").collect():
        stretches[row["p"]].append((row["offset"], row["unreadable_until"]))
    alias = scope.link.id.source if of_source else scope.link.id.target
    for each in scope.partitions:
        name = f"{each.topic if of_source else each.target_topic}:{each.partition} on {alias}"
        for first, until in merged_ranges(stretches[each.number]):
            yield f"{name} can't be read from offset {first} to {until - 1}"
        hidden = each.source_hidden if of_source else each.hidden
        if hidden.begin < hidden.end:
            yield f"a transaction is open on {name} at offset {hidden.begin}: what stands behind it can't be read yet"


def _window(request: AuditRequest, reader: ScopeReader) -> Column:
    """Whether a child is within the audit's time window. Parents are looked for in all of their logs."""
    scope = replace(
        reader.scope,
        since_ms=None if request.since is None else to_millis(request.since),
        until_ms=None if request.until is None else to_millis(request.until),
    )
    return within(scope, F.col("ts"))


def _keyed(reader: ScopeReader, foreign_key: ForeignKeyConfig, window: Column, *, of_source: bool) -> _Keyed:
    ranges: dict[str, dict[int, tuple[int, int]]] = {foreign_key.child: {}, foreign_key.parent: {}}
    for each in reader.scope.partitions:
        bounds = (each.source_from, each.source_end) if of_source else (each.target_from, each.target_end)
        ranges[each.topic][each.number] = bounds
    read = partial(reader.source_records, unreadable=True) if of_source else reader.target_records
    readable, whole = F.col("unreadable_until").isNull(), F.col("value").isNotNull()
    children = read(ranges[foreign_key.child]).select(
        "p",
        "offset",
        F.col("stamp").alias("ts"),
        _key(foreign_key.key, foreign_key.decoder).alias("parent"),
        whole.alias("whole"),
        "unreadable_until",
    )
    parents = read(ranges[foreign_key.parent]).where(whole | ~readable)
    found = parents.select(
        F.when(readable, _key(foreign_key.parent_key, foreign_key.parent_decoder)).alias("parent"),
        F.when(~readable, F.struct("p", "offset", "unreadable_until")).alias("unread"),
    )
    return _Keyed(children.where(~readable | (F.col("whole") & window)).drop("whole"), keep(found.distinct()))


def _key(place: str, decoder: str | None) -> Column:
    """A parent's key, as text: JSON numbers and strings of equal text are equal."""
    if place == RECORD_KEY:
        return F.col("key").cast("string")
    if decoder is None:
        return F.get_json_object(F.col("value").cast("string"), place)
    return F.get_json_object(F.udf(_decoding(decoder), "string")(F.col("value")), place)


def _decoding(name: str) -> Callable[[bytes | None], str | None]:
    def decode(value: bytes | None) -> str | None:
        if value is None:
            return None
        found = named_callable(name, "foreign_keys.decoder", _WHERE)(bytes(value))
        return None if found is None else json.dumps(found, default=str)

    return decode

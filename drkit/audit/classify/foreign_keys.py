"""Checks declared foreign keys between topics: child records on the target whose parent is missing.

A mirror keeps order within partitions, not between topics, so after a failover line items may exist whose orders had
not arrived. A parent exists if any record of its key is on the log, whatever came later, but a tombstone alone doesn't
count. The source is read in the same way: an orphan there, too, was never complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from drkit.audit.compare.first_pass import within
from drkit.audit.compare.scope import observe_scope
from drkit.audit.read.record_frames import ScopeReader, keep
from drkit.audit.spark.session import SparkRuntime, spark_session
from drkit.config import Config
from drkit.config.schema.base import named_callable
from drkit.config.schema.config import RECORD_KEY, ForeignKeyConfig
from drkit.model.audit.audit_result import AuditRequest, ForeignKeyAudit, Orphan, TopicChoice
from drkit.model.clock import date_of, to_millis
from drkit.store.api import Store

_SHOWN = 100
_WHERE = "where drkit and Spark's workers run"


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Children and parents of one side: `p`, `offset`, `ts`, `parent`; and `parent`, distinct."""

    children: DataFrame
    parents: DataFrame


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
    orphans = keep(target.children.where("parent is not null").join(target.parents, "parent", "left_anti"))
    elsewhere = keep(source.children.where("parent is not null").join(source.parents, "parent", "left_anti"))
    counted = target.children.agg(F.count("parent").alias("children"), F.count("*").alias("all")).first()
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
    )


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
    read = reader.source_records if of_source else reader.target_records
    children = read(ranges[foreign_key.child]).select(
        "p",
        "offset",
        F.col("stamp").alias("ts"),
        _key(foreign_key.key, foreign_key.decoder).alias("parent"),
        F.col("value").isNotNull().alias("whole"),
    )
    parents = read(ranges[foreign_key.parent]).where("value is not null")
    found = parents.select(_key(foreign_key.parent_key, foreign_key.parent_decoder).alias("parent"))
    return _Keyed(children.where("whole").where(window).drop("whole"), found.where("parent is not null").distinct())


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

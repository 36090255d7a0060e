"""Salvage: what only the source side holds, kept before anything is destroyed.

The records are those that the audit calls unseen, lost or corrupted (the source's version of these). They
are written twice, and never over an earlier salvage:

    DIR/manifest.json        what, from where, how many, and the SHA-256 of every file
    DIR/records.parquet/     all fields, types kept
    DIR/replay/*.json.gz     one JSON object a line, keys and values in base64 (docs/audit.md)

Everything is written beside DIR first, counted and hashed from what is on the disk, and only then renamed
to DIR: a salvage that is there is whole.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from drkit import __version__
from drkit.audit.failures import in_words
from drkit.audit.reading import date_column, keep
from drkit.audit.replay import FORMAT, MANIFEST, PARQUET, sha256_of
from drkit.audit.run import Judged, judged
from drkit.audit.session import SparkRuntime
from drkit.audit.standing import with_standing
from drkit.audit.watch import Progress, Tasks, watching
from drkit.config import Config
from drkit.kafka.admin import ClusterAdmin
from drkit.model.audit import AuditRequest, FindingKind, SalvageResult, Standing
from drkit.model.clock import iso
from drkit.model.errors import DrkitError, Refused
from drkit.model.topology import TopicPartition
from drkit.store.api import Store

KINDS = (FindingKind.UNSEEN, FindingKind.LOST, FindingKind.CORRUPTED)
"""What is salvaged."""

REPLAY = "replay"
_RECORDS_A_FILE = 1_000_000


def salvage(
    request: AuditRequest,
    store: Store,
    config: Config,
    spark: SparkRuntime,
    *,
    beyond: Mapping[TopicPartition, int] | None = None,
    progress: Progress | None = None,
    tasks: Tasks | None = None,
) -> SalvageResult:
    """Keep what only the source holds.

    Args:
        request: the link, topics and time window; `out` is the folder to make.
        store: the link's mapping rows and watermarks.
        config: both clusters.
        spark: what to run on.
        beyond: by source partition, an offset from which on everything is kept, whatever the target holds.
        progress: told what is being done.
        tasks: told Spark's tasks done and in all, a few times a second.

    Raises:
        Refused: `out` holds something already, or a cluster denies access.
        DrkitError: what was written is not what was to be kept. Nothing is left in `out` then.
        Unreachable: a cluster or the store doesn't answer.
    """
    say = progress or (lambda _: None)
    folder = _free_folder(request.out)
    found = judged(request, store, config, spark, "the salvage", say, tasks)
    say("writing what only the source holds")
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        with in_words("the salvage"), watching(found.reader.spark, tasks):
            wanted = _wanted(found, beyond or {})
            counts = _counts(found, wanted)
            say("comparing them with what the target holds")
            standings = _write(found, wanted, counts, staging)
        facts = _facts(request, found, counts, standings, config)
        manifest = _checked_manifest(staging, facts, sum(counts.values()))
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        _sync(staging)
        staging.rename(folder)
        _sync_one(folder.parent)
    except OSError as error:
        raise DrkitError(
            f"the salvage can't be written to {folder}: {error.strerror or error}",
            meaning="Nothing was kept",
            remedy="Give another --out, on a disk with room",
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    kinds = dict.fromkeys(KINDS, 0)
    for (_, kind), records in counts.items():
        kinds[kind] += records
    return SalvageResult(
        link=request.link.id,
        path=str(folder),
        manifest=str(folder / MANIFEST),
        records=kinds,
        standings=standings,
        through=facts.through,
        uncommitted=facts.uncommitted,
        observed_at=found.reader.scope.observed_at,
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the manifest says besides the files."""

    head: Mapping[str, Any]
    through: dict[str, int]
    uncommitted: dict[str, int]
    counts: Mapping[tuple[str, FindingKind], int]
    standings: Mapping[Standing, int]


def _free_folder(out: str) -> Path:
    folder = Path(out).expanduser().resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Refused(
                f"{folder} is there already and is not empty",
                meaning="A salvage never overwrites anything",
                remedy="Give another --out",
            )
    except OSError as error:
        raise DrkitError(f"{folder} can't be used: {error.strerror or error}", remedy="Give another --out") from error
    return folder


def _wanted(found: Judged, beyond: Mapping[TopicPartition, int]) -> DataFrame:
    """`p`, `s`, `kind` of the records to keep."""
    reader, fates = found.reader, found.judgement.fates
    wanted = reader.spark.createDataFrame([], "p int, s long, kind string")
    if fates is not None:
        chosen = fates.where(F.col("fate").isin([kind.value for kind in KINDS]))
        wanted = keep(chosen.select("p", "s", F.col("fate").alias("kind")))
    ranges = {
        each.number: (beyond[TopicPartition(each.topic, each.partition)], each.source_end)
        for each in reader.scope.partitions
        if TopicPartition(each.topic, each.partition) in beyond
    }
    if not ranges:
        return wanted
    others = reader.source(ranges).select("p", "s").join(wanted.select("p", "s"), ["p", "s"], "left_anti")
    return keep(wanted.unionByName(others.withColumn("kind", F.lit(FindingKind.UNSEEN.value))))


def _counts(found: Judged, wanted: DataFrame) -> dict[tuple[str, FindingKind], int]:
    """How many of each kind, by `topic:partition`."""
    names = {each.number: f"{each.topic}:{each.partition}" for each in found.reader.scope.partitions}
    rows = wanted.groupBy("p", "kind").count().collect()
    return {(names[row["p"]], FindingKind(row["kind"])): row["count"] for row in rows}


def _write(
    found: Judged, wanted: DataFrame, counts: Mapping[tuple[str, FindingKind], int], staging: Path
) -> dict[Standing, int]:
    """Write the records; returns how many stand how to the target."""
    bounds = wanted.groupBy("p").agg(F.min("s").alias("low"), F.max("s").alias("high")).collect()
    ranges = {row["p"]: (row["low"], row["high"] + 1) for row in bounds}
    files = max(1, -(-sum(counts.values()) // _RECORDS_A_FILE))
    records = keep(
        found.reader.source_records(ranges)
        .join(with_standing(found.reader, wanted, ranges), ["p", "s"])
        .select(
            "topic",
            "partition",
            "offset",
            "kind",
            "standing",
            date_column("stamp").alias("timestamp"),
            F.col("stamp").alias("timestamp_ms"),
            F.when(F.col("append_time"), F.lit("LogAppendTime")).otherwise(F.lit("CreateTime")).alias("timestamp_type"),
            "key",
            "value",
            F.transform(
                F.coalesce("headers", F.array().cast("array<struct<key:binary,value:binary>>")),
                lambda each: F.struct(F.make_valid_utf8(each["key"].cast("string")).alias("key"), each["value"]),
            ).alias("headers"),
        )
        .repartition(files, "topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )
    records.write.parquet(str(staging / PARQUET))
    replay = records.select(
        "topic",
        "partition",
        "offset",
        "kind",
        "standing",
        "timestamp_ms",
        "timestamp_type",
        _base64("key"),
        _base64("value"),
        F.transform(
            "headers", lambda each: F.struct(each["key"].alias("key"), _plain_base64(each["value"]).alias("value"))
        ).alias("headers"),
    )
    replay.write.option("ignoreNullFields", "false").json(str(staging / REPLAY), compression="gzip")
    stand = {row["standing"]: row["count"] for row in records.groupBy("standing").count().collect()}
    return {standing: stand.get(standing.value, 0) for standing in Standing}


def _base64(name: str) -> Column:
    return _plain_base64(F.col(name)).alias(name)


def _plain_base64(column: Column) -> Column:
    """Base64 without the line breaks that Spark's own puts in."""
    return F.regexp_replace(F.base64(column), "\\s", "")


def _facts(
    request: AuditRequest,
    found: Judged,
    counts: Mapping[tuple[str, FindingKind], int],
    standings: Mapping[Standing, int],
    config: Config,
) -> _Facts:
    link, scope = request.link.id, found.reader.scope
    tps = {TopicPartition(each.topic, each.partition): each for each in scope.partitions}
    with ClusterAdmin(link.source, config.clusters[link.source]) as admin:
        source_id = admin.cluster_id()
        written = admin.end_offsets(tps, committed=False)
    with ClusterAdmin(link.target, config.clusters[link.target]) as admin:
        target_id = admin.cluster_id()
    head = {
        "format": FORMAT,
        "drkit": __version__,
        "source": link.source,
        "source_cluster_id": source_id,
        "target": link.target,
        "target_cluster_id": target_id,
        "observed_at": iso(scope.observed_at),
        "since": iso(request.since),
        "until": iso(request.until),
    }
    through = {str(tp): each.source_end for tp, each in tps.items()}
    uncommitted = {str(tp): written[tp] for tp, each in tps.items() if written.get(tp, 0) > each.source_end}
    return _Facts(head, through, uncommitted, counts, standings)


def _checked_manifest(staging: Path, facts: _Facts, expected: int) -> dict[str, Any]:
    """The manifest, from what is on the disk; raises DrkitError where that isn't what was to be kept."""
    files = []
    in_parquet = in_replay = 0
    for path in sorted(each for each in staging.rglob("*") if each.is_file()):
        if path.name.startswith((".", "_")):
            path.unlink()  # Spark's own marks and checksums: the manifest has better ones
            continue
        if path.suffix == ".parquet":
            records = pq.read_metadata(path).num_rows
            in_parquet += records
        else:
            with gzip.open(path, "rb") as lines:
                records = sum(1 for _ in lines)
            in_replay += records
        files.append(
            {
                "path": path.relative_to(staging).as_posix(),
                "bytes": path.stat().st_size,
                "records": records,
                "sha256": sha256_of(path),
            }
        )
    if not in_parquet == in_replay == expected:
        raise DrkitError(
            f"{expected} records were to be kept, and {in_parquet} (Parquet) and {in_replay} (replay) were written",
            meaning="Records went away while they were read, or the disk lost some; nothing was kept",
            remedy="Run it again",
        )
    by_kind = {kind.value: sum(n for (_, each), n in facts.counts.items() if each is kind) for kind in KINDS}
    partitions = [
        {
            "topic": name.rpartition(":")[0],
            "partition": int(name.rpartition(":")[2]),
            "through": end,
            "uncommitted_end": facts.uncommitted.get(name),
            "records": {kind.value: facts.counts.get((name, kind), 0) for kind in KINDS},
        }
        for name, end in facts.through.items()
    ]
    standings = {standing.value: number for standing, number in facts.standings.items()}
    return {**facts.head, "records": by_kind, "standings": standings, "partitions": partitions, "files": files}


def _sync(folder: Path) -> None:
    """Bring all of a folder onto the disk: what relies on a salvage destroys the original."""
    for path in sorted(folder.rglob("*"), reverse=True):
        _sync_one(path)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems can't sync a folder; its files are synced one by one
            os.fsync(handle)
    finally:
        os.close(handle)

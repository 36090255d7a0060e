"""Salvage: keeps what only the source side holds, before anything is destroyed.

It keeps all source records that the target's log doesn't hold now, for any reason: the mirror had not reached them
(`unseen`), they were lost, altered (`corrupted`, the source's version), or the target's own retention, compaction or
DeleteRecords removed them (`retired`). Both logs are compared; the mirror's records only name the reason. Records are
written twice, and never over an earlier salvage:

    DIR/manifest.json        what, from where, how many, and the SHA-256 of every file
    DIR/records.parquet/     all fields, types kept
    DIR/replay/*.json.gz     one JSON object a line, keys and values in base64 (docs/audit.md)
    DIR/positions.json       committed offsets that are kept with the records, if any were given

Everything is first written beside DIR, then counted and hashed from disk, and only then renamed to DIR: so an existing
salvage is complete.

Each record is classified against the current target: new key, conflicting key, identical. It is `new` only if no record
of its key on the target is, or may be, later: neither after its own place, nor among records from others (the target's
own producers after a failover, a recreated topic, foreign records). A replay would overwrite any such record for
consumers that keep the last value of a key.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from drkit import __version__
from drkit.audit.classify.classifier import TARGET_HIDDEN, TARGET_RETIRED, TARGET_UNPROVEN
from drkit.audit.compare.offset_zones import FOREVER, place
from drkit.audit.compare.record_frames import ScopeReader, date_column, keep
from drkit.audit.compare.scope import NOTHING_HIDDEN, PartitionScope, Scope
from drkit.audit.run import ClassifiedScope, judged, refuse_altered
from drkit.audit.salvage.salvage_folder import FORMAT, MANIFEST, PARQUET, POSITIONS
from drkit.audit.spark.failures import in_words
from drkit.audit.spark.session import Progress, SparkRuntime, Tasks, described, make_folder, watching
from drkit.config import Config
from drkit.files import sha256_of
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import OffsetRange
from drkit.lag.diverged_logs import last_batches
from drkit.model.audit.audit_result import AuditRequest, FindingKind, SalvageClass, SalvageKind, SalvageResult
from drkit.model.clock import iso
from drkit.model.errors import DrkitError, FolderUnusable, Refused
from drkit.model.topology import TopicPartition
from drkit.store.api import Store

_FEW = 100_000
_RECORDS_A_FILE = 1_000_000


def with_target_ends_now(scope: Scope, config: Config) -> Scope:
    """The scope read on to where the target's logs end now: its producers wrote while both sides were compared."""
    link = scope.link.id
    with ClusterAdmin(link.target, config.clusters[link.target]) as admin:
        found = admin.topics(sorted({each.target_topic for each in scope.partitions}))
        tps = [TopicPartition(name, number) for name, info in found.items() for number in range(info.partitions)]
        watermarks = admin.end_offsets(tps, committed=False)  # first: they only rise
        ends = admin.end_offsets(tps, committed=True)

    def now_of(each: PartitionScope) -> PartitionScope:
        tp = TopicPartition(each.target_topic, each.partition)
        if tp not in ends or found[tp.topic].topic_id != each.target_id:
            return each
        end, watermark = ends[tp], watermarks.get(tp, 0)
        hidden = OffsetRange(end, watermark) if end < watermark else NOTHING_HIDDEN
        return replace(each, target_end=max(each.target_end, end), hidden=hidden)

    return replace(scope, partitions=tuple(map(now_of, scope.partitions)))


def with_standing(
    found: ClassifiedScope, records: DataFrame, ranges: Mapping[int, tuple[int, int]], size: SalvageSize
) -> DataFrame:
    """`p`, `s` and `standing` of the records to keep.

    Reads the target from the first place of each partition's range on, or from where others wrote.

    Args:
        found: both sides, judged; the scope's target ends may lie beyond those that were judged.
        records: rows of `ScopeReader.source_records` with their `kind`, kept.
        ranges: by partition number, the source offsets [from, until) that hold them.
        size: how many they are.
    """
    reader = found.reader
    others = {each.number: _others_from(each, found) for each in reader.scope.partitions}
    bounds = {}
    for each in reader.scope.partitions:
        if each.number in ranges:
            first = place(each.zones, ranges[each.number][0]) if each.zones else each.target_start
            low = max(each.target_start, min(first, others[each.number]))
            if low < each.target_end:
                bounds[each.number] = (low, each.target_end)
    behind = sorted((each.number, each.hidden.end - 1) for each in reader.scope.partitions if any(each.hidden))
    if not bounds and not behind:
        return records.select("p", "s", F.lit(SalvageClass.NEW.value).alias("standing"))
    there = size.together(_of_these(reader.target_records(bounds), records, size))
    hidden = there.groupBy("p").agg((F.max("unreadable_until") - 1).alias("hidden_at"))
    if behind:
        both = hidden.unionByName(reader.frame({"p": pa.int32(), "hidden_at": pa.int64()}, behind))
        hidden = both.groupBy("p").agg(F.max("hidden_at").alias("hidden_at"))
    target = there.where("unreadable_until is null")
    equal = target.groupBy("p", "h1", "h2").agg(F.max("t").alias("equal_at"))
    keyed = target.where("key is not null").groupBy("p", "key").agg(F.max("t").alias("key_at"))
    # an altered record's own place holds what it was altered to
    begins = F.coalesce("e", F.lit(0)) + F.when(F.col("kind") == SalvageKind.CORRUPTED.value, 1).otherwise(0)
    return (
        records.select("p", "s", "key", "h1", "h2", begins.alias("begins"))
        .join(size.beside(equal), ["p", "h1", "h2"], "left")
        .join(size.beside(keyed), ["p", "key"], "left")
        .join(_strange_keys(found), ["p", "key"], "left")
        .join(F.broadcast(hidden), "p", "left")
        .join(F.broadcast(_limits(reader, others)), "p")
        .select(
            "p",
            "s",
            F.when(F.col("equal_at").isNotNull(), SalvageClass.IDENTICAL.value)
            .when(_later() | F.col("strange").isNotNull(), SalvageClass.CONFLICTING.value)
            .otherwise(SalvageClass.NEW.value)
            .alias("standing"),
        )
    )


def _of_these(target: DataFrame, records: DataFrame, size: SalvageSize) -> DataFrame:
    """Rows of the target that bear on these records, kept: of their keys, or equal where they have none; and what can't
    be read, which may be either."""
    keyless = F.col("key").isNull()
    mark = F.coalesce("key", F.concat_ws(" ", "h1", "h2").cast("binary"))
    marks = size.together(records.select("p", keyless.alias("keyless"), mark.alias("mark"))).distinct()
    rows = target.select("p", "t", "key", "h1", "h2", "unreadable_until", keyless.alias("keyless"), mark.alias("mark"))
    marked = rows.join(size.beside(marks.withColumn("of_these", F.lit(True))), ["p", "keyless", "mark"], "left").where(
        "of_these or unreadable_until is not null"
    )
    return keep(marked.drop("of_these", "keyless", "mark"))


def _later() -> Column:
    """Whether its key stands behind it, or may: what can't be read there, or not before an open transaction ends, may
    be of any key."""
    seen = F.col("key_at") >= F.least("begins", "others_from")
    hidden = F.col("key").isNotNull() & (F.col("hidden_at") >= F.least("begins", "others_from"))
    return F.coalesce(seen, F.lit(False)) | F.coalesce(hidden, F.lit(False))


def _others_from(each: PartitionScope, found: ClassifiedScope) -> int:
    """The target offset from which on records aren't the mirror's; FOREVER where that isn't known to be so."""
    never_brought_back = found.reader.scope.link.inverse and each.mirrored_through is None
    if each.target_anew or never_brought_back:  # the target of a way back is the primary, which has its own clients
        return each.target_start
    return found.judgement.bounds.get(each.number, FOREVER)


def _strange_keys(found: ClassifiedScope) -> DataFrame:
    """`p`, `key`, `strange`: keys of target records that no source record stands for, before where others write."""
    classifications = found.judgement.classifications
    if classifications is None:
        types = {"p": pa.int32(), "key": pa.binary(), "strange": pa.bool_()}
        return F.broadcast(found.reader.frame(types, []))
    kinds = [FindingKind.FOREIGN.value, FindingKind.CORRUPTED.value]
    mine = F.col("outcome") == FindingKind.CORRUPTED.value
    odd = classifications.where(F.col("outcome").isin(kinds) & F.col("t_key").isNotNull())
    # an altered record of its own key stands in its place, not behind it
    odd = odd.where(~mine | ~F.coalesce(F.col("t_key") == F.col("s_key"), F.lit(False)))
    keys = odd.select("p", F.col("t_key").alias("key"), F.lit(True).alias("strange"))
    return F.broadcast(keys.coalesce(1).distinct()) if found.judgement.stayed is None else keys.distinct()


def _limits(reader: ScopeReader, others: Mapping[int, int]) -> DataFrame:
    return reader.frame({"p": pa.int32(), "others_from": pa.int64()}, sorted(others.items()))


@dataclass(frozen=True, slots=True)
class SalvageSize:
    """How Spark joins and writes a salvage, by its number of records.

    A failback at night salvages a few thousand records, and most of the time goes into the number of Spark's jobs: each
    shuffle is one or two. So a small salvage goes to one task, and to every task that joins with it; only a large one
    is shuffled.
    """

    records: int

    @property
    def few(self) -> bool:
        """Whether one task can take them all."""
        return self.records <= _FEW

    def beside(self, frame: DataFrame) -> DataFrame:
        """A frame of at most a row a record, to be joined with a longer one."""
        return F.broadcast(frame) if self.few else frame

    def together(self, frame: DataFrame) -> DataFrame:
        """A frame of about a row a record, to be summed up."""
        return frame.coalesce(1) if self.few else frame

    def spread(self, frame: DataFrame, *columns: str) -> DataFrame:
        """The records as they are written, those of equal columns together."""
        return frame.coalesce(1) if self.few else frame.repartition(-(-self.records // _RECORDS_A_FILE), *columns)


_KINDS = {
    **{
        kind.value: kind.value
        for kind in (FindingKind.UNSEEN, FindingKind.LOST, FindingKind.CORRUPTED, FindingKind.UNREADABLE)
    },
    TARGET_RETIRED: SalvageKind.RETIRED.value,
    # whether these are isn't known; they are kept in any case
    TARGET_UNPROVEN: SalvageKind.LOST.value,
    TARGET_HIDDEN: SalvageKind.LOST.value,
}
"""What an audit calls the source's records that the target doesn't hold, which is all that it doesn't call matched, and
what a salvage calls them."""

_FOLDERS_UNSYNCED = {errno.EINVAL, errno.ENOTSUP}
"""What file systems answer that can't sync a folder; the files in it are synced one by one."""

REPLAY = "replay"
STAGING = ".drkit-salvage-"
"""Beside a salvage, what is being written of one; those of killed processes are removed by the next one."""


def salvage(
    request: AuditRequest,
    store: Store,
    config: Config,
    spark: SparkRuntime,
    *,
    positions: Sequence[Mapping[str, Any]] = (),
    progress: Progress | None = None,
    tasks: Tasks | None = None,
) -> SalvageResult:
    """Keep what only the source holds.

    Args:
        request: the link, topics and time window; `out` is the folder to make.
        store: the link's mapping rows and watermarks.
        config: both clusters.
        spark: what to run on.
        positions: committed offsets to keep with the records, each as a JSON object.
        progress: told what is being done.
        tasks: told Spark's tasks done and in all, a few times a second.

    Raises:
        Refused: `out` holds something already, or a cluster denies access.
        DrkitError: what was written is not what was to be kept. Nothing is left in `out` then.
        Unreachable: a cluster or the store doesn't answer.
    """
    say = progress or (lambda _: None)
    refuse_altered(request.link, "the salvage")
    folder = _free_folder(request.out)
    found = judged(request, store, config, spark, "the salvage", say, tasks)
    say = described(found.reader.spark, f"salvage of {request.link.id}", say)
    say("writing the records that only the source holds")
    try:
        with make_folder(folder.parent, STAGING) as held:
            staging = held.path / folder.name
            with in_words("the salvage"), watching(found.reader.spark, tasks):
                wanted = _wanted(found)
                names = {each.number: f"{each.topic}:{each.partition}" for each in found.reader.scope.partitions}
                counts = {(names[p], kind): records for (p, kind), records in wanted.counts.items()}
                say("comparing them with what the target holds")
                latest = ScopeReader(found.reader.spark, with_target_ends_now(found.reader.scope, config))
                standings = _write(replace(found, reader=latest), wanted, staging)
            if positions:
                staging.joinpath(POSITIONS).write_text(json.dumps(list(positions), indent=1) + "\n", encoding="utf-8")
            facts = _facts(request, replace(found, reader=latest), counts, standings, config)
            manifest = _checked_manifest(staging, facts, sum(counts.values()))
            (staging / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            _sync(staging)
            staging.rename(folder)
            _sync_one(folder.parent)
    except OSError as error:
        raise FolderUnusable(
            f"the salvage can't be written to {folder}: {error.strerror or error}",
            meaning="Nothing was kept",
            remedy="Give another --out, on a disk with room",
        ) from error
    kinds = dict.fromkeys(SalvageKind, 0)
    for (_, kind), records in counts.items():
        kinds[kind] += records
    by_topic = dict.fromkeys((each.topic for each in found.reader.scope.partitions), 0)
    for (partition, _), records in counts.items():
        by_topic[partition.rpartition(":")[0]] += records
    return SalvageResult(
        link=request.link.id,
        path=str(folder),
        manifest=str(folder / MANIFEST),
        records=kinds,
        by_topic=by_topic,
        standings=standings,
        through=facts.through,
        uncommitted=facts.uncommitted,
        unreadable=facts.unreadable,
        incomplete=facts.incomplete,
        observed_at=found.reader.scope.observed_at,
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the manifest says besides the files."""

    head: Mapping[str, Any]
    through: dict[str, int]
    uncommitted: dict[str, int]
    unreadable: dict[str, list[tuple[int, int]]]
    incomplete: tuple[str, ...]
    compared: dict[str, dict[str, Any]]
    counts: Mapping[tuple[str, SalvageKind], int]
    standings: Mapping[SalvageClass, int]


def _free_folder(out: str) -> Path:
    folder = Path(out).expanduser().resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder.parent, buffering=0) as probe:  # a full disk takes a name, but no data
            probe.write(b"\0" * 4096)
            os.fsync(probe.fileno())
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Refused(
                f"{folder} is there already and is not empty",
                meaning="A salvage never overwrites anything",
                remedy="Give another --out",
            )
    except OSError as error:
        raise FolderUnusable(
            f"{folder} can't be used: {error.strerror or error}", remedy="Give another --out, on a disk with room"
        ) from error
    return folder


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The records to keep (`p`, `s`, `kind`); how many there are by partition and kind; by partition, the offsets
    [from, until) that hold them."""

    frame: DataFrame
    counts: Mapping[tuple[int, SalvageKind], int]
    ranges: Mapping[int, tuple[int, int]]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())


def _wanted(found: ClassifiedScope) -> _Wanted:
    """Every record of the source that no record of the target stands for."""
    counts: Counter[tuple[int, SalvageKind]] = Counter()
    ranges: dict[int, tuple[int, int]] = {}

    def add(p: int, kind: str, records: int, low: int, high: int) -> None:
        counts[p, SalvageKind(kind)] += records
        known = ranges.get(p, (low, low))
        ranges[p] = min(low, known[0]), max(high + 1, known[1])

    held = [
        (each.p, each.s, _KINDS[str(each.outcome)])
        for each in found.judgement.settled
        if str(each.outcome) in _KINDS and each.s is not None
    ]
    for p, s, kind in held:
        add(p, kind, 1, s, s)
    frame = found.reader.frame({"p": pa.int32(), "s": pa.int64(), "kind": pa.string()}, held)
    stayed = found.judgement.stayed
    if stayed is not None:
        kind_of = F.coalesce(*(F.when(F.col("outcome") == outcome, kind) for outcome, kind in _KINDS.items()))
        more = keep(stayed.select("p", "s", kind_of.alias("kind")).where("kind is not null"))
        for row in more.groupBy("p", "kind").agg(F.count("s"), F.min("s"), F.max("s")).collect():
            add(*row)
        frame = frame.unionByName(more)
    return _Wanted(frame, counts, ranges)


def _write(found: ClassifiedScope, wanted: _Wanted, staging: Path) -> dict[SalvageClass, int]:
    """Write the records; returns how many stand how to the target."""
    size = SalvageSize(wanted.total)
    source = keep(found.reader.source_records(wanted.ranges).join(size.beside(wanted.frame), ["p", "s"]))
    standing = with_standing(found, source, wanted.ranges, size)
    records = keep(
        source.join(size.beside(standing), ["p", "s"])
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
                _header,
            ).alias("headers"),
        )
        .transform(lambda rows: size.spread(rows, "topic", "partition"))
        .sortWithinPartitions("topic", "partition", "offset")
    )
    records.write.parquet((staging / PARQUET).as_uri())
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
            "headers",
            lambda each: F.struct(
                each["key"].alias("key"),
                _plain_base64(each["value"]).alias("value"),
                _plain_base64(each["key_bytes"]).alias("key_bytes"),
            ),
        ).alias("headers"),
    )
    replay.write.option("ignoreNullFields", "false").json((staging / REPLAY).as_uri(), compression="gzip")
    stand = {row["standing"]: row["count"] for row in size.together(records).groupBy("standing").count().collect()}
    return {standing: stand.get(standing.value, 0) for standing in SalvageClass}


def _header(each: Column) -> Column:
    """A header whose name is text; `key_bytes` is null unless the name is no UTF-8, which the text then only shows."""
    key = F.make_valid_utf8(each["key"].cast("string"))
    key_bytes = F.when(key.cast("binary") != each["key"], each["key"])
    return F.struct(key.alias("key"), each["value"].alias("value"), key_bytes.alias("key_bytes"))


def _base64(name: str) -> Column:
    return _plain_base64(F.col(name)).alias(name)


def _plain_base64(column: Column) -> Column:
    """Base64 without the line breaks that Spark's own puts in."""
    return F.regexp_replace(F.base64(column), "\\s", "")


def _facts(
    request: AuditRequest,
    found: ClassifiedScope,
    counts: Mapping[tuple[str, SalvageKind], int],
    standings: Mapping[SalvageClass, int],
    config: Config,
) -> _Facts:
    link, scope = request.link.id, found.reader.scope
    tps = {each.tp: each for each in scope.partitions}
    with ClusterAdmin(link.source, config.clusters[link.source]) as admin:
        source_id = admin.cluster_id()
        written = admin.end_offsets(tps, committed=False)
    with ClusterAdmin(link.target, config.clusters[link.target]) as admin:
        target_id = admin.cluster_id()
        last = _last_batches(admin, scope)
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
    names = {each.number: str(tp) for tp, each in tps.items()}
    unreadable = {
        names[number]: list(members) for number, members in found.judgement.comparison.source_unreadable.items()
    }
    compared = {
        str(tp): {
            "target_topic": each.target_topic,
            "target_topic_id": each.target_id,
            "target_through": each.target_end,
            "target_batch": last.get(TopicPartition(each.target_topic, each.partition)),
        }
        for tp, each in tps.items()
    }
    incomplete = _not_looked_at(scope)
    head["incomplete"] = list(incomplete)
    return _Facts(head, through, uncommitted, unreadable, incomplete, compared, counts, standings)


def _last_batches(target: ClusterAdmin, scope: Scope) -> dict[TopicPartition, dict[str, int]]:
    """The last batch that was compared of each log of the target, as the manifest has it: a replay tells by it whether
    the log is still that one. Not of empty logs, nor of one whose last batch goes on beyond what was compared."""
    ends = {
        TopicPartition(each.target_topic, each.partition): each.target_end
        for each in scope.partitions
        if each.target_id is not None and each.target_start < each.target_end
    }
    return {tp: batch._asdict() for tp, batch in last_batches(target, ends).items()}


def _not_looked_at(scope: Scope) -> tuple[str, ...]:
    """What the source may hold and nobody has looked at, in words: a topic that it doesn't list may be gone, or hidden
    from drkit's principal."""
    if not scope.partitions:
        return scope.incomplete
    absent = sorted({each.topic for each in scope.partitions if each.source_id is None})
    return tuple(f"{scope.link.id.source} lists no topic {name}: nothing of it could be kept" for name in absent)


def _checked_manifest(staging: Path, facts: _Facts, expected: int) -> dict[str, Any]:
    """The manifest, from what is on the disk; raises DrkitError where that isn't what was to be kept."""
    files = []
    in_parquet = in_replay = 0
    for path in sorted(each for each in staging.rglob("*") if each.is_file()):
        if path.name.startswith((".", "_")):
            path.unlink()  # Spark's own marks and checksums: the manifest replaces them
            continue
        if path.suffix == ".parquet":
            records = pq.read_metadata(path).num_rows
            in_parquet += records
        elif path.name == POSITIONS:
            records = len(json.loads(path.read_text(encoding="utf-8")))
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
            meaning="Records were removed while they were read, or the disk lost some; nothing was kept",
            remedy="Run it again",
        )
    by_kind = {kind.value: sum(n for (_, each), n in facts.counts.items() if each is kind) for kind in SalvageKind}
    partitions = [
        {
            "topic": name.rpartition(":")[0],
            "partition": int(name.rpartition(":")[2]),
            "through": end,
            "uncommitted_end": facts.uncommitted.get(name),
            "unreadable": facts.unreadable.get(name, []),
            **facts.compared[name],
            "records": {kind.value: facts.counts.get((name, kind), 0) for kind in SalvageKind},
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
    """Raises OSError where the disk doesn't take it: a salvage that may not be there is none."""
    folder = path.is_dir()
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not folder or error.errno not in _FOLDERS_UNSYNCED:
            raise
    finally:
        os.close(handle)

"""Putting salvaged records back: into a topic of the target, once only however often it is run.

Each record keeps key, value, headers and timestamp, and gets a header PROVENANCE that names where it came
from: `cluster id/topic/partition/offset`. Before anything is written the topic is read, and what carries the
header of a record already is left out. One transactional id per topic fences off another replay that
still runs, and what an interrupted one wrote last is rolled back: so what the reading sees is final.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from drkit.config import Config
from drkit.kafka.admin import ClusterAdmin
from drkit.kafka.clients import confluent_config
from drkit.model.audit import Standing
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import LinkId, TopicPartition

PROVENANCE = "drkit-salvaged-from"
"""The header that says where a replayed record came from."""

MANIFEST = "manifest.json"
PARQUET = "records.parquet"
FORMAT = 2
"""Of a salvage that is made. 1: says of no record how it stands to the target."""

_UNCLASSED = 1
_RECORDS_A_TRANSACTION = 5_000
_SECONDS = 30.0
_ATTEMPTS = 4
_MOST_SILENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: records written now, those that were there already, those that weren't approved."""

    topic: str
    written: int
    there_already: int
    not_approved: int


def is_salvage(folder: Path) -> bool:
    """Whether a whole salvage is in the folder."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a whole salvage. One that doesn't class its records has no `standings`: None.

    Raises:
        Refused: there is none, it can't be read, or a later drkit wrote it.
    """
    if not is_salvage(folder):
        raise Refused(f"{folder} holds no whole salvage", remedy="Give the folder of one, or a new one for --out")
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        made = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"{path} can't be read as a salvage's manifest: {error}", remedy="Restore it, or salvage anew"
        ) from error
    if made not in {_UNCLASSED, FORMAT}:
        raise Refused(
            f"{path} has format {made!r}, and this drkit reads {_UNCLASSED} and {FORMAT}",
            remedy="Replay it with the drkit that made it, or a later one",
        )
    return {**manifest, "standings": None} if made == _UNCLASSED else manifest


def replay(
    folder: Path,
    topic: str,
    link: LinkId,
    config: Config,
    *,
    approved: Collection[Standing] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Replayed:
    """Write the records of a salvage to a topic of the link's target.

    A record goes to the partition it came from, or by its key where the topic has fewer partitions.

    Args:
        folder: the salvage.
        topic: the topic on the target; it must exist.
        link: the link that the salvage is of.
        config: the clusters.
        approved: only records that stood so to the target when they were salvaged; None: all.
        progress: told what is being done.

    Raises:
        Refused: the folder holds no whole salvage, or of another link, or one that doesn't say what was approved, or
            the topic isn't there.
        Unreachable: the target doesn't answer.
    """
    say = progress or (lambda _: None)
    cluster_id = _checked_source(folder, link, approved)
    cluster = config.clusters[link.target]
    with ClusterAdmin(link.target, cluster) as admin:
        found = admin.topics([topic]).get(topic)
        if found is None:
            raise Refused(
                f"topic {topic} does not exist on {link.target}", remedy="Create it, then run the replay again"
            )
        writer = _Writer(confluent_config(cluster, linger_ms=20), link.target, topic, found.partitions)
        tps = [TopicPartition(topic, number) for number in range(found.partitions)]
        starts, ends = admin.start_offsets(tps), admin.end_offsets(tps, committed=True)
    say(f"reading {topic} for what is there already")
    there = _provenances(confluent_config(cluster), link.target, {tp: (starts[tp], ends[tp]) for tp in tps})
    written = already = aside = 0
    for everything in _batches(folder):
        rows = [row for row in everything if approved is None or row["standing"] in approved]
        aside += len(everything) - len(rows)
        left = [(row, name) for row in rows if (name := _provenance(cluster_id, row)) not in there]
        already += len(rows) - len(left)
        if left:
            writer.write(left)
            written += len(left)
            say(f"{written:,} records written to {topic}")
    return Replayed(topic, written, already, aside)


def _checked_source(folder: Path, link: LinkId, approved: Collection[Standing] | None) -> str:
    """The id of the cluster that the salvage is of; the folder is as its manifest says."""
    manifest = read_manifest(folder)
    if (manifest["source"], manifest["target"]) != (link.source, link.target):
        raise Refused(
            f"the salvage in {folder} is of {manifest['source']}->{manifest['target']}, not of {link}",
            remedy="Name its link with --link",
        )
    if approved is not None and manifest["standings"] is None:
        raise Refused(
            f"the salvage in {folder} doesn't say which records are {', '.join(approved)}",
            meaning="An earlier drkit made it (format 1), which did not compare them with the target",
            remedy="Leave --approve out to replay all, or salvage again while the source still holds the records",
        )
    for file in manifest["files"]:
        path = folder / file["path"]
        if not path.is_file() or sha256_of(path) != file["sha256"]:
            raise Refused(
                f"{path} is not what the salvage's manifest says",
                meaning="It was changed or damaged after it was written",
                remedy="Restore it, or salvage again while the source still holds the records",
            )
    cluster_id: str = manifest["source_cluster_id"]
    return cluster_id


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _batches(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The records kept, in order within each partition."""
    for path in sorted((folder / PARQUET).glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_RECORDS_A_TRANSACTION):
                yield batch.to_pylist()


def _provenance(cluster_id: str, row: Mapping[str, Any]) -> bytes:
    return f"{cluster_id}/{row['topic']}/{row['partition']}/{row['offset']}".encode()


class _Writer:
    """Writes records in transactions; whoever opened the topic's replay before is fenced off."""

    def __init__(self, client: Mapping[str, Any], alias: str, topic: str, partitions: int) -> None:
        self._alias, self._topic, self._partitions = alias, topic, partitions
        self._producer = Producer(
            dict(client) | {"transactional.id": f"drkit-replay-{topic}", "partitioner": "murmur2_random"}
        )
        self._sure("prepare the replay", lambda: self._producer.init_transactions(_SECONDS))

    def write(self, rows: Iterable[tuple[Mapping[str, Any], bytes]]) -> None:
        """Write these records, all or none."""
        self._sure("begin a transaction", self._producer.begin_transaction)
        for row, name in rows:
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            place = {"partition": row["partition"]} if row["partition"] < self._partitions else {}
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        key=row["key"],
                        value=row["value"],
                        timestamp=row["timestamp_ms"],
                        headers=[*headers, (PROVENANCE, name)],
                        **place,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._sure("commit a transaction", lambda: self._producer.commit_transaction(_SECONDS))

    def _sure(self, what: str, step: Callable[[], object]) -> None:
        """Take a step, again as long as the client says that this helps."""
        for _ in range(_ATTEMPTS):
            try:
                step()
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}:  # noqa: SLF001 - librdkafka's own codes begin so
                    raise Refused(
                        f"another replay into {self._topic} has begun", remedy="Let it end, then run this again"
                    ) from failure
                if error.retriable():
                    continue
                raise Unreachable(
                    f"{self._alias} failed to {what}: {error.str()}",
                    remedy="Run it again: what was written is not written twice",
                ) from failure
            else:
                return
        raise Unreachable(
            f"{self._alias} did not answer in time to {what}",
            remedy="Run it again: what was written is not written twice",
        )


def _provenances(
    client: Mapping[str, Any], alias: str, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> frozenset[bytes]:
    """The provenance of every record of the topic that has one. Reads all of it."""
    left = {tp: end for tp, (start, end) in bounds.items() if start < end}
    found: set[bytes] = set()
    if not left:
        return frozenset()
    consumer = Consumer(
        dict(client)
        | {"group.id": f"drkit-replay-{uuid.uuid4().hex}", "isolation.level": "read_committed"}
        | {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error"}
    )
    try:
        consumer.assign([Place(tp.topic, tp.partition, bounds[tp][0]) for tp in left])
        heard = time.monotonic()
        while left:
            messages = consumer.consume(1_000, 0.5)
            for message in messages:
                if message.error() is None:
                    headers: Any = message.headers() or ()  # untyped pairs
                    found.update(value for name, value in headers if name == PROVENANCE)
            heard = time.monotonic() if messages else heard
            for place in consumer.position([Place(tp.topic, tp.partition) for tp in left]):
                if place.offset >= left[TopicPartition(place.topic, place.partition)]:
                    del left[TopicPartition(place.topic, place.partition)]
            if time.monotonic() - heard > _MOST_SILENCE_SECONDS:
                raise Unreachable(f"{alias} stopped answering while {next(iter(left))} was read", remedy="Run it again")
    finally:
        consumer.close()
    return frozenset(found)

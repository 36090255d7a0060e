"""Ways of finding the differences between two clusters: drkit's three, a plain client with numpy, and `exceptAll`.

    python -m bench.audit_ways WAY JOB

Runs one way in its own process, so that its resources can be measured: compares a small topic, so that everything is
started and warm, and prints `warm`; then compares each topic that a line of stdin names, and prints its findings as a
line of JSON. JOB is JSON: the fields of `Job`.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from xxhash import xxh3_64_intdigest

from bench.clusters import SOURCE, TARGET
from drkit.audit.run import run_audit
from drkit.audit.spark.session import SparkRuntime, spark_session
from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab.toolchain import ensure
from drkit.model.audit.audit_result import AuditRequest, TopicChoice
from drkit.model.clock import now
from drkit.model.digests import RangeDigest
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId
from drkit.model.topology import TopicPartition as Partition
from drkit.store import open_store
from drkit.store.api import Store

_FETCHED = 10_000
_HEAP = "1g"
_DIGESTS = "digests.db"


@dataclass(frozen=True, slots=True)
class Job:
    """What to compare. `folder`: for findings and Spark's event log; the digests of `keep_digests` are beside it."""

    source: str
    target: str
    warm: str
    partitions: int
    folder: str

    def config(self) -> Config:
        """The link, as in drkit.toml."""
        clusters = {SOURCE: {"bootstrap_servers": self.source}, TARGET: {"bootstrap_servers": self.target}}
        return Config.model_validate({"clusters": clusters, "links": [{"source": SOURCE, "target": TARGET}]})

    def runtime(self) -> SparkRuntime:
        """Spark on all cores of this machine; its event log has the shuffled bytes."""
        toolchain = ensure("spark")
        log = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path(self.folder).as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        connector = {  # only for exceptAll: drkit reads logs itself
            "spark.driver.extraClassPath": toolchain.classpath("spark"),
            "spark.sql.sources.useV1SourceList": "",  # the connector's newer reader costs less per record
        }
        return SparkRuntime(toolchain.spark_java_home, driver_memory=_HEAP, settings=log | connector)


def audit(job: Job, topic: str, *, full: bool, from_digests: bool = False) -> int:
    """`drkit audit`, and with `--full` or `--from-digests`."""
    config = job.config()
    link = config.links[0].link()
    store = open_store("sqlite:///:memory:")
    parts = record_mirrored(store, job, topic)
    if from_digests:
        kept = open_store(f"sqlite:///{Path(job.folder).parent / _DIGESTS}", create=False)
        store.put_range_digests(link.id, [row for tp in parts for row in kept.range_digests(link.id, tp, 0)])
        kept.close()
    spark_session(job.runtime())  # or the first audit, a small one, would start a JVM for brief jobs
    out = Path(job.folder) / "findings" / uuid.uuid4().hex
    request = AuditRequest(link, str(out), (TopicChoice(topic),), full=full, from_digests=from_digests)
    result = run_audit(request, store, config, job.runtime())
    store.close()
    if from_digests and (result.coverage is None or not result.coverage.proven):
        raise AssertionError("nothing was proven by digest")
    if result.counts.matched + result.findings_total != result.counts.source_records:
        raise AssertionError(f"an audit that doesn't add up: {result.counts}")
    return result.findings_total


def except_all(job: Job, topic: str) -> int:
    """Two DataFrames of Spark's Kafka connector; the records that are only on the source (one direction)."""
    session = spark_session(job.runtime())
    session.conf.set("spark.sql.shuffle.partitions", 8)
    return _read(session, job.source, topic).exceptAll(_read(session, job.target, topic)).count()


def plain(job: Job, topic: str) -> int:
    """confluent-kafka and numpy: a hash of each record at its offset, both sides compared."""
    different = 0
    for partition in range(job.partitions):
        source, target = (_hashes(address, topic, partition) for address in (job.source, job.target))
        size = min(len(source), len(target))
        different += int(np.count_nonzero(source[:size] != target[:size])) + abs(len(source) - len(target))
    return different


WAYS: dict[str, Callable[[Job, str], int]] = {
    "batches": partial(audit, full=False),
    "digest": partial(audit, full=False, from_digests=True),
    "full": partial(audit, full=True),
    "exceptall": except_all,
    "plain": plain,
}


def keep_digests(folder: Path, digests: Sequence[RangeDigest]) -> None:
    """Keep a mirror's digests, for jobs whose folders are in this one."""
    store = open_store(f"sqlite:///{folder / _DIGESTS}")
    store.put_range_digests(LinkId(SOURCE, TARGET), digests)
    store.close()


def record_mirrored(store: Store, job: Job, topic: str) -> list[Partition]:
    """Keep a mirror's digests of a topic with equal offsets on both sides; returns its partitions."""
    config = job.config()
    link = config.links[0].link()
    with ClusterAdmin(SOURCE, config.clusters[SOURCE]) as admin:
        ends = admin.end_offsets([Partition(topic, number) for number in range(job.partitions)], committed=True)
        source_id = admin.topics([topic])[topic].topic_id
    with ClusterAdmin(TARGET, config.clusters[TARGET]) as admin:
        target_id = admin.topics([topic])[topic].topic_id
    state = TopicState(
        topic=topic,
        target_topic=topic,
        source_topic_id=source_id,
        target_topic_id=target_id,
        epoch=0,
        partitions=job.partitions,
        created_by_drkit=True,
    )
    store.put_topic_states(link.id, [state])
    store.append_mappings(link.id, [OffsetMapping(topic, number, 0, 0, 0) for number in range(job.partitions)])
    marks = [
        Watermark(
            topic=tp.topic,
            partition=tp.partition,
            epoch=0,
            source_through=end,
            target_end=end,
            source_start=0,
            source_end=end,
            target_start=0,
            observed_at=now(),
            leader_epoch=0,  # the topic's only one: without it nothing proves that the source still has what was read
        )
        for tp, end in ends.items()
    ]
    store.put_watermarks(link.id, marks)
    return list(ends)


def shuffled_bytes(folder: Path) -> int | None:
    """The bytes that Spark wrote for shuffles since the last mark, by its event log; None: there is none."""
    logs = [each for each in folder.iterdir() if each.is_file() and not each.name.endswith(".crc")]
    if not logs:
        return None
    total = 0
    for log in logs:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                metrics = json.loads(line).get("Task Metrics") or {}
                total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total


def _read(session: SparkSession, address: str, topic: str) -> DataFrame:
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("kafka.max.partition.fetch.bytes", str(4 << 20))
        .option("kafka.max.poll.records", "5000")
        .load()
        .select("partition", "offset", "timestamp", "key", "value", "headers")
    )


def _hashes(address: str, topic: str, partition: int) -> NDArray[np.uint64]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.max.bytes": 50 << 20,
            "fetch.message.max.bytes": 4 << 20,
            "fetch.queue.backoff.ms": 20,  # by default it pauses for a second whenever its queue was full
        }
    )
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    found = np.zeros(high - low, np.uint64)
    consumer.assign([TopicPartition(topic, partition, low)])
    after = low
    while after < high:
        for message in consumer.consume(_FETCHED, 0.05):
            offset = message.offset() or 0
            headers = message.headers()
            content = b"%d|%b|%b" % (message.timestamp()[1], message.key() or b"", message.value() or b"")
            found[offset - low] = xxh3_64_intdigest(content if not headers else content + repr(headers).encode())
            after = offset + 1
    consumer.close()
    return found


def main() -> None:
    """Compare once warm, then as requested."""
    way, job = WAYS[sys.argv[1]], Job(**json.loads(sys.argv[2]))
    way(job, job.warm)
    print("warm", flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        found = way(job, line.strip())
        print(json.dumps({"seconds": time.monotonic() - began, "found": found}), flush=True)


if __name__ == "__main__":
    main()

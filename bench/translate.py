"""Judges translated positions: how many records 1,000 groups would read again or skip with each mirror's positions.

Each mirror gets its own source topics, created the same way: half of the records are there (and compacted) before it
starts, half come while it runs. When everything is on the target, a thousand groups commit a random position each; the
mirror translates them (`drkit translate --all-groups`; MirrorMaker 2's checkpoints topic), and an independent reader
of the target determines the cost of each.

A record is identified by its offset on the source, which its value on the target gives. A group that had read
everything below the commit `c` on the source and continues at position `p` of the target reads again the records below
`c` and at or after `p`, and skips those at or above `c` and before `p`.
"""

from __future__ import annotations

import json
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from bench.clusters import Cluster
from bench.groups import commit
from bench.mirrors import Drkit, Job, Mirror, Scene
from bench.processes import MeasurementFailed, Running, drkit, run
from bench.report import Row
from bench.wire import Connection
from drkit.kafka.groups.mirrormaker import checkpoints_topic, decode_checkpoint
from drkit.model.topology import TopicPartition
from tests.support.links.log_reader import read_topic

# --- the source, written by an ordinary client, so that transactions are real --------------------------------------

PLAIN, TRANSACTIONS, COMPACTED = "plain", "transactions", "compacted"
KINDS = (PLAIN, TRANSACTIONS, COMPACTED)
_PARTITIONS = {PLAIN: 4, TRANSACTIONS: 2, COMPACTED: 2}
_SHARES = {PLAIN: 0.4, TRANSACTIONS: 0.3, COMPACTED: 0.3}
_COMPACTION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
}
_KEYS = 400
_LARGEST_TRANSACTION = 60
_ABORTED_SHARE = 0.2
_SETTLE_SECONDS = 120.0
_RECENT = 300
_SEED = 4


class Commit(NamedTuple):
    """A group's position on the source: the offset of the next record to read."""

    group: str
    tp: TopicPartition
    offset: int


@dataclass(slots=True)
class Source:
    """Topics `PREFIX-plain`, `PREFIX-transactions`, `PREFIX-compacted` on a cluster.

    `offsets`: the source offset of each value. `half_ends`: the partitions' ends when the mirror started.
    """

    cluster: Cluster
    prefix: str
    offsets: dict[bytes, int] = field(default_factory=dict)
    written: int = 0
    half_ends: dict[TopicPartition, int] = field(default_factory=dict)
    _rng: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311 - test data

    def topic(self, kind: str) -> str:
        """The topic of a kind."""
        return f"{self.prefix}-{kind}"

    def partitions(self, kind: str) -> list[TopicPartition]:
        """Its partitions."""
        return [TopicPartition(self.topic(kind), number) for number in range(_PARTITIONS[kind])]

    def create(self) -> None:
        """Create the topics."""
        for kind in KINDS:
            config = _COMPACTION if kind == COMPACTED else {}
            self.cluster.create_topic(self.topic(kind), _PARTITIONS[kind], config)

    def write(self, records: int) -> None:
        """Write about so many records to each topic; many of the transactional ones are aborted."""
        self._write_plain(PLAIN, records, keyed=False)
        self._write_plain(COMPACTED, records, keyed=True)
        self._write_transactions(records)

    def compact(self) -> None:
        """Wait until the compacted topic has holes.

        Raises:
            MeasurementFailed: it has none after two minutes.
        """
        topic = self.topic(COMPACTED)
        before = self._count(topic)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while self._count(topic) > before * 2 // 3:
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"the source did not compact {topic} within {_SETTLE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
            self._write_plain(COMPACTED, 4 * _PARTITIONS[COMPACTED], keyed=True)  # an append makes a segment roll

    def ends(self, on: Cluster | None = None) -> dict[TopicPartition, int]:
        """The ends of its partitions that exist on a cluster (default: the source)."""
        with Connection((on or self.cluster).address) as connection:
            found = connection.ends_of({self.topic(kind): range(_PARTITIONS[kind]) for kind in KINDS})
        return {TopicPartition(topic, number): end for topic, ends in found.items() for number, end in ends.items()}

    def commits(self, count: int, ends: dict[TopicPartition, int]) -> dict[str, list[Commit]]:
        """Random positions by kind of topic: half anywhere, a quarter in the records from before the mirror's start
        (lagging groups), a quarter close to the end. Each is of a different group.
        """
        made: dict[str, list[Commit]] = {}
        for kind in KINDS:
            made[kind] = []
            for number in range(round(count * _SHARES[kind])):
                tp = self._rng.choice(self.partitions(kind))
                end, old = ends[tp], self.half_ends[tp]
                low, high = ((0, end), (0, end), (0, old), (max(0, end - _RECENT), end))[number % 4]
                made[kind].append(Commit(f"{self.prefix}-{kind}-{number}", tp, self._rng.randint(low, high)))
        return made

    def _count(self, topic: str) -> int:
        return sum(map(len, read_topic(self.cluster.address, topic).values()))

    def _write_plain(self, kind: str, records: int, *, keyed: bool) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.address, "linger.ms": 5, "compression.type": "lz4"})
        for _ in range(records):
            key = f"key-{self._rng.randrange(_KEYS)}" if keyed else None
            self._send(producer, kind, key)
        _flush(producer)

    def _write_transactions(self, records: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.cluster.address, "transactional.id": self.prefix, "linger.ms": 1}
        )
        producer.init_transactions(30)
        left = records // 4  # a commit for about every thirty takes time
        while left > 0:
            size = self._rng.randint(1, _LARGEST_TRANSACTION)
            left -= size
            producer.begin_transaction()
            for _ in range(size):
                self._send(producer, TRANSACTIONS, None)
            if self._rng.random() < _ABORTED_SHARE:
                _flush(producer)  # else an abort would drop them unsent
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    def _send(self, producer: Producer, kind: str, key: str | None) -> None:
        self.written += 1
        value = f"{kind} {self.written:09d} of the records that groups stand between".encode()
        partition = (self.written if key is None else int(key.rpartition("-")[2])) % _PARTITIONS[kind]
        while True:
            try:
                producer.produce(self.topic(kind), value, key, partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is not None or value is None or offset is None:
            raise MeasurementFailed(f"the source refused a record: {error}")
        self.offsets[value] = offset


def _flush(producer: Producer) -> None:
    if producer.flush(_SETTLE_SECONDS):
        raise MeasurementFailed("the source did not take all records in time")


# --- the measurement -----------------------------------------------------------------------------------------------

_CAUGHT_UP_SECONDS = 120.0
_CALM_SECONDS = 5.0
_ANSWER_SECONDS = 90.0
_NO_MORE_SECONDS = 20.0  # both mirrors read groups at least every few seconds here
_PARTS = 5
_POLL_SECONDS = 0.5
_ASK_SECONDS = 2.0
_Answers = dict[str, int | None]
"""Target positions by group; None if a mirror has none."""


def measure(scene: Scene) -> Iterator[Row]:
    """Each mirror's figures on the pair of clusters, by kind of topic.

    Raises:
        MeasurementFailed: it ended, didn't catch up, or the source could not be created.
    """
    for mirror in scene.in_turn(1):
        with scene.folder() as inner:
            yield from _measure_one(inner, mirror)


def _measure_one(scene: Scene, mirror: Mirror) -> list[Row]:
    count, records = (1000, 60_000) if scene.full else (200, 20_000)
    source = Source(scene.clusters.source, f"bench-translate-{mirror.name}")
    scene.say(f"translate: {mirror.name}, {count:,} commits")
    try:
        source.create()
        source.write(records // 2)
        source.compact()
        source.half_ends = source.ends()
        job = Job(scene.work, source.cluster, scene.clusters.target, f"{source.prefix}-.*", "lz4", groups=True)
        running = mirror.launch(job)
        with running.watched(f"translate, {mirror.name}"):
            _wait_for_calm(source, job, running)
            for _ in range(_PARTS):
                source.write(records // 2 // _PARTS)
            _wait_for_calm(source, job, running)
            by_kind = source.commits(count, source.ends())
            commits = {each.group: each for each in chain.from_iterable(by_kind.values())}
            commit(source.cluster, {each.group: {each.tp: (each.offset, "")} for each in commits.values()})
            ask = _ask_drkit if isinstance(mirror, Drkit) else _ask_mirrormaker
            answers = _settled(lambda: ask(job, commits))
            logs = _logs(source, job)
            return [judge(mirror.name, kind, by_kind[kind], answers, logs) for kind in KINDS]
    finally:
        scene.clusters.delete_topics()


# --- judging ------------------------------------------------------------------------------------


class Copied(NamedTuple):
    """A record of the target."""

    target_offset: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The records that a group would read again, and those that it would never read."""

    reread: int
    skipped: int


def cost(log: Sequence[Copied], committed: int, position: int) -> Cost:
    """The cost of continuing at `position` of a target partition with `log`, in the order of target offsets."""
    at = bisect_left(log, (position, -1))
    return Cost(
        reread=sum(record.source_offset < committed for record in log[at:]),
        skipped=sum(record.source_offset >= committed for record in log[:at]),
    )


def judge(
    peer: str,
    kind: str,
    commits: Sequence[Commit],
    answers: Mapping[str, int],
    logs: Mapping[TopicPartition, Sequence[Copied]],
) -> Row:
    """The sums and maxima for a mirror; `answers`: target positions by group, without groups that have none."""
    costs = [cost(logs.get(each.tp, ()), each.offset, answers[each.group]) for each in commits if each.group in answers]
    reread, skipped = [each.reread for each in costs], [each.skipped for each in costs]
    return {
        "peer": peer,
        "kind": kind,
        "commits": len(commits),
        "answered": len(costs),
        "exact": costs.count(Cost(0, 0)),
        "reread_sum": sum(reread),
        "reread_max": max(reread, default=0),
        "skipped_sum": sum(skipped),
        "skipped_max": max(skipped, default=0),
    }


# --- the running mirror -------------------------------------------------------------------------


def _wait_for_calm(source: Source, job: Job, running: Running) -> None:
    """Wait until the target's ends are constant for five seconds and no plain record is missing."""
    deadline = time.monotonic() + _CAUGHT_UP_SECONDS
    before: dict[TopicPartition, int] = {}
    still_since = time.monotonic()
    while True:
        there, ends = source.ends(job.target), source.ends()
        whole = all(there.get(tp, 0) >= ends[tp] for tp in source.partitions(PLAIN))
        if not whole or there != before or not any(there.values()):
            still_since = time.monotonic()
        elif time.monotonic() - still_since > _CALM_SECONDS:
            return
        before = there
        if running.ended or time.monotonic() > deadline:
            raise MeasurementFailed("it ended or did not catch up")
        time.sleep(_POLL_SECONDS)


def _logs(source: Source, job: Job) -> dict[TopicPartition, list[Copied]]:
    logs: dict[TopicPartition, list[Copied]] = {}
    for kind in KINDS:
        for partition, records in read_topic(job.target.address, source.topic(kind)).items():
            tp = TopicPartition(source.topic(kind), partition)
            for record in records:
                if record.value not in source.offsets:
                    raise MeasurementFailed(f"{tp} holds a record at {record.offset} that was never written")
                logs.setdefault(tp, []).append(Copied(record.offset, source.offsets[record.value]))
    return logs


def _settled(ask: Callable[[], _Answers]) -> dict[str, int]:
    """Poll until every group has a position, or none has come for a while; returns only groups with a position."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    most, more_at = 0, time.monotonic()
    while True:
        answers = ask()
        known = {group: offset for group, offset in answers.items() if offset is not None}
        now = time.monotonic()
        if len(known) > most:
            most, more_at = len(known), now
        if len(known) == len(answers) or now > deadline or (known and now - more_at > _NO_MORE_SECONDS):
            return known
        time.sleep(_ASK_SECONDS)


def _ask_drkit(job: Job, commits: Mapping[str, Commit]) -> _Answers:
    said = run(drkit(job.folder, "translate", "--all-groups", "--output", "json"), job.folder)
    answers: _Answers = dict.fromkeys(commits)
    for position in json.loads(said.stdout)["positions"]:
        tp = TopicPartition(position["topic"], position["partition"])
        if commits.get(position["group"]) == (position["group"], tp, position["source_offset"]):
            answers[position["group"]] = position["target_offset"]
    return answers


def _ask_mirrormaker(job: Job, commits: Mapping[str, Commit]) -> _Answers:
    answers: _Answers = dict.fromkeys(commits)
    newest = {}
    for record in read_topic(job.target.address, checkpoints_topic(job.source.alias)).get(0, []):  # its only partition
        if record.key is not None and record.value is not None:
            checkpoint = decode_checkpoint(record.key, record.value, datetime.now(UTC))
            newest[checkpoint.group, checkpoint.tp] = checkpoint
    for each in newest.values():
        if commits.get(each.group) == (each.group, each.tp, each.upstream):
            answers[each.group] = each.downstream
    return answers

"""A topic mirrored by hand and damaged from a seed, with the findings that an audit must have.

`Bench` produces exact records and stores a mirror's records of them; `damaged` computes what a faulty mirror would have
written, and the expected findings. It doesn't use drkit.audit: the expectation follows from the damage, not from a
comparison.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka import Producer

from drkit.config import Config, load_config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.client_config import confluent_config
from drkit.kafka.protocol.data_requests import Payload
from drkit.kafka.protocol.record_batch import Batch, header, parse
from drkit.kafka.protocol.records import Built
from drkit.lab import Lab
from drkit.model.clock import now
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId
from drkit.store import open_store
from drkit.store.api import Store
from tests.support.clusters import raw
from tests.support.links.batches import batch_bytes
from tests.support.links.log_reader import read_partition

LINK = LinkId("primary", "dr")
_QUEUED = 50_000
"""The most records that a producer buffers; it refuses more than 100,000."""
STAMP = 1_700_000_000_000

RETAINED = {"retention.bytes": "1"}
"""Settings of a topic whose retention explains that a log begins later (no broker removes its only segment)."""


@dataclass(frozen=True)
class Record:
    """The content of a record that an audit compares."""

    key: bytes | None
    value: bytes | None
    stamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Stored:
    """A record and its offset."""

    offset: int
    record: Record


@dataclass
class Bench:
    """Both clusters of a lab, and a separate store."""

    lab: Lab
    store: Store = field(default_factory=lambda: open_store("sqlite:///:memory:"))

    def __post_init__(self) -> None:
        self.config: Config = load_config(self.lab.config_path)
        self.link: Link = next(each.link() for each in self.config.links if each.link().id == LINK)

    def admin(self, alias: str) -> ClusterAdmin:
        return ClusterAdmin(alias, self.config.clusters[alias])

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        on: Sequence[str] = ("primary", "dr"),
        config: Mapping[str, str] | None = None,
    ) -> str:
        for alias in on:
            with self.admin(alias) as admin:
                admin.create_topic(
                    name,
                    partitions=partitions,
                    replication_factor=1,
                    config={"retention.ms": "-1"} | dict(config or {}),
                )
        return name

    def produce(
        self,
        alias: str,
        topic: str,
        partition: int,
        records: Iterable[Record],
        *,
        transactions: str = "",
        transaction: int = 7,
        batched: int = 10_000,
    ) -> None:
        """Write records in order. `transactions`: for every `transaction` records, commit (c) or abort (a) in turn.
        `batched`: the most records per batch."""
        settings = {"linger_ms": 5, "enable_idempotence": True, "batch_num_messages": batched}
        producer = Producer(
            confluent_config(self.config.clusters[alias], **settings)
            | ({"transactional.id": uuid.uuid4().hex} if transactions else {})
        )
        failed: list[object] = []

        def send(record: Record) -> None:
            while len(producer) >= _QUEUED:
                producer.poll(0.1)
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                partition=partition,
                timestamp=record.stamp,
                headers=list(record.headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )

        if not transactions:
            for record in records:
                send(record)
                producer.poll(0)
        else:
            producer.init_transactions(30)
            everything = list(records)
            for number, start in enumerate(range(0, len(everything), transaction)):
                producer.begin_transaction()
                for record in everything[start : start + transaction]:
                    send(record)
                    producer.poll(0)
                if transactions[number % len(transactions)] == "c":
                    producer.commit_transaction(30)
                else:
                    producer.flush(30)
                    failed.clear()
                    producer.abort_transaction(30)
        assert producer.flush(30) == 0
        assert not failed

    def forward(self, topic: str, partition: int, source: Sequence[Stored], target: Sequence[Record]) -> None:
        """Write records to the target like a mirror that forwards batches: each source batch whose records are wanted
        there, next to each other, is forwarded unchanged; the others are encoded again."""
        servers = {alias: self.config.clusters[alias].bootstrap_servers for alias in ("primary", "dr")}
        committed = {each.offset: each.record for each in source}
        begins: dict[Record, tuple[list[Record], Batch]] = {}
        for batch in parse(memoryview(raw.fetch(servers["primary"], topic, partition))):
            held = [committed.get(offset) for offset in range(batch.base_offset, batch.last_offset + 1)]
            if batch.records_count == len(held) and held[0] is not None:
                begins[held[0]] = ([each for each in held if each is not None], batch)
        appended: list[tuple[bytes, bytes | memoryview]] = []
        waiting: list[Record] = []
        at = 0
        while at < len(target):
            held, batch = begins.get(target[at], ([], None))
            if batch is not None and list(target[at : at + len(held)]) == held:
                appended += _rebuilt(waiting)
                waiting = []
                appended.append(forwarded(batch))
                at += len(held)
            else:
                waiting.append(target[at])
                at += 1
        raw.produce(servers["dr"], topic, partition, *appended, *_rebuilt(waiting))

    def read(self, alias: str, topic: str, partition: int) -> list[Stored]:
        """All committed records of a partition, read with a client that drkit's audit doesn't use."""
        read = read_partition(confluent_config(self.config.clusters[alias]), topic, partition)
        return [Stored(each.offset, Record(each.key, each.value, each.timestamp, each.headers)) for each in read]

    def remember(
        self,
        topic: str,
        places: Mapping[int, Mapping[int, int]],
        *,
        through: Mapping[int, int] | None = None,
        target_end: Mapping[int, int] | None = None,
        target_topic: str | None = None,
        epoch: int = 0,
        watermarks: bool = True,
    ) -> None:
        """Store a mirror's records: mapping rows of these offsets (target by source offset, by partition), and a
        watermark at `through` (default: the last source offset + 1), unless it was killed before `watermarks`."""
        name = target_topic or topic
        with self.admin("primary") as source, self.admin("dr") as target:
            on_source, on_target = source.topics([topic]).get(topic), target.topics([name]).get(name)
        state = TopicState(
            topic=topic,
            target_topic=name,
            source_topic_id=on_source.topic_id if on_source else "gone",
            target_topic_id=on_target.topic_id if on_target else "gone",
            epoch=epoch,
            partitions=len(places),
            created_by_drkit=True,
        )
        self.store.put_topic_states(self.link.id, [state])
        for partition, taken in places.items():
            rows: list[OffsetMapping] = []
            for source_offset, target_offset in sorted(taken.items()):
                if not rows or rows[-1].delta != target_offset - source_offset:
                    rows.append(OffsetMapping(topic, partition, epoch, source_offset, target_offset))
            self.store.append_mappings(self.link.id, rows)
            last = max(taken, default=-1)
            if not watermarks:
                continue
            self.store.put_watermarks(
                self.link.id,
                [
                    Watermark(
                        topic=topic,
                        partition=partition,
                        epoch=epoch,
                        source_through=(through or {}).get(partition, last + 1),
                        target_end=(target_end or {}).get(partition, taken[last] + 1 if taken else 0),
                        source_start=0,
                        source_end=last + 1,
                        target_start=0,
                        observed_at=now(),
                    )
                ],
            )


def forwarded(batch: Batch) -> Payload:
    """A batch, unchanged except that it has no producer."""
    return unowned(batch.attributes, batch, batch.records)


def unowned(attributes: int, like: Batch | Built, payload: bytes | memoryview) -> Payload:
    """A batch without a producer, with these records, and with that one's offsets and timestamps."""
    head = header(
        attributes=attributes,
        count=like.records_count,
        base_timestamp=like.base_timestamp,
        max_timestamp=like.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=payload,
    )
    return head, payload


def _rebuilt(records: Sequence[Record]) -> list[Payload]:
    """One batch of these records, by another encoder; none if there are no records."""
    if not records:
        return []
    rows = [(each.stamp, each.key, each.value, list(each.headers)) for each in records]
    return [forwarded(batch) for batch in parse(memoryview(batch_bytes(rows)))]


def seeded(seed: int | str) -> random.Random:
    """A reproducible random generator."""
    return random.Random(seed)  # noqa: S311 - repeatable, not secret


def dense(source: Sequence[Stored], base: int = 0) -> dict[int, int]:
    """A mirror's target offsets: one after the other."""
    return {each.offset: base + position for position, each in enumerate(source)}


def records(count: int, *, rng: random.Random, keys: int | None = None, first: int = 0) -> list[Record]:
    """Records of every shape: null and empty keys and values, headers, unordered timestamps.

    `keys`: draw keys from so many (a compacted topic); else most are different.
    """
    made = []
    for number in range(first, first + count):
        key = f"k{number if keys is None else rng.randrange(keys)}".encode()
        value: bytes | None = f"value {number}".encode() * rng.randrange(1, 4)
        shape = rng.random()
        if keys is None and shape < 0.1:
            key = rng.choice([None, b""])  # type: ignore[assignment]  # shapes on purpose
        if shape > 0.9:
            value = None if keys is not None else rng.choice([None, b""])
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if rng.random() < 0.3:
            headers = tuple((f"h{n % 2}", rng.choice([b"", None, b"x" * n])) for n in range(rng.randrange(1, 4)))
        made.append(Record(key, value, STAMP + number * 10 - rng.randrange(200), headers))
    return made


Expected = tuple[str, int | None, int | None]
"""Kind, source offset, target offset."""


@dataclass
class Damaged:
    """The target's records, and the findings that an audit must have.

    `either`: swaps, of which one of two records counts as reordered.
    """

    target: list[Record]
    findings: set[Expected]
    either: list[set[Expected]]

    def explains(self, found: Iterable[Expected]) -> None:
        """Assert that findings are exactly these."""
        rest = list(found)
        for choice in self.either:
            hits = [each for each in rest if each in choice]
            assert len(hits) == 1, f"a swap of {choice} was found as {hits}"
            rest.remove(hits[0])
        assert len(rest) == len(set(rest))
        assert set(rest) == self.findings, f"missed {self.findings - set(rest)}, invented {set(rest) - self.findings}"


_CELL = 8
"""The intact records between two damages."""


def damaged(source: Sequence[Stored], kinds: Mapping[str, int], rng: random.Random) -> Damaged:
    """Damage a copy of a partition: so many damages of each kind, at separate random offsets.

    Kinds: lost, corrupted, duplicated, foreign, swapped, moved.
    """
    cells = list(range(1, len(source) // _CELL - 1))
    rng.shuffle(cells)
    slots: list[list[tuple[str, Record, int | None]]] = [[("", each.record, each.offset)] for each in source]
    swaps: list[tuple[int, int]] = []
    for kind, times in kinds.items():
        for _ in range(times):
            at = cells.pop() * _CELL + _CELL // 2
            origin = source[at]
            if kind == "lost":
                slots[at] = [("lost", origin.record, origin.offset)]
            elif kind == "corrupted":
                slots[at] = [("corrupted", _spoiled(origin.record, rng), origin.offset)]
            elif kind == "foreign":
                slots[at].append(("foreign", _stranger(rng), None))
            elif kind == "duplicated":
                copied = source[rng.choice([at, rng.randrange(len(source) // _CELL) * _CELL])]
                slots[at].append(("duplicated", copied.record, copied.offset))
            elif kind == "moved":
                slots[at] = []
                slots[cells.pop() * _CELL + _CELL // 2].append(("moved", origin.record, origin.offset))
            elif kind == "swapped":
                slots[at], slots[at + 1] = slots[at + 1], slots[at]
                swaps.append((at, at + 1))
    return _written(slots, swaps, source)


_MIXES = (
    {"lost": 1, "foreign": 1},
    {"lost": 1, "duplicated": 1},
    {"lost": 2, "foreign": 1, "duplicated": 1},
    {"corrupted": 3},
    {"swapped": 1},
    {"moved": 1},
)
"""Damages that keep the number of records."""

_BLOCK = 64


def damaged_here_and_there(source: Sequence[Stored], rng: random.Random) -> Damaged:
    """Damage one in three blocks of a partition, in ways that keep the offsets of later records."""
    whole = Damaged([], set(), [])
    for start in range(0, len(source), _BLOCK):
        block = source[start : start + _BLOCK]
        mix = rng.choice(_MIXES) if len(block) == _BLOCK and rng.random() < 1 / 3 else {}
        part = damaged(block, mix, rng)
        base = len(whole.target)
        whole.target += part.target
        whole.findings |= {_moved(each, base) for each in part.findings}
        whole.either += [{_moved(each, base) for each in choice} for choice in part.either]
    return whole


def _moved(finding: Expected, by: int) -> Expected:
    kind, source_offset, target_offset = finding
    return kind, source_offset, None if target_offset is None else target_offset + by


def _written(
    slots: list[list[tuple[str, Record, int | None]]], swaps: list[tuple[int, int]], source: Sequence[Stored]
) -> Damaged:
    target: list[Record] = []
    findings: set[Expected] = set()
    landed: dict[int, int] = {}
    for slot in slots:
        for kind, record, offset in slot:
            if kind == "lost":
                findings.add(("lost", offset, None))
                continue
            if kind in {"corrupted", "duplicated", "foreign"}:
                findings.add((kind, offset, len(target)))
            elif kind == "moved":
                findings.add(("reordered", offset, len(target)))
            else:
                landed[offset] = len(target)  # type: ignore[index]  # an intact record has its offset
            target.append(record)
    either: list[set[Expected]] = [
        {("reordered", source[at].offset, landed[source[at].offset]) for at in pair} for pair in swaps
    ]
    return Damaged(target, findings, either)


def _spoiled(record: Record, rng: random.Random) -> Record:
    """The record with one part changed, often as little as possible."""
    part = rng.choice(["key", "value", "headers", "order", "stamp"])
    if part == "key":
        return replace(record, key=b"" if record.key is None else None if record.key == b"" else record.key + b"!")
    if part == "value":
        return replace(
            record, value=b"" if record.value is None else None if record.value == b"" else record.value[:-1]
        )
    if part == "order" and record.headers != record.headers[::-1]:
        return replace(record, headers=record.headers[::-1])
    if part == "stamp":
        return replace(record, stamp=record.stamp + rng.choice([-1, 1]))
    return replace(record, headers=(*record.headers, ("extra", rng.choice([None, b""]))))


def _stranger(rng: random.Random) -> Record:
    return Record(b"stranger", rng.randbytes(12), STAMP + rng.randrange(10_000))

"""Writes salvaged records back, into a topic of the target, exactly once however often it is run.

Each record keeps key, value, headers and timestamp, and gets a header PROVENANCE that names its origin and content:
`cluster id/topic/partition/offset/digest` (a source topic that was made anew has the same offsets again). The topic is
read before anything is written, and records whose header is already there are left out; in a compacted topic also
those that a later one of their key that is there makes superfluous, as the cleaner takes them. One transactional id
per topic fences off another running replay, and ends an interrupted one's last transaction, both before the topic is
read: so what was read is final. What stands behind a transaction that somebody has open is there as well: its end is
waited for.

A record that was `new` when it was salvaged need not be now: it is conflicting if others have written its key since,
to the compared topic or to the topic that is replayed into. If the compared topic is another one by now, or has lost
the end that it was compared with (its last batch there tells, as it may have grown again), all that it holds was
written since; so it counts, too, where that batch can't tell, as the cleaner wrote it anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow.parquet as pq
from aiokafka import AIOKafkaProducer, errors
from aiokafka.partitioner import DefaultPartitioner

from drkit.audit.salvage.salvage_folder import PARQUET, checked_manifest
from drkit.config import ClusterConfig, Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.data_client import StreamError
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.config.client_config import aiokafka_config
from drkit.kafka.protocol.record_columns import RecordColumns
from drkit.lag.diverged_logs import ComparedLogs, as_mirrored, compare_logs
from drkit.model.audit.audit_result import SalvageClass, TopicChoice
from drkit.model.clock import Deadline
from drkit.model.errors import ConfigError, DrkitError, Refused, Unreachable
from drkit.model.link_state import Direction
from drkit.model.offsets import LastBatch, Watermark
from drkit.model.topics.removing import CLEANUP, is_compacted
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more
from drkit.store.api import Store

PROVENANCE = "drkit-salvaged-from"
"""The header that says where a replayed record came from."""

_RECORDS_A_TRANSACTION = 5_000
_BYTES_A_TRANSACTION = 16 << 20  # which has _SECONDS, as each of its requests does
_BATCH_BYTES = 512 * 1024
_LARGEST_BYTES = 1 << 30  # the broker says what is too large
_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_OPEN_SECONDS = 60.0  # by default a broker ends a client's transaction after that time
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: records written now, those that were there already, those that weren't approved, those of
    topics that weren't chosen. `conflicting_since`: those that were new when they were salvaged, and aren't now.
    `unwritable`: approved ones that aren't there, of which a header's name is no UTF-8: a producer can't write it.
    `warnings`: why records that a former replay wrote may not be told from missing ones, or don't stay, in words.
    """

    topic: str
    written: int
    there_already: int
    not_approved: int
    not_chosen: int
    conflicting_since: int
    unwritable: int
    warnings: tuple[str, ...] = ()


def replay(
    folder: Path,
    topic: str,
    link: LinkId,
    config: Config,
    store: Store,
    *,
    approved: Collection[SalvageClass] = (SalvageClass.NEW,),
    topics: Sequence[TopicChoice] = (),
    progress: Callable[[str], None] | None = None,
) -> Replayed:
    """Write the records of a salvage to a topic of the link's target.

    A record goes to the partition it came from, or by its key where the topic has fewer partitions.

    Args:
        folder: the salvage.
        topic: the topic on the target; it must exist, and no mirror may write to it.
        link: the link that the salvage is of.
        config: the clusters.
        store: what mirrors write to.
        approved: only records that stand so to the target.
        topics: only records that come from these; all where none is named.
        progress: told what is being done.

    Raises:
        ConfigError: the salvage holds no topic that was chosen.
        Refused: the folder holds no whole salvage, or of another link; the topic isn't there, or is a standby's; what
            stands there can't be read; another replay into it began.
        Unreachable: the target doesn't answer.
    """
    say = progress or (lambda _: None)
    manifest = _checked_source(folder, link, topics)
    refuse_mirrored(topic, link.target, config, store)
    cluster = config.clusters[link.target]
    written = already = aside = elsewhere = since_then = unwritable = 0
    with ClusterAdmin(link.target, cluster) as admin:
        partitions = _partitions(admin, topic)
    with _Writer(cluster, link.target, topic, partitions) as writer:
        say(f"reading {topic} for records that are already there")
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        with ClusterAdmin(link.target, cluster) as admin:
            logs = _settled_logs(admin, {*tps, *_compared(manifest)}, say)
            compared, changed = _still_compared(manifest, admin, logs)
            policies = admin.topic_configs({tp.topic for tp in logs}, keys=(CLEANUP, "retention.ms"))
            dense = {name for name, settings in policies.items() if not is_compacted(settings)}
        others = compared.keys() - set(tps)
        since = {tp: (max(start, compared[tp]), end) for tp, (start, end) in logs.items() if tp in others}
        seen = _TargetContents(manifest["source_cluster_id"])
        for rows in _batches(folder):
            seen.expect(rows)
        own = {tp: logs[tp] for tp in tps}
        warnings = (*_changed_since(changed, link.target), *_warnings(topic, policies.get(topic, {}), own, seen.oldest))
        for words in warnings:
            say(words)
        _read(cluster, link.target, dense, own, lambda tp, record: seen.add(tp.partition, record, compared.get(tp, 0)))
        say("looking for keys that were written since the salvage")
        _read(cluster, link.target, dense, since, lambda _, record: seen.add_key(record))
        for everything in _batches(folder):
            chosen = [row for row in everything if _is_chosen(row, topics)]
            elsewhere += len(everything) - len(chosen)
            standings = [seen.standing(row) for row in chosen]
            since_then += sum(row["standing"] != stands for row, stands in zip(chosen, standings, strict=True))
            rows = [row for row, stands in zip(chosen, standings, strict=True) if stands in approved]
            aside += len(chosen) - len(rows)
            left = [
                (row, name)
                for row in rows
                if not seen.has(name := seen.provenance(row))
                and not (topic not in dense and seen.superseded(name, row["key"], writer.partition(row)))
            ]
            already += len(rows) - len(left)
            writable = [(row, name) for row, name in left if _is_writable(row)]
            unwritable += len(left) - len(writable)
            for portion in _portions(writable):
                writer.write(portion)
                written += len(portion)
                say(f"{written:,} records written to {topic}")
    return Replayed(topic, written, already, aside, elsewhere, since_then, unwritable, warnings)


def refuse_missing(topic: str, cluster: str, config: Config) -> None:
    """Raise `Refused` where the cluster has no such topic; before a salvage is made that is to be replayed there."""
    with ClusterAdmin(cluster, config.clusters[cluster]) as admin:
        _partitions(admin, topic)


def _partitions(admin: ClusterAdmin, topic: str) -> int:
    found = admin.topics([topic]).get(topic)
    if found is None:
        raise Refused(
            f"topic {topic} does not exist on {admin.alias}",
            meaning="Records are replayed into a topic that is there. Nothing was changed",
            remedy="Create it, then run the same command again",
        )
    return found.partitions


def refuse_mirrored(topic: str, cluster: str, config: Config, store: Store) -> None:
    """Raise `Refused` where a mirror writes to this topic of the cluster: any other record there breaks it."""
    for configured in config.links:
        link = configured.link()
        control = store.link_control(link.id)
        direction = Direction.ACTIVE if control is None else control.direction
        flows = link.id.reversed() if direction is Direction.REVERSED else link.id
        if flows.target != cluster or direction is Direction.SEALED:
            continue
        if any(state.target_topic == topic for state in store.topic_states(flows).values()):
            raise Refused(
                f"{topic} on {cluster} is written by the mirror of {flows}",
                meaning="Another record takes the offset of the mirror's next record: the mirror halts there",
                remedy="Replay into a topic of its own",
            )


def _checked_source(folder: Path, link: LinkId, topics: Sequence[TopicChoice]) -> dict[str, Any]:
    """The manifest; the folder is as it says."""
    manifest = checked_manifest(folder)
    if (manifest["source"], manifest["target"]) != (link.source, link.target):
        raise Refused(
            f"the salvage in {folder} is of {manifest['source']}->{manifest['target']}, not of {link}",
            remedy="Name its link with --link",
        )
    held = [(each["topic"], each["partition"]) for each in manifest["partitions"]]
    for choice in topics:
        if not any(choice.covers(*each) for each in held):
            raise ConfigError(
                f"--topic {choice.text}: the salvage in {folder} holds no such topic",
                remedy=f"Its topics are: {', '.join(sorted({name for name, _ in held})) or 'none'}",
            )
    return manifest


def _is_chosen(row: Mapping[str, Any], topics: Sequence[TopicChoice]) -> bool:
    return not topics or any(choice.covers(row["topic"], row["partition"]) for choice in topics)


def _settled_logs(
    admin: ClusterAdmin, tps: Iterable[TopicPartition], say: Callable[[str], None]
) -> dict[TopicPartition, tuple[int, int]]:
    """The logs' starts and ends of those partitions that are there, once everything below the ends is committed or
    aborted.

    Raises:
        Refused: a transaction stays open.
    """
    wanted = list(tps)
    known = admin.topics(sorted({tp.topic for tp in wanted}))
    there = [tp for tp in wanted if tp.topic in known and tp.partition < known[tp.topic].partitions]
    starts, ends = admin.start_offsets(there), admin.end_offsets(there, committed=False)
    patience = Deadline.after(_OPEN_SECONDS)
    told = False
    while True:
        stable = admin.end_offsets(there, committed=True)
        opened = {tp: stable[tp] for tp in there if stable[tp] < ends[tp]}
        if not opened:
            return {tp: (starts[tp], ends[tp]) for tp in there}
        if patience.passed:
            raise _hidden(admin.alias, opened, ends)
        if not told:
            say(f"waiting for a transaction that is open on {next(iter(opened))} to end")
            told = True
        time.sleep(_LOOK_SECONDS)


def _hidden(alias: str, opened: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Refused:
    """What stands behind an open transaction may be records that were put back already, or newer values of keys."""
    places = [f"{tp} from offset {first} to {ends[tp] - 1}" for tp, first in opened.items()]
    return Refused(
        f"a transaction is open on {alias}: {and_more(places)} can't be read until it ends",
        meaning="A salvaged record that was replayed before may stand there, or a newer value of its key: nothing was "
        "written",
        remedy="Let its producer end it, then run this again; kafka-transactions.sh find-hanging names one that nobody "
        "ends, and abort ends it",
    )


def _compared(manifest: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """By partition of the target, the offset up to which the salvage was compared with it."""
    return {
        TopicPartition(each["target_topic"], each["partition"]): each["target_through"]
        for each in manifest["partitions"]
    }


def _still_compared(
    manifest: Mapping[str, Any], admin: ClusterAdmin, logs: Mapping[TopicPartition, tuple[int, int]]
) -> tuple[dict[TopicPartition, int], ComparedLogs]:
    """As `_compared`, and 0 where the log is another one now, has lost its end since (it may have grown again), or
    may have: nothing of it is known from then. Second, which of the same logs those are."""
    ids = {each["target_topic"]: each["target_topic_id"] for each in manifest["partitions"]}
    here = {name: info.topic_id for name, info in admin.topics(sorted(ids)).items()}
    same_cluster = admin.cluster_id() == manifest["target_cluster_id"]
    known = {tp for tp in _compared(manifest) if same_cluster and tp in logs and here.get(tp.topic) == ids[tp.topic]}
    marks = [mark for each in manifest["partitions"] if (mark := _as_mirrored(each)).tp in known]
    found = compare_logs(admin, marks)
    known -= found.diverged.keys() | found.unproven
    return {tp: through if tp in known else 0 for tp, through in _compared(manifest).items()}, found


def _as_mirrored(compared: Mapping[str, Any]) -> Watermark:
    """A partition of the target up to where a salvage was compared with it."""
    tp, batch = TopicPartition(compared["target_topic"], compared["partition"]), compared["target_batch"]
    last = None if batch is None else LastBatch(batch["leader_epoch"], batch["last_offset"], batch["crc"])
    return as_mirrored(tp, compared["target_through"], last=last)


def _changed_since(logs: ComparedLogs, cluster: str) -> Iterator[str]:
    """What it means that these partitions lost their ends since the salvage, or may have, in words."""
    if logs.diverged:
        yield (
            f"{and_more(sorted(map(str, logs.diverged)))} on {cluster} lost the end that the salvage was compared "
            "with: all that stands there counts as written since, and records that were identical may be gone "
            "(--approve identical writes them again)"
        )
    if logs.unproven:
        yield (
            f"nothing shows that {and_more(sorted(map(str, logs.unproven)))} on {cluster} still hold what the salvage "
            "was compared with (the cleaner worked there, or no leader answers): all that stands there counts as "
            "written since (--approve conflicting writes salvaged records behind it)"
        )


def _warnings(
    topic: str,
    settings: Mapping[str, str],
    logs: Mapping[TopicPartition, tuple[int, int]],
    oldest: int | None,
) -> Iterator[str]:
    """What TOPIC's own removals mean for a replay, in words. `oldest`: the smallest timestamp (ms) in the salvage."""
    if begun := [f"{tp} ({start:,})" for tp, (start, _) in logs.items() if start]:
        yield f"the log's start is above 0 at {and_more(begun)}: what a former replay wrote below is written again"
    keeps = int(settings.get("retention.ms", -1)) if "delete" in settings.get(CLEANUP, "") else -1
    if oldest is not None and 0 <= keeps < time.time() * 1000 - oldest:
        yield (
            f"{topic} keeps records for retention.ms = {keeps:,}, and the salvage holds older ones: brokers remove "
            "them soon, and each further replay writes them again. Raise it first"
        )


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _content(row: Mapping[str, Any]) -> bytes:
    """What a record says, in bytes that no other record has."""
    return b"".join(b"-" if part is None else b"%d:%b" % (len(part), part) for part in _parts(row))


def _parts(row: Mapping[str, Any]) -> list[bytes | None]:
    parts = [row["key"], row["value"], str(row["timestamp_ms"]).encode()]
    for header in row["headers"]:
        parts += [header["key_bytes"] or header["key"].encode(), header["value"]]
    return parts


def _is_writable(row: Mapping[str, Any]) -> bool:
    return all(header["key_bytes"] is None for header in row["headers"])


class _Seen(NamedTuple):
    """A record that the target holds."""

    offset: int
    key: bytes | None
    headers: Iterable[tuple[str, bytes | None]]


@dataclass(slots=True)
class _TargetContents:
    """What the target holds: which salvaged records were put back already, and which of their keys others wrote.

    `mine`: the places in the salvage, by digests of the provenance of all its records; `keys`: digests of the keys of
    those that were new. `oldest`: the smallest timestamp of all (ms). `newest`: by partition and digest of a key, the
    last place of those that are there.
    """

    cluster_id: str
    mine: dict[bytes, int] = field(default_factory=dict)
    keys: set[bytes] = field(default_factory=set)
    there: set[bytes] = field(default_factory=set)
    written_since: set[bytes] = field(default_factory=set)
    oldest: int | None = None
    newest: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def expect(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Records of the salvage, before anything is added."""
        for row in rows:
            self.mine[_digest(self.provenance(row))] = len(self.mine)
            self.oldest = min(row["timestamp_ms"], self.oldest if self.oldest is not None else row["timestamp_ms"])
            if row["key"] is not None and row["standing"] == SalvageClass.NEW:
                self.keys.add(_digest(row["key"]))

    def provenance(self, row: Mapping[str, Any]) -> bytes:
        """What the header of a replayed record says."""
        place = f"{self.cluster_id}/{row['topic']}/{row['partition']}/{row['offset']}"
        return f"{place}/{_digest(_content(row)).hex()}".encode()

    def has(self, provenance: bytes) -> bool:
        """Whether the record was put back already."""
        return _digest(provenance) in self.there

    def superseded(self, provenance: bytes, key: bytes | None, partition: int) -> bool:
        """Whether a later record of the salvage, of the same key, is in that partition: in a compacted topic the
        cleaner has taken this one since, or would; written behind it, it would take the newer value's place."""
        return key is not None and self.newest.get((partition, _digest(key)), -1) > self.mine[_digest(provenance)]

    def add(self, partition: int, record: _Seen, judged_until: int) -> None:
        """A record of the topic that is replayed into; below `judged_until` the salvage has judged it."""
        mine = self._mine_of(record)
        self.there |= mine
        if record.key is not None and mine:
            at = partition, _digest(record.key)
            self.newest[at] = max(self.newest.get(at, -1), *(self.mine[each] for each in mine))
        if record.offset >= judged_until:
            self.add_key(record)

    def add_key(self, record: _Seen) -> None:
        """A record that was written since the salvage, or to another topic."""
        if record.key is not None and (digest := _digest(record.key)) in self.keys and not self._mine_of(record):
            self.written_since.add(digest)

    def _mine_of(self, record: _Seen) -> set[bytes]:
        """Which records of the salvage this one is a copy of."""
        named = (value for name, value in record.headers if name == PROVENANCE and value is not None)
        return {digest for value in named if (digest := _digest(value)) in self.mine}

    def standing(self, row: Mapping[str, Any]) -> SalvageClass:
        """How a salvaged record stands to the target now."""
        standing = SalvageClass(row["standing"])
        if standing is SalvageClass.NEW and row["key"] is not None and _digest(row["key"]) in self.written_since:
            return SalvageClass.CONFLICTING
        return standing


def _batches(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The records kept, in order within each partition; few at a time where they are large."""
    for path in sorted((folder / PARQUET).glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            size = max((group.total_byte_size // group.num_rows for group in groups if group.num_rows), default=0)
            most = max(1, min(_RECORDS_A_TRANSACTION, _BYTES_A_TRANSACTION // max(1, size)))
            for batch in file.iter_batches(batch_size=most):
                yield batch.to_pylist()


def _portions(rows: Iterable[tuple[dict[str, Any], bytes]]) -> Iterator[list[tuple[dict[str, Any], bytes]]]:
    """The records of a transaction each: of so many bytes, or one that is larger."""
    portion: list[tuple[dict[str, Any], bytes]] = []
    held = 0
    for row, name in rows:
        size = sum(len(part) for part in _parts(row) if part is not None)
        if portion and held + size > _BYTES_A_TRANSACTION:
            yield portion
            portion, held = [], 0
        portion.append((row, name))
        held += size
    if portion:
        yield portion


def _unread(alias: str, tp: TopicPartition, offset: int) -> DrkitError:
    """What can't be read may hold records that were put back already, or newer values of their keys."""
    return Refused(
        f"{tp} on {alias} can't be read at offset {offset}: its batch is damaged or can't be found",
        meaning="The record there may be a salvaged one that was replayed before, or a newer value of its key: "
        "drkit writes no more",
        remedy="Replay into another topic; `drkit audit` names the unreadable offsets",
    )


class _Writer:
    """Writes records in transactions; whoever opened the topic's replay before is fenced off.

    aiokafka's producer writes a record as it is given; librdkafka's takes a stamp of 0 for none, and puts its own.
    """

    def __init__(self, cluster: ClusterConfig, alias: str, topic: str, partitions: int) -> None:
        self._alias, self._topic, self._partitions = alias, topic, partitions
        self._runner = asyncio.Runner()
        self._config = aiokafka_config(cluster)
        self._producer: AIOKafkaProducer | None = None
        self._partitioner = DefaultPartitioner()

    def __enter__(self) -> Self:
        try:
            self._sure("prepare the replay", self._open)
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(*StreamError), self._runner:
            self._runner.run(asyncio.wait_for(self._opened().stop(), _CLOSE_SECONDS))

    def write(self, rows: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        """Write these records, all or none."""
        self._sure("write a transaction", lambda: self._transaction(rows))

    async def _open(self) -> None:
        self._producer = AIOKafkaProducer(
            **self._config,
            transactional_id=f"drkit-replay-{self._topic}",
            max_batch_size=_BATCH_BYTES,
            max_request_size=_LARGEST_BYTES,
        )
        await self._producer.start()

    def _opened(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise RuntimeError("not opened")
        return self._producer

    async def _transaction(self, rows: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        producer = self._opened()
        written: list[asyncio.Future[Any]] = []
        filling: dict[int, Any] = {}
        await producer.begin_transaction()
        for row, name in rows:
            headers = [*((header["key"], header["value"]) for header in row["headers"]), (PROVENANCE, name)]
            content = {"key": row["key"], "value": row["value"], "timestamp": row["timestamp_ms"], "headers": headers}
            partition = self.partition(row)
            batch = filling.get(partition)
            if batch is None:
                batch = filling[partition] = producer.create_batch()
            if batch.append(**content) is None:  # it is full
                written.append(await producer.send_batch(batch, self._topic, partition=partition))
                batch = filling[partition] = producer.create_batch()
                batch.append(**content)
        for partition, batch in filling.items():
            written.append(await producer.send_batch(batch, self._topic, partition=partition))
        await asyncio.gather(*written)
        await producer.commit_transaction()

    def partition(self, row: Mapping[str, Any]) -> int:
        """The partition that a record goes to."""
        numbers = list(range(self._partitions))
        if row["partition"] in numbers:
            return int(row["partition"])
        return int(self._partitioner(row["key"], numbers, numbers))

    def _sure(self, what: str, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        again = "Run it again: it writes no record twice"
        try:
            self._runner.run(asyncio.wait_for(step(), _SECONDS))
        except (errors.ProducerFenced, errors.InvalidProducerEpoch) as failure:
            raise Refused(
                f"another replay into {self._topic} has begun", remedy="Let it end, then run this again"
            ) from failure
        except TimeoutError as failure:
            raise Unreachable(f"{self._alias} did not answer in time to {what}", remedy=again) from failure
        except StreamError as failure:
            raise Unreachable(f"{self._alias} failed to {what}: {failure!r}", remedy=again) from failure


def _read(
    cluster: ClusterConfig,
    alias: str,
    dense: Collection[str],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    take: Callable[[TopicPartition, _Seen], None],
) -> None:
    """Hand over every committed record within these offsets. `dense`: as for `LogReader`."""
    with LogReader(alias, cluster, dense=dense) as reader:
        for tp, (first, until) in bounds.items():
            for batch in chain.from_iterable(reader.read(tp.topic, tp.partition, first, until)):
                columns = RecordColumns()
                if not columns.add_readable(batch, first, until):
                    raise _unread(alias, tp, max(first, batch.base_offset))
                for offset, key, headers in zip(columns.offsets, columns.keys, columns.headers, strict=True):
                    take(tp, _Seen(offset, key, headers or ()))

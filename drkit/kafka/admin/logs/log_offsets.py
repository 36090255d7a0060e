"""Log offsets by partition: one request per leader, each partition's response handled separately."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.admin import DeleteRecordsRequest, DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from drkit.kafka.admin.admin_connection import (
    UNREADABLE,
    AdminConnection,
    RetryLater,
    StepConnection,
    check,
    describe,
    error_class,
)
from drkit.kafka.protocol.record_batch import UNKNOWN_EPOCH
from drkit.model.clock import Deadline
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted

NO_ANSWER = "its leader has not answered"
_SHOWN = 3
EARLIEST = -2
LATEST = -1
_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_CONSUMER = -1
_OBSERVER = -2
"""A replica id that sees the log to its very end, beyond the high watermark. Followers answer it, too, of their own
log: it comes with the leader's epoch, which refuses whoever isn't that leader any more."""
_PARTITIONS_A_REQUEST = 5_000
_ELECTION_SECONDS = 3.0
"""How long a partition that its cluster says has no leader is waited for, where it may be left out: the election of
another one takes less."""
_LEADERS_SECONDS = 30.0
"""Shorter than the minute for which the data path trusts its metadata."""


class _View(NamedTuple):
    """The role in which ListOffsets is requested."""

    isolation: int
    replica: int


class _Leader(NamedTuple):
    """A partition's leader by metadata: its node id, and its leader epoch."""

    node: int
    epoch: int


class RecentLeaders:
    """Recent leaders by partition, for repeated calls with the same partitions: reading a partition's metadata costs
    twice as much as listing its offset. Shared by threads.

    A broker that no longer leads a partition refuses to list its offsets: then metadata are read again. A broker that
    doesn't know this yet (cut off from its controller) is trusted until the entry expires.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, tuple[_Leader, float]] = {}

    def among(
        self, tps: Iterable[TopicPartition], epochs: dict[TopicPartition, int] | None = None
    ) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        """Partitions by the node id of their leader, and those whose leader isn't known. `epochs` collects the
        leaders' epochs."""
        at = self._clock()
        leaders: dict[int, list[TopicPartition]] = defaultdict(list)
        others = []
        with self._lock:
            for tp in tps:
                known = self._known.get(tp)
                if known is None or known[1] <= at:
                    others.append(tp)
                    continue
                leaders[known[0].node].append(tp)
                if epochs is not None:
                    epochs[tp] = known[0].epoch
        return leaders, others

    def learn(self, leaders: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Store leaders just read from metadata: their node ids and leader epochs."""
        until = self._clock() + _LEADERS_SECONDS
        with self._lock:
            self._known.update((tp, (_Leader(*leader), until)) for tp, leader in leaders.items())

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Drop partitions whose leaders didn't answer."""
        with self._lock:
            for tp in tps:
                self._known.pop(tp, None)


@dataclass(slots=True)
class _Answers:
    """Responses so far. `absent`: no such partition; `pending`: why the others have no answer yet; `denied`: those
    that drkit may not see, None if that is an error.
    """

    found: dict[TopicPartition, int] = field(default_factory=dict)
    absent: set[TopicPartition] = field(default_factory=set)
    pending: dict[TopicPartition, str] = field(default_factory=dict)
    denied: set[TopicPartition] | None = None


class _Asked(NamedTuple):
    """What is asked for: timestamps by partition, in a role, of the leaders of these epochs (none: of any)."""

    times: Mapping[TopicPartition, int]
    view: _View
    epochs: Mapping[TopicPartition, int]


def list_offsets(
    connection: AdminConnection,
    what: str,
    times: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
    true_end: bool = False,
    partial: bool = False,
    silent: dict[TopicPartition, str] | None = None,
    recent: RecentLeaders | None = None,
) -> dict[TopicPartition, int]:
    """Offsets by timestamp (ms, or `EARLIEST` / `LATEST`) of each partition; -1: no such record.

    Partitions that don't exist are left out. A partition without a leader is retried until the
    timeout; then `partial` leaves it out too, else raises `Unreachable`, naming it. A partition that drkit's principal
    may not see is left out with `partial`, else raises `Refused`. `silent`: like `partial`, and collects those without
    an answer, with the reason; one that has no leader by its cluster's word is waited for a few seconds only. `LATEST`
    is the high watermark, with `committed` the last stable offset, with `true_end` the log's end on its leader.
    `recent`: the leaders that are asked without reading metadata first.
    """
    if not times:
        return {}
    partial = partial or silent is not None
    answers = _Answers(pending=dict.fromkeys(times, NO_ANSWER), denied=set() if partial else None)
    patience: list[Deadline] = []
    view = _View(_READ_COMMITTED if committed else _READ_UNCOMMITTED, _OBSERVER if true_end else _CONSUMER)

    async def step(connection: StepConnection) -> None:
        if not patience:
            patience.append(Deadline.after(_ELECTION_SECONDS))
        epochs: dict[TopicPartition, int] = {}
        leaders, leaderless = await _leaders(connection, answers, recent, epochs)
        asked = _Asked(times, view, epochs if true_end else {})
        await connection.gather(
            _ask_or_leave(connection, leader, tps, asked, answers) for leader, tps in leaders.items()
        )
        if answers.pending:
            if recent is not None:
                recent.forget(answers.pending)
            if silent is not None and patience[0].passed and answers.pending.keys() <= set(leaderless):
                return
            raise without_answer(answers.pending)

    try:
        connection.call(what, step)
    except Unreachable:
        if not (partial and answers.found):
            raise
    if silent is not None:
        silent.update(answers.pending)
    return answers.found


async def _leaders(
    connection: StepConnection,
    answers: _Answers,
    recent: RecentLeaders | None,
    epochs: dict[TopicPartition, int],
) -> tuple[dict[int, list[TopicPartition]], Collection[TopicPartition]]:
    """Pending partitions by leader, and those without one; those that don't exist or are denied are pending no more.
    `epochs` collects the leaders' epochs."""
    leaders, unknown = ({}, list(answers.pending)) if recent is None else recent.among(answers.pending, epochs)
    leaderless: dict[TopicPartition, str] = {}
    if unknown:
        named = await find_leaders(
            connection, unknown, answers.absent, epochs, denied=answers.denied, recent=recent, leaderless=leaderless
        )
        answers.pending.update(leaderless)
        for leader, tps in named.items():
            leaders.setdefault(leader, []).extend(tps)
    for tp in answers.absent | (answers.denied or set()):
        answers.pending.pop(tp, None)
    return leaders, leaderless.keys()


def without_answer(pending: Mapping[TopicPartition, str]) -> RetryLater:
    """A step's failure that names the partitions without an answer, with the reason for each."""
    named = and_more([f"{tp}: {why}" for tp, why in sorted(pending.items())], separator="; ", shown=_SHOWN)
    return RetryLater(f"{counted(len(pending), 'partition')} without an answer ({named})")


async def find_leaders(
    connection: StepConnection,
    tps: Iterable[TopicPartition],
    absent: set[TopicPartition],
    epochs: dict[TopicPartition, int] | None = None,
    *,
    denied: set[TopicPartition] | None = None,
    recent: RecentLeaders | None = None,
    node: int | None = None,
    leaderless: dict[TopicPartition, str] | None = None,
) -> dict[int, list[TopicPartition]]:
    """Partitions by leader's node id, from fresh metadata; those that don't exist go to `absent`.

    Partitions without a leader are in neither; `leaderless` collects them, with the brokers that would have to come
    back. `epochs` collects the leaders' epochs. `denied` collects partitions of topics that drkit's principal may not
    see; None: that is an error. `recent` collects the leaders of all partitions of these topics. `node`: the broker to
    ask; None: any.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for tp in tps:
        wanted[tp.topic].add(tp.partition)
    topic_type = MetadataRequest.MetadataRequestTopic
    response = await connection.send(
        MetadataRequest(topics=[topic_type(name=name) for name in wanted], allow_auto_topic_creation=False), node
    )
    leaders: dict[int, list[TopicPartition]] = defaultdict(list)
    alive = {broker.node_id for broker in response.brokers}
    for topic in response.topics:
        left_out = _why_left_out(topic.error_code, topic.name, absent, denied)
        if left_out is not None:
            left_out.update(TopicPartition(topic.name, partition) for partition in wanted[topic.name])
            continue
        known = {partition.partition_index: partition for partition in topic.partitions}
        if recent is not None:
            recent.learn(_led(topic))
        for partition in wanted[topic.name]:
            tp = TopicPartition(topic.name, partition)
            if partition not in known:
                absent.update({tp} if known else ())
            elif known[partition].leader_id >= 0:
                leaders[known[partition].leader_id].append(tp)
                if epochs is not None:
                    epochs[tp] = known[partition].leader_epoch
            elif leaderless is not None:
                leaderless[tp] = _why_leaderless(known[partition], alive)
    return leaders


def _led(topic: Any) -> dict[TopicPartition, tuple[int, int]]:
    """The leaders of a topic of a metadata response and their epochs, by partition; without those that have none."""
    led = [each for each in topic.partitions if each.leader_id >= 0]
    return {TopicPartition(topic.name, each.partition_index): (each.leader_id, each.leader_epoch) for each in led}


def _why_leaderless(partition: Any, alive: Collection[int]) -> str:
    """Why a partition of a metadata response has no leader: which of the brokers that could lead it are down."""
    could_lead = partition.isr_nodes or partition.replica_nodes  # the last in-sync replicas are kept
    down = [str(node) for node in sorted(could_lead) if node not in alive]
    if not down:
        return "it has no leader now"
    which = f"broker {down[0]} is" if len(down) == 1 else f"brokers {and_more(down)} are"
    return f"it has no leader: {which} down"


def _why_left_out(
    code: int, topic: str, absent: set[TopicPartition], denied: set[TopicPartition] | None
) -> set[TopicPartition] | None:
    """The set that a topic's partitions belong to; None: neither. Raises errors that can't be left out."""
    error = error_class(code)
    if error in {kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError}:
        return absent
    if error is kafka_errors.TopicAuthorizationFailedError and denied is not None:
        return denied
    if code and not error.retriable:
        check(code, topic)
    return None


async def _ask_or_leave(
    connection: StepConnection,
    leader: int,
    tps: list[TopicPartition],
    asked: _Asked,
    answers: _Answers,
) -> None:
    """As `_ask`, in batches; the partitions of an unreachable leader stay pending."""
    try:
        for start in range(0, len(tps), _PARTITIONS_A_REQUEST):
            await _ask(connection, leader, tps[start : start + _PARTITIONS_A_REQUEST], asked, answers)
    except kafka_errors.KafkaError as error:
        if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
            raise
        answers.pending.update(dict.fromkeys(tps, str(error)))


def topics_asked(
    times: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None
) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """The topics of a ListOffsets request of version 4 or 5, as plain tuples: objects, in a version with tags, take
    seven times the CPU, which counts over thousands of partitions. `epochs`: of the leaders that are to answer."""
    by_topic: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    known = epochs or {}
    for tp, timestamp in times.items():
        by_topic[tp.topic].append((tp.partition, known.get(tp, UNKNOWN_EPOCH), timestamp))
    return list(by_topic.items())


async def _ask(
    connection: StepConnection,
    leader: int,
    tps: list[TopicPartition],
    asked: _Asked,
    answers: _Answers,
) -> None:
    request = ListOffsetsRequest(
        replica_id=asked.view.replica,
        isolation_level=asked.view.isolation,
        topics=topics_asked({tp: asked.times[tp] for tp in tps}, asked.epochs),
        min_version=4,
        max_version=5,  # later versions add nothing that is needed here
    )
    response = await connection.send(request, leader)
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == 0:
                answers.found[tp] = partition.offset
                answers.pending.pop(tp, None)
                continue
            error = error_class(partition.error_code)
            if error is kafka_errors.TopicAuthorizationFailedError and answers.denied is not None:
                answers.denied.add(tp)
                answers.pending.pop(tp, None)
                continue
            if not error.retriable and error not in UNREADABLE:
                raise error(str(tp))
            answers.pending[tp] = describe(error)


def delete_records(connection: AdminConnection, before: Mapping[TopicPartition, int]) -> None:
    """Move each partition's log start to the offset given (never beyond its high watermark).

    Raises:
        Refused: an offset beyond the log's end, a topic that isn't `cleanup.policy=delete`, or a
            partition that doesn't exist.
    """
    left = dict(before)

    async def step(connection: StepConnection) -> None:
        absent: set[TopicPartition] = set()
        leaderless: dict[TopicPartition, str] = {}
        leaders = await find_leaders(connection, left, absent, leaderless=leaderless)
        if absent:
            raise _refused_deletion(connection, min(absent), "UNKNOWN_TOPIC_OR_PARTITION")
        for leader, tps in leaders.items():
            await _delete_at(connection, leader, {tp: left[tp] for tp in tps}, left)
        if left:
            raise without_answer({tp: leaderless.get(tp, NO_ANSWER) for tp in left})

    connection.call("delete records", step)


async def _delete_at(
    connection: StepConnection, leader: int, before: Mapping[TopicPartition, int], left: dict[TopicPartition, int]
) -> None:
    topic_type = DeleteRecordsRequest.DeleteRecordsTopic
    partition_type = topic_type.DeleteRecordsPartition
    by_topic: dict[str, list[object]] = defaultdict(list)
    for tp, offset in before.items():
        by_topic[tp.topic].append(partition_type(partition_index=tp.partition, offset=offset))
    response = await connection.send(
        DeleteRecordsRequest(
            topics=[topic_type(name=name, partitions=partitions) for name, partitions in by_topic.items()],
            timeout_ms=int(connection.timeout_seconds * 1000),
        ),
        leader,
    )
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == 0:
                left.pop(tp, None)
                continue
            error = error_class(partition.error_code)
            if not error.retriable:
                raise _refused_deletion(connection, tp, describe(error))


def _refused_deletion(connection: StepConnection, tp: TopicPartition, why: str) -> Refused:
    return Refused(
        f"cluster {connection.alias} would not delete records of {tp}: {why}",
        meaning="OFFSET_OUT_OF_RANGE: beyond the log's end; POLICY_VIOLATION: the topic is only compacted",
        remedy="Delete below the log's end, and only on topics whose cleanup.policy holds delete",
    )


def log_sizes(connection: AdminConnection, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Bytes by partition; those that no leader reports are left out.

    Raises:
        Refused: the cluster denies it; it needs DESCRIBE on the cluster.
    """
    wanted = list(tps)
    found: dict[TopicPartition, int] = {}

    async def step(connection: StepConnection) -> None:
        leaders = await find_leaders(connection, wanted, set())
        await connection.gather(_ask_sizes(connection, leader, led, found) for leader, led in leaders.items())

    if wanted:
        connection.call("read the sizes of logs", step)
    return found


async def _ask_sizes(
    connection: StepConnection, leader: int, tps: list[TopicPartition], found: dict[TopicPartition, int]
) -> None:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(tp.partition)
    topic_type = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(
        topics=[topic_type(topic=name, partitions=numbers) for name, numbers in by_topic.items()], max_version=4
    )
    response = await connection.send(request, leader)
    check(response.error_code, "sizes of logs")
    for folder in response.results:
        if folder.error_code:
            error = error_class(folder.error_code)
            if not error.retriable:
                raise error(folder.log_dir)
            continue
        for topic in folder.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    found[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size

"""Administration of one cluster: topics, their configuration, log offsets. See `drkit.kafka.admin.admin_connection`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
)
from kafka.protocol.consumer import FetchRequest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin import acls, cluster_description, topic_requests
from drkit.kafka.admin.admin_connection import (
    ClusterClient,
    Reachability,
    RetryLater,
    StepConnection,
    describe,
    error_class,
)
from drkit.kafka.admin.client_settings import (
    ClientSettings,
    client_settings,
    longest_transaction,
    offsets_retention,
    producer_expiration,
)
from drkit.kafka.admin.cluster_description import (
    ClusterVersions,
    ControllerClock,
    Disk,
    MetadataEnd,
    cluster_versions,
    disks,
)
from drkit.kafka.admin.logs import leader_epochs, log_offsets
from drkit.kafka.admin.logs.leader_epochs import EpochEnd, LogBatch
from drkit.kafka.admin.logs.log_offsets import log_sizes
from drkit.kafka.admin.topic_requests import (
    TOPICS_A_REQUEST,
    NewTopic,
    Teller,
    ToldSettings,
    TopicInfo,
    alter_request,
    create_request,
    first_to_create,
    metadata,
    reason,
    told_configs,
    topic_info,
)
from drkit.kafka.admin.write_block import BLOCK, wait_until_blocked
from drkit.kafka.client import record_probe
from drkit.kafka.client.record_probe import LogPosition, OffsetRange, ProbedRecord, Scanned, probe_records
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, Refused
from drkit.model.topics.acls import Acl
from drkit.model.topics.removing import CLEANUP, is_compacted
from drkit.model.topology import TopicPartition

__all__ = ["TOPIC_EXISTS", "Broker", "ClusterAdmin", "NewTopic", "TopicInfo"]

_FETCH_BY_ID = 13
TOPIC_EXISTS = "TOPIC_ALREADY_EXISTS"
"""Why a topic isn't created (`ClusterAdmin.create_topics`): it is there, or somebody else was faster."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as its cluster's metadata lists it (fenced and dead ones aren't listed)."""

    node_id: int
    host: str
    port: int


class ClusterAdmin(ClusterClient):
    """Topics, configurations and log offsets of one cluster. Connects at the first call.

    Every call ends within `timeout_seconds`, raising `Unreachable` when the cluster didn't answer;
    authorization failures are `Refused`, rejected credentials `ConfigError`.
    """

    def __init__(
        self, alias: str, cluster: ClusterConfig, *, timeout_seconds: float = 10.0, reach: Reachability | None = None
    ) -> None:
        super().__init__(alias, cluster, timeout_seconds=timeout_seconds, reach=reach)
        self._recent = log_offsets.RecentLeaders()

    # -- the cluster -------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """Kafka's id of the cluster."""
        response = self._connection.call("read the cluster's id", metadata([]))
        cluster_id: str | None = response.cluster_id
        if not cluster_id:
            raise DrkitError(f"cluster {self.alias} reports no cluster id", remedy="It must run Kafka 0.10.1 or later")
        return cluster_id

    @property
    def reads_by_topic_id(self) -> bool:
        """Whether its brokers are read by topic ids (Kafka 3.1, KIP-516). False: they aren't, or none is connected."""
        return (self._connection.supports(FetchRequest) or 0) >= _FETCH_BY_ID

    def brokers(self) -> list[Broker]:
        """The live brokers, by node id."""
        response = self._connection.call("list brokers", metadata([]))
        return sorted(
            (Broker(broker.node_id, broker.host, broker.port) for broker in response.brokers),
            key=lambda broker: broker.node_id,
        )

    # -- topics ------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None, *, denied: set[str] | None = None) -> dict[str, TopicInfo]:
        """Topics by name: all visible ones, or those of `names` that exist.

        `denied` collects those of `names` that drkit's principal may not see: whether they exist is unknown. None: such
        a topic raises `Refused`.
        """
        wanted = None if names is None else list(names)
        if wanted is not None and not wanted:
            return {}
        response = self._connection.call("list topics", metadata(wanted))
        found = {}
        for topic in response.topics:
            error = error_class(topic.error_code)
            if error in {kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError}:
                continue
            if error is kafka_errors.TopicAuthorizationFailedError and denied is not None:
                denied.add(topic.name)
                continue
            if topic.error_code and not error.retriable:
                raise Refused(
                    f"cluster {self.alias} does not show topic {topic.name}: {describe(error)}",
                    remedy="Grant drkit's principal DESCRIBE on it",
                )
            found[topic.name] = topic_info(topic)
        return found

    def topic_configs(
        self,
        names: Iterable[str],
        *,
        keys: Sequence[str] | None = None,
        denied: set[str] | None = None,
        tellers: set[Teller] | None = None,
    ) -> dict[str, dict[str, str]]:
        """Effective configuration of topics (broker defaults included), by topic.

        `keys` restricts it to these settings (far cheaper over many topics). Topics that don't exist
        and settings without a value are left out. `denied` collects topics whose settings drkit's principal may not
        read; None: such a topic raises `Refused`. `tellers`: ask each broker in its turn; it collects the one that told
        all of them, if the connection to it has held meanwhile.
        """
        wanted = list(names)

        async def step(connection: StepConnection) -> ToldSettings:
            node = None if tellers is None else connection.next_broker()
            return await told_configs(connection, wanted, keys, denied, node)

        if not wanted:
            return {}
        told: ToldSettings = self._connection.call("read topic configurations", step)
        if tellers is not None and told.teller is not None:
            tellers.add(told.teller)
        return told.settings

    def topic_configs_of(
        self, names: Iterable[str], *, keys: Sequence[str], nodes: Iterable[int]
    ) -> dict[int, ToldSettings]:
        """As `topic_configs`, as each of these brokers tells it: see `topic_requests.configs_by_broker`."""
        return topic_requests.configs_by_broker(self._connection, set(names), keys, set(nodes))

    def compacted(self, names: Iterable[str]) -> set[str]:
        """Those of these topics on which the log cleaner works.

        Raises:
            Refused: drkit's principal may not read a topic's settings.
        """
        return {name for name, settings in self.topic_configs(names, keys=(CLEANUP,)).items() if is_compacted(settings)}

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until each partition has a leader.

        Raises:
            Refused: it exists, or the cluster can't hold it (with its reason).
        """
        failures = self.create_topics([NewTopic(name, partitions, replication_factor, config or {})])
        if name in failures:
            raise Refused(
                f"topic {name} can't be created on cluster {self.alias}: {failures[name]}",
                remedy="Remove the cause named, or create the topic by hand",
            )

    def create_topics(self, new: Sequence[NewTopic], *, confirmed: set[str] | None = None) -> dict[str, str]:
        """Create many topics, waiting until they can be written; returns why, by topic, for those that failed.

        A topic that exists already is a failure (`TOPIC_EXISTS`), unless it appeared after an attempt of drkit's whose
        response was lost. `confirmed` collects those that the cluster reported as created, even if the call then fails
        because they can't be written in time.
        """
        left = {topic.name: topic for topic in new}
        denied: set[str] = set()
        existing = self.topics(left, denied=denied) if left else {}
        failures = dict.fromkeys(existing, TOPIC_EXISTS)
        failures.update(dict.fromkeys(denied, "TOPIC_AUTHORIZATION_FAILED"))
        for name in failures:
            del left[name]
        asked: set[str] = set()

        async def step(connection: StepConnection) -> None:
            chunk = first_to_create(left.values())
            while chunk:
                sent_before = set(asked)
                response = await connection.send(
                    create_request(chunk, connection.timeout_seconds),
                    sent=partial(asked.update, [topic.name for topic in chunk]),
                )
                for topic in response.topics:
                    error = error_class(topic.error_code)
                    if topic.error_code and error.retriable:
                        raise error(topic.name)
                    exists = error is kafka_errors.TopicAlreadyExistsError
                    if topic.error_code and not (exists and topic.name in sent_before):
                        failures[topic.name] = TOPIC_EXISTS if exists else reason(error, topic.error_message)
                    elif confirmed is not None and not topic.error_code:
                        confirmed.add(topic.name)
                    left.pop(topic.name, None)
                chunk = first_to_create(left.values())

        if left:
            self._connection.call("create topics", step)
        created = [topic.name for topic in new if topic.name not in failures]
        self._wait_for_topics(
            "wait for new topics", created, lambda seen: [n for n in created if n not in seen or seen[n].leaderless]
        )
        return failures

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions and wait until each has a leader.

        Raises:
            Refused: the topic has as many or more, or the cluster denies it.
        """

        async def step(connection: StepConnection) -> None:
            topic_type = CreatePartitionsRequest.CreatePartitionsTopic
            response = await connection.send(
                CreatePartitionsRequest(
                    topics=[topic_type(name=name, count=total, assignments=None)],
                    timeout_ms=int(connection.timeout_seconds * 1000),
                    validate_only=False,
                )
            )
            for result in response.results:
                error = error_class(result.error_code)
                if result.error_code == 0:
                    continue
                if error.retriable and error is not kafka_errors.UnknownTopicOrPartitionError:
                    raise error(name)
                seen = (await metadata([name])(connection)).topics[0]
                if len(seen.partitions) == total:
                    return  # an earlier attempt, whose response was lost, did it
                raise Refused(
                    f"topic {name} on cluster {self.alias} can't be grown to {total} partitions: "
                    f"{reason(error, result.error_message)}",
                    remedy="Remove the cause named, or add the partitions by hand",
                )

        self._connection.call(f"add partitions to {name}", step)

        def unready(seen: dict[str, TopicInfo]) -> list[str]:
            grown = name in seen and seen[name].partitions >= total and not seen[name].leaderless
            return [] if grown else [name]

        self._wait_for_topics(f"wait for new partitions of {name}", [name], unready)

    def set_topic_configs(self, name: str, config: Mapping[str, str]) -> None:
        """Set these settings of a topic, leaving its others as they are.

        Raises:
            Refused: the cluster denies a value (with its reason).
        """
        failures = self.set_many_topic_configs({name: config})
        if name in failures:
            raise Refused(
                f"topic {name} on cluster {self.alias} can't be configured: {failures[name]}",
                remedy="Remove the cause named, or configure the topic by hand",
            )

    def set_many_topic_configs(self, configs: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
        """Set settings of many topics (None: remove the topic's own value); returns why, by topic, for those that
        failed."""
        wanted = [(name, config) for name, config in configs.items() if config]
        failures: dict[str, str] = {}

        async def step(connection: StepConnection) -> None:
            for start in range(0, len(wanted), TOPICS_A_REQUEST):
                response = await connection.send(alter_request(wanted[start : start + TOPICS_A_REQUEST]))
                for result in response.responses:
                    error = error_class(result.error_code)
                    if result.error_code and error.retriable and error is not kafka_errors.UnknownTopicOrPartitionError:
                        raise error(result.resource_name)
                    if result.error_code:
                        failures[result.resource_name] = reason(error, result.error_message)

        if wanted:
            self._connection.renew_permission()
            self._connection.call("configure topics", step)
        return failures

    def block_writes(self, partitions: Mapping[str, int]) -> None:
        """Block all writes of clients to these topics (with their numbers of partitions), and wait until each leader
        refuses them.

        Raises:
            Refused: the cluster denies it.
            Unreachable: a leader doesn't answer, or doesn't refuse in time.
        """
        for name, why in self.set_many_topic_configs(dict.fromkeys(partitions, BLOCK)).items():
            raise Refused(
                f"writes to topic {name} on cluster {self.alias} can't be blocked: {why}",
                remedy="Remove the cause named",
            )
        tps = [TopicPartition(name, number) for name, count in partitions.items() for number in range(count)]
        wait_until_blocked(self._connection, tps)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and wait until the cluster no longer lists them. Absent ones are fine.

        Raises:
            Refused: the cluster denies it (``delete.topic.enable=false``).
        """
        wanted = list(names)

        async def step(connection: StepConnection) -> None:
            state = DeleteTopicsRequest.DeleteTopicState
            response = await connection.send(
                DeleteTopicsRequest(
                    topics=[state(name=name) for name in wanted],
                    topic_names=wanted,
                    timeout_ms=int(connection.timeout_seconds * 1000),
                )
            )
            for result in response.responses:
                error = error_class(result.error_code)
                if result.error_code == 0 or error is kafka_errors.UnknownTopicOrPartitionError:
                    continue
                if error.retriable:
                    raise error(result.name)
                raise Refused(
                    f"topic {result.name} can't be deleted on cluster {self.alias}: {describe(error)}",
                    remedy="Allow topic deletion on that cluster, or delete it by hand",
                )

        if wanted:
            self._connection.call("delete topics", step)
            self._wait_for_topics("wait for topics to be gone", wanted, list)

    def absent_everywhere(self, names: Iterable[str]) -> set[str]:
        """Those of these topics that no broker of the cluster knows; asks each. `Unreachable` if one is silent."""
        return topic_requests.absent_everywhere(self._connection, set(names))

    def ids_everywhere(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of those of these topics that every broker of the cluster knows, under one id; asks each.
        `Unreachable` if one is silent."""
        return topic_requests.ids_on_all(self._connection, set(names))

    def delete_exact(
        self, topics: Mapping[str, str], *, wait: bool = False, until: Deadline | None = None
    ) -> dict[str, str]:
        """Delete topics given by name and topic id, not another of the same name; returns the reason for each one left.

        `wait`: wait until the cluster lists none of the others under that id. `until`: as in
        `topic_requests.delete_exact`.
        """
        self._connection.renew_permission()
        failures = topic_requests.delete_exact(self._connection, topics, until)
        going = {name: topic_id for name, topic_id in topics.items() if name not in failures}

        def listed(seen: dict[str, TopicInfo]) -> list[str]:
            return [name for name, topic_id in going.items() if name in seen and seen[name].topic_id == topic_id]

        if wait:
            self._wait_for_topics("wait for topics to be gone", list(going), listed)
        return failures

    # -- ACLs --------------------------------------------------------------------------------------

    def acls(self) -> frozenset[Acl]:
        """All ACLs of topics and groups. `Refused` if there is no authorizer, or drkit may not see them."""
        return acls.describe_acls(self._connection)

    def acls_by_broker(self) -> dict[int, frozenset[Acl]]:
        """The ACLs that each broker applies, by node id."""
        return acls.acls_by_broker(self._connection)

    def create_acls(self, rules: Iterable[Acl]) -> dict[Acl, str]:
        """Add ACLs; returns the reason for each refused one."""
        return acls.create_acls(self._connection, set(rules))

    def delete_acls(self, rules: Iterable[Acl]) -> dict[Acl, str]:
        """Remove exactly these ACLs; returns the reason for each refused one."""
        self._connection.renew_permission()
        return acls.delete_acls(self._connection, set(rules))

    def client_settings(self) -> ClientSettings:
        """SCRAM users, quotas, and rules of transactional ids."""
        return client_settings(self._connection)

    def offsets_retention(self) -> timedelta:
        """How long it keeps the committed offsets of a group without members. `Refused` without DESCRIBE_CONFIGS on the
        cluster."""
        return offsets_retention(self._connection)

    def longest_transaction(self) -> timedelta:
        """See `drkit.kafka.admin.client_settings.longest_transaction`; an error where the cluster doesn't show it."""
        return longest_transaction(self._connection)

    def producer_expiration(self) -> timedelta:
        """See `drkit.kafka.admin.client_settings.producer_expiration`; an error where no broker shows it."""
        return producer_expiration(self._connection)

    def versions(self) -> ClusterVersions:
        """The features that the cluster has finalized, and the requests that all of its brokers take."""
        return cluster_versions(self._connection)

    def disks(self) -> list[Disk]:
        """The room on the disks of its brokers. `Refused` without DESCRIBE on the cluster."""
        return disks(self._connection)

    def metadata_end(self) -> MetadataEnd | None:
        """How far the log of the controllers is; None: the cluster doesn't tell, or not drkit's principal."""
        return cluster_description.metadata_end(self._connection)

    def controller_clock(self) -> ControllerClock | None:
        """How far the active controller's clock is from this machine's; None: the cluster doesn't tell, or not drkit's
        principal."""
        return cluster_description.controller_clock(self._connection)

    def sessions(self) -> dict[int, int]:
        """Which connection to each broker is open: see `cluster_description.sessions`."""
        return cluster_description.sessions(self._connection)

    # -- what drkit itself may do ------------------------------------------------------------------

    def allowed_on_cluster(self) -> frozenset[str] | None:
        """Operations that drkit may do on the cluster; None if brokers don't report them (KIP-430)."""
        return cluster_description.allowed_on_cluster(self._connection)

    def allowed_on_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Operations that drkit may do, by topic; those that don't exist are left out."""
        return cluster_description.allowed_on_topics(self._connection, set(names))

    # -- offsets -----------------------------------------------------------------------------------

    def start_offsets(
        self,
        tps: Iterable[TopicPartition],
        *,
        partial: bool = False,
        silent: dict[TopicPartition, str] | None = None,
        recent_leaders: bool = False,
    ) -> dict[TopicPartition, int]:
        """The log start of each partition. Partitions that don't exist are left out.

        `partial`: also leave out those for which no leader answers, rather than raise `Unreachable`; `silent` collects
        these, with the reason (`log_offsets.list_offsets`), and may be given instead. `recent_leaders`: for repeated
        calls with very many partitions: the leaders of the last half minute are asked at once
        (`log_offsets.RecentLeaders`).
        """
        return log_offsets.list_offsets(
            self._connection,
            "list start offsets",
            dict.fromkeys(tps, log_offsets.EARLIEST),
            partial=partial,
            silent=silent,
            recent=self._recent if recent_leaders else None,
        )

    def end_offsets(
        self,
        tps: Iterable[TopicPartition],
        *,
        committed: bool,
        partial: bool = False,
        silent: dict[TopicPartition, str] | None = None,
        recent_leaders: bool = False,
    ) -> dict[TopicPartition, int]:
        """The end (exclusive) of each partition: its last stable offset, or (`committed=False`) high watermark.

        For a link's source `Link.committed` decides which.

        Partitions that don't exist are left out; `partial`, `silent` and `recent_leaders` as in `start_offsets`.
        """
        return log_offsets.list_offsets(
            self._connection,
            "list end offsets",
            dict.fromkeys(tps, log_offsets.LATEST),
            committed=committed,
            partial=partial,
            silent=silent,
            recent=self._recent if recent_leaders else None,
        )

    def log_ends(
        self, tps: Iterable[TopicPartition], *, partial: bool = False, recent_leaders: bool = False
    ) -> dict[TopicPartition, int]:
        """The log end offset of each partition on its leader, which includes records that aren't replicated yet.

        The next appended record gets it. Partitions that don't exist are left out; `partial` and `recent_leaders` as
        in `start_offsets`.
        """
        return log_offsets.list_offsets(
            self._connection,
            "list log ends",
            dict.fromkeys(tps, log_offsets.LATEST),
            true_end=True,
            partial=partial,
            recent=self._recent if recent_leaders else None,
        )

    def offsets_for_times(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset stamped at or after a time (ms), by partition; None: there is no such record.

        The answer may be a control record. Partitions that don't exist are left out.
        """
        found = log_offsets.list_offsets(self._connection, "find offsets by time", at)
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    def epoch_ends(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """The end offset of a leader epoch of each partition (`drkit.kafka.admin.logs.leader_epochs`); partitions for
        which no leader answers are left out."""
        return leader_epochs.epoch_ends(self._connection, at)

    def leader_epochs(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The current leader epoch of each partition; those without a leader are left out."""
        return leader_epochs.leader_epochs(self._connection, dict.fromkeys(tps))

    def batches_at(
        self, offsets: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, LogBatch | None]:
        """The first batch that ends at or after each of these offsets; None: it is outside the log; partitions for
        which no leader answers are left out. `committed`: like that of `leader_epochs.batches_at`."""
        return leader_epochs.batches_at(self._connection, offsets, committed=committed)

    def epochs_below(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The leader epoch of the batch that holds the offset below each of these; -1: none does; partitions for which
        no leader answers are left out."""
        return leader_epochs.epochs_below(self._connection, offsets)

    def probe_records(
        self, places: Iterable[LogPosition], *, seconds: float, bodies: bool = False, control: bool = False
    ) -> dict[LogPosition, ProbedRecord]:
        """The first record at or after each offset (`client.record_probe`); has the reason if it isn't read in time."""
        return probe_records(self._connection, places, seconds=seconds, bodies=bodies, control=control)

    def scan(
        self,
        stretches: Mapping[TopicPartition, OffsetRange],
        *,
        seconds: float,
        most_bytes: int | None = record_probe.STRETCH_BYTES,
    ) -> dict[TopicPartition, Scanned]:
        """Timestamps and transactions of offset ranges (`client.record_probe`), as far as read in time."""
        return record_probe.scan(self._connection, stretches, seconds=seconds, most_bytes=most_bytes)

    def log_sizes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes of each partition's log on its leader's disk; those that no broker reports are left out.

        `Refused` if drkit's principal may not DESCRIBE the cluster.
        """
        return log_sizes(self._connection, tps)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records below each offset: the log start moves there. `Refused` with the reason."""
        self._connection.renew_permission()
        log_offsets.delete_records(self._connection, before)

    def _wait_for_topics(
        self, what: str, names: Sequence[str], unready: Callable[[dict[str, TopicInfo]], list[str]]
    ) -> None:
        """Wait until `unready`, given the topics seen, names none of them."""

        async def step(connection: StepConnection) -> None:
            response = await metadata(names)(connection)
            missing = kafka_errors.UnknownTopicOrPartitionError
            seen = {t.name: topic_info(t) for t in response.topics if error_class(t.error_code) is not missing}
            waiting = unready(seen)
            if waiting:
                raise RetryLater(f"{len(waiting)} topics not there yet, e.g. {waiting[0]}")

        if names:
            self._connection.call(what, step)

"""The group coordinator of one cluster: committed offsets, members, deletion. See `drkit.kafka.admin.admin_connection`.

Every call here goes to the coordinator of each group, one request for all groups of a coordinator.
A coordinator that moved is looked up again; one that is loading is retried until the timeout.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kafka import errors as kafka_errors
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetDeleteRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.admin_connection import (
    AdminConnection,
    ClusterClient,
    Reachability,
    RetryLater,
    StepConnection,
    check,
    describe,
    error_class,
)
from drkit.kafka.admin.cluster_description import operations_of
from drkit.kafka.groups.coordinator import (
    GROUPS_A_FETCH,
    GROUPS_A_REQUEST,
    CommittedOffset,
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    FetchedOffsets,
    describing,
    find_coordinators,
    pipelined,
    read_group,
    rejections,
)
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, OffsetsTopicEnds, read_log_state
from drkit.model.clock import Deadline, now
from drkit.model.errors import DrkitError, NotShown, Refused, Unreachable
from drkit.model.groups import SHARE, UnmovableGroup
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more

__all__ = ["CommittedOffset", "FetchedOffsets", "GroupAdmin", "GroupInfo", "GroupListing"]

_GROUPS_A_CONNECTION = 100
"""From this number of groups on, several connections share the commits: opening one costs some ten commits."""
_MORE_CONNECTIONS = 2
_COMMIT_OFFSETS = frozenset({"classic", "consumer", "streams"})
_GONE = frozenset({"Empty", "Dead"})
_ACTIVE_GROUP = frozenset(
    {
        kafka_errors.UnknownMemberIdError,
        kafka_errors.IllegalGenerationError,
        kafka_errors.RebalanceInProgressError,
        kafka_errors.NonEmptyGroupError,
        kafka_errors.StaleMemberEpochError,
        kafka_errors.FencedMemberEpochError,
    }
)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group as its coordinator lists it.

    `state`: Empty, Stable, PreparingRebalance …; `type`: classic, consumer, share, streams (lower
    case; ``classic`` on brokers that know no other). `protocol`: "consumer", "connect" …; empty: no member was ever in
    it.
    """

    group: str
    state: str
    type: str
    protocol: str = ""

    @property
    def expires_by_commit(self) -> bool:
        """Whether its offsets expire after each commit, not after its last member left (KIP-211)."""
        return not self.protocol or self.type != "classic"

    @property
    def commits_offsets(self) -> bool:
        """Whether its positions are committed offsets. Not for share groups; unknown for future types."""
        return self.type in _COMMIT_OFFSETS


@dataclass(slots=True)
class GroupListing:
    """Groups by name. `complete` is false while a coordinator is down: then a group that isn't listed may exist.
    `missing`: why it isn't complete.
    """

    groups: dict[str, GroupInfo]
    complete: bool
    missing: str = ""


class GroupAdmin(ClusterClient):
    """Consumer groups of one cluster. Connects at the first call; errors as `ClusterAdmin`'s."""

    def __init__(
        self, alias: str, cluster: ClusterConfig, *, timeout_seconds: float = 10.0, reach: Reachability | None = None
    ) -> None:
        super().__init__(alias, cluster, timeout_seconds=timeout_seconds, reach=reach)
        self._coordinators: dict[str, int] = {}
        self._lock = threading.Lock()
        self._more: list[AdminConnection] = []

    def list_groups(self) -> dict[str, GroupInfo]:
        """All groups, by name.

        Raises:
            Unreachable: also while part of the coordinators is down: a partial list is never returned.
        """

        async def step(connection: StepConnection) -> GroupListing:
            listing = await self._list(connection, whole=True)
            if not listing.complete:
                raise RetryLater(f"{listing.missing}, so its groups can't all be listed")
            return listing

        return self._connection.call("list groups", step).groups

    def list_reachable_groups(self) -> GroupListing:
        """The groups of the coordinators that are up, and whether these are all."""
        return self._connection.call("list groups", self._list)

    def list_groups_within(self, seconds: float) -> GroupListing:
        """The groups of the coordinators that are up by then: waits that long for the others (a coordinator that moves
        is soon back).

        Raises:
            NotShown: drkit can't know whether these are all.
        """
        deadline = Deadline.after(seconds)

        async def step(connection: StepConnection) -> GroupListing:
            listing = await self._list(connection, whole=True)
            if not listing.complete and not deadline.passed:
                raise RetryLater(listing.missing)
            return listing

        return self._connection.call("list groups", step)

    async def _list(self, connection: StepConnection, *, whole: bool = False) -> GroupListing:
        """Ask every broker; one that doesn't answer soon makes the listing incomplete, not the call fail.

        `whole`: raise `NotShown` at once if drkit can't ever know whether the listing is complete.
        """
        topic_type = MetadataRequest.MetadataRequestTopic
        metadata = await connection.send(
            MetadataRequest(topics=[topic_type(name=OFFSETS_TOPIC)], allow_auto_topic_creation=False)
        )
        offsets_topic = metadata.topics[0]
        if whole and issubclass(error_class(offsets_topic.error_code), kafka_errors.AuthorizationError):
            raise NotShown(
                f"cluster {self.alias} does not show drkit the topic {OFFSETS_TOPIC}",
                meaning="Without it drkit can't know whether all coordinators are up, and all groups listed",
                remedy=f"Grant drkit's principal DESCRIBE on the topic {OFFSETS_TOPIC}",
            )
        missing = error_class(offsets_topic.error_code) is kafka_errors.UnknownTopicOrPartitionError
        leaderless = sum(each.leader_id < 0 for each in offsets_topic.partitions)
        complete = missing or (offsets_topic.error_code == 0 and not leaderless)
        groups: dict[str, GroupInfo] = {}
        failures: dict[int, kafka_errors.KafkaError] = {}
        patience = connection.timeout_seconds / 2

        async def ask(node: int) -> None:
            try:
                groups.update(await _list_broker(connection, node, patience))
            except kafka_errors.KafkaError as error:
                if not error.retriable:
                    raise
                failures[node] = error

        await connection.gather(ask(broker.node_id) for broker in metadata.brokers)
        if failures and len(failures) == len(metadata.brokers):
            raise next(iter(failures.values()))
        why = []
        if not complete:
            count = len(offsets_topic.partitions)
            state = f"{leaderless} of {count} partitions without a leader" if leaderless else "no metadata"
            why.append(f"{OFFSETS_TOPIC} has {state}")
        why += [f"broker {node} does not answer" for node in sorted(failures)]
        down = f"part of the group coordinators is down ({and_more(why)})" if why else ""
        return GroupListing(groups, not why, down)

    def committed(self, groups: Sequence[str] | None = None) -> list[CommittedOffset]:
        """Committed offsets of these groups (None: of all that commit any), sorted; one request per coordinator.

        A group without commits, or that doesn't exist, has none.

        Raises:
            DrkitError: a group's offsets can't be read, with the reason.
        """
        if groups is None:
            groups = [group.group for group in self.list_groups().values() if group.commits_offsets]
        fetched = self.fetch(groups)
        if fetched.failures:
            group, why = next(iter(fetched.failures.items()))
            raise DrkitError(
                f"committed offsets of {len(fetched.failures)} groups of cluster {self.alias} can't be read, "
                f"e.g. {group}: {why}",
                remedy="Grant drkit's principal DESCRIBE on the groups and their topics",
            )
        everything = [offset for group in fetched.offsets.values() for offset in group]
        return sorted(everything, key=lambda offset: (offset.group, offset.topic, offset.partition))

    def fetch(self, groups: Iterable[str]) -> FetchedOffsets:
        """As `committed`, but with the reason for each group that can't be read, instead of an error."""
        left = dict.fromkeys(groups)
        fetched = FetchedOffsets()

        async def ask(connection: StepConnection, node: int, chunk: list[str]) -> None:
            group_type = OffsetFetchRequest.OffsetFetchRequestGroup
            request = OffsetFetchRequest(
                groups=[group_type(group_id=group, topics=None) for group in chunk], min_version=8, max_version=8
            )
            response = await connection.send(request, node)
            for group in response.groups:
                read_group(group, left, fetched)

        denied: set[str] = set()
        try:
            self._on_coordinators(
                "read committed offsets", left, ask, GROUPS_A_FETCH, remembered=self._coordinators, denied=denied
            )
        except Unreachable as error:
            if not fetched.offsets:
                raise
            fetched.failures.update(dict.fromkeys(left, str(error)))
        fetched.failures.update(dict.fromkeys(denied, describe(kafka_errors.GroupAuthorizationFailedError)))
        return fetched

    def share_starts(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int | None]]:
        """The start offset of each share group on each partition (KIP-932); None: the partition has none yet.

        A group that can't be read (brokers older than 4.1, missing ACLs) is left out.
        """
        left = dict.fromkeys(groups)
        found: dict[str, dict[TopicPartition, int | None]] = {}

        async def ask(connection: StepConnection, node: int, chunk: list[str]) -> None:
            if connection.supports(DescribeShareGroupOffsetsRequest) is None:
                left.clear()
                return
            group_type = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
            request = DescribeShareGroupOffsetsRequest(
                groups=[group_type(group_id=group, topics=None) for group in chunk]
            )
            response = await connection.send(request, node)
            for group in response.groups:
                if group.error_code and error_class(group.error_code).retriable:
                    continue
                left.pop(group.group_id, None)
                if not group.error_code:
                    found[group.group_id] = {
                        TopicPartition(topic.topic_name, each.partition_index): each.start_offset
                        if each.start_offset >= 0
                        else None
                        for topic in group.topics
                        for each in topic.partitions
                        if not each.error_code
                    }

        self._on_coordinators("read start offsets of share groups", left, ask)
        return found

    def offsets_log(self) -> OffsetsTopicEnds:
        """The state of the coordinators' own log: while its end doesn't move, no group in it has changed.

        Raises:
            Unreachable: none of its leaders answers.
        """
        try:
            return self._connection.call(f"read the log ends of {OFFSETS_TOPIC}", read_log_state)
        except Refused:
            return OffsetsTopicEnds()

    def members(self, groups: Sequence[str], listed: Mapping[str, GroupInfo] | None = None) -> dict[str, int]:
        """Active members per group; 0 when it is empty, dead or absent.

        Share and streams groups: 1 stands for "at least one" (their members can't be listed here). `listed`: the
        cluster's groups, if they were just listed.
        """
        listed = self.list_groups() if listed is None else listed
        counts = dict.fromkeys(groups, 0)
        alive = [group for group in counts if group in listed and listed[group].state not in _GONE]
        by_type: dict[str, dict[str, None]] = defaultdict(dict)
        for group in alive:
            by_type[listed[group].type][group] = None
        clients: dict[str, tuple[str, ...]] = {}
        for kind, left in by_type.items():
            if kind == "classic":
                ask_members = describing(DescribeGroupsRequest, "groups", left, clients)
            elif kind == "consumer":
                ask_members = describing(ConsumerGroupDescribeRequest, "group_ids", left, clients)
            else:
                counts.update(dict.fromkeys(left, 1))
                continue
            self._on_coordinators("describe groups", left, ask_members)
        return counts | {group: len(members) for group, members in clients.items()}

    def client_ids(self, group: str) -> tuple[str, ...]:
        """The client id of each active member of a classic group; none if it is empty, dead or absent.

        Asks only its own coordinator.
        """
        left: dict[str, None] = {group: None}
        clients: dict[str, tuple[str, ...]] = {}
        self._on_coordinators("describe groups", left, describing(DescribeGroupsRequest, "groups", left, clients))
        return clients.get(group, ())

    def allowed(self, groups: Iterable[str]) -> dict[str, frozenset[str]]:
        """Operations that drkit may do, by group (`drkit.kafka.admin.cluster_description`), whether it exists or not.

        Empty if it may not describe the group. Groups for which the coordinator doesn't report them are left out.
        """
        left = dict.fromkeys(groups)
        denied: set[str] = set()
        found: dict[str, frozenset[str]] = {}

        async def ask(connection: StepConnection, node: int, chunk: list[str]) -> None:
            request = DescribeGroupsRequest(
                groups=chunk, include_authorized_operations=True, min_version=3, max_version=5
            )  # from 6 on a group that doesn't exist is an error, without the operations
            response = await connection.send(request, node)
            for group in response.groups:
                error = error_class(group.error_code)
                if group.error_code and error.retriable:
                    continue
                left.pop(group.group_id, None)
                allowed = operations_of(group.authorized_operations)
                if error is kafka_errors.GroupAuthorizationFailedError:
                    denied.add(group.group_id)
                elif not group.error_code and allowed is not None:
                    found[group.group_id] = allowed

        self._on_coordinators("ask what drkit may do to groups", left, ask, denied=denied)
        return found | dict.fromkeys(denied, frozenset[str]())

    def commit_many(self, wanted: Mapping[str, Mapping[TopicPartition, tuple[int, str]]]) -> dict[str, DrkitError]:
        """Commit (offset, metadata) by group and partition. The groups must have no members; one that doesn't exist is
        created. Returns, by group, why one failed: `Refused` where it is active or partitions were rejected, which it
        names; the others were committed.

        The leader epoch committed is -1: an epoch of another cluster would mislead consumers. Several requests are in
        flight.
        A broker answers the requests of one connection in sequence, and a coordinator may delay a commit for some
        milliseconds to write it together with others (`group.coordinator.append.linger.ms`): many groups are
        committed over several connections.
        """
        names = [group for group, offsets in wanted.items() if offsets]
        if len(names) < _GROUPS_A_CONNECTION:
            return self._commit_over(self._connection, names, wanted)
        with self._lock:
            while len(self._more) < _MORE_CONNECTIONS:
                self._more.append(self._connection.another())
            connections = [self._connection, *self._more]
        failures: dict[str, DrkitError] = {}
        with ThreadPoolExecutor(len(connections), "drkit-commit") as pool:
            shares = [names[number :: len(connections)] for number in range(len(connections))]
            for failed in pool.map(lambda over, share: self._commit_over(over, share, wanted), connections, shares):
                failures |= failed
        return failures

    def close(self) -> None:
        """Close the connections."""
        super().close()
        with self._lock:
            more, self._more = self._more, []
        for connection in more:
            connection.close()

    def _commit_over(
        self,
        connection: AdminConnection,
        names: Iterable[str],
        wanted: Mapping[str, Mapping[TopicPartition, tuple[int, str]]],
    ) -> dict[str, DrkitError]:
        """`commit_many` of some of the groups over one connection."""
        left = dict.fromkeys(names)
        failures: dict[str, DrkitError] = {}

        async def ask(connection: StepConnection, node: int, chunk: list[str]) -> None:
            async for group, response in pipelined(connection, node, {name: wanted[name] for name in chunk}):
                rejected = rejections(response)
                if rejected is not None:
                    left.pop(group)
                    if rejected:
                        failures[group] = self._refused_commit(group, rejected)

        try:
            self._on_coordinators("commit offsets", left, ask, over=connection)
        except DrkitError as error:
            failures.update(dict.fromkeys(left, error))
        return failures

    def delete_offsets(self, group: str, tps: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of these partitions. An absent group or offset is fine.

        Raises:
            Refused: the group is subscribed to the topic, naming it.
        """
        by_topic: dict[str, list[int]] = defaultdict(list)
        for tp in tps:
            by_topic[tp.topic].append(tp.partition)
        if not by_topic:
            return

        async def ask(connection: StepConnection, node: int, _: list[str]) -> None:
            topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic
            partition_type = topic_type.OffsetDeleteRequestPartition
            request = OffsetDeleteRequest(
                group_id=group,
                topics=[
                    topic_type(name=name, partitions=[partition_type(partition_index=p) for p in partitions])
                    for name, partitions in by_topic.items()
                ],
            )
            response = await connection.send(request, node)
            if error_class(response.error_code) is not kafka_errors.GroupIdNotFoundError:
                if error_class(response.error_code) in _ACTIVE_GROUP:
                    raise self._refused_deletion(group, describe(error_class(response.error_code)))
                check(response.error_code, group)
                for topic in response.topics:
                    for partition in topic.partitions:
                        error = error_class(partition.error_code)
                        if partition.error_code == 0 or error is kafka_errors.UnknownTopicOrPartitionError:
                            continue
                        if error.retriable:
                            raise error(group)
                        raise self._refused_deletion(
                            f"{group} ({topic.name}:{partition.partition_index})", describe(error)
                        )
            left.clear()

        left: dict[str, None] = {group: None}
        self._on_coordinators(f"delete offsets of group {group}", left, ask)

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups with all their offsets. Absent ones are fine.

        Raises:
            Refused: a group has members, naming it.
        """
        left = dict.fromkeys(groups)

        async def ask(connection: StepConnection, node: int, chunk: list[str]) -> None:
            response = await connection.send(DeleteGroupsRequest(groups_names=chunk), node)
            for result in response.results:
                error = error_class(result.error_code)
                if result.error_code and error is not kafka_errors.GroupIdNotFoundError:
                    if error.retriable:
                        continue
                    raise self._refused_deletion(result.group_id, describe(error))
                left.pop(result.group_id, None)

        self._on_coordinators("delete groups", left, ask)

    def _on_coordinators(
        self,
        what: str,
        left: dict[str, None],
        ask: Callable[[StepConnection, int, list[str]], Awaitable[None]],
        groups_a_request: int = GROUPS_A_REQUEST,
        *,
        remembered: dict[str, int] | None = None,
        denied: set[str] | None = None,
        over: AdminConnection | None = None,
    ) -> None:
        """Ask each group's coordinator until `ask` has taken every group out of `left`.

        `remembered`: coordinators found before, used without a lookup; one that doesn't answer for a group is
        looked up at the next try.
        `denied` collects groups that drkit may not describe, which are skipped; None: that is an error.
        `over`: another connection than the client's first.
        """

        async def step(connection: StepConnection) -> None:
            coordinators, why = await find_coordinators(connection, list(left), remembered, denied)
            for group in denied or ():
                left.pop(group, None)

            async def ask_one(node: int, groups: list[str]) -> None:
                nonlocal why
                for start in range(0, len(groups), groups_a_request):
                    try:
                        await ask(connection, node, groups[start : start + groups_a_request])
                    except kafka_errors.KafkaError as error:
                        if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
                            raise
                        why = str(error)
                if remembered is not None:
                    remembered.update((group, node) for group in groups if group not in left)

            await connection.gather(ask_one(node, groups) for node, groups in coordinators.items())
            if left:
                raise RetryLater(f"{len(left)} groups without an answer, e.g. {next(iter(left))}: {why}")

        if left:
            (over or self._connection).call(what, step)

    def _refused_commit(self, group: str, rejected: Mapping[TopicPartition, type[kafka_errors.KafkaError]]) -> Refused:
        named = ", ".join(f"{tp} ({describe(error)})" for tp, error in sorted(rejected.items()))
        if any(error in _ACTIVE_GROUP for error in rejected.values()):
            return Refused(
                f"group {group} on cluster {self.alias} is active; not committed: {named}",
                meaning="Kafka takes a position from outside only while a group has no members",
                remedy=f"Stop the consumers of {group} on {self.alias}, then try again",
            )
        return Refused(
            f"cluster {self.alias} did not take positions of group {group}: {named}",
            remedy="Remove the cause named (a topic that doesn't exist, metadata too large, a missing right)",
        )

    def _refused_deletion(self, group: str, why: str) -> Refused:
        return Refused(
            f"group {group} on cluster {self.alias} can't be deleted: {why}",
            remedy="Stop its consumers on that cluster, then try again",
        )


async def _list_broker(connection: StepConnection, node: int, timeout_seconds: float) -> dict[str, GroupInfo]:
    """The groups that one broker coordinates."""
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    response = await connection.send(request, node, timeout_seconds=timeout_seconds)
    check(response.error_code, f"list groups of broker {node}")
    return {
        group.group_id: GroupInfo(
            group.group_id,
            group.group_state or "Unknown",
            (group.group_type or "classic").lower(),
            group.protocol_type or "",
        )
        for group in response.groups
    }


def read_unmovable(
    link: Link, source: GroupAdmin, listing: GroupListing, covers_topic: Callable[[str], bool]
) -> list[UnmovableGroup]:
    """The link's groups of the listing that commit no offsets, share groups with their start offsets."""
    found = [each for each in listing.groups.values() if not each.commits_offsets and link.covers_group(each.group)]
    if not found:
        return []
    at = now()
    starts: Mapping[str, Mapping[TopicPartition, int | None]] = source.share_starts(
        each.group for each in found if each.type == SHARE
    )
    return [
        UnmovableGroup(
            each.group,
            each.type,
            {tp: start for tp, start in starts.get(each.group, {}).items() if covers_topic(tp.topic)},
            at,
        )
        for each in sorted(found, key=lambda each: each.group)
    ]

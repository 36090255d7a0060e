"""A need: what a command must be allowed, on which cluster of a link, and what happens without it. Pure.

A right that another one implies (to read, write, delete or alter something implies to describe it) counts as granted
with it: `Operation.implied_by`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Command(StrEnum):
    """Commands that ask clusters for anything."""

    MIRROR = "mirror"
    STATUS = "status"
    TRANSLATE = "translate"
    SERVE = "serve"
    DOCTOR = "doctor"
    LINK = "link"
    FAILOVER = "failover"
    REHEARSE = "rehearse"
    FENCE = "fence"
    FAILBACK = "failback"
    REPROTECT = "reprotect"
    RESUME = "resume"
    ABANDON = "abandon"
    RUNS = "runs"
    SALVAGE = "salvage"
    AUDIT = "audit"
    RECOVER = "store recover"


class Side(StrEnum):
    """A cluster of a configured link."""

    SOURCE = "source"
    TARGET = "target"

    @property
    def other(self) -> Side:
        """The link's other cluster."""
        return Side.TARGET if self is Side.SOURCE else Side.SOURCE


class Resource(StrEnum):
    """Kafka's types of resources."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class Operation(StrEnum):
    """Kafka's operations."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"

    @property
    def implied_by(self) -> frozenset[Operation]:
        """Operations that include this one: whoever may do them may do it."""
        return _IMPLIED_BY.get(self, frozenset())

    @property
    def title_in_kafka(self) -> str:
        """As Kafka's tools write it: `DescribeConfigs`."""
        return "".join(word.capitalize() for word in self.value.split("_"))


_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class Subject(StrEnum):
    """What a right is about. The values are the words of the documentation."""

    TOPICS = "the link's topics"
    CANARY = "the link's canary topic"
    STATE = "topics `__drkit_state.SOURCE.TARGET.*`"
    JOURNAL = "topic `__drkit_journal`"
    OFFSETS_LOG = "topic `__consumer_offsets`"
    TRANSACTION_LOG = "topic `__transaction_state`"
    REPLAY_TOPIC = "the topic of `--replay-to`"
    GROUPS = "the link's groups"
    ALL_GROUPS = "all groups"
    WORKERS = "group `drkit.mirror.SOURCE-TARGET`"
    REHEARSAL_GROUPS = "groups `drkit.rehearsal.*`"
    TRANSACTIONAL_IDS = "all transactional ids"
    REPLAY_ID = "transactional id `drkit-replay-TOPIC`"
    CLUSTER = "the cluster"

    @property
    def resource(self) -> Resource:
        """Its type."""
        return _RESOURCES.get(self, Resource.TOPIC)


_RESOURCES = {
    Subject.GROUPS: Resource.GROUP,
    Subject.ALL_GROUPS: Resource.GROUP,
    Subject.WORKERS: Resource.GROUP,
    Subject.REHEARSAL_GROUPS: Resource.GROUP,
    Subject.TRANSACTIONAL_IDS: Resource.TRANSACTIONAL_ID,
    Subject.REPLAY_ID: Resource.TRANSACTIONAL_ID,
    Subject.CLUSTER: Resource.CLUSTER,
}


class NeededWhen(StrEnum):
    """When a right is needed at all. The values are the words of the documentation."""

    ACLS = 'with `acls = "standby"` or `"copy"`'
    PRESERVE = 'with `offsets = "preserve"`'
    DELETIONS = 'with `deletions = "mirror"`'
    CANARY = "with `canary = true`"
    FENCED_BY_RULES = "where the cluster has no fence command"
    FENCED_BY_COMMAND = "where the cluster has a fence command"
    REPLAY = "with `--replay-to`"


class Who(StrEnum):
    """Whose right it is."""

    DRKIT = "drkit"
    WRITER = "the writer of `[clusters.X.fence.client]`"


@dataclass(frozen=True, slots=True)
class Need:
    """One row. `purpose` and `without`: what for, and what happens where it is missing.

    `optional`: the command does without, at that cost; else it is refused or fails. `when`: it is needed only then.
    """

    commands: frozenset[Command]
    side: Side
    subject: Subject
    operations: tuple[Operation, ...]
    purpose: str
    without: str
    optional: bool = False
    when: NeededWhen | None = None
    who: Who = Who.DRKIT

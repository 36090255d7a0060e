"""What commands must be allowed: what a right is, and the table of rights, with what happens without them. Pure.

`drkit acls` prints the table for a configuration, docs/permissions.md quotes it, the plans of failover and failback and
`drkit doctor` compare it with what drkit may do. A right that another one implies (to read, write, delete or alter
something implies to describe it: `Operation.implied_by`) counts as granted with it. It is listed where a command needs
no more; `drkit.permissions.resolve` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


@dataclass(frozen=True, slots=True)
class Part:
    """A command carries another one out. `turned`: with the link's clusters exchanged, as the mirror of a way back."""

    command: Command
    turned: bool = False


@dataclass(frozen=True, slots=True)
class NeedOf:
    """A need of a command, its own or that of a part. `turned`: it is of the link's way back; `side` is resolved."""

    need: Need
    side: Side
    turned: bool


PARTS: Mapping[Command, tuple[Part, ...]] = {
    Command.TRANSLATE: (Part(Command.STATUS),),
    Command.SERVE: (Part(Command.STATUS),),
    Command.DOCTOR: (Part(Command.STATUS),),
    Command.FAILBACK: (Part(Command.SALVAGE), Part(Command.AUDIT), Part(Command.MIRROR, turned=True)),
    Command.REPROTECT: (Part(Command.SALVAGE), Part(Command.AUDIT), Part(Command.MIRROR, turned=True)),
    Command.RESUME: (Part(Command.FAILOVER), Part(Command.FAILBACK), Part(Command.REPROTECT)),
    Command.ABANDON: (Part(Command.FENCE),),
}
"""Commands that are carried out within others."""

_OF_A_WAY_BACK = frozenset({Subject.STATE, Subject.CANARY})
"""Subjects that a way back doesn't have: its record is on the cluster that serves, and it sends no canary."""
_C = Command
_LOOKING = frozenset({_C.STATUS})
_FAILING_OVER = frozenset({_C.FAILOVER, _C.REHEARSE})
_PLANNING = _FAILING_OVER | {_C.SERVE}
"""The page makes the plan of a failover and carries nothing out."""
_GOING_BACK = frozenset({_C.FAILBACK, _C.REPROTECT})
_CLOSING = frozenset({_C.FAILOVER, _C.FENCE})
_DECIDING = frozenset({_C.MIRROR, _C.LINK, _C.FAILOVER, _C.FENCE, _C.FAILBACK, _C.REPROTECT, _C.RECOVER})
_O = Operation
_S = Subject
_MADE = (_O.CREATE, _O.WRITE, _O.READ, _O.ALTER, _O.ALTER_CONFIGS)


def _of(
    commands: frozenset[Command], side: Side, subject: Subject, *operations: Operation
) -> tuple[frozenset[Command], Side, Subject, tuple[Operation, ...]]:
    """The right that a need is about."""
    return commands, side, subject, operations


TABLE: tuple[Need, ...] = (
    # -- looking -----------------------------------------------------------------------------------
    Need(
        *_of(_LOOKING | _FAILING_OVER | {_C.FENCE, _C.RUNS}, Side.SOURCE, _S.TOPICS, _O.DESCRIBE),
        "see topics and log ends",
        "what is on it is not seen: not in status, and not counted by a failover",
    ),
    Need(
        *_of(_LOOKING | _FAILING_OVER | {_C.FENCE, _C.RUNS}, Side.TARGET, _S.TOPICS, _O.DESCRIBE),
        "see topics and log ends",
        "the cluster counts as one that doesn't show what it has to: nothing is translated, a failover is refused",
    ),
    *(
        Need(
            *_of(_LOOKING, side, _S.TOPICS, _O.READ),
            "compare the last mirrored records of both sides, where no mirror runs",
            "no lag is shown there: the source may have been set back to an older copy of its disks",
            optional=True,
        )
        for side in Side
    ),
    Need(
        *_of(_LOOKING, Side.TARGET, _S.STATE, _O.READ),
        "compare the store with its copy",
        "what a killed mirror wrote beyond its last watermark isn't counted, and no position that needs mapping rows "
        "is exact",
        optional=True,
    ),
    *(
        Need(
            *_of(_LOOKING, side, _S.TOPICS, _O.DESCRIBE_CONFIGS),
            "tell what retention or the log cleaner removed from a loss",
            "what the target lacks at its beginning is not counted as lost, which is said",
            optional=True,
        )
        for side in Side
    ),
    Need(
        *_of(frozenset({_C.STATUS, _C.MIRROR, _C.AUDIT}), Side.TARGET, _S.CLUSTER, _O.DESCRIBE),
        "see the sizes of logs, to tell retention by size from a loss",
        "what retention by size may have removed counts as lost",
        optional=True,
    ),
    *(
        Need(
            *_of(_LOOKING, side, _S.GROUPS, _O.DESCRIBE),
            "after a failover, see groups on the former primary that no move has taken",
            "such groups are not told",
            optional=True,
        )
        for side in Side
    ),
    *(
        Need(
            *_of(_LOOKING, side, _S.CLUSTER, _O.DESCRIBE),
            "see the rules of a fence",
            "a fence left behind is not told",
            optional=True,
            when=NeededWhen.FENCED_BY_RULES,
        )
        for side in Side
    ),
    *(
        Need(
            *_of(frozenset({_C.DOCTOR}), side, _S.CLUSTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS),
            "compare ACLs, SCRAM users, quotas, broker settings and clocks, and see disks",
            "they are not compared",
            optional=True,
        )
        for side in Side
    ),
    Need(
        *_of(frozenset({_C.DOCTOR}), Side.SOURCE, _S.TOPICS, _O.DESCRIBE_CONFIGS),
        "compare the settings of topics, and see how long they keep records",
        "they are not compared, and what retention may remove is not told",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.DOCTOR}), Side.TARGET, _S.TOPICS, _O.DESCRIBE_CONFIGS),
        "compare the settings of topics",
        "they are not compared",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.DOCTOR}) | _PLANNING, Side.TARGET, _S.OFFSETS_LOG, _O.DESCRIBE),
        "tell whether all groups are listed",
        "doctor fails, a failover is refused",
    ),
    Need(
        *_of(frozenset({_C.DOCTOR}), Side.TARGET, _S.GROUPS, _O.DESCRIBE),
        "see whether groups are active there",
        "doctor fails",
    ),
    Need(
        *_of(frozenset({_C.DOCTOR}), Side.TARGET, _S.WORKERS, _O.DESCRIBE),
        "see mirrors that keep another store",
        "doctor fails",
    ),
    Need(
        *_of(_PLANNING, Side.TARGET, _S.WORKERS, _O.DESCRIBE),
        "see mirrors that keep another store",
        "one that is running isn't noticed, and mirrors on after the failover",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.DOCTOR}), Side.TARGET, _S.STATE, _O.READ),
        "compare the store with its copy",
        "doctor fails",
    ),
    Need(
        *_of(_PLANNING, Side.TARGET, _S.STATE, _O.READ),
        "compare the store with its copy",
        "a store that is older than it isn't noticed",
        optional=True,
    ),
    # -- mirroring ---------------------------------------------------------------------------------
    Need(
        *_of(frozenset({_C.MIRROR, _C.SALVAGE, _C.AUDIT}), Side.SOURCE, _S.TOPICS, _O.READ, _O.DESCRIBE_CONFIGS),
        "read records and settings",
        "the mirror halts the topic (`source_topic_denied`); an audit and a salvage are refused",
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.TOPICS, *_MADE),
        "make topics, write records, keep partitions and settings in step, verify the tail",
        "the mirror halts the topic (`target_topic_denied`, `target_topic_refused`)",
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.TOPICS, _O.DELETE),
        "make offsets equal: filler is removed once it is written",
        "a topic whose source doesn't begin at offset 0 halts",
        when=NeededWhen.PRESERVE,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.TOPICS, _O.DELETE),
        "delete what the source deleted",
        "deleted topics stay",
        when=NeededWhen.DELETIONS,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.CLUSTER, _O.DESCRIBE),
        "see that the source's controllers weren't set back, before a deletion is believed",
        "each deletion waits for an operator (`deletion_held`)",
        optional=True,
        when=NeededWhen.DELETIONS,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.GROUPS, _O.DESCRIBE),
        "capture where groups are",
        "groups are not seen, and are not moved by a failover",
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.OFFSETS_LOG, _O.READ),
        "see which groups committed, which of them in transactions, and which were deleted",
        "every group is asked each time; whether a group commits in transactions isn't known, so no captured offset is "
        "exact; deleted groups stay as captured",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.TRANSACTION_LOG, _O.READ),
        "follow groups that commit in transactions",
        "whether a group commits in transactions isn't known, so no captured offset is exact",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.TRANSACTIONAL_IDS, _O.DESCRIBE),
        "find producers that commit groups' offsets",
        "these groups go by their captured offsets, of which none is exact",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.CLUSTER, _O.DESCRIBE_CONFIGS),
        "see how long a transaction may be open (`transaction.max.timeout.ms`)",
        "of one that no coordinator is known to have it is not told whether anybody will end it (`transaction_open`)",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.CLUSTER, _O.DESCRIBE_CONFIGS),
        "see how long brokers remember a producer (`producer.id.expiration.ms`)",
        "half a day counts, also where they forget it earlier",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.WORKERS, _O.READ),
        "share a link's partitions among workers",
        "no worker is given a partition",
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.CLUSTER, _O.ALTER),
        "match transaction markers",
        "offsets move apart at each marker, and are translated",
        optional=True,
        when=NeededWhen.PRESERVE,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.CLUSTER, _O.DESCRIBE),
        "read ACLs",
        "they don't follow (`acls_unavailable`)",
        when=NeededWhen.ACLS,
    ),
    Need(
        *_of(frozenset({_C.MIRROR, _C.FAILOVER}), Side.TARGET, _S.CLUSTER, _O.ALTER),
        "put ACLs",
        "they don't follow (`acls_unavailable`); at the switch those that were held back are not put",
        when=NeededWhen.ACLS,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.SOURCE, _S.CANARY, _O.CREATE, _O.WRITE, _O.READ, _O.DESCRIBE_CONFIGS),
        "send the canary",
        "the latency is not measured",
        optional=True,
        when=NeededWhen.CANARY,
    ),
    Need(
        *_of(frozenset({_C.MIRROR}), Side.TARGET, _S.CANARY, *_MADE, _O.DELETE),
        "receive the canary",
        "the latency is not measured",
        optional=True,
        when=NeededWhen.CANARY,
    ),
    # -- what drkit keeps on the clusters ------------------------------------------------------------
    Need(
        *_of(_DECIDING, Side.TARGET, _S.STATE, _O.CREATE, _O.READ, _O.WRITE),
        "keep a copy of the link's state",
        "a lost store can't be recovered to the present (`state_topic_failed`)",
        optional=True,
    ),
    Need(
        *_of(_CLOSING | {_C.REHEARSE}, Side.TARGET, _S.JOURNAL, _O.CREATE, _O.WRITE, _O.READ),
        "anchor the run's journal",
        "whether a journal was altered can't be told from it; the command warns",
        optional=True,
    ),
    Need(
        *_of(_GOING_BACK | {_C.FENCE}, Side.SOURCE, _S.JOURNAL, _O.CREATE, _O.WRITE, _O.READ),
        "anchor the run's journal",
        "whether a journal was altered can't be told from it; the command warns",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.RUNS}), Side.SOURCE, _S.JOURNAL, _O.READ),
        "compare journals with their anchors",
        "the command says that it can't",
        optional=True,
    ),
    Need(
        *_of(_GOING_BACK | {_C.RUNS}, Side.TARGET, _S.JOURNAL, _O.READ),
        "compare journals with their anchors",
        "the command says that it can't",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.RECOVER}), Side.TARGET, _S.STATE, _O.READ),
        "read the copy of the link's state",
        "there is nothing to recover from",
    ),
    Need(
        *_of(frozenset({_C.RECOVER}), Side.TARGET, _S.WORKERS, _O.DESCRIBE),
        "see mirrors that are running: their store is not lost",
        "the recovery is refused",
    ),
    *(
        Need(
            *_of(frozenset({_C.RECOVER}), side, _S.TOPICS, _O.READ),
            "compare both logs (`--from-logs`)",
            "what the copy doesn't prove isn't recovered",
            optional=True,
        )
        for side in Side
    ),
    # -- failing over ------------------------------------------------------------------------------
    Need(
        *_of(_PLANNING | {_C.FENCE}, Side.SOURCE, _S.GROUPS, _O.DESCRIBE),
        "see where groups are now, and deny them",
        "groups stand where the mirror last saw them, and aren't fenced",
    ),
    Need(
        *_of(_PLANNING, Side.SOURCE, _S.OFFSETS_LOG, _O.DESCRIBE),
        "tell whether all groups are listed",
        "the source counts as one that doesn't answer",
    ),
    Need(
        *_of(_FAILING_OVER, Side.SOURCE, _S.TOPICS, _O.READ),
        "read timestamps for `--consistent`; compare the last mirrored records of both sides, where no mirror runs",
        "no consistent instant can be found; without a mirror, what is lost is a lower bound",
        optional=True,
    ),
    *(
        Need(
            *_of(_FAILING_OVER, side, _S.TOPICS, _O.DESCRIBE_CONFIGS),
            "tell what retention or the log cleaner removed from a loss",
            "where records of the target are removed meanwhile, a planned move stops before its commit, and an "
            "unplanned one counts them as lost at most",
            optional=True,
        )
        for side in Side
    ),
    Need(
        *_of(_CLOSING, Side.SOURCE, _S.CLUSTER, _O.ALTER),
        "fence it",
        "it can't be fenced: a failover needs `--accept-unfenced`",
        when=NeededWhen.FENCED_BY_RULES,
    ),
    Need(
        *_of(_CLOSING, Side.TARGET, _S.CLUSTER, _O.ALTER),
        "open it where an earlier move closed it",
        "after a failback its clients stay shut out",
        optional=True,
        when=NeededWhen.FENCED_BY_RULES,
    ),
    Need(
        *_of(_CLOSING, Side.SOURCE, _S.TOPICS, _O.WRITE),
        "show that writers were let in, and are let in no longer",
        "the fence isn't shown",
        when=NeededWhen.FENCED_BY_COMMAND,
        who=Who.WRITER,
    ),
    Need(
        *_of(frozenset({_C.FAILBACK}), Side.TARGET, _S.TOPICS, _O.WRITE),
        "show that writers were let in, and are let in no longer",
        "the fence isn't shown",
        when=NeededWhen.FENCED_BY_COMMAND,
        who=Who.WRITER,
    ),
    Need(
        *_of(_FAILING_OVER, Side.TARGET, _S.TOPICS, _O.READ),
        "commit positions on them, and look at what is there",
        "the commit is denied",
    ),
    Need(
        *_of(frozenset({_C.FAILOVER}), Side.TARGET, _S.TOPICS, _O.ALTER_CONFIGS),
        "give topics their own settings at the switch",
        "they keep those of a standby, which the run says",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.FAILOVER, _C.LINK}), Side.TARGET, _S.TOPICS, _O.READ, _O.DELETE),
        "remove filler that a killed mirror left or a killed broker shows again",
        "the run stops at its end where there is some",
        optional=True,
        when=NeededWhen.PRESERVE,
    ),
    Need(
        *_of(frozenset({_C.FAILOVER}), Side.TARGET, _S.CLUSTER, _O.ALTER),
        "refuse what a mirror that did not leave in order still sends",
        "the run says that such a mirror may still write there (`UNFENCED`)",
        optional=True,
    ),
    Need(
        *_of(frozenset({_C.FAILOVER}), Side.TARGET, _S.GROUPS, _O.READ),
        "commit their positions",
        "the commit is denied",
    ),
    Need(
        *_of(frozenset({_C.REHEARSE}), Side.TARGET, _S.GROUPS, _O.DESCRIBE),
        "see what groups have committed there",
        "the rehearsal is refused",
    ),
    Need(
        *_of(frozenset({_C.REHEARSE}), Side.TARGET, _S.REHEARSAL_GROUPS, _O.READ, _O.DELETE),
        "commit positions of shadow groups, and remove these",
        "the rehearsal fails; without Delete its groups stay",
    ),
    # -- telling whether a failover would be accepted ------------------------------------------------
    Need(
        *_of(frozenset({_C.SERVE}), Side.TARGET, _S.TOPICS, _O.READ),
        "look at what is at the places where groups are put; judge whether positions may be committed on them",
        "the page says `no`: a failover by this principal would be refused",
    ),
    Need(
        *_of(frozenset({_C.SERVE}), Side.TARGET, _S.GROUPS, _O.READ),
        "judge whether their positions may be committed",
        "the page says `no`: a failover by this principal would be refused",
    ),
    Need(
        *_of(frozenset({_C.SERVE}), Side.TARGET, _S.CLUSTER, _O.ALTER),
        "judge whether ACLs may be put",
        "the page says `no`: a failover by this principal would be refused",
        when=NeededWhen.ACLS,
    ),
    Need(
        *_of(frozenset({_C.SERVE}), Side.SOURCE, _S.CLUSTER, _O.ALTER),
        "judge whether it may be fenced",
        "the page says `yes, unfenced` at best",
        optional=True,
        when=NeededWhen.FENCED_BY_RULES,
    ),
    # -- going back --------------------------------------------------------------------------------
    Need(
        *_of(_GOING_BACK, Side.SOURCE, _S.TOPICS, _O.DELETE),
        "scrub what was salvaged",
        "nothing is deleted, and the run stops before the way back",
    ),
    Need(
        *_of(_GOING_BACK, Side.SOURCE, _S.ALL_GROUPS, _O.DESCRIBE),
        "see who has committed on topics that are deleted, of whatever link",
        "the plan is refused",
    ),
    Need(
        *_of(_GOING_BACK, Side.SOURCE, _S.TOPICS, _O.ALTER_CONFIGS),
        "keep all clients from writing to topics from the last look at them until they are deleted",
        "what is written in that moment is lost, which the run says",
        optional=True,
    ),
    Need(
        *_of(_GOING_BACK, Side.SOURCE, _S.GROUPS, _O.DELETE),
        "delete their offsets on topics that are scrubbed",
        "the scrub stops after the topics were recreated",
    ),
    Need(
        *_of(frozenset({_C.FAILBACK}), Side.SOURCE, _S.GROUPS, _O.READ),
        "commit their positions",
        "the commit is denied, while the live cluster is closed",
    ),
    Need(
        *_of(_GOING_BACK, Side.SOURCE, _S.OFFSETS_LOG, _O.DESCRIBE),
        "tell whether all groups are listed",
        "the plan is refused",
    ),
    Need(
        *_of(_GOING_BACK | {_C.ABANDON}, Side.SOURCE, _S.OFFSETS_LOG, _O.READ),
        "keep positions that are committed while topics are deleted",
        "the run says that nobody knows whether there were any",
        optional=True,
    ),
    Need(
        *_of(_GOING_BACK, Side.TARGET, _S.OFFSETS_LOG, _O.DESCRIBE),
        "tell whether all groups are listed",
        "the plan is refused",
    ),
    Need(
        *_of(_GOING_BACK, Side.TARGET, _S.WORKERS, _O.DESCRIBE),
        "see mirrors that keep another store",
        "the plan is refused",
    ),
    Need(
        *_of(frozenset({_C.FAILBACK}), Side.SOURCE, _S.CLUSTER, _O.ALTER),
        "refuse what a mirror that did not leave in order still sends",
        "the run says that such a mirror may still write there (`UNFENCED`)",
        optional=True,
    ),
    Need(
        *_of(_GOING_BACK, Side.TARGET, _S.TOPICS, _O.DELETE),
        "remove filler that a killed broker shows again",
        "the run says so, and such empty records are brought back",
        optional=True,
        when=NeededWhen.PRESERVE,
    ),
    Need(
        *_of(_GOING_BACK, Side.SOURCE, _S.CLUSTER, _O.ALTER),
        "let the mirror into the closed cluster, and clients at the switch",
        "the run stops at the reversal",
        when=NeededWhen.FENCED_BY_RULES,
    ),
    Need(
        *_of(frozenset({_C.FAILBACK}), Side.TARGET, _S.CLUSTER, _O.ALTER),
        "fence it",
        "it can't be fenced: a failback needs `--accept-unfenced`",
        when=NeededWhen.FENCED_BY_RULES,
    ),
    # -- auditing ----------------------------------------------------------------------------------
    Need(
        *_of(frozenset({_C.SALVAGE, _C.AUDIT}), Side.TARGET, _S.TOPICS, _O.READ, _O.DESCRIBE_CONFIGS),
        "read records and settings",
        "the audit, or the salvage, is refused",
    ),
    Need(
        *_of(frozenset({_C.SALVAGE}), Side.TARGET, _S.REPLAY_TOPIC, _O.READ, _O.WRITE, _O.DESCRIBE_CONFIGS),
        "write what was salvaged, once, and warn of what the topic's settings remove",
        "the replay is refused",
        when=NeededWhen.REPLAY,
    ),
    Need(
        *_of(frozenset({_C.SALVAGE}), Side.TARGET, _S.REPLAY_ID, _O.WRITE),
        "write in transactions",
        "the replay fails",
        when=NeededWhen.REPLAY,
    ),
)


def needs_of(command: Command) -> Iterator[NeedOf]:
    """What a command needs, that of its parts included."""
    yield from _needs(command, turned=False)


def _needs(command: Command, *, turned: bool) -> Iterator[NeedOf]:
    for need in TABLE:
        if command in need.commands and not (turned and need.subject in _OF_A_WAY_BACK):
            yield NeedOf(need, need.side.other if turned else need.side, turned)
    for part in PARTS.get(command, ()):
        yield from _needs(part.command, turned=turned != part.turned)

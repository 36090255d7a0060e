"""The rights of a configuration: which resources of which cluster, for which commands, of whom. Connects to nothing.

Access rules know names and prefixes only. A topic or group pattern that is neither is widened to the prefix with which
all its names begin, and that is said. Rights that others of the same principal include are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from drkit.config import Config
from drkit.config.schema.base import reveal
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.kafka.protocol.transaction_log import TRANSACTIONS_TOPIC
from drkit.model.runs import JOURNAL_TOPIC
from drkit.model.topic_policy import AclMode
from drkit.model.topics.name_patterns import Stretch, stretches
from drkit.model.topology import REHEARSAL_GROUPS, Link, OffsetMode, TopicPolicy, worker_group
from drkit.model.wording import and_more
from drkit.permissions.table import Command, NeededWhen, NeedOf, Operation, Resource, Side, Subject, Who, needs_of
from drkit.state_topic.records import state_topic_prefix

PLACEHOLDER = "User:drkit"


class PrincipalOrigin(StrEnum):
    """The origin of a principal."""

    OPTION = "option"
    CLIENT = "client"
    PLACEHOLDER = "placeholder"


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal, and a remark about it ("": none)."""

    name: str
    origin: PrincipalOrigin
    note: str = ""


def given_principal(text: str) -> Principal:
    """The principal of an option: adds `User:` to a name without a type."""
    kind, colon, name = text.strip().partition(":")
    return Principal(f"{kind}:{name}" if colon else f"User:{kind}", PrincipalOrigin.OPTION)


def principal_of(cluster: ClusterConfig) -> Principal:
    """The principal of these client settings; a placeholder if only the cluster knows it."""
    try:
        plain = {
            name: reveal(cluster.client[name])
            for name in ("security.protocol", "sasl.mechanisms", "sasl.mechanism", "sasl.username")
            if name in cluster.client
        }
    except ValueError as error:
        return Principal(
            PLACEHOLDER,
            PrincipalOrigin.PLACEHOLDER,
            f"{PLACEHOLDER} is a placeholder: {error}; give the principal with --principal",
        )
    protocol = plain.get("security.protocol", "PLAINTEXT").upper()
    mechanism = plain.get("sasl.mechanisms", plain.get("sasl.mechanism", "")).upper()
    if protocol == "PLAINTEXT":
        return Principal(
            "User:ANONYMOUS",
            PrincipalOrigin.CLIENT,
            "the client settings have no authentication: whoever reaches this listener is User:ANONYMOUS, and would "
            "have these rights",
        )
    if protocol.startswith("SASL") and mechanism != "OAUTHBEARER" and "sasl.username" in plain:
        return Principal(f"User:{plain['sasl.username']}", PrincipalOrigin.CLIENT)
    why = "the subject of its token" if protocol.startswith("SASL") else "the subject of its certificate"
    return Principal(
        PLACEHOLDER,
        PrincipalOrigin.PLACEHOLDER,
        f"{PLACEHOLDER} is a placeholder: the cluster itself makes drkit's principal from {why}; give it with "
        "--principal",
    )


CLUSTER_NAME = "kafka-cluster"
"""The one name of Kafka's resource of type cluster."""
EVERY_NAME = "*"
_PREFIXES = frozenset({Subject.STATE, Subject.REHEARSAL_GROUPS})
"""Subjects whose name is a prefix."""


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """What a rule is about. `prefixed`: all names that begin with `name`; else the name itself (``*``: every name)."""

    resource: Resource
    name: str
    prefixed: bool = False

    def holds(self, other: ResourcePattern) -> bool:
        """Whether all that the other one is about is within this one."""
        if self.resource is not other.resource:
            return False
        if self == other or (self.name == EVERY_NAME and not self.prefixed):
            return True
        return self.prefixed and other.name != EVERY_NAME and other.name.startswith(self.name)

    def __str__(self) -> str:
        if self.resource is Resource.CLUSTER:
            return "cluster"
        return f"{self.resource.value.replace('_', ' ')} {self.name}{'…' if self.prefixed else ''}"


@dataclass(frozen=True, slots=True)
class NeedReason:
    """Why a right is needed: the command, what for, and what happens without. `optional`: see `Need`.

    `operation`: the one that the command needs; the right's own, or one that the right includes.
    """

    command: Command
    operation: Operation
    purpose: str
    without: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource pattern, with all that it is needed for."""

    on: ResourcePattern
    operation: Operation
    reasons: tuple[NeedReason, ...]

    @property
    def optional(self) -> bool:
        """Whether every command does without, at a cost."""
        return all(reason.optional for reason in self.reasons)

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands that need it, in the table's order."""
        named = {reason.command for reason in self.reasons}
        return tuple(command for command in Command if command in named)


@dataclass(frozen=True, slots=True)
class ClusterRights:
    """The rights of one principal on one cluster. `notes`: what the rights can't say as narrowly as the links do."""

    cluster: str
    who: Who
    rights: tuple[Right, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Collected:
    """The reasons of each operation on each resource pattern of a cluster."""

    reasons: dict[tuple[ResourcePattern, Operation], dict[NeedReason, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    notes: dict[str, None] = field(default_factory=dict)


def rights_of(
    config: Config, links: Iterable[Link], commands: Iterable[Command], *, replay_to: str | None = None
) -> list[ClusterRights]:
    """What these commands need for these links, by cluster (in the configuration's order) and principal.

    Args:
        config: the clusters.
        links: configured ones.
        commands: which.
        replay_to: the topic to which a salvage is replayed, where it is.
    """
    wanted = list(dict.fromkeys(commands))
    found: dict[tuple[str, Who], _Collected] = defaultdict(_Collected)
    for link in links:
        for command in wanted:
            for each in needs_of(command):
                alias = cluster_of(link, each.side)
                if not condition_holds(each, config, link, replay_to):
                    continue
                who = each.need.who
                if who is Who.WRITER and config.clusters[alias].fence.client is None:
                    who = Who.DRKIT  # it is shown to drkit itself
                into = found[alias, who]
                patterns, notes = patterns_of(each, link, replay_to)
                for operation in each.need.operations:
                    reason = NeedReason(command, operation, each.need.purpose, each.need.without, each.need.optional)
                    for pattern in patterns:
                        into.reasons[pattern, operation][reason] = None
                into.notes.update(dict.fromkeys(notes))
                if each.need.subject is Subject.ALL_GROUPS:
                    into.notes.update(dict.fromkeys(_other_groups(link)))
    return [
        ClusterRights(alias, who, _least(found[alias, who].reasons), tuple(found[alias, who].notes))
        for alias in config.clusters
        for who in Who
        if (alias, who) in found
    ]


def cluster_of(link: Link, side: Side) -> str:
    """The alias of a link's cluster."""
    return link.id.source if side is Side.SOURCE else link.id.target


def condition_holds(each: NeedOf, config: Config, link: Link, replay_to: str | None = None) -> bool:
    """Whether a need's condition holds for a configured link; one of its way back, for that."""
    commanded = config.clusters[cluster_of(link, each.side)].fence.command is not None
    carried = link.reversed() if each.turned else link
    return {
        None: True,
        NeededWhen.ACLS: carried.acls is not AclMode.OFF,
        NeededWhen.PRESERVE: carried.offsets is OffsetMode.PRESERVE,
        NeededWhen.DELETIONS: carried.mirrors_deletions,
        NeededWhen.CANARY: carried.canary_topic is not None,
        NeededWhen.FENCED_BY_RULES: not commanded,
        NeededWhen.FENCED_BY_COMMAND: commanded,
        NeededWhen.REPLAY: replay_to is not None,
    }[each.need.when]


def patterns_of(each: NeedOf, link: Link, replay_to: str | None = None) -> tuple[list[ResourcePattern], list[str]]:
    """What a need is about, and what of it is wider than the link."""
    subject = each.need.subject
    if subject is Subject.TOPICS:
        return _topics(link, each.side)
    if subject is Subject.GROUPS:
        return _groups(link)
    canary = replace(link, canary=True).canary_topic or ""
    named = {
        Subject.CANARY: canary if each.side is Side.SOURCE else link.target_topic(canary),
        Subject.STATE: state_topic_prefix(link.id),
        Subject.JOURNAL: JOURNAL_TOPIC,
        Subject.OFFSETS_LOG: OFFSETS_TOPIC,
        Subject.TRANSACTION_LOG: TRANSACTIONS_TOPIC,
        Subject.REPLAY_TOPIC: replay_to or "",
        Subject.ALL_GROUPS: EVERY_NAME,
        Subject.WORKERS: worker_group(link.id.reversed() if each.turned else link.id),
        Subject.REHEARSAL_GROUPS: REHEARSAL_GROUPS,
        Subject.TRANSACTIONAL_IDS: EVERY_NAME,
        Subject.REPLAY_ID: f"drkit-replay-{replay_to}",
        Subject.CLUSTER: CLUSTER_NAME,
    }
    return [ResourcePattern(subject.resource, named[subject], prefixed=subject in _PREFIXES)], []


def _topics(link: Link, side: Side) -> tuple[list[ResourcePattern], list[str]]:
    found, notes = _of_patterns(Resource.TOPIC, link.topics, link.exclude_topics, f"topics of {link.id}")
    kept = [each for each in found if each.prefixed or each.name == EVERY_NAME or link.covers_topic(each.name)]
    if side is Side.SOURCE:
        return kept, notes
    before = f"{link.id.source}." if link.policy is TopicPolicy.PREFIX else ""
    renamed = [ResourcePattern(Resource.TOPIC, there) for _, there in link.renames]
    names = [each if each.name == EVERY_NAME else replace(each, name=_renamed(link, each)) for each in kept]
    if before:
        names = [
            ResourcePattern(Resource.TOPIC, before, prefixed=True)
            if each.name == EVERY_NAME
            else replace(each, name=f"{before}{each.name}")
            for each in names
        ]
    return list(dict.fromkeys([*names, *renamed])), notes


def _renamed(link: Link, each: ResourcePattern) -> str:
    return each.name if each.prefixed else dict(link.renames).get(each.name, each.name)


def _groups(link: Link) -> tuple[list[ResourcePattern], list[str]]:
    found, notes = _of_patterns(Resource.GROUP, link.groups, link.exclude_groups, f"groups of {link.id}")
    return [each for each in found if each.prefixed or each.name == EVERY_NAME or link.covers_group(each.name)], notes


def _of_patterns(
    resource: Resource, patterns: Sequence[str], excluded: Sequence[str], whose: str
) -> tuple[list[ResourcePattern], list[str]]:
    notes, found = [], []
    for pattern in patterns:
        made = stretches(pattern)
        found += [_as_rule(resource, each) for each in made]
        wider = [str(_as_rule(resource, each)) for each in made if not each.exact]
        if wider:
            notes.append(
                f"{whose}: {pattern!r} is no name and no prefix, so these rights are wider than it: {and_more(wider)}"
            )
    if excluded and any(each.prefixed or each.name == EVERY_NAME for each in found):
        notes.append(f"{whose}: the rights also hold for what is excluded ({and_more(list(map(repr, excluded)))})")
    return list(dict.fromkeys(found)), notes


def _as_rule(resource: Resource, stretch: Stretch) -> ResourcePattern:
    if stretch.prefixed and not stretch.name:
        return ResourcePattern(resource, EVERY_NAME)
    return ResourcePattern(resource, stretch.name, stretch.prefixed)


def _other_groups(link: Link) -> Iterator[str]:
    """Groups that are not the link's, but have committed on topics that a failback deletes."""
    if not any(each.name == EVERY_NAME for each in _groups(link)[0]):
        yield (
            f"groups that aren't {link.id}'s, but have committed on its topics on {link.id.source}: a failback needs "
            "Delete and Read on them, too (a reprotect: Delete); its plan names those where drkit lacks it"
        )


def _least(reasons: Mapping[tuple[ResourcePattern, Operation], Iterable[NeedReason]]) -> tuple[Right, ...]:
    """Without rights that another one includes; what these are needed for is said of that one."""
    rights = {key: Right(*key, tuple(why)) for key, why in reasons.items()}
    kept = {
        key: right
        for key, right in rights.items()
        if not any(_includes(other, right) for other_key, other in rights.items() if other_key != key)
    }
    for key, right in rights.items():
        if key in kept:
            continue
        for other_key, other in kept.items():
            if _includes(other, right):
                merged = dict.fromkeys((*other.reasons, *right.reasons))
                kept[other_key] = replace(other, reasons=tuple(merged))
                break
    order = list(Operation)
    return tuple(sorted(kept.values(), key=lambda right: (right.on, order.index(right.operation))))


def _includes(wider: Right, right: Right) -> bool:
    """Whether who has the wider one needs no rule for the other. An optional one that is left out includes nothing."""
    if wider.optional and not right.optional:
        return False
    same = wider.operation is right.operation or wider.operation in right.operation.implied_by
    return same and wider.on.holds(right.on)


def exact_names(link: Link, side: Side) -> tuple[frozenset[str], frozenset[str]]:
    """The topics and groups that a link's patterns name in full; the topics as the cluster of that side names them."""
    topics, groups = (
        frozenset(each.name for each in patterns if not each.prefixed and each.name != EVERY_NAME)
        for patterns in (_topics(link, side)[0], _groups(link)[0])
    )
    return topics, groups

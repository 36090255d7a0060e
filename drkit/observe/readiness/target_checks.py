"""Whether clients of the source find on the target what they need: versions, settings of clients and topics, ACLs.

Topics' settings and access rules are compared as the mirror puts them. SCRAM users, quotas and rules of transactional
ids are no mirror's to copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from drkit.kafka.admin.client_settings import ClientSettings
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.cluster_description import ClusterVersions
from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import NoAuthorizer
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import Acl, AclRole, carried, changes, own_principals, roles
from drkit.model.topics.standby import ALIGNING, READ, SettingChanges, settings_to_put, settings_to_read
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.store.api import LinkStore
from drkit.store.link_notes import fence_rules, noted_rules, returned_rules

VERSIONS = "versions"
_METADATA_VERSION = "metadata.version"
_UPGRADE = "Upgrade {target} and its features (kafka-features.sh upgrade), or see that no client needs them"


class _Feature(NamedTuple):
    """A finalized feature that clients meet. `without`: what happens on a target where its level is lower."""

    name: str
    without: str


class _Request(NamedTuple):
    """A request that clients send. `without`: what fails where the target doesn't take it."""

    key: int
    name: str
    without: str


_FEATURES = (
    _Feature("group.version", "consumers with group.protocol=consumer (KIP-848) can't join their groups"),
    _Feature("share.version", "share groups (KIP-932) don't work"),
    _Feature("streams.version", "Streams applications with group.protocol=streams (KIP-1071) don't work"),
    _Feature("transaction.version", "transactions lack the defence against hanging ones (KIP-890)"),
    _Feature(
        "eligible.leader.replicas.version", "a leader that lacks acknowledged records is elected sooner (KIP-966)"
    ),
)
_REQUESTS = (
    _Request(22, "InitProducerId", "idempotent and transactional producers fail"),
    _Request(68, "ConsumerGroupHeartbeat", "consumers with group.protocol=consumer (KIP-848) can't join their groups"),
    _Request(76, "ShareGroupHeartbeat", "share groups (KIP-932) don't work"),
    _Request(88, "StreamsGroupHeartbeat", "Streams applications with group.protocol=streams (KIP-1071) don't work"),
)
_OLD_CLIENTS = (
    _Request(0, "Produce", ""),
    _Request(1, "Fetch", ""),
    _Request(2, "ListOffsets", ""),
    _Request(3, "Metadata", ""),
    _Request(8, "OffsetCommit", ""),
    _Request(9, "OffsetFetch", ""),
    _Request(11, "JoinGroup", ""),
)
"""Requests of which newer brokers don't take the oldest versions any more (KIP-896)."""


def versions_check(link: LinkId, clusters: Clusters) -> Check:
    """Compare what both clusters tell of their versions, with a request to each broker.

    Raises:
        Unreachable: a broker doesn't answer.
    """
    source, target = (clusters.admin(each, may_be_gone=True).versions() for each in (link.source, link.target))
    return compared_versions(link, source, target)


def compared_versions(link: LinkId, source: ClusterVersions, target: ClusterVersions) -> Check:
    """The check of what both clusters tell. Pure."""
    levels = f"{_METADATA_VERSION} {_level(source)} on {link.source}, {_level(target)} on {link.target}"
    lacking = _lacking(link, source, target)
    if lacking:
        why = f"{'; '.join(lacking)} ({levels})"
        return Check(VERSIONS, CheckOutcome.WARN, why, _UPGRADE.format(target=link.target))
    refused = [
        f"{each.name} before version {target.requests[each.key].lowest}"
        for each in _OLD_CLIENTS
        if each.key in source.requests
        and each.key in target.requests
        and source.requests[each.key].lowest < target.requests[each.key].lowest
    ]
    if refused:
        why = (
            f"{link.target} is newer and refuses old clients that {link.source} takes: {', '.join(refused)} ({levels})"
        )
        return Check(
            VERSIONS, CheckOutcome.WARN, why, "Upgrade clients older than Kafka 2.1 (KIP-896) before a failover"
        )
    unknown = [alias for alias, each in ((link.source, source), (link.target, target)) if each.features is None]
    if unknown:
        why = (
            f"{link.target} takes the requests that clients need, but brokers of {' and '.join(unknown)} don't tell "
            "the features of their cluster"
        )
        return Check(VERSIONS, CheckOutcome.UNKNOWN, why, "Compare both clusters' versions yourself")
    return Check(VERSIONS, CheckOutcome.OK, f"{link.target} takes what clients of {link.source} use: {levels}")


def _lacking(link: LinkId, source: ClusterVersions, target: ClusterVersions) -> list[str]:
    """What clients of the source may use and the target lacks: by features, and where these don't tell it, by
    requests."""
    told: dict[str, str] = {}
    if source.features is not None and target.features is not None:
        for feature in _FEATURES:
            here, there = source.features.get(feature.name, 0), target.features.get(feature.name, 0)
            if there < here:
                told[feature.without] = f"{feature.name} is {there} on {link.target}, {here} on {link.source}"
    for request in _REQUESTS:
        if request.key in source.requests and request.key not in target.requests:
            told.setdefault(request.without, f"{link.target} doesn't take {request.name}, {link.source} does")
    return [f"{why}: {without}" for without, why in told.items()]


def _level(versions: ClusterVersions) -> str:
    level = None if versions.features is None else versions.features.get(_METADATA_VERSION)
    return "not told" if level is None else str(level)


CLIENT_SETTINGS = "client settings"
_COPY = "Clients meet the difference after a failover: set it up on {target}, too (kafka-configs.sh, kafka-acls.sh)"


def client_settings_check(link: LinkId, clusters: Clusters) -> Check:
    """Compare SCRAM users, quotas and rules of transactional ids. What drkit isn't shown is named, not called equal.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    source, target = (clusters.admin(each, may_be_gone=True) for each in (link.source, link.target))
    own = own_principals(source.principal, target.principal)
    return compared_clients(link, source.client_settings(), target.client_settings(), own)


def compared_clients(
    link: LinkId, source: ClientSettings, target: ClientSettings, own: Collection[str] = frozenset()
) -> Check:
    """The check of what both clusters show. Pure. `own`: drkit's principals, which needn't be on both."""
    users = {principal.removeprefix("User:") for principal in own}
    not_clients = {*users, *(f"user {user}" for user in users)}
    hidden = sorted(source.hidden.keys() | target.hidden.keys())
    missing = []
    for part, entries in source.parts.items():
        here = target.parts.get(part)
        if here is None:
            continue
        there = {
            name: value
            for name, value in entries.items()
            if name not in not_clients and not name.startswith(tuple(f"{principal} " for principal in own))
        }
        lacking = sorted(there.keys() - here.keys())
        both = sorted(there.keys() & here.keys())
        other = [f"{name} ({there[name]}; there {here[name]})" for name in both if there[name] != here[name]]
        if lacking:
            missing.append(f"{part} that {link.target} lacks: {and_more(lacking)}")
        if other:
            missing.append(f"{part} that are different there: {and_more(other)}")
    unseen = f"not compared, since drkit isn't shown them: {', '.join(hidden)}" if hidden else ""
    if missing:
        why = "; ".join(filter(None, (*missing, unseen)))
        return Check(CLIENT_SETTINGS, CheckOutcome.WARN, why, _COPY.format(target=link.target))
    if hidden:
        why = source.hidden.get(hidden[0]) or target.hidden[hidden[0]]
        grants = "drkit acls --command doctor prints the ACLs"
        return Check(CLIENT_SETTINGS, CheckOutcome.UNKNOWN, f"{unseen} ({why})", grants)
    names = ", ".join(source.parts)
    return Check(CLIENT_SETTINGS, CheckOutcome.OK, f"{link.target} has those of {link.source}: {names}")


TOPIC_SETTINGS = "topic settings"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """Effective settings of the link's mirrored topics on both clusters.

    Args:
        source: by source topic.
        target: by target topic.
        replicas: of the target's topics.
        hidden: topics whose settings a cluster doesn't show, as `topic on cluster`.
        aligning: source topics that must not be compacted yet.
    """

    source: Mapping[str, Mapping[str, str]]
    target: Mapping[str, Mapping[str, str]]
    replicas: Mapping[str, int]
    hidden: Collection[str] = ()
    aligning: Collection[str] = ()


def topic_settings_check(status: LinkStatus, store: LinkStore, clusters: Clusters) -> Check:
    """Compare as the mirror's topic sync does, with a few requests for all topics together.

    Raises:
        Unreachable: a cluster or the store doesn't answer.
    """
    link = status.link
    source, target = (clusters.admin(each, may_be_gone=True) for each in (link.id.source, link.id.target))
    names = {each.topic: each.target_topic for each in status.partitions}
    ours: set[str] = set()
    theirs: set[str] = set()
    there = target.topics(set(names.values()), denied=theirs)
    seen = TopicsSeen(
        source.topic_configs(names, keys=READ, denied=ours),
        target.topic_configs(there, keys=settings_to_read(link, names), denied=theirs),
        {name: info.replication_factor for name, info in there.items()},
        [f"{name} on {alias}" for alias, hidden in ((source.alias, ours), (target.alias, theirs)) for name in hidden],
        set(store.notes(link.id, ALIGNING)),
    )
    return compared_topics(link, names, seen, mirrors=status.worker is not None)


def compared_topics(link: Link, names: Mapping[str, str], seen: TopicsSeen, *, mirrors: bool) -> Check:
    """The check of what was seen. Pure.

    Args:
        link: whose topics.
        names: the target's topic of each of the source's.
        seen: the settings.
        mirrors: whether a mirror runs, which puts what differs.
    """
    due = {topic: changes for topic, changes in _changes(link, names, seen) if changes.all or changes.unknown}
    unseen = f"not compared, since drkit isn't shown them: {and_more(sorted(seen.hidden))}" if seen.hidden else ""
    if due:
        told = [_told(names[topic], changes, seen) for topic, changes in sorted(due.items())]
        are = f"of {counted(len(due), 'topic')} on {link.id.target} differ from what the mirror gives them"
        why = f"settings {are}: {and_more(told, separator='; ', shown=_SHOWN)}"
        return Check(
            TOPIC_SETTINGS, CheckOutcome.WARN, "; ".join(filter(None, (why, unseen))), _remedy(link, mirrors=mirrors)
        )
    if seen.hidden:
        return Check(TOPIC_SETTINGS, CheckOutcome.UNKNOWN, unseen, "drkit acls --command doctor prints the ACLs")
    same = sum(topic in seen.source and name in seen.target for topic, name in names.items())
    return Check(
        TOPIC_SETTINGS,
        CheckOutcome.OK,
        f"{counted(same, 'topic')} of {link.id.target} have what the mirror gives them",
    )


def _changes(link: Link, names: Mapping[str, str], seen: TopicsSeen) -> Iterator[tuple[str, SettingChanges]]:
    for topic, name in names.items():
        if topic in seen.source and name in seen.target:
            yield (
                topic,
                settings_to_put(
                    link,
                    topic,
                    seen.source[topic],
                    seen.target[name],
                    target_replicas=seen.replicas[name],
                    aligning=topic in seen.aligning,
                ),
            )


def _told(name: str, changes: SettingChanges, seen: TopicsSeen) -> str:
    """Each setting of a topic that differs, with both values."""
    parts = [f"{key} is {seen.target[name][key]}, not {value}" for key, value in sorted(changes.all.items())]
    parts += [f"{key}, an override of the link, is no setting of its brokers" for key in changes.unknown]
    return f"{name} ({and_more(parts, shown=_SHOWN)})"


def _remedy(link: Link, *, mirrors: bool) -> str:
    if not mirrors:
        return "Start drkit mirror: it puts them"
    status = f"drkit status --link '{link.id}'"
    return (
        f"The mirror puts them within seconds, after a change of topic_settings once it has reloaded its configuration "
        f"(SIGHUP); what {link.id.target} refuses is a problem in {status}"
    )


ACCESS_RULES = "access rules"
_SHOWN = 3


def access_rules_check(
    status: LinkStatus, store: LinkStore, clusters: Clusters, links: Collection[LinkId] = ()
) -> Check:
    """Compare as the mirror's ACL sync does. `links`: the configuration's, whose fences may have put ACLs.

    Raises:
        Refused: a cluster doesn't show its ACLs.
        Unreachable: a cluster or the store doesn't answer.
    """
    link = status.link
    source, target = (clusters.admin(each, may_be_gone=True) for each in (link.id.source, link.id.target))
    theirs, there = _rules(source), _rules(target)
    if theirs is None:
        why = f"{source.alias} has no authorizer, so no rules"
        return Check(ACCESS_RULES, CheckOutcome.OK, why if there is None else f"{why} that {target.alias} could lack")
    theirs -= fence_rules(store, {link.id, link.id.reversed(), *links}, link.id.source)
    topics = {each.topic for each in status.partitions if each.source_end is not None}
    groups = {each.group for each in status.groups if each.type is None}
    own = own_principals(source.principal, target.principal)
    ours = carried(theirs, link, topics, groups, own)
    if there is None:
        return without_authorizer(link.id, ours)
    noted = noted_rules(store, link.id)
    if noted and all(rule.principal in own for rule in theirs):
        why = f"{source.alias} has no rules any more; on {target.alias} they stay as they are"
        return Check(ACCESS_RULES, CheckOutcome.WARN, why, f"Give {source.alias} its rules back")
    again = returned_rules(store, link, links, there, own) - set(ours)
    return compared_rules(link, ours, noted, there, again, mirrors=status.worker is not None)


def _rules(admin: ClusterAdmin) -> frozenset[Acl] | None:
    """None: there is no authorizer."""
    try:
        return admin.acls()
    except NoAuthorizer:
        return None


def without_authorizer(link: LinkId, ours: Collection[Acl]) -> Check:
    """The check of a target that keeps no ACLs. Pure."""
    if not ours:
        return Check(ACCESS_RULES, CheckOutcome.OK, f"{link.source} has no rules about what the link carries")
    why = (
        f"{link.target} has no authorizer: after a failover everybody may do there what is up to "
        f"{counted(len(ours), 'rule')} on {link.source}"
    )
    return Check(
        ACCESS_RULES, CheckOutcome.WARN, why, f"Give {link.target} an authorizer (authorizer.class.name of its brokers)"
    )


def compared_rules(
    link: Link,
    ours: Collection[Acl],
    noted: Mapping[Acl, AclRole],
    there: Collection[Acl],
    again: Collection[Acl] = (),
    *,
    mirrors: bool,
) -> Check:
    """The check of what was seen. Pure.

    Args:
        link: whose topics and groups.
        ours: the source's ACLs that the link covers, under the target's names.
        noted: drkit's own ACLs on the target, with their roles.
        there: the target's ACLs.
        again: those that drkit removed there once.
        mirrors: whether a mirror runs, which puts what differs, by the `acls` that it began with.
    """
    ids = link.id
    if link.acls is AclMode.OFF:
        lacking = sorted(set(ours) - set(there))
        if lacking:
            why = f'{ids.target} lacks {_some(lacking)} of {ids.source}, and acls = "off" puts none'
            remedy = (
                f'Set acls = "standby" on the link and start its mirror again, or put them on {ids.target} before '
                "clients move there"
            )
            return Check(ACCESS_RULES, CheckOutcome.WARN, why, remedy)
        return Check(
            ACCESS_RULES, CheckOutcome.OK, f"{ids.target} has the {counted(len(ours), 'rule')} of {ids.source}"
        )
    wanted = roles(ours, link.acls)
    todo = changes(wanted, noted, there)
    parts = [
        f"{ids.target} {what} {_some(sorted(rules))}"
        for what, rules in (("lacks", todo.put), ("still has", todo.remove), ("has again", again))
        if rules
    ]
    # those that the switch puts come from the notes alone: one without a note would be missing then
    unnoted = sorted(rule for rule, role in todo.note.items() if role is AclRole.DUE)
    parts += [f"not noted for the switch: {_some(unnoted)}"] if unnoted else []
    if parts:
        remedy = (
            "Start drkit mirror: it puts what is lacking. Of what is too much it removes what it can prove, and holds "
            "the rest until an operator decides (`drkit status` has the problem then)"
        )
        if mirrors:
            remedy = (
                f'A mirror that began with acls = "{link.acls.value}" does so within seconds; one that began with '
                f"another value has to be started again. What it holds, or {ids.target} refuses, is a problem in status"
            )
        return Check(ACCESS_RULES, CheckOutcome.WARN, "; ".join(parts), remedy)
    due = sum(role is AclRole.DUE and rule not in there for rule, role in wanted.items())
    later = f"; the switch puts {due:,} more" if due else ""
    has = sum(role is not AclRole.DUE or rule in there for rule, role in wanted.items())
    return Check(ACCESS_RULES, CheckOutcome.OK, f"{ids.target} has {counted(has, 'rule')} that a standby gets{later}")


def _some(rules: Collection[Acl]) -> str:
    named = and_more([f"'{rule}'" for rule in rules], shown=_SHOWN)
    return f"{counted(len(rules), 'rule')} ({named})"

"""The ACLs that drkit lacks for a command, on exactly the topics and groups that it uses.

The cluster itself reports drkit's allowed operations (`drkit.kafka.admin.cluster_description`). Unreported ones are not
checked: on transactional ids, and on topics that don't exist. While a fence of drkit's own denies an operation, the
cluster's ACLs show what is allowed without the fence; if they don't explain what drkit may do (another kind of
authorizer, a principal that only the cluster knows), that operation isn't checked either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.errors import DrkitError
from drkit.model.topics.acls import Acl, fence_rules_kind
from drkit.model.topology import Link
from drkit.model.wording import and_more, counted
from drkit.permissions.resolve import CLUSTER_NAME, cluster_of, condition_holds, patterns_of
from drkit.permissions.table import Command, NeedOf, Operation, Resource, Side, Subject, Who, needs_of
from drkit.store.api import Store

Names = Mapping[tuple[Subject, Operation | None], Collection[str]]
"""The resources that a command uses on a cluster: the names by operation; operation None: all others. Only `TOPICS`,
`GROUPS` and `CLUSTER`; other resources aren't checked."""
_NAMED_ELSEWHERE = frozenset({Subject.TOPICS, Subject.GROUPS, Subject.CLUSTER})
_FIXED = frozenset({Subject.JOURNAL, Subject.OFFSETS_LOG, Subject.TRANSACTION_LOG, Subject.WORKERS})
"""Subjects that are one name each."""
_EVERYBODY = "User:*"


@dataclass(frozen=True, slots=True)
class MissingRight:
    """Operations that drkit may not do on these resources of a cluster, all of one type."""

    cluster: str
    resource: Resource
    operations: tuple[Operation, ...]
    names: tuple[str, ...]
    purposes: tuple[str, ...]
    without: tuple[str, ...]
    optional: bool

    def __str__(self) -> str:
        titles = " and ".join(operation.title_in_kafka for operation in self.operations)
        if self.resource is Resource.CLUSTER:
            return f"drkit lacks {titles} on cluster {self.cluster}"
        what = counted(len(self.names), self.resource.value)
        return f"drkit lacks {titles} on {what} of {self.cluster}: {and_more(self.names)}"


def remedy_of(command: Command, link: Link, cluster: str) -> str:
    """The command that prints the rights."""
    return (
        f"Grant drkit's principal the rights that drkit acls --command {command} --cluster {cluster} "
        f"--link '{link.id}' --format kafka-acls prints"
    )


def missing_rights(
    clusters: Clusters,
    config: Config,
    store: Store,
    link: Link,
    command: Command,
    touched: Mapping[Side, Names],
    *,
    may_be_gone: bool = False,
) -> list[MissingRight]:
    """The ACLs that drkit lacks for a command, required ones first.

    Args:
        clusters: connections; each cluster of `touched` is asked.
        config: fences, and the links whose fences may stand.
        store: has the ACLs of drkit's fences.
        link: the configured link.
        command: the command.
        touched: the resources that it uses, by cluster.
        may_be_gone: see `Clusters`.

    Raises:
        Unreachable: a cluster doesn't answer.
        DrkitError: it answered with an error.
    """
    found: list[MissingRight] = []
    for side, names in touched.items():
        alias = cluster_of(link, side)
        wanted = _wanted(config, link, command, side, names)
        if wanted:
            admin = clusters.admin(alias, may_be_gone=may_be_gone)
            asked = _Asked(admin, clusters.groups(alias, may_be_gone=may_be_gone))
            found += _lacking(asked, wanted, partial(_fence_rules, store, config, alias))
    return sorted(found, key=lambda each: (each.optional, each.cluster, each.resource, each.names))


@dataclass(slots=True)
class _Wanted:
    """One operation on one resource, and for what."""

    optional: bool = True
    purposes: dict[str, None] = field(default_factory=dict)
    without: dict[str, None] = field(default_factory=dict)


_Key = tuple[Resource, str, Operation]
_Why = tuple[Resource, bool, tuple[str, ...], tuple[str, ...]]


def _wanted(config: Config, link: Link, command: Command, side: Side, names: Names) -> dict[_Key, _Wanted]:
    wanted: dict[_Key, _Wanted] = defaultdict(_Wanted)
    alias = cluster_of(link, side)
    for each in needs_of(command):
        need = each.need
        if each.side is not side or need.who is not Who.DRKIT or not condition_holds(need.when, config, link, alias):
            continue
        for operation in need.operations:
            for name in _names(each, link, operation, names):
                entry = wanted[need.subject.resource, name, operation]
                if not need.optional and entry.optional:  # required needs state the cost
                    entry.optional = False
                    entry.purposes.clear()
                    entry.without.clear()
                if need.optional <= entry.optional:
                    entry.purposes[need.purpose] = None
                    entry.without[need.without] = None
    return wanted


def _names(each: NeedOf, link: Link, operation: Operation, names: Names) -> Iterable[str]:
    subject = each.need.subject
    if subject in _NAMED_ELSEWHERE:
        found = names.get((subject, operation))
        return names.get((subject, None), ()) if found is None else found
    if subject in _FIXED:
        return [pattern.name for pattern in patterns_of(each, link)[0]]
    return ()


class _Asked(NamedTuple):
    """The connections to one cluster."""

    admin: ClusterAdmin
    groups: GroupAdmin


def _lacking(
    asked: _Asked, wanted: Mapping[_Key, _Wanted], fence_rules: Callable[[], frozenset[Acl]]
) -> Iterator[MissingRight]:
    allowed = _allowed(asked, wanted)
    denied = [key for key in wanted if (key[0], key[1]) in allowed and not _may(key, allowed)]
    if denied and (fence := fence_rules()):
        denied = _without_fence(asked.admin, denied, fence)
    by_reason: dict[_Why, dict[Operation, set[str]]] = defaultdict(lambda: defaultdict(set))
    for resource, name, operation in denied:
        entry = wanted[resource, name, operation]
        by_reason[resource, entry.optional, tuple(entry.purposes), tuple(entry.without)][operation].add(name)
    for (resource, optional, purposes, without), by_operation in by_reason.items():
        by_names: dict[tuple[str, ...], list[Operation]] = defaultdict(list)
        for operation, names in by_operation.items():
            by_names[tuple(sorted(names))].append(operation)
        for together, operations in by_names.items():
            yield MissingRight(asked.admin.alias, resource, tuple(operations), together, purposes, without, optional)


def _allowed(asked: _Asked, wanted: Iterable[_Key]) -> dict[tuple[Resource, str], frozenset[str]]:
    """The allowed operations on each of these resources; those that the cluster doesn't report are left out."""
    by_type: dict[Resource, set[str]] = defaultdict(set)
    for resource, name, _ in wanted:
        by_type[resource].add(name)
    admin = asked.admin
    on_cluster = admin.allowed_on_cluster()
    topics = admin.allowed_on_topics(by_type[Resource.TOPIC])
    groups = asked.groups.allowed(by_type[Resource.GROUP])
    if on_cluster is not None and Operation.CREATE in on_cluster:  # of any topic
        topics = {name: operations | {Operation.CREATE.value} for name, operations in topics.items()}
    found = {(Resource.TOPIC, name): operations for name, operations in topics.items()}
    found |= {(Resource.GROUP, name): operations for name, operations in groups.items()}
    return found if on_cluster is None else found | {(Resource.CLUSTER, CLUSTER_NAME): on_cluster}


def _may(key: _Key, allowed: Mapping[tuple[Resource, str], frozenset[str]]) -> bool:
    resource, name, operation = key
    return bool({operation, *operation.implied_by} & allowed[resource, name])


# -- behind a fence of drkit's own -----------------------------------------------------------------


def _fence_rules(store: Store, config: Config, alias: str) -> frozenset[Acl]:
    """The denying ACLs with which drkit keeps clients out of the cluster."""
    kind = fence_rules_kind(alias)
    links = {each for configured in config.links for each in (configured.link().id, configured.link().id.reversed())}
    rules = (Acl.parse(key) for link in links for key in store.notes(link, kind))
    return frozenset(rule for rule in rules if rule.permission == "deny")


def _without_fence(admin: ClusterAdmin, denied: Sequence[_Key], fence: frozenset[Acl]) -> list[_Key]:
    """Those that drkit lacks even without the fence, as far as ACLs explain what it may do."""
    closed = {(rule.resource, rule.name, rule.operation) for rule in fence}
    masked = [key for key in denied if key in closed]
    open_ones = [key for key in denied if key not in closed]
    if not masked or admin.principal is None:
        return open_ones
    try:
        rules = admin.acls() - fence
    except DrkitError:
        return open_ones
    for resource, name, operation in masked:
        granted = set(_granted(rules, admin.principal, resource, name))
        if granted and not {operation, *operation.implied_by, "all"} & granted:
            open_ones.append((resource, name, operation))
    return open_ones


def _granted(rules: Iterable[Acl], principal: str, resource: Resource, name: str) -> Iterator[str]:
    """The operations that ACLs allow a principal on a resource, from any host."""
    for rule in rules:
        about = name.startswith(rule.name) if rule.pattern == "prefixed" else rule.name in {name, "*"}
        ours = rule.permission == "allow" and rule.principal in {principal, _EVERYBODY}
        if ours and about and rule.resource == resource:
            yield rule.operation

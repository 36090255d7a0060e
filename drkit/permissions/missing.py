"""The ACLs that drkit lacks for commands, on exactly the topics and groups that these use.

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
from drkit.permissions.table import Command, Need, NeedOf, Operation, Resource, Side, Subject, Who, needs_of
from drkit.store.api import Store

Names = Mapping[tuple[Subject, Operation | None], Collection[str]]
"""The resources that a command uses on a cluster: the names by operation; operation None: all others. They are of the
subjects in `_NAMED_ELSEWHERE`; one that isn't named isn't checked."""
_NAMED_ELSEWHERE = frozenset({Subject.TOPICS, Subject.GROUPS, Subject.CLUSTER, Subject.STATE, Subject.REHEARSAL_GROUPS})
_FIXED = frozenset({Subject.CANARY, Subject.JOURNAL, Subject.OFFSETS_LOG, Subject.TRANSACTION_LOG, Subject.WORKERS})
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
    side: Side,
    touched: Mapping[Command, Names],
    *,
    may_be_gone: bool = False,
) -> dict[Command, list[MissingRight]]:
    """The ACLs that drkit lacks on one cluster, by command, required ones first.

    The cluster is asked once for all commands: three kinds of requests, whatever their number.

    Args:
        clusters: connections.
        config: fences, and the links whose fences may stand.
        store: has the ACLs of drkit's fences.
        link: the configured link.
        side: the cluster of the link that is asked.
        touched: the commands, each with the resources that it uses there.
        may_be_gone: see `Clusters`.

    Raises:
        Unreachable: the cluster doesn't answer.
        DrkitError: it answered with an error.
    """
    alias = cluster_of(link, side)
    uses = {command: list(_uses(config, link, command, side, names)) for command, names in touched.items()}
    if not any(uses.values()):
        return {command: [] for command in touched}
    admin = clusters.admin(alias, may_be_gone=may_be_gone)
    asked = _Asked(admin, clusters.groups(alias, may_be_gone=may_be_gone))
    denied = _denied(
        asked, [use for each in uses.values() for use in each], partial(_fence_rules, store, config, alias)
    )
    return {
        command: sorted(
            _lacking(alias, _wanted(each, denied)),
            key=lambda right: (right.optional, right.resource, right.names),
        )
        for command, each in uses.items()
    }


class _Use(NamedTuple):
    """A command's need of one operation, and the names of what it is done on."""

    need: Need
    operation: Operation
    names: Collection[str]

    @property
    def resource(self) -> Resource:
        return self.need.subject.resource


_Key = tuple[Resource, str, Operation]
_Why = tuple[Resource, bool, tuple[str, ...], tuple[str, ...]]


def _uses(config: Config, link: Link, command: Command, side: Side, names: Names) -> Iterator[_Use]:
    for each in needs_of(command):
        need = each.need
        if each.side is not side or need.who is not Who.DRKIT or not condition_holds(each, config, link):
            continue
        for operation in need.operations:
            if on := _names(each, link, operation, names):
                yield _Use(need, operation, on)


def _names(each: NeedOf, link: Link, operation: Operation, names: Names) -> Collection[str]:
    subject = each.need.subject
    if subject in _NAMED_ELSEWHERE:
        found = names.get((subject, operation))
        return names.get((subject, None), ()) if found is None else found
    if subject in _FIXED:
        return [pattern.name for pattern in patterns_of(each, link)[0]]
    return ()


@dataclass(slots=True)
class _Wanted:
    """One operation on one resource, and for what."""

    optional: bool = True
    purposes: dict[str, None] = field(default_factory=dict)
    without: dict[str, None] = field(default_factory=dict)


def _wanted(uses: Iterable[_Use], denied: Collection[_Key]) -> dict[_Key, _Wanted]:
    """What a command is denied, and what it wants that for."""
    by_operation: dict[tuple[Resource, Operation], set[str]] = defaultdict(set)
    for resource, name, operation in denied:
        by_operation[resource, operation].add(name)
    wanted: dict[_Key, _Wanted] = defaultdict(_Wanted)
    for need, operation, names in uses:
        resource = need.subject.resource
        for name in by_operation.get((resource, operation), set()).intersection(names):
            entry = wanted[resource, name, operation]
            if not need.optional and entry.optional:  # required needs state the cost
                entry.optional = False
                entry.purposes.clear()
                entry.without.clear()
            if need.optional <= entry.optional:
                entry.purposes[need.purpose] = None
                entry.without[need.without] = None
    return wanted


class _Asked(NamedTuple):
    """The connections to one cluster."""

    admin: ClusterAdmin
    groups: GroupAdmin


def _denied(asked: _Asked, uses: Sequence[_Use], fence_rules: Callable[[], frozenset[Acl]]) -> frozenset[_Key]:
    """Those of these operations that drkit may not do, as far as the cluster tells."""
    names: dict[Resource, set[str]] = defaultdict(set)
    for use in uses:
        names[use.resource].update(use.names)
    alike: dict[tuple[Resource, frozenset[str]], set[str]] = defaultdict(
        set
    )  # thousands of names, a few sets of rights
    for (resource, name), allowed in _allowed(asked, names).items():
        alike[resource, allowed].add(name)
    denied = {
        (resource, name, use.operation)
        for use in uses
        for (resource, allowed), same in alike.items()
        if resource is use.resource and not {use.operation, *use.operation.implied_by} & allowed
        for name in same.intersection(use.names)
    }
    if denied and (fence := fence_rules()):
        return frozenset(_without_fence(asked.admin, sorted(denied), fence))
    return frozenset(denied)


def _lacking(alias: str, wanted: Mapping[_Key, _Wanted]) -> Iterator[MissingRight]:
    """What one command is denied: what is for the same reason, and of that what is on the same names, together."""
    by_reason: dict[_Why, dict[Operation, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (resource, name, operation), entry in wanted.items():
        by_reason[resource, entry.optional, tuple(entry.purposes), tuple(entry.without)][operation].add(name)
    for (resource, optional, purposes, without), by_operation in by_reason.items():
        by_names: dict[tuple[str, ...], list[Operation]] = defaultdict(list)
        for operation in sorted(by_operation, key=list(Operation).index):
            by_names[tuple(sorted(by_operation[operation]))].append(operation)
        for together, operations in by_names.items():
            yield MissingRight(alias, resource, tuple(operations), together, purposes, without, optional)


def _allowed(asked: _Asked, names: Mapping[Resource, Collection[str]]) -> dict[tuple[Resource, str], frozenset[str]]:
    """The allowed operations on each of these resources; those that the cluster doesn't report are left out."""
    on_cluster = asked.admin.allowed_on_cluster()
    topics = asked.admin.allowed_on_topics(names.get(Resource.TOPIC, ()))
    groups = asked.groups.allowed(names.get(Resource.GROUP, ()))
    if on_cluster is not None and Operation.CREATE in on_cluster:  # of any topic
        topics = {name: operations | {Operation.CREATE.value} for name, operations in topics.items()}
    found = {(Resource.TOPIC, name): operations for name, operations in topics.items()}
    found |= {(Resource.GROUP, name): operations for name, operations in groups.items()}
    return found if on_cluster is None else found | {(Resource.CLUSTER, CLUSTER_NAME): on_cluster}


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

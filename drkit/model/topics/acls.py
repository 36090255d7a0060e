"""ACLs of a link, and a note about each, so that the switch doesn't need the source.

A note is kept for every ACL that drkit has put on the target or will put there at the switch:

| role | the ACL |
|---|---|
| `on` | drkit put it on the target; it stays at the switch |
| `due` | is added at the switch: it lets somebody write |
| `until_switch` | is on the target while it is a standby, in place of a `due` one that grants more |

ACLs that were on the target before drkit have no note and are never removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum

from drkit.model.topic_policy import AclMode
from drkit.model.topics.name_patterns import plain_name, prefix_of
from drkit.model.topology import Link, TopicPolicy

ACL_NOTES = "acl"
"""Kind of the notes: by the rule's `key`, the role."""
REMOVED_ACL_NOTES = "acl_removed"
"""Kind of the notes of ACLs that drkit took from the target, by `key`."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL. Kafka's words in lower case: `resource` topic or group, `pattern` literal or prefixed,
    `operation` read, write, all …, `permission` allow or deny. The literal name ``*`` means all.
    """

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    @property
    def key(self) -> str:
        """A text that identifies the ACL."""
        return json.dumps(astuple(self), ensure_ascii=False)

    @classmethod
    def parse(cls, key: str) -> Acl:
        """The ACL of a `key`."""
        return cls(*json.loads(key))

    def __str__(self) -> str:
        where = self.name if self.pattern == "literal" else f"{self.name}…"
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{host} to {self.operation} {self.resource} {where}"


def fence_rules_kind(cluster: str) -> str:
    """Kind of the notes that hold the ACLs by which drkit keeps clients out of a cluster: by `key`, the epoch."""
    return f"fence_rules {cluster}"


def others_rules_kind(cluster: str) -> str:
    """Kind of the notes that hold other people's ACLs that already closed a topic or group when drkit fenced the
    cluster.

    They stay when the fence is lifted. By `key`, the epoch.
    """
    return f"fence_others {cluster}"


def topics_denied(keys: Iterable[str]) -> frozenset[str]:
    """The topics that the ACLs with these keys keep everybody from writing to."""
    rules = map(Acl.parse, keys)
    return frozenset(
        rule.name
        for rule in rules
        if (rule.resource, rule.principal, rule.operation, rule.permission) == ("topic", "User:*", "write", "deny")
    )


class AclRole(StrEnum):
    """See the module docstring."""

    ON = "on"
    DUE = "due"
    UNTIL_SWITCH = "until_switch"


READS = frozenset({"read", "describe", "describe_configs"})
_INSTEAD_OF_ALL = {"topic": ("describe_configs", "read"), "group": ("read",)}  # to read implies to describe
_WRITES = frozenset({"write", "all"})
_EVERYBODY = "User:*"
_ANONYMOUS = "User:ANONYMOUS"
"""Everybody on a listener without authentication: drkit isn't the only one."""
_ALL_NAMES = "*"


def carried(
    rules: Iterable[Acl],
    link: Link,
    topics: Collection[str],
    groups: Collection[str],
    own: Collection[str] = (),
) -> set[Acl]:
    """The source's ACLs that the link covers, as ACLs of the target.

    Args:
        rules: the source's ACLs.
        link: names and coverage.
        topics: the source's topics that the link covers, for ACLs that become one for each.
        groups: the groups that the link carries, likewise.
        own: drkit's own principals on both clusters: their ACLs are the cluster owners' business.
    """
    found: set[Acl] = set()
    for rule in rules:
        if not _fences(rule) and rule.principal not in own:
            found.update(_of_topics(rule, link, topics) if rule.resource == "topic" else _of_groups(rule, link, groups))
    return found


def still_carried(rule: Acl, link: Link, own: Collection[str] = ()) -> bool:
    """Whether the link, as it is configured now, would put this ACL on its target if the source had it."""
    name: str | None = rule.name
    if rule.resource == "topic" and not _is_pattern(rule):
        name = link.source_topic(rule.name)
    elif rule.resource == "topic" and link.policy is TopicPolicy.PREFIX:
        name = rule.name.removeprefix(f"{link.id.source}.")
    return name is not None and rule in carried([replace(rule, name=name)], link, (), (), own)


def outdone(rule: Acl, others: Iterable[Acl]) -> bool:
    """Whether one of the others allows, or denies, the same and more."""
    return any(
        replace(each, name="", pattern="", operation="") == replace(rule, name="", pattern="", operation="")
        and each.operation in {rule.operation, "all"}
        and (
            rule.name.startswith(_begins(each))
            if _is_pattern(each)
            else (rule.name, rule.pattern) == (each.name, each.pattern)
        )
        for each in others
    )


def own_principals(*principals: str | None) -> frozenset[str]:
    """Those of drkit's principals on both clusters that are its alone; None: only the cluster knows it (TLS)."""
    return frozenset(name for name in principals if name is not None and name != _ANONYMOUS)


def patterned(rules: Iterable[Acl]) -> bool:
    """Whether there is an ACL about groups by prefix or about all groups, for which the groups must be known."""
    return any(rule.resource == "group" and _is_pattern(rule) for rule in rules)


def _fences(rule: Acl) -> bool:
    stops = {"write", "all"} if rule.resource == "topic" else {"read", "all"}
    return rule.permission == "deny" and rule.principal == _EVERYBODY and rule.host == "*" and rule.operation in stops


def _is_pattern(rule: Acl) -> bool:
    return rule.pattern == "prefixed" or rule.name == _ALL_NAMES


def _begins(rule: Acl) -> str:
    """The prefix of the names that a resource pattern matches."""
    return rule.name if rule.pattern == "prefixed" else ""


def _of_topics(rule: Acl, link: Link, topics: Collection[str]) -> Iterator[Acl]:
    if not _is_pattern(rule):
        if link.covers_topic(rule.name):
            yield replace(rule, name=link.target_topic(rule.name))
        return
    stretches = None if link.renames or link.inverse else _stretches(link.topics, link.exclude_topics, _begins(rule))
    if stretches is None:
        for topic in topics:
            if topic.startswith(_begins(rule)):
                yield replace(rule, pattern="literal", name=link.target_topic(topic))
        return
    before = f"{link.id.source}." if link.policy is TopicPolicy.PREFIX else ""
    yield from (_on_stretch(rule, pattern, before + name) for pattern, name in stretches)


def _of_groups(rule: Acl, link: Link, groups: Collection[str]) -> Iterator[Acl]:
    if not _is_pattern(rule):
        if link.covers_group(rule.name):
            yield rule
        return
    stretches = _stretches(link.groups, link.exclude_groups, _begins(rule))
    if stretches is None:
        for group in groups:
            if group.startswith(_begins(rule)) and link.covers_group(group):
                yield replace(rule, pattern="literal", name=group)
        return
    yield from (_on_stretch(rule, pattern, name) for pattern, name in stretches)


def _on_stretch(rule: Acl, pattern: str, name: str) -> Acl:
    """The ACL on a prefix (all names, if it is empty) or on one name."""
    if not name:
        return replace(rule, pattern="literal", name=_ALL_NAMES)
    return replace(rule, pattern=pattern, name=name)


def _stretches(patterns: Collection[str], excluded: Collection[str], begins: str) -> set[tuple[str, str]] | None:
    """The names that patterns match among those with prefix `begins`, as prefixes and single names (`Acl.pattern` and
    name).

    None where that isn't possible: a pattern is another expression, or something is excluded there.
    """
    found: set[tuple[str, str]] = set()
    for pattern in patterns:
        name, prefix = plain_name(pattern), prefix_of(pattern)
        if name is None and prefix is None:
            return None
        if name is not None and name.startswith(begins):
            found.add(("literal", name))
        if prefix is not None and (prefix.startswith(begins) or begins.startswith(prefix)):
            found.add(("prefixed", max(prefix, begins, key=len)))
    for pattern in excluded:
        name, prefix = plain_name(pattern), prefix_of(pattern)
        if name is None and prefix is None:
            return None
        if name is not None and any(_meets(name, stretch) for stretch in found):
            return None
        if prefix is not None and any(_meets(prefix, stretch) or stretch[1].startswith(prefix) for stretch in found):
            return None
    return found


def _meets(name: str, stretch: tuple[str, str]) -> bool:
    pattern, begins = stretch
    return name.startswith(begins) if pattern == "prefixed" else name == begins


def roles(rules: Iterable[Acl], mode: AclMode) -> dict[Acl, AclRole]:
    """The role of each ACL on the target, including ACLs that replace others."""
    found: dict[Acl, AclRole] = {}
    instead: dict[Acl, AclRole] = {}
    for rule in rules:
        at_once = mode is AclMode.COPY or rule.operation in READS
        if rule.permission == "deny" and rule.operation == "all":
            at_once = True
        found[rule] = AclRole.ON if at_once else AclRole.DUE
        if not at_once and rule.operation == "all":
            instead.update(
                (replace(rule, operation=operation), AclRole.UNTIL_SWITCH)
                for operation in _INSTEAD_OF_ALL[rule.resource]
            )
    return {**instead, **found}


@dataclass(frozen=True, slots=True)
class Changes:
    """The steps, in this order: `note` (an ACL is noted as ours before it is put), remove, put, then `note_after` (a
    withdrawn ACL stays noted until it is gone) and `forget`.
    """

    note: dict[Acl, AclRole] = field(default_factory=dict)
    put: set[Acl] = field(default_factory=set)
    remove: set[Acl] = field(default_factory=set)
    note_after: dict[Acl, AclRole] = field(default_factory=dict)
    forget: set[Acl] = field(default_factory=set)


def changes(wanted: Mapping[Acl, AclRole], noted: Mapping[Acl, AclRole], there: Collection[Acl]) -> Changes:
    """The steps from the target's current ACLs to the wanted ones.

    Args:
        wanted: each ACL's role now.
        noted: the roles of drkit's own ACLs.
        there: the target's ACLs. One without a note is somebody else's: it stays, without a note.
    """
    todo = Changes()
    for rule, role in wanted.items():
        before = noted.get(rule)
        if rule in there and before in {None, AclRole.DUE}:
            if before is AclRole.DUE:
                todo.forget.add(rule)  # somebody else has put it
        elif rule in there and role is AclRole.DUE:  # the target is a standby again
            todo.remove.add(rule)
            todo.note_after[rule] = role
        else:
            if before is not role:
                todo.note[rule] = role
            if rule not in there and role is not AclRole.DUE:
                todo.put.add(rule)
    for rule in set(noted) - set(wanted):
        todo.forget.add(rule)
        if rule in there and noted[rule] is not AclRole.DUE:
            todo.remove.add(rule)
    return todo


def writers(there: Iterable[Acl], topics: Collection[str], own: str | None) -> list[Acl]:
    """ACLs on the target that let anybody but the mirror write to these topics (of the target), and that no other one
    outdoes by a denial, as a fence does.

    `own`: the mirror's principal; None if unknown: then a single principal that may write is assumed to be the
    mirror's.
    """
    names, writing = set(topics), [rule for rule in sorted(there) if _is_about_writing(rule)]
    denials = [rule for rule in writing if rule.permission == "deny"]

    def is_open(rule: Acl, name: str) -> bool:
        return not any(
            _is_about(denial, name)
            and denial.principal in {rule.principal, _EVERYBODY}
            and denial.host in {rule.host, _ALL_NAMES}
            for denial in denials
        )

    found = [
        rule
        for rule in writing
        if rule.permission == "allow"
        and rule.principal != own
        and any(_is_about(rule, name) and is_open(rule, name) for name in names)
    ]
    if own is None and len({rule.principal for rule in found}) == 1:
        return []
    return found


def _is_about_writing(rule: Acl) -> bool:
    return rule.resource == "topic" and rule.operation in _WRITES


def _is_about(rule: Acl, name: str) -> bool:
    return name.startswith(_begins(rule)) if _is_pattern(rule) else rule.name == name

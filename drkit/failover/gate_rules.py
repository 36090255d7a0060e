"""Which access rules close a cluster for a link's clients, and what is kept about it. Pure.

A rule that denies `User:*` can't make an exception, not even for drkit. So there are two sets:

| a cluster is | rules, on each topic (write) and each group (read) of the link |
|---|---|
| closed | deny everybody |
| standby | deny each principal that a rule allows it, but not the one that drkit mirrors as |

With `allow.everyone.if.no.acl.found` a broker allows everything on what no rule is about. The first rule about a topic
ends that: denying to write it would deny to read and to see it, too, to drkit and its mirror as well. There a rule
that allows everybody everything goes with each that denies; of the two the one that denies wins.

Every closing, opening and narrowing has an epoch, a number of the store that only grows. The newest epoch's
record says how the cluster is meant to be; whoever acts by an older one is late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from pydantic import TypeAdapter

from drkit.model.acls import Acl

FENCES = "fence"
"""Kind of the notes that hold the records: by cluster and epoch."""
_EVERYBODY = "User:*"
_EPOCH_DIGITS = 20


class Means(StrEnum):
    """What keeps clients out."""

    ACL = "acl"
    COMMAND = "command"
    NONE = "none"


class GateState(StrEnum):
    """How a cluster is meant to be. `pending`: it is to be closed and did not answer."""

    PENDING = "pending"
    CLOSING = "closing"
    CLOSED = "closed"
    STANDBY = "standby"
    OPENING = "opening"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class GateRecord:
    """What the newest decision about a cluster's gate is. `proven`: closed, and shown to be; `detail`: how."""

    cluster: str
    epoch: int
    run: str
    state: GateState
    means: Means
    at: datetime
    proven: bool = False
    detail: str = ""

    @property
    def stands(self) -> bool:
        """Whether rules may be on the cluster, or its command may have run: also when it could not be reached since."""
        return self.means is not Means.NONE and self.state is not GateState.OPEN

    @property
    def name(self) -> str:
        """The name of its note: nobody who is late can write over a newer one."""
        return f"{self.cluster} {self.epoch:0{_EPOCH_DIGITS}d}"


_RECORD = TypeAdapter(GateRecord)


def record_text(record: GateRecord) -> str:
    """The record as its note has it."""
    return _RECORD.dump_json(record).decode()


def newest(notes: Mapping[str, str], cluster: str) -> GateRecord | None:
    """The cluster's newest record among the notes of a link; None: nothing was ever decided."""
    names = [name for name in notes if name.rpartition(" ")[0] == cluster]
    return _RECORD.validate_json(notes[max(names)]) if names else None


def older(notes: Mapping[str, str], record: GateRecord) -> list[str]:
    """Names of the notes that a record replaces."""
    return [name for name in notes if name.rpartition(" ")[0] == record.cluster and name < record.name]


def closing(topics: Iterable[str], groups: Iterable[str]) -> frozenset[Acl]:
    """The rules that close these topics and groups to everybody."""
    denied = [("topic", topic, "write") for topic in topics] + [("group", group, "read") for group in groups]
    return frozenset(
        Acl(resource, name, "literal", _EVERYBODY, "*", operation, "deny") for resource, name, operation in denied
    )


def unspoken(topics: Iterable[str], groups: Iterable[str], there: Collection[Acl]) -> frozenset[Acl]:
    """For each of these topics and groups that no rule is about, the one that lets everybody go on as before."""
    named = [("topic", topic) for topic in topics] + [("group", group) for group in groups]
    return frozenset(
        Acl(resource, name, "literal", _EVERYBODY, "*", "all", "allow")
        for resource, name in named
        if not spoken_of(resource, name, there)
    )


def probing(run: str) -> tuple[Acl, Acl]:
    """Rules about a topic and a group that don't exist, for somebody who doesn't either: who loses by one of them was
    let in by none.
    """
    name = f"drkit-probe-{run}"
    topic, group = (
        Acl(resource, name, "literal", "User:drkit-probe", "*", "describe", "allow") for resource in ("topic", "group")
    )
    return topic, group


def spoken_of(resource: str, name: str, there: Iterable[Acl]) -> bool:
    """Whether a rule is about it."""
    return any(rule.resource == resource and _about(rule, name) for rule in there)


def excepting(closed: Collection[Acl], there: Collection[Acl], own: str | None) -> tuple[frozenset[Acl], str]:
    """The rules that stand in for those of a closed cluster, so that `own` is let through.

    Args:
        closed: the rules that close it to everybody.
        there: the cluster's rules.
        own: the principal that drkit mirrors as; None: only the cluster knows it.

    Returns:
        The rules, and what stays open with them ("" where nothing does).
    """
    if own is None:
        return frozenset(), "which principal drkit has is known to the cluster only, so nobody can be told from it"
    granting = [rule for rule in there if rule.permission == "allow"]
    everybody = sorted({f"{rule.resource} {rule.name}" for rule in granting if rule.principal == _EVERYBODY})
    found = {
        replace(rule, principal=grant.principal)
        for rule in closed
        for grant in granting
        if grant.principal not in {own, _EVERYBODY}
        and grant.resource == rule.resource
        and grant.operation in {rule.operation, "all"}
        and _about(grant, rule.name)
    }
    gap = f"a rule lets everybody in ({', '.join(everybody[:3])}), drkit included" if everybody else ""
    return frozenset(found), gap


def for_everybody(rules: Iterable[Acl]) -> frozenset[Acl]:
    """Those that deny and make no exception."""
    return frozenset(rule for rule in rules if rule.principal == _EVERYBODY and rule.permission == "deny")


def named(rules: Iterable[Acl], resource: str) -> set[str]:
    """The topics (or groups) that these rules deny something on."""
    return {rule.name for rule in rules if rule.resource == resource and rule.permission == "deny"}


def what_stands(means: Means, cluster: str) -> str:
    """What a closing that isn't shown has done, in words."""
    return f"rules that deny writes are on {cluster}" if means is Means.ACL else f"the command has run for {cluster}"


def _about(grant: Acl, name: str) -> bool:
    if grant.pattern == "prefixed":
        return name.startswith(grant.name)
    return grant.name in {name, "*"}

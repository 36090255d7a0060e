"""The ACLs that close a cluster to a link's clients. Pure.

An ACL that denies `User:*` allows no exception, not even for drkit. So there are two sets:

| a cluster is | ACLs, on each topic (write) and each group (read) of the link |
|---|---|
| closed | deny everybody |
| standby | deny each principal that an ACL allows it, but not the one that drkit mirrors as |

With `allow.everyone.if.no.acl.found` a broker allows everything on a resource without ACLs. The first ACL about a topic
ends that: an ACL that denies writing would also end reading and describing, for drkit and its mirror too. So there each
denying ACL comes with one that allows everybody everything; a denial wins over a permission.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from drkit.model.runs import FenceMethod, is_mark
from drkit.model.topics.acls import Acl

_EVERYBODY = "User:*"


def closing_rules(topics: Iterable[str], groups: Iterable[str]) -> frozenset[Acl]:
    """The ACLs that deny everybody writing to these topics and reading in these groups."""
    denied = [("topic", topic, "write") for topic in topics] + [("group", group, "read") for group in groups]
    return frozenset(
        Acl(resource, name, "literal", _EVERYBODY, "*", operation, "deny") for resource, name, operation in denied
    )


def default_allow_rules(topics: Iterable[str], groups: Iterable[str], there: Collection[Acl]) -> frozenset[Acl]:
    """For each of these topics and groups without an ACL, the ACL that allows everybody everything, as before."""
    named = [("topic", topic) for topic in topics] + [("group", group) for group in groups]
    return frozenset(
        Acl(resource, name, "literal", _EVERYBODY, "*", "all", "allow")
        for resource, name in named
        if not has_rule(resource, name, there)
    )


def probe_rules(run: str) -> tuple[Acl, Acl]:
    """ACLs about a topic, a group and a principal that don't exist. They only reveal who had access without an ACL."""
    name = f"drkit-probe-{run}"
    topic, group = (
        Acl(resource, name, "literal", "User:drkit-probe", "*", "describe", "allow") for resource in ("topic", "group")
    )
    return topic, group


def has_rule(resource: str, name: str, there: Iterable[Acl]) -> bool:
    """Whether an ACL covers this resource."""
    return any(rule.resource == resource and _about(rule, name) for rule in there)


def writing_denied(there: Iterable[Acl], topics: Collection[str]) -> frozenset[Acl]:
    """The ACLs that deny somebody writing to some of these topics."""
    return frozenset(
        rule
        for rule in there
        if rule.permission == "deny"
        and rule.resource == "topic"
        and rule.operation in {"write", "all"}
        and not is_mark(rule)
        and any(_about(rule, name) for name in topics)
    )


def standby_rules(closed: Collection[Acl], there: Collection[Acl], own: str | None) -> tuple[frozenset[Acl], str]:
    """The ACLs that replace those of a closed cluster, so that `own` gets through.

    Args:
        closed: the ACLs that close it to everybody.
        there: the cluster's ACLs.
        own: the principal that drkit mirrors as; None: only the cluster knows it.

    Returns:
        The ACLs, and what stays open with them ("" for nothing).
    """
    if own is None:
        return frozenset(), "only the cluster knows drkit's principal, so drkit can't tell others from itself"
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
    """The ACLs that deny without exception."""
    return frozenset(rule for rule in rules if rule.principal == _EVERYBODY and rule.permission == "deny")


def denied_names(rules: Iterable[Acl], resource: str) -> set[str]:
    """The topics (or groups) on which these ACLs deny something."""
    return {
        rule.name for rule in rules if rule.resource == resource and rule.permission == "deny" and not is_mark(rule)
    }


def rules_beside_mark(
    there: Collection[Acl], covers_topic: Callable[[str], bool], covers_group: Callable[[str], bool]
) -> frozenset[Acl]:
    """The ACLs of a fence whose notes the store has lost, found beside its mark.

    Args:
        there: the cluster's ACLs.
        covers_topic: whether the link covers a topic of the cluster.
        covers_group: the same for a group.
    """

    def closes(rule: Acl) -> bool:
        about = (rule.resource, rule.operation)
        if rule.permission != "deny" or rule.pattern != "literal" or is_mark(rule):
            return False
        return (about == ("topic", "write") and covers_topic(rule.name)) or (
            about == ("group", "read") and covers_group(rule.name)
        )

    found = frozenset(rule for rule in there if closes(rule))
    beside = {
        Acl(rule.resource, rule.name, "literal", _EVERYBODY, "*", "all", "allow")
        for rule in found
        if rule.principal == _EVERYBODY
    }
    return found | (beside & frozenset(there))


def describe_unproven(method: FenceMethod, cluster: str) -> str:
    """What an unproven fence has done."""
    return (
        f"rules that deny writes are on {cluster}"
        if method is FenceMethod.ACL
        else f"the command has run for {cluster}"
    )


def _about(grant: Acl, name: str) -> bool:
    if grant.pattern == "prefixed":
        return name.startswith(grant.name)
    return grant.name in {name, "*"}

"""Whether the target has the source's ACLs about the link's topics and groups, as the link's `acls` says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import NoAuthorizer
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acl_rules import carried, changes, own_principals, roles
from drkit.model.topics.acls import Acl, AclRole
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.status import LinkStatus
from drkit.store.api import LinkStore
from drkit.store.link_notes import fence_rules, noted_rules

NAME = "access rules"
_SHOWN = 3


def access_rules_check(status: LinkStatus, store: LinkStore, clusters: Clusters, links: Iterable[LinkId] = ()) -> Check:
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
        return Check(NAME, CheckOutcome.OK, why if there is None else f"{why} that {target.alias} could lack")
    theirs -= fence_rules(store, {link.id, link.id.reversed(), *links}, link.id.source)
    topics = {each.topic for each in status.partitions if each.source_end is not None}
    groups = {each.group for each in status.groups if each.type is None}
    ours = carried(theirs, link, topics, groups, own_principals(source.principal, target.principal))
    if there is None:
        return without_authorizer(link.id, ours)
    noted = noted_rules(store, link.id)
    if noted and not theirs:
        why = f"{source.alias} has no rules any more; on {target.alias} they stay as they are"
        return Check(NAME, CheckOutcome.WARN, why, f"Give {source.alias} its rules back")
    return compared(link, ours, noted, there, mirrors=status.worker is not None)


def _rules(admin: ClusterAdmin) -> frozenset[Acl] | None:
    """None: there is no authorizer."""
    try:
        return admin.acls()
    except NoAuthorizer:
        return None


def without_authorizer(link: LinkId, ours: Collection[Acl]) -> Check:
    """The check of a target that keeps no ACLs. Pure."""
    if not ours:
        return Check(NAME, CheckOutcome.OK, f"{link.source} has no rules about what the link carries")
    why = (
        f"{link.target} has no authorizer: after a failover everybody may do there what is up to "
        f"{counted(len(ours), 'rule')} on {link.source}"
    )
    return Check(
        NAME, CheckOutcome.WARN, why, f"Give {link.target} an authorizer (authorizer.class.name of its brokers)"
    )


def compared(
    link: Link, ours: Collection[Acl], noted: Mapping[Acl, AclRole], there: Collection[Acl], *, mirrors: bool
) -> Check:
    """The check of what was seen. Pure.

    Args:
        link: whose topics and groups.
        ours: the source's ACLs that the link covers, under the target's names.
        noted: drkit's own ACLs on the target, with their roles.
        there: the target's ACLs.
        mirrors: whether a mirror runs, which puts what differs.
    """
    ids = link.id
    if link.acls is AclMode.OFF:
        lacking = sorted(set(ours) - set(there))
        if lacking:
            why = f'{ids.target} lacks {_some(lacking)} of {ids.source}, and acls = "off" puts none'
            remedy = f'Set acls = "standby" on the link, or put them on {ids.target} before clients move there'
            return Check(NAME, CheckOutcome.WARN, why, remedy)
        return Check(NAME, CheckOutcome.OK, f"{ids.target} has the {counted(len(ours), 'rule')} of {ids.source}")
    wanted = roles(ours, link.acls)
    todo = changes(wanted, noted, there)
    parts = [
        f"{ids.target} {what} {_some(sorted(rules))}"
        for what, rules in (("lacks", todo.put), ("still has", todo.remove))
        if rules
    ]
    # those that the switch puts come from the notes alone: one without a note would be missing then
    unnoted = sorted(rule for rule, role in todo.note.items() if role is AclRole.DUE)
    parts += [f"not noted for the switch: {_some(unnoted)}"] if unnoted else []
    if parts:
        remedy = "Start drkit mirror: it puts them"
        if mirrors:
            remedy = f"The mirror puts them within seconds; what {ids.target} refuses is a problem in drkit status"
        return Check(NAME, CheckOutcome.WARN, "; ".join(parts), remedy)
    due = sum(role is AclRole.DUE and rule not in there for rule, role in wanted.items())
    later = f"; the switch puts {due:,} more" if due else ""
    has = sum(role is not AclRole.DUE or rule in there for rule, role in wanted.items())
    return Check(NAME, CheckOutcome.OK, f"{ids.target} has {counted(has, 'rule')} that a standby gets{later}")


def _some(rules: Collection[Acl]) -> str:
    named = and_more([f"'{rule}'" for rule in rules], shown=_SHOWN)
    return f"{counted(len(rules), 'rule')} ({named})"

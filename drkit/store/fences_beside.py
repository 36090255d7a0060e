"""The fences of a cluster that stand for other links, and keep the clients of this link out of it, too.

A command closes a cluster to the clients of all links. ACLs go by name: they close the topics that links have in
common, and keep groups that read by several links from reading at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from drkit.model.runs import FENCES, FenceMethod, FenceRecord, is_mark, newest
from drkit.model.topics.acls import Acl, fence_rules_kind
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more
from drkit.store.api import Store


@dataclass(frozen=True, slots=True)
class FenceBeside:
    """Another link's fence. `denied`: its ACLs that deny somebody writing to this link's topics, or reading in its
    groups; none where a command closes the cluster to everybody."""

    record: FenceRecord
    denied: frozenset[Acl] = frozenset()

    @property
    def by_command(self) -> bool:
        """Whether it closes the cluster to all clients."""
        return self.record.method is FenceMethod.COMMAND


def fences_beside(
    store: Store, link: Link, links: Iterable[LinkId], cluster: str, there: Collection[Acl] | None
) -> dict[LinkId, FenceBeside]:
    """The standing fences of other links that keep out clients of this one, by link.

    Args:
        store: its notes.
        link: a link with the cluster on either side; it is no other one in either direction.
        links: the configured links.
        cluster: its alias.
        there: the ACLs on the cluster; None: they can't be read, so what is noted counts.
    """
    facing = link if link.id.source == cluster else link.reversed()  # its patterns, by the names on that cluster
    groups: frozenset[str] | None = None
    found: dict[LinkId, FenceBeside] = {}
    others = [each for each in links if each not in {link.id, link.id.reversed()}]
    for other, record in _standing(store, others, cluster):
        if record.method is FenceMethod.COMMAND:
            found[other] = FenceBeside(record)
            continue
        denying = {rule for rule in noted_rules_of(store, other, cluster) if rule.permission == "deny"}
        if there is not None:
            denying &= set(there)
        if groups is None and any(rule.resource == "group" for rule in denying):
            ways = (link.id, link.id.reversed())
            groups = frozenset(position.group for way in ways for position in store.group_positions(way))
        denied = frozenset(
            rule
            for rule in denying
            if not is_mark(rule)
            and (facing.covers_topic(rule.name) if rule.resource == "topic" else rule.name in (groups or ()))
        )
        if denied:
            found[other] = FenceBeside(record, denied)
    return found


def names_closed(fences: Iterable[FenceBeside]) -> str:
    """The topics and groups that these fences close by ACLs, in words."""
    names = {(rule.resource != "topic", rule.name) for each in fences for rule in each.denied}
    return and_more([f"group {name}" if group else name for group, name in sorted(names)])


def lift_of(other: LinkId, cluster: str) -> str:
    """The remedy that ends another link's fence of a cluster, by the command that does."""
    left = other.target if cluster == other.source else other.source
    return (
        f"To go on without what clients of {other} have written to {left} since: "
        f"drkit fence --lift --cluster {cluster} --yes --link '{other}'"
    )


def command_fences(store: Store, links: Iterable[LinkId], cluster: str) -> dict[LinkId, FenceRecord]:
    """The fences of a cluster by its command that stand for any of these links, by link."""
    standing = _standing(store, links, cluster)
    return {link: record for link, record in standing if record.method is FenceMethod.COMMAND}


def rules_wanted(store: Store, links: Iterable[LinkId], cluster: str) -> frozenset[Acl]:
    """The ACLs on a cluster that a standing fence of any of these links needs."""
    return frozenset(
        rule for link, _ in _standing(store, links, cluster) for rule in noted_rules_of(store, link, cluster)
    )


def noted_rules_of(store: Store, link: LinkId, cluster: str) -> frozenset[Acl]:
    """The ACLs that the fence of a cluster for a configured link has put there, or shares with another link's."""
    return frozenset(map(Acl.parse, store.notes(link, fence_rules_kind(cluster))))


def _standing(store: Store, links: Iterable[LinkId], cluster: str) -> Iterator[tuple[LinkId, FenceRecord]]:
    for link in links:
        record = newest(store.notes(link, FENCES), cluster)
        if record is not None and record.stands:
            yield link, record

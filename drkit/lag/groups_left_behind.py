"""Groups on the cluster that groups left that no move has taken: they first committed after it had read the others.

A fence denies the groups that were there; a new one commits. A move stores the positions of all groups that it saw, so
what isn't in the store came later. A consumer without a position on the target begins there at the log's end, by
default.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import now
from drkit.model.offsets import GroupPosition
from drkit.model.topology import Link
from drkit.model.wording import and_more

_COORDINATORS_SECONDS = 3.0
"""How long to wait for group coordinators that are down: one that moves is back sooner."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class GroupsLeftBehind:
    """`positions`: what they have committed, sorted by group, topic and partition of the source; `unread`: why these
    may not be all, or None."""

    positions: tuple[GroupPosition, ...] = ()
    unread: str | None = None


def groups_left_behind(
    clusters: Clusters, link: Link, seen: Iterable[tuple[str, str, int]], *, only_new: bool = False
) -> GroupsLeftBehind:
    """What groups have committed on the link's source, which answers, that no move has seen, and of which the target
    has no position.

    Args:
        clusters: both.
        link: in the direction in which groups moved.
        seen: what moves have seen, by group, topic and partition.
        only_new: offsets of groups of which a move has seen any aren't read again, and no coordinator is waited for.

    Raises:
        DrkitError: a cluster doesn't answer, or doesn't list its groups.
    """
    known = set(seen)
    before: Collection[str] = {group for group, _, _ in known} if only_new else ()
    there = clusters.groups(link.id.source, may_be_gone=True)
    listing = there.list_reachable_groups() if only_new else there.list_groups_within(_COORDINATORS_SECONDS)
    unread = [] if listing.complete else [listing.missing]
    names = [
        name
        for name, group in listing.groups.items()
        if group.commits_offsets and name not in before and link.covers_group(name)
    ]
    if not names:
        return GroupsLeftBehind((), and_more(unread) or None)
    fetched, at = there.fetch(names), now()
    unread += [f"offsets of {group}: {why}" for group, why in sorted(fetched.failures.items())]
    found = [
        GroupPosition(each.group, each.topic, each.partition, each.offset, each.metadata, at)
        for offsets in fetched.offsets.values()
        for each in offsets
        if link.covers_topic(each.topic) and (each.group, each.topic, each.partition) not in known
    ]
    if found:
        moved = clusters.groups(link.id.target).fetch(sorted({each.group for each in found}))
        unread += [f"offsets of {group} on {link.id.target}: {why}" for group, why in sorted(moved.failures.items())]
        found = [each for each in found if each.group not in moved.failures]
        placed = {(each.group, each.topic, each.partition) for offsets in moved.offsets.values() for each in offsets}
        found = [each for each in found if (each.group, link.target_topic(each.topic), each.partition) not in placed]
    return GroupsLeftBehind(tuple(sorted(found)), and_more(unread, separator="; ") or None)


def mover_of(link: Link, groups: Sequence[str]) -> str:
    """The command that moves such groups; of many only the first."""
    named = " ".join(f"--group {shlex.quote(group)}" for group in groups[:_SHOWN])
    return f"drkit failover --to {link.id.target} --link '{link.id}' {named}{' …' if len(groups) > _SHOWN else ''}"

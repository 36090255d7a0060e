"""Detects a store that is older than its copy on the target: a restored backup, or another store.

Its decision about who serves may be outdated: a failback planned by it would scrub the live cluster.
"""

from __future__ import annotations

from typing import NamedTuple

from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.errors import DrkitError, Refused
from drkit.model.topology import Link, LinkId
from drkit.model.wording import counted
from drkit.state_topic.copy_topic import copy_name
from drkit.state_topic.guard import OlderStore, older_than, recovery_of
from drkit.state_topic.link_copy import read_copy

_MEANING = "A backup of the store was brought back, or store.url is another one: "


class StoreAge(NamedTuple):
    """Whether the store is older than its copy on the target. `older`: by how much; None: it isn't, as far as that is
    known. `unknown`: why it isn't known. `denied`: only a right is missing (which the plan names)."""

    older: OlderStore | None
    unknown: str | None = None
    denied: bool = False


def read_age(estate: ClusterContext, link: Link) -> StoreAge:
    """Compare the store with its copy on the target; where there is no copy, the store isn't older."""
    alias = link.id.target
    try:
        admin = estate.admin(alias)
        copy = read_copy(link, estate.store, estate.config.clusters[alias], admin)
        if copy is None:
            return StoreAge(None)
        older = older_than(copy, estate.store, link, admin)
        if not copy.unreadable:
            return StoreAge(older)
        first = min(copy.unreadable)
        return StoreAge(older, f"{counted(len(copy.unreadable), 'record')} of it can't be read, first {first}")
    except DrkitError as error:
        return StoreAge(None, error.what, isinstance(error, Refused))


def not_compared(link: LinkId, why: str) -> str:
    """The warning that a store's age isn't known."""
    return f"whether the store is older than its copy on {link.target} isn't known: {why}"


def older_positions(link: LinkId, older: OlderStore) -> Obstacle:
    """Why an older store can't plan a failover: its mapping rows may be wrong beyond its watermarks."""
    remedy = recovery_of(link)
    if not older.unknown and older.decision is None:
        remedy += (
            f"; or start drkit mirror while {link.source} answers: it compares both logs, and the store is newer again"
        )
    return Obstacle(
        f"the store is older than its copy on {link.target}, {older.knows_more()}",
        f"{_MEANING}its positions may be wrong",
        remedy,
    )


def later_decision(estate: ClusterContext, link: Link, age: StoreAge) -> Obstacle | None:
    """Why nothing may rely on the store's decision about the link; None: no later decision is known."""
    if age.older is None or age.older.decision is None:
        return None
    control = estate.store.link_control(link.id)
    return Obstacle(
        f"the store is older than its copy on {link.id.target}, which has decision {age.older.decision} about the "
        f"link; it has decision {0 if control is None else control.version} itself",
        f"{_MEANING}which cluster clients use may have been decided since",
        recovery_of(link.id),
    )


def decision_not_compared(estate: ClusterContext, link: Link, why: str) -> Obstacle:
    """Why nothing may be deleted by the store's decision about the link while its copy can't be compared."""
    topic = copy_name(link, estate.store)
    return Obstacle(
        not_compared(link.id, why),
        "If a backup of the store was brought back, which cluster clients use may have been decided since",
        f"Try again when {link.id.target} answers for topic {topic}. If the topic is damaged, and this store was never "
        f"replaced: delete the topic on {link.id.target}; the next decision or mirror writes it anew",
    )

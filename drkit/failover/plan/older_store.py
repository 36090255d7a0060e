"""Detects a store that is older than its copy on the target: a restored backup, or another store.

Its decision about who serves may be outdated: a failback planned by it would scrub the live cluster.
"""

from __future__ import annotations

from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.errors import DrkitError
from drkit.model.topology import Link, LinkId
from drkit.state_topic.guard import OlderStore, older_than, recovery_of
from drkit.state_topic.link_copy import read_copy

_MEANING = "A backup of the store was brought back, or store.url is another one: "


def read_older(estate: ClusterContext, link: Link) -> OlderStore | None:
    """How much older the store is than its copy on the target; None: it isn't, or that is unknown."""
    alias = link.id.target
    try:
        admin = estate.admin(alias)
        copy = read_copy(link, estate.config.clusters[alias], admin)
        return None if copy is None else older_than(copy, estate.store, link, admin)
    except DrkitError:
        return None


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


def older_decision(estate: ClusterContext, link: Link) -> Obstacle | None:
    """Why nothing may rely on the store's decision about the link; None: no later decision is known."""
    older = read_older(estate, link)
    if older is None or older.decision is None:
        return None
    control = estate.store.link_control(link.id)
    return Obstacle(
        f"the store is older than its copy on {link.id.target}, which has decision {older.decision} about the link; it "
        f"has decision {0 if control is None else control.version} itself",
        f"{_MEANING}which cluster clients use may have been decided since",
        recovery_of(link.id),
    )


def refuse_older_decision(estate: ClusterContext, link: Link) -> None:
    """Raise `Refused` if `older_decision` finds one."""
    found = older_decision(estate, link)
    if found is not None:
        raise found.refusal()

"""Preconditions of failover and failback alike: drkit's rights, and a store that isn't older than its copy.

A missing right is found before anything is changed. A store that is older than its copy on the target is a restored
backup, or another store. Its decision about who serves may be outdated: a failback planned by it would scrub the live
cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.errors import DrkitError, Refused
from drkit.model.topology import Link, LinkId
from drkit.model.wording import counted
from drkit.permissions.missing import Names, missing_rights, remedy_of
from drkit.permissions.resolve import cluster_of
from drkit.permissions.table import Command, Side
from drkit.state_topic.copy_topic import copy_name
from drkit.state_topic.guard import OlderStore, older_than, recovery_of
from drkit.state_topic.link_copy import read_copy


class RightsFound(NamedTuple):
    """Missing rights: those that are obstacles, and those that the run can do without."""

    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()


def look_at_rights(estate: ClusterContext, link: Link, command: Command, touched: Mapping[Side, Names]) -> RightsFound:
    """Compare a command's needs with drkit's rights on each cluster.

    Args:
        estate: the clusters and the store.
        link: the configured link.
        command: the planned command.
        touched: the resources it uses on each cluster that answers.
    """
    obstacles, warnings = [], []
    for side, names in touched.items():
        alias = cluster_of(link, side)
        try:
            missing = missing_rights(estate, estate.config, estate.store, link, command, {side: names})
        except DrkitError as error:
            warnings.append(f"whether drkit has all the rights that it needs on {alias} is unknown: {error.what}")
            continue
        for each in missing:
            purpose, without = "; ".join(each.purposes), "; ".join(each.without)
            if each.optional:
                warnings.append(f"{each} (to {purpose}): {without}")
            else:
                meaning = f"It is needed to {purpose}; without it: {without}"
                obstacles.append(Obstacle(str(each), meaning, remedy_of(command, link, alias)))
    return RightsFound(tuple(obstacles), tuple(warnings))


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


def older_positions(link: Link, older: OlderStore) -> Obstacle:
    """Why an older store can't plan a failover: its mapping rows may be wrong beyond its watermarks."""
    remedy = recovery_of(link.id)
    if link.alters:  # only rows say which of its records are where, and a mirror replaces the copy of those it lacks
        remedy += ". Start no mirror with this store: it would stop at records that it doesn't know, and spoil the copy"
    elif not older.unknown and older.decision is None:
        remedy += (
            f"; or start drkit mirror while {link.id.source} answers: it compares both logs, and the store is newer "
            "again"
        )
    return Obstacle(
        f"the store is older than its copy on {link.id.target}, {older.knows_more()}",
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

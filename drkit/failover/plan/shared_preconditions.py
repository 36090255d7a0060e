"""Preconditions of failover and failback alike: drkit's rights, and a store that isn't older than its copy.

A missing right is found before anything is changed. A store that is older than its copy on the target is a restored
backup, or another store. Its decision about who serves may be outdated: a failback planned by it would scrub the live
cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.plan.failover_plan import Obstacle
from drkit.mapping.translate import RowDoubts
from drkit.model.errors import Denied, DrkitError, Refused
from drkit.model.topology import Link
from drkit.model.wording import and_more
from drkit.permissions.missing import Names, missing_rights, remedy_of
from drkit.permissions.resolve import cluster_of
from drkit.permissions.table import Command, Side, Subject
from drkit.state_topic.connection import READ_SECONDS
from drkit.state_topic.copy_topic import copy_name
from drkit.state_topic.store_age import OlderStore, StoreAge, not_compared, read_age, recovery_of


class RightsFound(NamedTuple):
    """Missing rights: those that are obstacles, and those that the run can do without."""

    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()


def look_at_rights(
    estate: ClusterContext,
    link: Link,
    command: Command,
    touched: Mapping[Side, Names],
    *,
    dispensable: Side | None = None,
) -> RightsFound:
    """Compare a command's needs with drkit's rights on each cluster.

    Args:
        estate: the clusters and the store.
        link: the configured link.
        command: the planned command.
        touched: the resources it uses on each cluster that answers.
        dispensable: the cluster that the command can do without: what is missing there is a warning.
    """
    obstacles, warnings = [], []
    for side, names in touched.items():
        alias = cluster_of(link, side)
        try:
            asked = missing_rights(
                estate, estate.config, estate.store, link, side, {command: names}, may_be_gone=side is dispensable
            )
        except DrkitError as error:
            warnings.append(f"whether drkit has all the rights that it needs on {alias} is unknown: {error.what}")
            continue
        for each in asked[command]:
            purpose, without = "; ".join(each.purposes), "; ".join(each.without)
            if each.optional or side is dispensable:
                warnings.append(f"{each} (to {purpose}): {without}")
            else:
                meaning = f"It is needed to {purpose}; without it: {without}"
                obstacles.append(Obstacle(str(each), meaning, remedy_of(command, link, alias)))
    return RightsFound(tuple(obstacles), tuple(warnings))


def named_rights(estate: ClusterContext, link: Link, command: Command, denied: Denied) -> Refused:
    """What a plan is refused for that a cluster denied while it was made: all the rights that the command lacks on what
    was mirrored; the denial itself where the clusters don't tell any."""
    states = estate.store.topic_states(link.id).items()
    groups = {each.group for each in estate.store.group_positions(link.id)}
    touched: dict[Side, Names] = {
        Side.SOURCE: {(Subject.TOPICS, None): {name for name, _ in states}, (Subject.GROUPS, None): groups},
        Side.TARGET: {(Subject.TOPICS, None): {state.target_topic for _, state in states}},
    }
    found = look_at_rights(estate, link, command, touched).obstacles
    if not found:
        return denied
    what = and_more([each.what for each in found], separator="; ")
    return Refused(what, meaning=f"{found[0].meaning}. Nothing was changed", remedy=found[0].remedy)


def store_age(estate: ClusterContext, link: Link, seconds: float = READ_SECONDS) -> StoreAge:
    """Whether a run's store is older than its copy on the link's target, which may take so many seconds to read."""
    alias = link.id.target
    return read_age(link, estate.store, estate.config.clusters[alias], partial(estate.admin, alias), seconds=seconds)


def rows_in_doubt(estate: ClusterContext, link: Link) -> RowDoubts:
    """Why it isn't known whether the store has all mapping rows of a link, by its copy and by what is on record."""
    return store_age(estate, link).rows_in_doubt(link, estate.store.problems(link.id))


_MEANING = "A backup of the store was brought back, or store.url is another one: "


def older_positions(link: Link, older: OlderStore) -> Obstacle:
    """Why an older store can't plan a failover: its mapping rows may be wrong beyond its watermarks."""
    return Obstacle(
        f"the store is older than its copy on {link.id.target}, {older.knows_more()}",
        f"{_MEANING}its positions may be wrong",
        older.remedy(link),
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


def lost_rows(link: Link, age: StoreAge) -> Obstacle | None:
    """Why no failback rests on a store that has lost mapping rows; None: it isn't known to have."""
    if age.older is None or not age.lost:
        return None
    return Obstacle(
        f"the store is older than its copy on {link.id.target}, {age.older.knows_more()}",
        "It has lost mapping rows: what is only on one side, and where groups continue, may be wrong",
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

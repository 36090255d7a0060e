"""Missing rights of a run, as obstacles and warnings of its plan: found before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.errors import DrkitError
from drkit.model.topology import Link
from drkit.permissions.missing import Names, missing_rights, remedy_of
from drkit.permissions.resolve import cluster_of
from drkit.permissions.table import Command, Side


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

"""Commits, checks and removes positions of consumer groups, with a separate client that no case measures."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from bench.clusters import Cluster
from bench.processes import MeasurementFailed
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.topology import TopicPartition

Offsets = dict[TopicPartition, tuple[int, str]]
_LAGGING = 10
_SEED = 7


def _groups(cluster: Cluster) -> GroupAdmin:
    return GroupAdmin(cluster.alias, ClusterConfig(bootstrap_servers=cluster.address), timeout_seconds=60.0)


def make_positions(prefix: str, groups: int, topic: str, partitions: int, records: int) -> dict[str, Offsets]:
    """Positions of groups on a topic with so many records per partition: nine of ten are caught up, the others lag."""
    rng = random.Random(_SEED)  # noqa: S311 - a scene, no secret
    found = {}
    for number in range(groups):
        offset = rng.randrange(records) if number % _LAGGING == 0 else records
        found[f"{prefix}{number:04}"] = {TopicPartition(topic, each): (offset, "") for each in range(partitions)}
    return found


def commit(cluster: Cluster, positions: Mapping[str, Offsets]) -> None:
    """Commit each group's position."""
    with _groups(cluster) as admin:
        for failure in admin.commit_many(positions).values():
            raise failure


def check(
    cluster: Cluster, tool: str, positions: Mapping[str, Offsets], moved: Callable[[int], int] = lambda offset: offset
) -> None:
    """Raise `MeasurementFailed` if a tool has left a group elsewhere; `moved`: the right place of a source's offset."""
    wanted = {(group, tp): moved(offset) for group, each in positions.items() for tp, (offset, _) in each.items()}
    with _groups(cluster) as admin:
        found = {(each.group, each.tp): each.offset for each in admin.committed(sorted(positions))}
    wrong = [key for key, offset in wanted.items() if found.get(key) != offset]
    if wrong:
        group, tp = wrong[0]
        raise MeasurementFailed(
            f"{tool} left {len(wrong)} of {len(wanted)} positions elsewhere, e.g. {group} on {tp} at "
            f"{found.get((group, tp))}, not {wanted[group, tp]}"
        )


def delete_groups(cluster: Cluster, prefix: str) -> None:
    """Delete the groups with this prefix."""
    with _groups(cluster) as admin:
        admin.delete_groups([name for name in admin.list_groups() if name.startswith(prefix)])

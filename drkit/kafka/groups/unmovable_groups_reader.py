"""Reading the groups of a cluster that commit no offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drkit.kafka.groups.group_admin import GroupAdmin, GroupListing
from drkit.model.clock import now
from drkit.model.groups.unmovable_groups import SHARE, UnmovableGroup
from drkit.model.topology import Link, TopicPartition


def read_unmovable(
    link: Link, source: GroupAdmin, listing: GroupListing, covers_topic: Callable[[str], bool]
) -> list[UnmovableGroup]:
    """The link's groups of the listing that commit no offsets, share groups with their start offsets."""
    found = [each for each in listing.groups.values() if not each.commits_offsets and link.covers_group(each.group)]
    if not found:
        return []
    at = now()
    starts: Mapping[str, Mapping[TopicPartition, int | None]] = source.share_starts(
        each.group for each in found if each.type == SHARE
    )
    return [
        UnmovableGroup(
            each.group,
            each.type,
            {tp: start for tp, start in starts.get(each.group, {}).items() if covers_topic(tp.topic)},
            at,
        )
        for each in sorted(found, key=lambda each: each.group)
    ]

"""Settings by which brokers remove records: whether the old primary's own ones remove more than the live cluster's, and
where that would take records that groups have not read.

A failback gives topics of the old primary their own settings back at its switch, and from then on they are in force on
both sides. Where an operator has made the live cluster keep more, because groups lag, what these have not read would go
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import NOTHING, LogPosition
from drkit.model.errors import Refused
from drkit.model.topic_policy import TopicSettings
from drkit.model.topics.removing import CLEANUP, removing_more
from drkit.model.topology import TopicPartition
from drkit.model.wording import counted

_RECORD_SECONDS = 20.0
_UNLIMITED = "-1"
_BY_SIZE, _BY_TIME = "retention.bytes", "retention.ms"


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group continues. `offset` None: nobody knows, so it may have read nothing."""

    group: str
    tp: TopicPartition
    offset: int | None


@dataclass(frozen=True, slots=True)
class KeptSetting:
    """A setting of the live cluster's that a topic keeps, because a group has not read so many offsets of a partition
    that the topic's own one would remove."""

    name: str
    own: str
    live: str
    group: str
    tp: TopicPartition
    unread: int

    def __str__(self) -> str:
        behind = f"{self.group} has not read {counted(self.unread, 'offset')} of {self.tp}"
        return f"{self.tp.topic} keeps {self.name} {self.live} ({behind}, which its own, {self.own}, would remove)"


def kept_for_unread(
    admin: ClusterAdmin,
    own: Mapping[str, Mapping[str, str]],
    live: Mapping[str, Mapping[str, str]],
    places: Iterable[GroupPlace],
    policy: TopicSettings,
    *,
    at_ms: int,
) -> list[KeptSetting]:
    """The live cluster's settings that topics keep for groups that have not read everything.

    Where a setting follows the old primary by the link's policy, the live cluster's differs because somebody has made
    it keep more since: then anything unread counts, as it needs its time. Where it doesn't, that is so for good, and
    what the topic's own one would remove now counts.

    Args:
        admin: the old primary, which holds all of the records.
        own: its topics' own settings, by topic.
        live: those of the live cluster, by the old primary's names.
        places: the groups', on the old primary.
        policy: the configured link's.
        at_ms: the current time.
    """
    keys = {name: removing_more(own[name], now) for name, now in live.items() if name in own}
    wanted = [place for place in places if keys.get(place.tp.topic)]
    tps = {place.tp for place in wanted}
    if not tps:
        return []
    ends = admin.end_offsets(tps, committed=False)
    removed = _removed_now(admin, {tp: own[tp.topic] for tp in tps}, ends, at_ms)
    begins = {LogPosition(place.tp, place.offset or 0) for place in wanted}
    behind = [each for each in begins if each.offset < ends.get(each.tp, each.offset + 1)]
    first = admin.probe_records(behind, seconds=_RECORD_SECONDS) if behind else {}
    found: dict[tuple[str, str], KeptSetting] = {}
    for place in wanted:
        tp, begin = place.tp, place.offset or 0
        unread = ends.get(tp, begin + 1) - begin
        if first.get(LogPosition(tp, begin)) == NOTHING:
            continue  # the rest are transactions' markers
        for key in keys[tp.topic]:
            # under another clean-up policy than its own, its retention was never meant to be in force
            by_design = not policy.follows(key) or key in policy.overrides_of(tp.topic)
            lasts = by_design and CLEANUP not in keys[tp.topic]
            until = removed[key].get(tp, begin + unread) if lasts and key in removed else begin + unread
            known = found.get((tp.topic, key))
            if begin < until and (known is None or known.unread < unread):
                values = own[tp.topic][key], live[tp.topic][key]
                found[tp.topic, key] = KeptSetting(key, *values, place.group, tp, unread)
    return [each for _, each in sorted(found.items())]


def _removed_now(
    admin: ClusterAdmin,
    own: Mapping[TopicPartition, Mapping[str, str]],
    ends: Mapping[TopicPartition, int],
    at_ms: int,
) -> dict[str, dict[TopicPartition, int]]:
    """By setting, the offset below which a partition would lose records now; without those of which that can't be
    told."""
    limits = {tp: int(settings.get(_BY_TIME, _UNLIMITED)) for tp, settings in own.items()}
    first = admin.offsets_for_times({tp: max(0, at_ms - limit) for tp, limit in limits.items() if limit >= 0})
    by_time = {tp: ends.get(tp, 0) if offset is None else offset for tp, offset in first.items()}
    try:
        sizes = admin.log_sizes(own)
    except Refused:
        sizes = {}
    by_size = {tp: 0 for tp, size in sizes.items() if size <= int(own[tp].get(_BY_SIZE, _UNLIMITED))}
    return {_BY_TIME: by_time, _BY_SIZE: by_size}

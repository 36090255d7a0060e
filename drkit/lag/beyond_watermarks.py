"""Tells whether what a target holds beyond a watermark was written by the link's mirror, where none watches.

A mirror stores watermarks about once a second and may be killed in between: what stands above them on the target then
counts as mirrored, by the mapping rows (`drkit.mapping.resume`). Any other client may have written there
since. A mirror appends with the producer id of its link, and not behind a stranger's records, so the last batch tells,
and where a stranger wrote it, a binary search finds its first one. Markers that fenced a mirror off end its copy, and
are no stranger's records (`fence_markers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition, OffsetRange
from drkit.lag.fence_markers import LinkProducers, ends_below_markers, link_producers
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store

_SECONDS = 5.0


def foreign_writer_remedy(link: LinkId, topic: str, target_topic: str) -> str:
    """What to do where another client wrote to a link's target."""
    source, target = link.source, link.target
    return (
        f"Find the other writer and deny it by ACL (if there is none, {source} may have lost its tail just after it "
        f"was mirrored, or {target} has records that a failback without it left there). `drkit salvage --link "
        f"'{link.reversed()}' --topic {target_topic} --out DIR` keeps what only {target} holds, and with --replay-to "
        f"{topic} writes it to {source} (a link that alters records has no salvage). Then delete {target_topic} on "
        f"{target}, or it holds the same records twice, and start it again: `drkit link resume '{link}' --topic "
        f"{topic} --accept-recreated`"
    )


@dataclass(slots=True)
class _Search:
    """The first offset of `tp` in [`begin`, `end`] from which on a stranger wrote; below `begin` the mirror did."""

    tp: TopicPartition
    begin: int
    end: int

    @property
    def next(self) -> LogPosition:
        """Where to ask next."""
        return LogPosition(self.tp, (self.begin + self.end) // 2)

    def settle(self, place: LogPosition, offset: int | None, *, own: bool) -> None:
        """`offset`: of the first record from the place on; `own`: whether the mirror wrote it."""
        if own and offset is not None and offset < self.end:
            self.begin = offset + 1
        else:
            self.end = place.offset


@dataclass(frozen=True, slots=True)
class BeyondWatermarks:
    """By source partition. `written_from`: the target offset from which on another client wrote (or the fencing marker
    before it); `unknown`: why it isn't known who wrote what others hold beyond their watermark; `fenced`: where the
    copy ends in logs that end in fencing markers."""

    written_from: dict[TopicPartition, int] = field(default_factory=dict)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    fenced: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def own_ends(self) -> dict[TopicPartition, int]:
        """Where the copy ends in logs that go on, as far as that is known."""
        fenced = {tp: end for tp, end in self.fenced.items() if tp not in self.unknown}
        return fenced | self.written_from


def beyond_watermarks(
    target: ClusterAdmin,
    store: Store,
    link: LinkId,
    marks: Iterable[Watermark],
    logs: Mapping[TopicPartition, TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> BeyondWatermarks:
    """Who wrote what targets hold beyond these watermarks.

    Args:
        target: the target cluster.
        store: where the link's producer id is.
        link: the link; nobody but its mirror writes to its target.
        marks: watermarks of partitions that no mirror watches.
        logs: their partitions on the target.
        ends: the log ends there; one that isn't beyond its watermark has nothing to ask about.
    """
    searches = {
        mark.tp: _Search(there, mark.target_end, end)
        for mark in marks
        if (end := ends.get(there := logs[mark.tp], 0)) > mark.target_end
    }
    found = BeyondWatermarks()
    if not searches:
        return found
    unsure = f"who wrote what {link.target} holds beyond the mirror's last save is not known"
    try:
        own = link_producers(store, link, target.cluster_id())
        if not own.ids:
            why = f"{unsure}: the store doesn't have the mirror's producer id"
            found.unknown.update(dict.fromkeys(searches, why))
            return found
        _below_markers(target, own, searches, found, unsure)
        last = {tp: LogPosition(each.tp, each.end - 1) for tp, each in searches.items()}
        seen = target.probe_records(last.values(), seconds=_SECONDS, control=True)
        for tp, place in last.items():
            record = seen[place]
            if record.offset is None:
                found.unknown[tp] = f"{unsure}: {record.reason or f'{place.tp} has no record at its end'}"
            elif not own.copied(record):
                searches[tp].end -= 1
                found.written_from[tp] = searches[tp].end
        _first_of_strangers(target, {tp: searches[tp] for tp in found.written_from}, own, found, unsure)
    except (Unreachable, AuthenticationError, Refused) as error:
        found.unknown.update({tp: f"{unsure}: {error.what}" for tp in searches if tp not in found.written_from})
    return found


def _below_markers(
    target: ClusterAdmin,
    own: LinkProducers,
    searches: dict[TopicPartition, _Search],
    found: BeyondWatermarks,
    unsure: str,
) -> None:
    """Search below the fencing markers at the ends of logs only; not where nothing else stands there."""
    below = ends_below_markers(
        target, own, {each.tp: OffsetRange(each.begin, each.end) for each in searches.values()}, seconds=_SECONDS
    )
    for tp, each in list(searches.items()):
        if each.tp in below.unknown:
            found.unknown[tp] = f"{unsure}: {below.unknown[each.tp]}"
            del searches[tp]
        elif each.tp in below.ends:
            each.end = found.fenced[tp] = below.ends[each.tp]
            if each.end <= each.begin:
                del searches[tp]


def _first_of_strangers(
    target: ClusterAdmin,
    searches: Mapping[TopicPartition, _Search],
    own: LinkProducers,
    found: BeyondWatermarks,
    unsure: str,
) -> None:
    """Set `found.written_from` of these to the first offset that a stranger wrote."""
    open_ones = dict(searches)
    while open_ones := {tp: each for tp, each in open_ones.items() if each.begin < each.end}:
        places = {tp: each.next for tp, each in open_ones.items()}
        seen = target.probe_records(places.values(), seconds=_SECONDS, control=True)
        for tp, place in places.items():
            record = seen[place]
            if record.reason is not None:
                found.unknown[tp] = f"{unsure}: {record.reason}"
                del open_ones[tp]
            else:
                open_ones[tp].settle(place, record.offset, own=own.copied(record))
    found.written_from.update({tp: each.begin for tp, each in searches.items() if tp not in found.unknown})
    for tp in found.unknown:
        found.written_from.pop(tp, None)

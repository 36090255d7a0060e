"""Recovers a link without store and copy: from both clusters' logs alone, where offsets are preserved.

Such a link has the same offsets on both sides, except for its problems, and these are lost. So each partition counts as
mirrored up to the target's log end, and every position is conservative, with this as its reason
(`recovered_from_logs`). If the source answers, records at offsets spread over both logs, their ends included, are
compared by content; a partition with a difference is left out. What one side's retention or cleaner has removed, or
what can't be read, is no difference. If the source doesn't answer, only the configuration vouches for equal offsets,
and no group's position is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.client.record_probe import LogPosition
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.link_state import RECOVERED_FROM_LOGS, Problem, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, OffsetMode, TopicPartition
from drkit.state_topic.link_copy import LinkCopy, ProvenPartition
from drkit.state_topic.recovery import BASIS_LOGS, Recovered, TopicLeftOut, fill
from drkit.store.api import Store

PLACES = 20
"""How many offsets of each partition are compared, and how many of its last ones."""
_SECONDS = 30.0
_REASON = "recovered from the logs"


@dataclass(frozen=True, slots=True)
class _Logs:
    """Topics, starts and ends of the partitions of a link on one side, by that side's names."""

    topics: Mapping[str, TopicInfo]
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _Compared:
    """The target's partitions with another record than the source at the same offset, and those without a record that
    could be compared; each with the reason."""

    different: dict[TopicPartition, str]
    unknown: dict[TopicPartition, str]


def fill_from_logs(store: Store, link: Link, target: ClusterAdmin | None, source: ClusterAdmin | None) -> Recovered:
    """Fill a store that has no data of the link from both clusters' logs; a cluster that doesn't answer is None.

    Raises:
        Unreachable: a cluster that answered a moment ago no longer does.
    """
    copy = LinkCopy("")
    left_out: list[TopicLeftOut] = []
    if target is None:
        left_out.append(TopicLeftOut("*", None, f"{link.id.target} does not answer: nothing is known of any position"))
    elif not _preserves(link):
        why = "records are altered, or the target has other writers" if _shares(link) else 'offsets = "translate"'
        left_out.append(
            TopicLeftOut("*", None, f"offsets are not the same on both sides ({why}): no position is known")
        )
    else:
        left_out += _read(copy, link, target, source)
    return fill(store, link, copy, target, basis=BASIS_LOGS, more_left_out=left_out)


def _preserves(link: Link) -> bool:
    return link.offsets is OffsetMode.PRESERVE and not _shares(link)


def _shares(link: Link) -> bool:
    return link.alters or link.shares_target


def _read(copy: LinkCopy, link: Link, target: ClusterAdmin, source: ClusterAdmin | None) -> list[TopicLeftOut]:
    """Add partitions to the copy, each with its problem: it is on record before the recovery is over. Returns the
    differences."""
    there = _logs(target, {name for name in target.topics() if link.source_topic(name) is not None})
    names = {name: str(link.source_topic(name)) for name in there.topics}
    here = _logs(source, set(names.values())) if source is not None else None
    found = None if source is None or here is None else _compare(link, target, source, there, here)
    different = {} if found is None else found.different
    left_out = [TopicLeftOut(names[tp.topic], tp.partition, why) for tp, why in sorted(different.items())]
    at = now()
    for name, info in sorted(there.topics.items()):
        ours = None if here is None else here.topics.get(names[name])
        source_id = "" if ours is None else ours.topic_id
        copy.topics[names[name]] = TopicState(
            topic=names[name],
            target_topic=name,
            source_topic_id=source_id,
            target_topic_id=info.topic_id,
            epoch=1,
            partitions=info.partitions,
            created_by_drkit=False,
            reason=_REASON,
        )
    for tp, end in sorted(there.end.items()):
        if tp in different or tp not in there.start:
            continue
        origin = TopicPartition(names[tp.topic], tp.partition)
        start = there.start[tp]
        source_end = end if here is None else here.end.get(origin, end)
        source_start = start if here is None else here.start.get(origin, start)
        mark = Watermark(*origin, 1, end, end, source_start, max(source_end, end), start, at)
        copy.partitions[origin] = ProvenPartition(mark, [OffsetMapping(*origin, 1, start, start)])
        copy.problems.append(_problem(link, origin, found, tp))
    return left_out


def _problem(link: Link, origin: TopicPartition, compared: _Compared | None, tp: TopicPartition) -> Problem:
    said = ""
    if compared is not None and tp in compared.unknown:
        said = f"; no record of it could be compared with {link.id.source}: {compared.unknown[tp]}"
    elif compared is not None:
        said = f", and records were compared with {link.id.source} at places of each partition"
    return Problem(
        RECOVERED_FROM_LOGS,
        *origin,
        "the store and its copy were lost: offsets are taken to be the same on both sides, as the configuration "
        f"says{said}",
        "drkit audit compares all records once both clusters answer; "
        f"`drkit link acknowledge '{link.id}' {RECOVERED_FROM_LOGS} --topic {origin.topic}` accepts it",
        halted=False,
        since=now(),
        unsure_from=0,
    )


def _logs(admin: ClusterAdmin, names: set[str]) -> _Logs:
    topics = admin.topics(names)
    tps = [TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)]
    return _Logs(topics, admin.start_offsets(tps, partial=True), admin.log_ends(tps, partial=True))


def _compare(link: Link, target: ClusterAdmin, source: ClusterAdmin, there: _Logs, here: _Logs) -> _Compared:
    """Compare the records of the target's partitions with the source's, at places spread over each."""
    found = _Compared({}, {})
    places: dict[TopicPartition, dict[LogPosition, LogPosition]] = {}
    for tp, end in there.end.items():
        origin = _origin(link, tp)
        topic = here.topics.get(origin.topic)
        if topic is None or origin.partition >= topic.partitions:
            found.different[tp] = f"{origin} is not on {link.id.source}"
        elif origin not in here.end:
            found.unknown[tp] = f"{link.id.source} can't be asked for its end"
        elif here.end[origin] < end:
            found.different[tp] = f"it ends at {end} on {link.id.target}, beyond {here.end[origin]} on {link.id.source}"
        else:
            first = max(there.start.get(tp, 0), here.start.get(origin, 0))
            offsets = {*range(first, end, max(1, (end - first) // PLACES)), *range(max(first, end - PLACES), end)}
            places[tp] = {LogPosition(tp, offset): LogPosition(origin, offset) for offset in offsets}
    copies = target.probe_records({each for of in places.values() for each in of}, seconds=_SECONDS)
    standing = {here for of in places.values() for there, here in of.items() if copies[there].offset == there.offset}
    originals = source.probe_records(standing, seconds=_SECONDS)
    for tp, of in places.items():
        pairs = [(originals[here], copies[there]) for there, here in sorted(of.items()) if here in standing]
        both = [(ours, copy) for ours, copy in pairs if ours.offset == copy.offset]  # else removed there, or unread
        other = [copy.offset for ours, copy in both if (ours.crc, ours.timestamp) != (copy.crc, copy.timestamp)]
        if other:
            what = f"{link.id.source} holds another record there"
            found.different[tp] = f"offset {other[0]} is not the same on both sides: {what}"
        elif of and not both:
            seen = (*(copies[each] for each in sorted(of)), *(ours for ours, _ in pairs))
            unread = [each.reason for each in seen if each.reason is not None]
            found.unknown[tp] = unread[0] if unread else "no record at the places is on both sides"
    return found


def _origin(link: Link, tp: TopicPartition) -> TopicPartition:
    return TopicPartition(str(link.source_topic(tp.topic)), tp.partition)


def answering(admin: ClusterAdmin) -> ClusterAdmin | None:
    """The cluster if it answers, else None."""
    try:
        admin.cluster_id()
    except Refused:
        raise
    except DrkitError:
        return None
    return admin

"""Detects records that a source has again and had removed before they were mirrored: the target lacks them.

A broker keeps the start of a log in a checkpoint that it writes once a minute: one that is killed, or a replica that
was away, may begin the log where it began before (KIP-107). What a mirror noted at the removal
(`drkit.store.link_notes.NeverMirrored`) says which records these are; an operator may have acknowledged that since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from drkit.kafka.client.record_probe import OffsetRange
from drkit.model.link_state import RECORDS_GIVEN_UP, RECORDS_RETURNED, Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.api import LinkStore
from drkit.store.link_notes import NeverMirrored, never_mirrored


def returned_ranges(lost: NeverMirrored, epoch: int, log: OffsetRange) -> list[OffsetRange]:
    """The source offsets that were never mirrored, and that the source's log holds."""
    if lost.epoch != epoch:
        return []
    held = [OffsetRange(max(log.begin, begin), min(log.end, until)) for begin, until in lost.ranges]
    return [each for each in held if each.begin < each.end]


def returned_problem(link: LinkId, tp: TopicPartition, ranges: Sequence[OffsetRange], since: datetime) -> Problem:
    """The problem that a source has these offsets again. It names the range from the first to the last of them."""
    places = and_more([f"{each.begin} to {each.end - 1}" for each in ranges])
    records = counted(sum(each.end - each.begin for each in ranges), "record")
    return Problem(
        RECORDS_RETURNED,
        tp.topic,
        tp.partition,
        f"{tp} on {link.source} has offsets {places} again (up to {records}), which it had removed before they were "
        f"mirrored: {link.target} doesn't have them",
        f"`drkit audit --topic {tp.topic}` names the records. `drkit link resume '{link}' --topic {tp.topic} "
        "--accept-recreated` mirrors the topic from its start again. To go on without them: `drkit link acknowledge "
        f"'{link}' {RECORDS_RETURNED} --topic {tp.topic}`",
        halted=False,
        since=since,
        unsure_from=ranges[0].begin,
        unsure_until=ranges[-1].end,
    )


def given_up_problem(link: LinkId, tp: TopicPartition, begin: int, until: int, *, since: datetime) -> Problem:
    """The harmless problem that an operator went on without source offsets [`begin`, `until`), or some of them."""
    return Problem(
        RECORDS_GIVEN_UP,
        tp.topic,
        tp.partition,
        f"source offsets {begin} to {until - 1} of {tp}, or some of them, are on {link.source} and not on "
        f"{link.target}: they were acknowledged as given up, so a position among them goes to what follows them",
        f"Nothing, as long as {link.target} can do without them. To have them there: `drkit link resume '{link}' "
        f"--topic {tp.topic} --accept-recreated` mirrors the topic from its start again",
        halted=False,
        since=since,
        unsure_from=begin,
        unsure_until=until,
    )


def with_returned(
    store: LinkStore,
    link: LinkId,
    watermarks: Mapping[TopicPartition, Watermark],
    logs: Mapping[TopicPartition, OffsetRange],
    problems: Sequence[Problem],
) -> list[Problem]:
    """The problems, with those of this kind by what the source's logs hold now: one for each range.

    A recorded one names the range from the first to the last record of its partition, and remains as it is where the
    source's log (begin and end: `logs`) isn't known.
    """
    since = {
        TopicPartition(each.topic, each.partition): each.since
        for each in problems
        if each.kind == RECORDS_RETURNED and each.partition is not None
    }
    seen = [
        problem
        for tp, lost in sorted(never_mirrored(store, link).items())
        if tp in watermarks and tp in logs
        for each in returned_ranges(lost, watermarks[tp].epoch, logs[tp])
        for problem in [returned_problem(link, tp, [each], since.get(tp, watermarks[tp].observed_at))]
    ]
    kept = [
        each
        for each in problems
        if each.kind != RECORDS_RETURNED
        or each.partition is None
        or TopicPartition(each.topic, each.partition) not in logs
    ]
    return [*seen, *kept]  # first: a retention gap on record says that they are gone

"""Removes filler that an alignment left visible, or a broker shows again, from a cluster that clients read.

DeleteRecords isn't durable at once: a broker writes log starts to a checkpoint once a minute
(`log.flush.start.offset.checkpoint.interval.ms`), so one that is killed soon after shows the removed records again.
So alignments stay noted, and the filler is removed again: by a running mirror
(`drkit.mirror.resume.offset_alignment.returned_filler`), and, while clients read the target, by a failover's close, a
failback and `drkit link trim`. A status reports it (`drkit.observe.poll_problems`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.stages.stage import StageContext
from drkit.kafka.client.filler import FillerTrimmer
from drkit.lag.fence_markers import link_producers
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import Alignment
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import alignments, forget_alignments, put_alignment


class Trimmed(NamedTuple):
    """Target partitions whose filler was removed, and those where it contains other records, each with which."""

    removed: list[TopicPartition]
    refused: dict[TopicPartition, Refused]


def trim_filler(context: StageContext) -> str:
    """Remove filler that is left on the link's target, while the mirror is stopped; returns what was done, in words.

    Idempotent.

    Raises:
        Refused: a range with noted filler contains other records.
        DrkitError: the target or the store doesn't answer.
    """
    found = remove_filler(context.estate, context.link.id, context.lease.check)
    for place, error in found.refused.items():
        raise Refused(
            f"{place} shows filler of its alignment: {error.what}",
            meaning=f"Consumers would read empty records of drkit's there. {error.meaning}",
            remedy=f"{error.remedy}; then drkit resume {context.run}",
        ) from error
    if not found.removed:
        return ""
    return (
        f"; filler that an alignment left in {counted(len(found.removed), 'partition')} is removed (a broker of "
        f"{context.link.id.target} that is killed within a minute shows it again; drkit status tells)"
    )


def trimmed_again(context: StageContext, link: LinkId) -> str:
    """Remove filler that brokers of a link's target show again; returns what was done, in words.

    A target that doesn't answer stops no run: `drkit status` reports visible filler.
    """
    try:
        found = remove_filler(context.estate, link, context.lease.check)
    except (Unreachable, AuthenticationError, Refused) as failed:
        return f"; whether brokers of {link.target} show filler again is unknown: {failed.what}"
    said, places = "", and_more([str(place) for place in found.removed])
    if places:
        said = f"; a broker had forgotten that filler of {places} was removed: it is removed again"
    if found.refused:
        place, error = next(iter(found.refused.items()))
        said += f"; filler is visible again in {counted(len(found.refused), 'partition')}: {place}: {error.what}"
    return said


def remove_filler(estate: ClusterContext, link: LinkId, check: Callable[[], None]) -> Trimmed:
    """Remove a link's visible filler on its target, while no mirror of it runs. All of it is proven to be filler first.

    The unfilled part of an alignment belongs to clients from now on: the note ends where the log ends.

    Args:
        estate: the clusters and the store.
        link: the link.
        check: called before each removal; raises to stop.

    Raises:
        DrkitError: the target or the store doesn't answer.
    """
    admin = estate.admin(link.target)
    left = _of_topics_as_they_are(estate, link, list(alignments(estate.store, link).values()))
    ends = admin.end_offsets([each.target_tp for each in left], committed=False)
    starts = admin.start_offsets([each.target_tp for each in left])
    trimmed = Trimmed([], {})
    own = link_producers(estate.store, link, admin.cluster_id()).ids
    trimmer = FillerTrimmer(link.target, estate.config.clusters[link.target], admin, lambda: own)
    try:
        for each in left:
            below = min(ends.get(each.target_tp, 0), each.end)
            if starts.get(each.target_tp, below) < below:
                check()
                try:
                    trimmer.trim(each.target_tp, each.producer_id, each.begin, below)
                    trimmed.removed.append(each.target_tp)
                except Refused as error:
                    trimmed.refused[each.target_tp] = error
                    continue
            if below <= each.begin:
                forget_alignments(estate.store, link, [each.tp])
            elif below < each.end:
                put_alignment(estate.store, link, replace(each, end=below))
    finally:
        trimmer.close()
    return trimmed


def _of_topics_as_they_are(estate: ClusterContext, link: LinkId, noted: list[Alignment]) -> list[Alignment]:
    """Those of the topics that the target has now; other incarnations are unknown."""
    if not noted:
        return []
    there = estate.admin(link.target).topics({each.target_topic for each in noted})
    return [
        each
        for each in noted
        if each.target_topic in there and there[each.target_topic].topic_id == each.target_topic_id
    ]

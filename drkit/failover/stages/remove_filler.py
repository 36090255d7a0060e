"""Removing filler that an alignment left visible, or a broker shows again, from a cluster that clients read.

DeleteRecords isn't durable at once: a broker keeps log starts in a checkpoint that it writes once a minute
(`log.flush.start.offset.checkpoint.interval.ms`), so one that is killed soon after shows again what was removed. So
alignments stay noted: while a mirror runs it removes what comes back
(`drkit.mirror.resume.offset_alignment.returned_filler`), while the target is read by clients a failover's close, a
failback and `drkit link trim` do, and a status tells (`drkit.observe.filler`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.stages.stage import StageContext
from drkit.kafka.client.filler import FillerTrimmer
from drkit.model.alignment import Alignment
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import alignments, forget_alignments, put_alignment


class Trimmed(NamedTuple):
    """Target partitions whose filler was removed, and those where something else lies in it, each with what."""

    removed: list[TopicPartition]
    refused: dict[TopicPartition, Refused]


def trim_filler(context: StageContext) -> str:
    """Remove what is left of it on the link's target, where the mirror is stopped; what was done, in words.

    Doing it again changes nothing.

    Raises:
        Refused: where filler is noted the partition holds something else, too.
        DrkitError: the target or the store doesn't answer.
    """
    found = remove_filler(context.estate, context.link.id, context.lease.check)
    for place, error in found.refused.items():
        raise Refused(
            f"{place} shows filler of its alignment: {error.what}",
            meaning=f"Empty records of drkit's own would be read there. {error.meaning}",
            remedy=f"{error.remedy}; then drkit resume {context.run}",
        ) from error
    if not found.removed:
        return ""
    return (
        f"; filler that an alignment left in {counted(len(found.removed), 'partition')} is removed (a broker of "
        f"{context.link.id.target} that is killed within a minute shows it again; drkit status tells)"
    )


def trimmed_again(context: StageContext, link: LinkId) -> str:
    """Remove what brokers of a link's target show again since it was removed; what was done, in words.

    A target that doesn't answer stops no run here: `drkit status` tells what stays visible.
    """
    try:
        found = remove_filler(context.estate, link, context.lease.check)
    except (Unreachable, AuthenticationError, Refused) as failed:
        return f"; whether brokers of {link.target} show filler again isn't known: {failed.what}"
    said, places = "", and_more([str(place) for place in found.removed])
    if places:
        said = f"; a broker had forgotten that filler of {places} was removed: it is removed again"
    if found.refused:
        place, error = next(iter(found.refused.items()))
        said += f"; filler is visible again in {counted(len(found.refused), 'partition')}: {place}: {error.what}"
    return said


def remove_filler(estate: ClusterContext, link: LinkId, check: Callable[[], None]) -> Trimmed:
    """Remove what of a link's filler is visible on its target, where no mirror of it runs. All of it is proven first.

    What isn't filled of an alignment is clients' from now on: the note ends where the log ends.

    Args:
        estate: the clusters and the store.
        link: the link.
        check: called before each removal; raises where nothing may be changed any more.

    Raises:
        DrkitError: the target or the store doesn't answer.
    """
    admin = estate.admin(link.target)
    left = _of_topics_as_they_are(estate, link, list(alignments(estate.store, link).values()))
    ends = admin.end_offsets([each.target_tp for each in left], committed=False)
    starts = admin.start_offsets([each.target_tp for each in left])
    trimmed = Trimmed([], {})
    trimmer = FillerTrimmer(link.target, estate.config.clusters[link.target], admin)
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
    """Those of the topics that the target has now: of another topic of the same name nothing is known."""
    if not noted:
        return []
    there = estate.admin(link.target).topics({each.target_topic for each in noted})
    return [
        each
        for each in noted
        if each.target_topic in there and there[each.target_topic].topic_id == each.target_topic_id
    ]

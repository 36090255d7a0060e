"""Removing filler that an alignment left visible, or a broker shows again, before anybody is sent to its cluster."""

from __future__ import annotations

from drkit.failover.stages.stage import StageContext
from drkit.kafka.client.filler import FillerTrimmer
from drkit.model.alignment import Alignment
from drkit.model.errors import Refused
from drkit.model.wording import counted
from drkit.store.alignments import alignments, forget_alignments


def trim_filler(context: StageContext) -> str:
    """Remove what is left of it on the link's target, where the mirror is stopped; what was done, in words.

    Doing it again changes nothing.

    Raises:
        Refused: where filler is noted the partition holds something else, too.
        DrkitError: the target or the store doesn't answer.
    """
    estate, link = context.estate, context.link.id
    admin = estate.admin(link.target)
    left = _of_topics_as_they_are(context, list(alignments(estate.store, link).values()))
    ends = admin.end_offsets([each.target_tp for each in left], committed=False)
    starts = admin.start_offsets([each.target_tp for each in left])
    removed = 0
    trimmer = FillerTrimmer(link.target, estate.config.clusters[link.target], admin)
    try:
        for each in left:
            below = min(ends.get(each.target_tp, 0), each.end)
            if starts.get(each.target_tp, below) < below:
                context.lease.check()
                try:
                    trimmer.trim(each.target_tp, each.producer_id, each.begin, below)
                    removed += 1
                except Refused as error:
                    raise Refused(
                        f"{each.target_tp} shows filler of its alignment: {error.what}",
                        meaning=f"Empty records of drkit's own would be read there. {error.meaning}",
                        remedy=f"{error.remedy}; then drkit resume {context.run}",
                    ) from error
    finally:
        trimmer.close()
    forget_alignments(estate.store, link, [each.tp for each in left])
    return f"; filler that an alignment left in {counted(removed, 'partition')} is removed" if removed else ""


def _of_topics_as_they_are(context: StageContext, noted: list[Alignment]) -> list[Alignment]:
    """Those of the topics that the target has now: of another topic of the same name nothing is known."""
    if not noted:
        return []
    there = context.estate.admin(context.link.id.target).topics({each.target_topic for each in noted})
    return [
        each
        for each in noted
        if each.target_topic in there and there[each.target_topic].topic_id == each.target_topic_id
    ]

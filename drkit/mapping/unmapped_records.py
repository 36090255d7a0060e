"""Records of the target of which the store has neither a watermark nor mapping rows. Pure.

They may be copies of the source's records (a recovered store lacks what its copy lacked), or somebody else's.
"""

from __future__ import annotations

from datetime import datetime

from drkit.model.link_state import RECORDS_UNMAPPED, Problem
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition


def unmapped_problem(
    link: LinkId, tp: TopicPartition, target_topic: str, why: str, since: datetime, *, flows: bool = True
) -> Problem:
    """The problem that nobody knows what the target holds of a partition.

    Args:
        link: the link.
        tp: the partition, by its source topic.
        target_topic: its topic on the target.
        why: why the store has nothing of it, as a clause.
        since: when it was found.
        flows: whether the link isn't failed over: else the topic can't be accepted as a new one.
    """
    by_hand = f"set the groups' offsets on {link.target} by hand; to the earliest, nothing is skipped"
    again = (
        f"While {link.source} answers: `drkit link resume '{link}' --topic {tp.topic} --accept-recreated`; then drkit "
        f"mirror copies all partitions of the topic from their start, behind what {link.target} holds. For one copy "
        f"only, delete topic {target_topic} on {link.target} before. Without {link.source}: {by_hand}"
    )
    return Problem(
        RECORDS_UNMAPPED,
        tp.topic,
        tp.partition,
        f"what {target_topic}:{tp.partition} on {link.target} holds isn't known: {why}. A mirror that begins behind it "
        "may copy everything a second time, and no position on it is known",
        again if flows else f"The link was failed over: {by_hand}",
        halted=True,
        since=since,
    )


def rows_of_unmapped(
    tp: TopicPartition, epoch: int, source: tuple[int, int], target: tuple[int, int]
) -> list[OffsetMapping]:
    """The mapping rows of a former epoch that stand for unmapped records: the target's log [start, end) may hold any of
    the source's log [start, end). They answer only which records may be there (`former_ranges`)."""
    return [OffsetMapping(*tp, epoch, *ends) for ends in dict.fromkeys(zip(source, target, strict=True))]

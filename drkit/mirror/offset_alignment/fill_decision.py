"""Whether a partition that starts is to be filled first, so that offsets are the same on both sides.

What is below the place where the source begins is removed then: nothing of it may be anybody's record.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkit.kafka.epochs import EpochEnd
from drkit.mapping import ResumePoint
from drkit.mirror.offset_alignment.filler import LARGEST_ALIGNMENT
from drkit.mirror.problems import Problems
from drkit.mirror.tail import TailVerifier
from drkit.mirror.topics import ReadyTopic
from drkit.model.links import OFFSETS_DIFFER
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import MappingStore


@dataclass(frozen=True, slots=True)
class Observed:
    """One partition as both sides and the store show it. Offsets as in `Watermark`.

    `leader_epoch`: of the source's leader, seen before all the rest. `epoch_end`: what it answers for the watermark's.
    """

    tp: TopicPartition
    topic: ReadyTopic
    source_start: int
    source_readable_end: int
    source_end: int
    target_start: int
    target_end: int
    watermark: Watermark | None
    last_sequence: int | None = None
    leader_epoch: int = -1
    epoch_end: EpochEnd | None = None


class Filling:
    """Decides for the partitions of a link.

    Args:
        link: the link.
        store: its rows.
        problems: where it is said why offsets differ.
        verifier: reads the target.
    """

    def __init__(self, link: LinkId, store: MappingStore, problems: Problems, verifier: TailVerifier) -> None:
        self._link = link
        self._store = store
        self._problems = problems
        self._verifier = verifier

    def fill_to(self, seen: Observed, source_offset: int, point: ResumePoint, row: OffsetMapping | None) -> int | None:
        """The offset to which the target is to be filled, so that the delta is 0; None where it isn't.

        Args:
            seen: the partition.
            source_offset: where it goes on.
            point: what rows and ends say.
            row: the row in force there; None: there is none yet.

        Raises:
            Unreachable: the target or the store doesn't answer.
        """
        if not seen.topic.alignable:
            return None
        if row is None:
            return source_offset if self._may_fill(seen, source_offset - point.target_offset, point) else None
        filled = (row.source_offset, row.target_offset) == (source_offset, source_offset)
        if not filled or point.target_offset != source_offset or seen.target_start >= source_offset:
            return None
        before = self._store.floor_mapping(self._link, seen.tp, seen.topic.state.epoch, source_offset - 1)
        return source_offset if before is None else None

    def _may_fill(self, seen: Observed, short: int, point: ResumePoint) -> bool:
        """Either nothing is visible there, or no row is valid yet and all is filler of a start that was interrupted."""
        visible = seen.target_start < seen.target_end
        if short <= 0 or (visible and point.last_row is not None):
            return False
        if short > LARGEST_ALIGNMENT:
            self._differ(
                seen,
                f"{seen.tp} begins {short} offsets above {self._link.target}'s; more than {LARGEST_ALIGNMENT} are not "
                "filled, so offsets differ by that much",
                "Nothing is lost: offsets are translated (`drkit translate`)",
            )
            return False
        target = TopicPartition(seen.topic.state.target_topic, seen.tp.partition)
        if visible and not self._verifier.only_filler(target, seen.target_start, seen.target_end):
            self._differ(
                seen,
                f"{target} on {self._link.target} holds records that aren't the mirror's; they stay, so offsets "
                f"differ by {short}",
                "Find out who wrote them; `drkit audit` names them (foreign)",
            )
            return False
        return True

    def _differ(self, seen: Observed, reason: str, remedy: str) -> None:
        self._problems.put(OFFSETS_DIFFER, seen.tp.topic, seen.tp.partition, reason, remedy, halted=False)

"""Removes filler that is visible again after it was removed.

A broker writes log starts to a checkpoint once a minute (`log.flush.start.offset.checkpoint.interval.ms`), so one that
is killed soon after DeleteRecords has forgotten it. Alignments stay noted for as long as the link flows. If a filled
partition begins below its alignment's end, the records below that end are removed again, after the usual proof that
they are filler. A look costs nothing while log starts don't move.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.offset_alignment.align_partition import Trim
from drkit.model.errors import Refused
from drkit.model.link_state import FILLER_VISIBLE, Alignment
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore
from drkit.store.link_notes import alignments

log = logging.getLogger(__name__)

_NEVER = (-1, -1)


class ReturnedFiller:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        target: the target.
        store: where alignments are noted.
        problems: where filler that can't be removed is reported.
        trim: removes filler.
    """

    def __init__(self, link: LinkId, target: ClusterAdmin, store: LinkStore, problems: Problems, trim: Trim) -> None:
        self._link = link
        self._target = target
        self._store = store
        self._problems = problems
        self._trim = trim
        self._seen: dict[TopicPartition, tuple[int, int]] = {}
        self._noted: dict[TopicPartition, Alignment] = {}

    def check(self, marks: Iterable[Watermark]) -> None:
        """Remove filler that has come back in these partitions, whose log starts were just seen.

        Raises:
            Unreachable: the target or the store doesn't answer; the next look retries it.
        """
        moved = [mark for mark in marks if self._seen.get(mark.tp) != (mark.epoch, mark.target_start)]
        if any(self._seen.get(mark.tp, _NEVER)[0] != mark.epoch for mark in moved):
            self._noted = alignments(self._store, self._link)
        for mark in moved:
            alignment = self._noted.get(mark.tp)
            if alignment is not None and alignment.epoch == mark.epoch and mark.target_start < alignment.end:
                if mark.target_end <= alignment.end and self._seen.get(mark.tp, _NEVER)[1] < alignment.end:
                    continue  # unfinished: its aligner removes filler
                self._remove(mark, alignment)
            elif self._problems.has(FILLER_VISIBLE, mark.tp):
                self._problems.settle(mark.topic, kinds=frozenset({FILLER_VISIBLE}), partition=mark.partition)
            self._seen[mark.tp] = (mark.epoch, mark.target_start)

    def _remove(self, mark: Watermark, alignment: Alignment) -> None:
        place, where = alignment.target_tp, f"{alignment.target_tp} on {self._link.target}"
        if self._target.start_offsets([place]).get(place, alignment.end) >= alignment.end:
            return  # seen before the filler was removed
        try:
            self._trim(alignment.target_tp, alignment.producer_id, alignment.begin, alignment.end)
        except Refused as error:
            self._problems.put(
                FILLER_VISIBLE,
                mark.topic,
                mark.partition,
                f"{where} begins at {mark.target_start} again: empty records that drkit had written and removed below "
                f"{alignment.end} are visible, and can't be removed again: {error.what}",
                f"Consumers that read from the beginning get these empty records. Remove what lies below "
                f"{alignment.end} with kafka-delete-records.sh, if nobody needs it",
                halted=False,
            )
        else:
            log.warning("%s had forgotten that filler was removed up to %d: removed again", where, alignment.end)

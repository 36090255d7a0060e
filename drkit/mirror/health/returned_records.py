"""Watches the source's log starts for records that it had removed before they were mirrored and has again.

An observation compares a number that the mirror has anyway with what was noted at the removal
(`drkit.lag.returned_records`). The notes are read when partitions start, which is when a removal is noted, and before a
problem is reported: an operator may have given the records up meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from drkit.kafka.client.record_probe import OffsetRange
from drkit.lag.returned_records import returned_problem, returned_ranges
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.link_state import RECORDS_RETURNED
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore
from drkit.store.link_notes import NeverMirrored, never_mirrored

_KINDS = frozenset({RECORDS_RETURNED})


class ReturnedRecords:
    """See the module docstring. Thread-safe.

    Args:
        link: the link.
        store: what was noted at removals.
        problems: where records that are there again are reported.
    """

    def __init__(self, link: LinkId, store: LinkStore, problems: Problems) -> None:
        self._link = link
        self._store = store
        self._problems = problems
        self._lost: Mapping[TopicPartition, NeverMirrored] = {}
        self._lock = threading.Lock()

    def begin(self, marks: Iterable[Watermark]) -> None:
        """Observe partitions that are about to start.

        Raises:
            Unreachable: the store doesn't answer.
        """
        with self._lock:
            self._lost = never_mirrored(self._store, self._link)
        self.check(marks)

    def check(self, marks: Iterable[Watermark]) -> None:
        """Observe partitions whose log starts were just seen.

        Raises:
            Unreachable: like `begin`.
        """
        with self._lock:
            for mark in marks:
                if not self._ranges(mark):
                    if self._problems.has(RECORDS_RETURNED, mark.tp):
                        self._problems.settle(mark.topic, kinds=_KINDS, partition=mark.partition)
                    continue
                if not self._problems.has(RECORDS_RETURNED, mark.tp):
                    self._lost = never_mirrored(self._store, self._link)
                if ranges := self._ranges(mark):
                    self._problems.report(returned_problem(self._link, mark.tp, ranges, now()))

    def returned(self, marks: Iterable[Watermark]) -> list[TopicPartition]:
        """The partitions whose source has such records again. They are other workers': these report it.

        Raises:
            Unreachable: like `begin`.
        """
        with self._lock:
            self._lost = never_mirrored(self._store, self._link)
            return [mark.tp for mark in marks if self._ranges(mark)]

    def _ranges(self, mark: Watermark) -> list[OffsetRange]:
        lost = self._lost.get(mark.tp)
        log = OffsetRange(mark.source_start, mark.source_end)
        return [] if lost is None else returned_ranges(lost, mark.epoch, log)

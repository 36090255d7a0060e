"""Watches the target's log starts: reports records that were removed there although the source still holds them.

An observation compares numbers that the mirror has anyway (both logs' starts, once a second and at each start). It
reads rows only where the target begins beyond the offset of the source's first record (`drkit.mapping.target_start`),
or records where others write the target (`drkit.mirror.resume.shared_target_start`). Only if something is missing does
it ask the clusters what retention explains (`drkit.kafka.client.unexpired_records`): at once when something has moved,
else every ten seconds, all such partitions in a few requests.

| | then |
|---|---|
| retention explains it, or the source has removed it too | nothing is reported; an earlier problem is cleared |
| it doesn't | `target_purged` names the range: it counts as not mirrored, no position in it is exact |
| an operator accepted that (`drkit link acknowledge`) | only what lies outside of accepted ranges is reported |
| the target has accepted records again | they are accepted no longer: their next removal is another loss |

A problem that is gone from the store says nothing about who cleared it, so what is accepted is noted by who accepts it
(`drkit.store.link_notes`).

The partition continues: the offsets of later records are known, and only an operator can decide about missing ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.kafka.client.unexpired_records import Missing, unexpired
from drkit.mapping.target_start import missing_until, not_accepted, purge_problem
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.link_state import TARGET_PURGED
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import accept_no_longer, accepted_purges

_AGAIN_SECONDS = 10.0
_READ_AT_ONCE = 500
_KINDS = frozenset({TARGET_PURGED})


@dataclass(slots=True)
class _Known:
    """A partition as last observed, in this epoch and with this target start. `gone`: source offsets that the target
    lacks. `judged_at`: monotonic."""

    epoch: int
    target_start: int
    gone: OffsetRange
    source_start: int = -1
    judged_at: float = 0.0


class PurgeWatch:
    """See the module docstring. Thread-safe.

    Args:
        link: the link.
        source, target: the clusters.
        store: the link's rows, and the ranges that operators have accepted.
        problems: where missing records are reported.
        gone: the source offsets that a target lacks, by its log start in a watermark; None: by the mapping rows.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: Store,
        problems: Problems,
        gone: Callable[[Watermark], OffsetRange] | None = None,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._problems = problems
        self._gone = gone or self._by_rows
        self._known: dict[TopicPartition, _Known] = {}
        self._lock = threading.Lock()

    def begin(self, marks: Sequence[Watermark]) -> None:
        """Judge partitions that are about to start: their rows may have been repaired.

        Raises:
            Unreachable: like `check`.
        """
        with self._lock:
            for mark in marks:
                self._known.pop(mark.tp, None)
        self.check(marks)

    def check(self, marks: Iterable[Watermark]) -> None:
        """Judge partitions whose log starts were just seen.

        Raises:
            Unreachable: a cluster or the store doesn't answer; the rest is judged at the next look.
        """
        with self._lock:
            suspects = {mark.tp: mark for mark in self._read(marks) if self._is_due(mark)}
            if not suspects:
                return
            missing = {tp: self._missing(mark) for tp, mark in suspects.items()}
            at = now()
            found = unexpired(
                self._source,
                self._target,
                missing,
                self._link.settings_policy,
                at_ms=int(at.timestamp() * 1000),
            )
            accepted = accepted_purges(self._store, self._link.id) if found else {}
            for tp, mark in suspects.items():
                if tp in found:
                    self._tell(mark, found[tp], accepted.get((tp, mark.epoch), ()))
                else:
                    self._settle(tp)
                known = self._known[tp]
                known.source_start, known.judged_at = mark.source_start, time.monotonic()

    def _read(self, marks: Iterable[Watermark]) -> list[Watermark]:
        """Those for which the offsets below the target's start are known; the rows of only some are read each time."""
        ready, regained = [], []
        read = 0
        for mark in marks:
            known = self._known.get(mark.tp)
            if known is None or (known.epoch, known.target_start) != (mark.epoch, mark.target_start):
                if read >= _READ_AT_ONCE:
                    continue
                read += 1
                if known is None or known.epoch != mark.epoch or mark.target_start < known.target_start:
                    regained.append(mark.tp)
                self._known[mark.tp] = _Known(mark.epoch, mark.target_start, self._gone(mark))
            ready.append(mark)
        if regained:
            self._end_acceptance(regained)
        return ready

    def _end_acceptance(self, tps: Iterable[TopicPartition]) -> None:
        """Records that the target has again are no longer accepted as missing. A broker keeps the start of a log in a
        checkpoint that it writes once a minute: one that is killed undoes a DeleteRecords (KIP-107)."""
        known = self._known
        accept_no_longer(self._store, self._link.id, {(tp, known[tp].epoch): known[tp].gone.end for tp in tps})

    def _by_rows(self, mark: Watermark) -> OffsetRange:
        return OffsetRange(0, missing_until(self._store, self._link.id, mark))

    def _is_due(self, mark: Watermark) -> bool:
        """Whether something is missing that should be judged now; where nothing is, clear an earlier problem."""
        known = self._known[mark.tp]
        if mark.source_start >= known.gone.end:
            if known.source_start != mark.source_start:
                self._settle(mark.tp)
                known.source_start = mark.source_start
            return False
        return known.source_start != mark.source_start or time.monotonic() - known.judged_at >= _AGAIN_SECONDS

    def _missing(self, mark: Watermark) -> Missing:
        gone = self._known[mark.tp].gone
        return Missing(
            OffsetRange(max(mark.source_start, gone.begin), gone.end),
            TopicPartition(self._link.target_topic(mark.topic), mark.partition),
            emptied=mark.target_start >= mark.target_end,
        )

    def _settle(self, tp: TopicPartition) -> None:
        self._problems.settle(tp.topic, kinds=_KINDS, partition=tp.partition)

    def _tell(self, mark: Watermark, missing: OffsetRange, accepted: Iterable[tuple[int, int]]) -> None:
        left = not_accepted(missing.begin, missing.end, accepted)
        if left is None:
            self._settle(mark.tp)
            return
        there = self._link.target_topic(mark.topic)
        self._problems.report(purge_problem(self._link.id, mark, there, *left, now()))

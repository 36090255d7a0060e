"""Watches the target's log starts: reports records that were removed there although the source still holds them.

An observation compares numbers that the mirror has anyway (both logs' starts, once a second and at each start). It
reads rows only where the target begins beyond the offset of the source's first record (`drkit.mapping.target_start`),
or records where others write the target (`drkit.mirror.resume.shared_target_start`). Only if something is missing does
it ask the clusters what retention explains (`drkit.kafka.client.purged_records`): at once when something has moved,
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import OffsetRange
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
        self.judge(marks)

    def check(self, marks: Iterable[Watermark]) -> list[Watermark]:
        """Judge partitions whose log starts were just seen. Returns those that are left for the next look: the rows of
        only some are read in each.

        Raises:
            Unreachable: a cluster or the store doesn't answer; the rest is judged at the next look.
        """
        ready: list[Watermark] = []
        moved: list[Watermark] = []
        with self._lock:
            for mark in marks:
                (moved if self._has_moved(mark) else ready).append(mark)
        self.judge([*ready, *moved[:_READ_AT_ONCE]])
        return moved[_READ_AT_ONCE:]

    def judge(self, marks: Iterable[Watermark]) -> None:
        """Judge all of these now.

        Raises:
            Unreachable: like `check`.
        """
        with self._lock:
            suspects = {mark.tp: mark for mark in self._read(marks) if self._is_due(mark)}
            if not suspects:
                return
            lacking = self._not_explained(suspects, {tp: self._known[tp].gone for tp in suspects})
            for tp, mark in suspects.items():
                if tp in lacking:
                    there = self._link.target_topic(mark.topic)
                    self._problems.report(purge_problem(self._link.id, mark, there, *lacking[tp], now()))
                else:
                    self._settle(tp)
                known = self._known[tp]
                known.source_start, known.judged_at = mark.source_start, time.monotonic()

    def lacking(self, marks: Sequence[Watermark]) -> list[TopicPartition]:
        """The partitions whose target lacks something that nobody accepted. They are other workers': these report it.

        Raises:
            Unreachable: like `check`.
        """
        with self._lock:
            gone = {mark.tp: self._gone(mark) for mark in marks}
            suspects = {mark.tp: mark for mark in marks if mark.source_start < gone[mark.tp].end}
            return sorted(self._not_explained(suspects, gone))

    def _not_explained(
        self, suspects: Mapping[TopicPartition, Watermark], gone: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """From the first to the last source offset that is missing, retention doesn't explain and nobody accepted."""
        missing = {tp: self._missing(mark, gone[tp]) for tp, mark in suspects.items()}
        if not missing:
            return {}
        at_ms = int(now().timestamp() * 1000)
        found = find_purged(self._source, self._target, missing, self._link.settings_policy, at_ms=at_ms)
        accepted = accepted_purges(self._store, self._link.id) if found else {}
        left = {
            tp: not_accepted(each.begin, each.end, accepted.get((tp, suspects[tp].epoch), ()))
            for tp, each in found.items()
        }
        return {tp: each for tp, each in left.items() if each is not None}

    def _has_moved(self, mark: Watermark) -> bool:
        known = self._known.get(mark.tp)
        return known is None or (known.epoch, known.target_start) != (mark.epoch, mark.target_start)

    def _read(self, marks: Iterable[Watermark]) -> list[Watermark]:
        """These, and note which offsets below the target's start are gone.

        Records that the target has again are no longer accepted as missing. A broker keeps the start of a log in a
        checkpoint that it writes once a minute: one that is killed undoes a DeleteRecords (KIP-107).
        """
        ready = list(marks)
        fresh = {
            mark.tp: _Known(mark.epoch, mark.target_start, self._gone(mark)) for mark in ready if self._has_moved(mark)
        }
        regained = {}
        for tp, seen in fresh.items():
            known = self._known.get(tp)
            if known is None or known.epoch != seen.epoch or seen.target_start < known.target_start:
                regained[tp, seen.epoch] = seen.gone.end
        if regained:
            accept_no_longer(self._store, self._link.id, regained)
        self._known.update(fresh)
        return ready

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

    def _missing(self, mark: Watermark, gone: OffsetRange) -> Missing:
        return Missing(
            OffsetRange(max(mark.source_start, gone.begin), gone.end),
            TopicPartition(self._link.target_topic(mark.topic), mark.partition),
            emptied=mark.target_start >= mark.target_end,
        )

    def _settle(self, tp: TopicPartition) -> None:
        self._problems.settle(tp.topic, kinds=_KINDS, partition=tp.partition)

"""Long runs of records that are on both sides in the same order, but displaced: paired while they are read. Pure.

If one record is missing early and no mapping gives the others' places, a whole partition is displaced. Such records are
paired at once, and only the ends of a run are kept, so memory holds only real differences. The rest is left to
`classifier.py`, which pairs records anywhere.

    source   a b c d e f g h        kept        a, x
    target       c d e x f g h      runs        c d e (displaced by …), f g h (…)
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

from drkit.audit.classify.ordering import MatchedLine
from drkit.audit.compare.merge_join import Digest, SourceLeft, TargetLeft

SHORTEST_RUN = 64
"""Records; shorter runs are kept as residuals."""

_AHEAD = 20_000
"""Records of either side that are looked through for the other side's next one."""

_Row = TypeVar("_Row", SourceLeft, TargetLeft)
Both = tuple[SourceLeft, TargetLeft]


class DisplacedRuns:
    """Takes residuals of both sides in order; gives pairs of long runs, keeps the rest.

    Args:
        taken: chunks of target offsets in which records matched at their place: no run reaches over one.
        shift: of chunks.
    """

    def __init__(self, taken: Collection[int], shift: int) -> None:
        self._taken = taken
        self._shift = shift
        self._source: _Queue[SourceLeft] = _Queue()
        self._target: _Queue[TargetLeft] = _Queue()
        self._pending: list[Both] = []
        self._run: MatchedLine | None = None
        self.runs: list[MatchedLine] = []
        self.source_left: list[SourceLeft] = []
        self.target_left: list[TargetLeft] = []

    def add(self, source: Iterable[SourceLeft], target: Iterable[TargetLeft]) -> Iterator[Both]:
        """Add residuals; yields the pairs of long runs."""
        for row in source:
            self._source.push((row.s1, row.s2), row)
        for there in target:
            self._target.push((there.t1, there.t2), there)
        while len(self._source) > _AHEAD and len(self._target) > _AHEAD:
            yield from self._step()
        while len(self._source) > 3 * _AHEAD:
            self.source_left.append(self._source.pop())
            yield from self._close()
        while len(self._target) > 3 * _AHEAD:
            self.target_left.append(self._target.pop())
            yield from self._close()

    def end(self) -> Iterator[Both]:
        """All is added; `runs`, `source_left` and `target_left` are what is left afterwards."""
        while self._source and self._target:
            yield from self._step()
        yield from self._close()
        while self._source:
            self.source_left.append(self._source.pop())
        while self._target:
            self.target_left.append(self._target.pop())

    def _step(self) -> Iterator[Both]:
        of_source, of_target = self._source.digest, self._target.digest
        if of_source == of_target:
            yield from self._pair(self._source.pop(), self._target.pop())
            return
        skip_source, skip_target = self._source.ahead(of_target), self._target.ahead(of_source)
        if skip_source is None and skip_target is None:
            skip_source = skip_target = 1
        elif skip_source is not None and skip_target is not None:
            skip_source, skip_target = (skip_source, None) if skip_source < skip_target else (None, skip_target)
        self.source_left += [self._source.pop() for _ in range(skip_source or 0)]
        self.target_left += [self._target.pop() for _ in range(skip_target or 0)]
        yield from self._close()

    def _pair(self, source: SourceLeft, target: TargetLeft) -> Iterator[Both]:
        run = self._run
        if run is not None and not self._continues(run, source, target):
            yield from self._close()
            run = None
        # One that begins in a taken chunk ends with its first record, and is kept as residuals.
        first = run or MatchedLine(source.s, source.s, target.t, target.t, target.t - source.e, 0, moved=False)
        self._run = first._replace(s_hi=source.s, t_hi=target.t, records=first.records + 1)
        if self._run.records > SHORTEST_RUN:
            yield source, target
            return
        self._pending.append((source, target))
        if self._run.records == SHORTEST_RUN:
            yield from self._pending
            self._pending = []

    def _continues(self, run: MatchedLine, source: SourceLeft, target: TargetLeft) -> bool:
        return target.t - source.e == run.displaced and self._free(
            run.t_hi - run.displaced, source.e, run.t_hi, target.t
        )

    def _free(self, e_from: int, e_to: int, t_from: int, t_to: int) -> bool:
        shift, taken = self._shift, self._taken
        return not any(chunk in taken for chunk in range(e_from >> shift, (e_to >> shift) + 1)) and not any(
            chunk in taken for chunk in range(t_from >> shift, (t_to >> shift) + 1)
        )

    def _close(self) -> Iterator[Both]:
        """End the run that is open: a long one is kept as a line, a short one as residuals."""
        run, self._run = self._run, None
        pending, self._pending = self._pending, []
        if run is None:
            return
        if run.records >= SHORTEST_RUN:
            self.runs.append(run)
            yield from pending
        else:
            self.source_left += [source for source, _ in pending]
            self.target_left += [target for _, target in pending]


class _Queue(Generic[_Row]):
    """Rows in order, found by their digests."""

    def __init__(self) -> None:
        self._rows: deque[tuple[Digest, _Row]] = deque()
        self._places: defaultdict[Digest, deque[int]] = defaultdict(deque)
        self._popped = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def digest(self) -> Digest:
        """Of the first row."""
        return self._rows[0][0]

    def push(self, digest: Digest, row: _Row) -> None:
        """Add a row at the end."""
        self._places[digest].append(self._popped + len(self._rows))
        self._rows.append((digest, row))

    def pop(self) -> _Row:
        """Take the first row."""
        digest, row = self._rows.popleft()
        self._popped += 1
        places = self._places[digest]
        places.popleft()
        if not places:
            del self._places[digest]
        return row

    def ahead(self, digest: Digest) -> int | None:
        """How many rows are before the first one of this digest; None where there is none."""
        places = self._places.get(digest)
        return places[0] - self._popped if places else None

"""Recognises records of the mirror's own that landed below their place, because the log had lost its tail. Pure.

    meant     … 968 969 970 … 999 | 1000 … 1029        970 to 999 were acknowledged, then lost
    landed    … 968 969 | 1000 … 1029                  at target offsets 970 to 999

They can't be removed from a log's tail, and what was lost can't be put below them. So they stay where they are, a
second copy that no mapping row points at, and all from the first lost record on is copied again behind them:

    row       970 -> 1000                              target 1000 … 1029: 970 … 999, then 1030 …: 1000 …

They are recognised by content alone: a stretch that is not, record by record and in order, what the source holds
further on was written by somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class CopiedRun(NamedTuple):
    """Source offsets `first` to `last` (inclusive) of the records that a stretch of the target holds."""

    first: int
    last: int


def find_run(wanted: Sequence[bytes], records: Iterable[tuple[int, bytes]]) -> CopiedRun | None:
    """The first place where records follow each other as wanted (Knuth, Morris and Pratt's search).

    Args:
        wanted: the digests of a stretch's records, in order; at least one.
        records: (offset, digest) of the log that is searched, ascending; read no further than needed.
    """
    fallback = _fallback(wanted)
    matched = 0
    firsts: list[int] = []  # offsets of the records matched so far
    for offset, digest in records:
        while matched and wanted[matched] != digest:
            kept = fallback[matched - 1]
            del firsts[: matched - kept]
            matched = kept
        if wanted[matched] == digest:
            matched += 1
            firsts.append(offset)
            if matched == len(wanted):
                return CopiedRun(firsts[0], offset)
    return None


def _fallback(wanted: Sequence[bytes]) -> list[int]:
    """For each length of a beginning: the longest shorter beginning that it ends with."""
    fallback, length = [0] * len(wanted), 0
    for index in range(1, len(wanted)):
        while length and wanted[index] != wanted[length]:
            length = fallback[length - 1]
        if wanted[index] == wanted[length]:
            length += 1
        fallback[index] = length
    return fallback

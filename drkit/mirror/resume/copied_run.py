"""Recognises the mirror's own records below their expected offsets, after the log had lost its tail. Pure.

    expected  … 968 969 970 … 999 | 1000 … 1029        970 to 999 were acknowledged, then lost
    found     … 968 969 | 1000 … 1029                  at target offsets 970 to 999

They can't be removed from a log's tail, and the lost records can't be put below them. So they stay as a second copy
that no mapping row refers to, and everything from the first lost record on is copied again after them:

    row       970 -> 1000                              target 1000 … 1029: 970 … 999, then 1030 …: 1000 …

They are recognised by content alone: if a range isn't equal to later source records, record by record and in order,
somebody else wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class CopiedRun(NamedTuple):
    """Source offsets `first` to `last` (inclusive) of the records in a range of the target."""

    first: int
    last: int


def find_run(wanted: Sequence[bytes], records: Iterable[tuple[int, bytes]]) -> CopiedRun | None:
    """Find the first place where records follow each other as wanted (Knuth-Morris-Pratt search).

    Args:
        wanted: the digests of the range's records, in order; at least one.
        records: (offset, digest) of the searched log, ascending; read no further than needed.
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
    """The failure function: for each prefix length, the longest shorter prefix that is its suffix."""
    fallback, length = [0] * len(wanted), 0
    for index in range(1, len(wanted)):
        while length and wanted[index] != wanted[length]:
            length = fallback[length - 1]
        if wanted[index] == wanted[length]:
            length += 1
        fallback[index] = length
    return fallback

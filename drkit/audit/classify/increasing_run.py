"""Which records of a partition are out of order: the fewest that must be set aside. Pure.

Matched records, read in the source's order, are cut into runs: records that follow each other on both
sides. Moving one record makes few runs, however long the partition. Within a run nothing is out of
order, so the question is which runs to keep such that their target ranks rise and their records are
most: a heaviest increasing subsequence. What is not kept is reordered. One record that moved counts
once, and so does a swap of neighbours.

    source   a b c d e f            runs       [a b] [c] [d e] [f]
    target   a b d e c f            ranks       0     4    2     5
                                    kept       [a b]      [d e] [f]      reordered: c
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def heaviest_increasing(runs: Sequence[tuple[int, int]]) -> list[int]:
    """The positions, ascending, of the runs to keep.

    Args:
        runs: (target rank, records) of each run in the source's order; ranks are distinct, records > 0.

    Of several heaviest choices the one found is the same each time. O(n log n) for n runs.
    """
    if not runs:
        return []
    # `ranks` and `weights` rise together: weights[i] is the heaviest chain that ends at or below ranks[i].
    ranks: list[int] = []
    weights: list[int] = []
    ends: list[int] = []  # the run each such chain ends with
    before = [-1] * len(runs)
    for position, (rank, records) in enumerate(runs):
        at = bisect_right(ranks, rank)
        weight = records + (weights[at - 1] if at else 0)
        before[position] = ends[at - 1] if at else -1
        stop = at
        while stop < len(weights) and weights[stop] <= weight:
            stop += 1  # lighter chains that end higher are of no use any more
        ranks[at:stop] = [rank]
        weights[at:stop] = [weight]
        ends[at:stop] = [position]
    chain: list[int] = []
    position = ends[-1]
    while position >= 0:
        chain.append(position)
        position = before[position]
    return chain[::-1]

"""Coalesces complete batches of a few records each with compiled code.

What `drkit.kafka.protocol.records` does record by record: here a call for each batch. For sources whose producers
hardly batch but compress; `drkit.kafka.protocol.coalescing` is for those that don't even compress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from drkit.kafka import compiled
from drkit.kafka.compiled.limits import FARTHEST, GROWTH
from drkit.kafka.protocol.record_batch import DELETE_HORIZON, Batch
from drkit.kafka.protocol.records import Built, compress, decompress

if TYPE_CHECKING:  # importing it loads Numba
    from drkit.kafka.compiled.native import Kernel


def merged(batches: Sequence[Batch], room: int) -> list[tuple[int, Built]] | None:
    """Complete batches of one codec as few, none with more than `room` plain bytes; of each how many it was made of.

    None where there is no machine code (yet), or for what is left to plain Python: a batch that is larger than that,
    one whose stamps count from a delete horizon (KIP-534), one that isn't what its header says.

    Raises:
        Damaged: one can't be decompressed.
    """
    kernel = compiled.ready()
    if kernel is None:
        compiled.found(len(batches))
        return None
    if any(batch.attributes & DELETE_HORIZON for batch in batches):
        return None
    plains = [bytes(decompress(batch.codec, batch.records)) for batch in batches]
    sizes = [len(plain) + GROWTH * batch.records_count for plain, batch in zip(plains, batches, strict=True)]
    if max(sizes) > room:
        return None
    found = []
    for begin, end in pairwise(_cuts(sizes, room)):
        built = _built(kernel, batches[begin:end], plains[begin:end])
        if built is None:
            return None
        found.append((end - begin, built))
    return found


def _cuts(sizes: Sequence[int], room: int) -> Iterator[int]:
    """Where one of them ends and the next begins, from 0 to the end."""
    yield 0
    taken = 0
    for index, size in enumerate(sizes):
        if taken + size > room:
            yield index
            taken = 0
        taken += size
    yield len(sizes)


def _built(kernel: Kernel, batches: Sequence[Batch], plains: Sequence[bytes]) -> Built | None:
    base = batches[0].base_timestamp
    since = [batch.base_timestamp - base for batch in batches]
    if not -FARTHEST < min(since) <= max(since) < FARTHEST:
        return None
    counts = [batch.records_count for batch in batches]
    done = kernel.merge(list(zip(plains, counts, since, strict=True)))
    if done is None:
        return None
    payload, highest = done
    return Built(sum(counts), base, base + highest, compress(batches[0].codec, payload))

"""This worker's claims on partitions: the generation of each, and a store that writes with them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from drkit.model.digests import RangeDigest
from drkit.model.errors import Fenced
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Claims, MappingStore


class PartitionClaims:
    """The partitions of one link that this worker has claimed. Threads may share it; `take` belongs to one of them.

    A partition is claimed again, with a new generation, each time the worker starts it: requests of an earlier start
    (this worker's, too) that are still in flight are refused from then on.
    """

    def __init__(self, link: LinkId, store: MappingStore) -> None:
        self._link = link
        self._store = store
        self._lock = threading.Lock()
        self.steady = threading.Lock()
        """Held while claims are replaced, and while watermarks and digests are written: none is written with a claim
        that this worker itself has just replaced."""
        self._held: dict[TopicPartition, tuple[int, int]] = {}
        self._started: set[TopicPartition] = set()
        self._claiming: set[TopicPartition] = set()
        self._claims: Claims = {}

    def take(self, places: Iterable[tuple[TopicPartition, int]]) -> Claims:
        """Claim those partitions, each in its epoch, that aren't held yet, or were started with their claims; returns
        the claims of those that are held now.

        Raises:
            Unreachable: the store doesn't answer; some may be claimed, which is harmless.
        """
        wanted = dict(places)
        with self._lock:
            held = self._held
            new = {
                tp: epoch
                for tp, epoch in wanted.items()
                if tp in self._started or tp not in held or held[tp][1] != epoch
            }
            self._claiming = set(new)
        if new:
            # also of what was dropped: a write of its watermarks may be under way, and would be refused
            with self.steady:
                self._claim(new)
        with self._lock:
            return {tp: self._held[tp][0] for tp in wanted if tp in self._held}

    def _claim(self, new: Mapping[TopicPartition, int]) -> None:
        claimed: dict[TopicPartition, tuple[int, int]] | None = None
        try:
            generation = self._store.next_generation(self._link)
            claimed = {}  # from here on the store may have the new claims, or another worker's
            taken: Collection[TopicPartition] = ()
            try:
                self._store.claim(self._link, list(new.items()), generation)
            except Fenced as error:
                taken = error.partitions
            claimed = {tp: (generation, epoch) for tp, epoch in new.items() if tp not in taken}
        finally:
            with self._lock:
                if claimed is not None:
                    for tp in new:
                        self._held.pop(tp, None)
                    self._started.difference_update(new)
                    # what was dropped meanwhile is another worker's, or will be claimed anew
                    self._held.update({tp: held for tp, held in claimed.items() if tp in self._claiming})
                self._claiming = set()
                self._changed()

    def started(self, tps: Iterable[TopicPartition]) -> None:
        """These are started with their claims: the next start of each needs another one."""
        with self._lock:
            self._started.update(tp for tp in tps if tp in self._held)

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Release these, also while they are being claimed: this worker writes nothing of them any more."""
        with self._lock:
            for tp in tps:
                self._held.pop(tp, None)
                self._started.discard(tp)
                self._claiming.discard(tp)
            self._changed()

    def lost(self, tps: Iterable[TopicPartition], claims: Claims | None) -> list[TopicPartition]:
        """Those of these that another worker has taken, as a write with these claims (None: the current ones) was
        refused for them. Not those that this worker has released itself, or claimed anew."""
        with self._lock:
            return [
                tp
                for tp in tps
                if tp in self._held
                and tp not in self._claiming
                and (claims is None or claims.get(tp) == self._held[tp][0])
            ]

    def claims(self) -> Claims:
        """The generation of each partition held, as of now."""
        return self._claims

    def _changed(self) -> None:
        """Replace the mapping, never change it: `claims` returns it with every row."""
        self._claims = {tp: generation for tp, (generation, _) in self._held.items()}


class ClaimedMappings:
    """A `MappingStore` whose writes carry this worker's claims; see `drkit.store.api.MappingStore`."""

    # ruff: noqa: D102  # the protocol documents every method

    def __init__(self, store: MappingStore, holdings: PartitionClaims) -> None:
        self._store = store
        self._holdings = holdings

    def next_generation(self, link: LinkId) -> int:
        return self._store.next_generation(link)

    def claim(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]], generation: int) -> None:
        self._store.claim(link, places, generation)

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims | None = None) -> None:
        self._store.append_mappings(link, rows, self._with(claims))

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
        return self._store.mappings(link, tp, epoch)

    def mappings_of(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]]) -> Iterator[list[OffsetMapping]]:
        return self._store.mappings_of(link, places)

    def floor_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        return self._store.floor_mapping(link, tp, epoch, source_offset)

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        return self._store.next_mapping(link, tp, epoch, source_offset)

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        return self._store.last_valid_mapping(link, tp, epoch, target_end)

    def supersede_mappings(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int, claims: Claims | None = None
    ) -> int:
        return self._store.supersede_mappings(link, tp, epoch, target_end, self._with(claims))

    def put_watermarks(self, link: LinkId, watermarks: Sequence[Watermark], claims: Claims | None = None) -> None:
        with self._holdings.steady:
            self._store.put_watermarks(link, watermarks, self._with(claims))

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
        return self._store.watermarks(link)

    def put_range_digests(self, link: LinkId, digests: Sequence[RangeDigest], claims: Claims | None = None) -> None:
        with self._holdings.steady:
            self._store.put_range_digests(link, digests, self._with(claims))

    def range_digests(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[RangeDigest]:
        return self._store.range_digests(link, tp, epoch)

    def forget_range_digests(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_start: int, claims: Claims | None = None
    ) -> None:
        with self._holdings.steady:
            self._store.forget_range_digests(link, tp, epoch, target_start, self._with(claims))

    def put_group_positions(self, link: LinkId, positions: Sequence[GroupPosition]) -> None:
        self._store.put_group_positions(link, positions)

    def group_positions(self, link: LinkId) -> list[GroupPosition]:
        return self._store.group_positions(link)

    def forget_group_positions(self, link: LinkId, groups: Sequence[str], topic: str | None = None) -> None:
        self._store.forget_group_positions(link, groups, topic)

    def _with(self, claims: Claims | None) -> Claims:
        return self._holdings.claims() if claims is None else claims

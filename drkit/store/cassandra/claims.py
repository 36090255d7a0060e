"""Claims of partitions in the Cassandra backend, and writes that only the holder can make.

**Rows.** The generation that holds a partition is a static column of it. Rows change in one conditional
batch (`IF generation = …`) with it, so one Paxos instance decides claim and write, and a late writer can't
come in between. Writers without claims use it too, because rows written both with and without Paxos would
get timestamps of two clocks. Rows are rare, so the few milliseconds don't matter; different partitions are
written concurrently.

**Watermarks** come every second for every partition, all of a link in one Cassandra partition: too many
for Paxos. Their timestamp is their writer's generation instead of a clock (`USING TIMESTAMP
generation + n`, where n counts the writes). Generations are `_STRIDE` apart, more than any holder's count,
and Cassandra keeps the value with the greatest timestamp: so a newer generation's watermark stays whatever
an older one writes later, at no cost. The first generation of a link is the current microsecond, above all
timestamps of a schema without generations; each removal takes a new generation.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cassandra.query import PreparedStatement

from drkit.model.errors import Fenced
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Claims
from drkit.store.cassandra.session import BATCH_ROWS, CassandraSession
from drkit.store.cassandra.statements import Statements

T = TypeVar("T")

_STRIDE = 2**32

Place = tuple[TopicPartition, int]
"""A partition in an epoch: one partition of the table `mapping`."""


class CassandraClaims:
    """Claims of partitions, and the writes that need them.

    Args:
        session: open on a keyspace of the current version.
        statements: prepared on it.
        decided: `CassandraStore`'s function that settles a compare-and-set whose answer is lost.
    """

    def __init__(
        self,
        session: CassandraSession,
        statements: Statements,
        decided: Callable[[Callable[[], bool], Callable[[], bool | None]], bool],
    ) -> None:
        self._session = session
        self._do = statements
        self._decided = decided
        self._noted: set[tuple[str, str, int, int]] = set()
        self._loaded: set[str] = set()
        self._writes = itertools.count()

    # -- generations -------------------------------------------------------------------------------

    def next_generation(self, link: LinkId) -> int:
        """See `MappingStore.next_generation`."""
        name, value = str(link), 0

        def attempt() -> bool:
            nonlocal value
            found = self._session.serial_rows(self._do.generation, (name,))
            if not found:
                value = self._session.timestamp()
                return self._session.compare_and_set(self._do.first_generation, (name, value))
            value = max(found[0][0] + _STRIDE, self._session.timestamp())
            return self._session.compare_and_set(self._do.change_generation, (value, name, found[0][0]))

        # a number whose answer was lost is skipped: the next one is requested
        while not self._decided(attempt, lambda: None):
            pass
        return value

    def claim(self, link: LinkId, places: Sequence[Place], generation: int) -> None:
        """See `MappingStore.claim`."""
        name = str(link)
        keys = [(name, *tp, epoch) for tp, epoch in places]
        if name not in self._loaded:
            self._noted.update((name, *row) for row in self._session.rows(self._do.noted_partitions, (name,)))
            self._loaded.add(name)
        known = [key in self._noted for key in keys]
        self._note(keys)

        def ask(number: int, *, free: bool) -> list[tuple[PreparedStatement, tuple[Any, ...]]]:
            if free:
                return [(self._do.claim_free, (generation, *keys[number]))]
            return [(self._do.claim_held, (generation, *keys[number], generation))]

        # one of the two conditions holds; a noted partition has usually been claimed before
        answers = self._session.conditional([ask(number, free=not known[number]) for number in range(len(keys))])
        left = [number for number, answer in enumerate(answers) if not answer.applied]
        again = self._session.conditional([ask(number, free=answers[number].held is None) for number in left])
        for number, answer in zip(left, again, strict=True):
            answers[number] = answer
        # `held` equals ours: an earlier try whose answer was lost
        fenced = [
            tp
            for (tp, _), answer in zip(places, answers, strict=True)
            if not answer.applied and (answer.held or 0) != generation
        ]
        if fenced:
            raise Fenced(sorted(fenced))

    def holding(self, link: LinkId, places: Iterable[Place], claims: Claims | None, act: Callable[[Claims], T]) -> T:
        """Return `act(claims)`; where `claims` is None, with new claims of these places.

        Two writers without claims may overtake each other; each then claims the partitions again.
        """
        if claims is not None:
            return act(claims)
        wanted = sorted(set(places))
        while True:
            generation = self.next_generation(link)
            try:
                self.claim(link, wanted, generation)
                return act({tp: generation for tp, _ in wanted})
            except Fenced:
                continue

    # -- rows --------------------------------------------------------------------------------------

    def append(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims) -> None:
        """Keep rows."""
        by_place: dict[Place, list[OffsetMapping]] = defaultdict(list)
        for row in rows:
            by_place[row.tp, row.epoch].append(row)
        _check_named(by_place, claims)
        changes: dict[Place, list[list[Any]]] = {}
        for (tp, epoch), of_place in by_place.items():
            key = (str(link), *tp, epoch)
            puts = [(self._do.put_mapping, (*key, row.source_offset, row.target_offset)) for row in of_place]
            changes[tp, epoch] = [puts[start : start + BATCH_ROWS] for start in range(0, len(puts), BATCH_ROWS)]
        self._change(link, changes, claims)

    def supersede(self, link: LinkId, place: Place, source_offset: int | None, claims: Claims) -> None:
        """Remove a partition's rows from `source_offset` on (None: there are none, and no request is sent)."""
        _check_named([place], claims)
        if source_offset is None:
            return
        tp, epoch = place
        # all rows from the lowest on: a single tombstone
        removal = (self._do.forget_mappings_from, (str(link), *tp, epoch, source_offset))
        self._change(link, {place: [[removal]]}, claims)

    def forget(self, link: LinkId, topic: str | None = None) -> int:
        """Remove the rows of a link (or of one of its topics); returns the generation that did, which now holds
        them."""
        places = [
            (TopicPartition(row[0], row[1]), row[2])
            for row in self._session.rows(self._do.noted_partitions, (str(link),))
            if topic in {None, row[0]}
        ]
        generation = self.next_generation(link)
        self.claim(link, places, generation)
        removals = {
            (tp, epoch): [[(self._do.forget_mappings_from, (str(link), *tp, epoch, 0))]] for tp, epoch in places
        }
        self._change(link, removals, {tp: generation for tp, _ in places})
        return generation

    def partitions(self, link: LinkId, topic: str | None = None) -> list[TopicPartition]:
        """All partitions of a link, or of one of its topics, that were ever claimed."""
        noted = self._session.rows(self._do.noted_partitions, (str(link),))
        return sorted({TopicPartition(row[0], row[1]) for row in noted if topic in {None, row[0]}})

    def forget_noted(self) -> None:
        """Clear the cache of noted partitions: the tables were emptied."""
        self._noted.clear()
        self._loaded.clear()

    # -- watermarks --------------------------------------------------------------------------------

    def dates(self, claims: Claims) -> Callable[[TopicPartition], int]:
        """The timestamps for one write of watermarks.

        The callable raises KeyError for a partition that `claims` doesn't name.
        """
        number = next(self._writes)
        return lambda tp: claims[tp] + number

    # -- inside ------------------------------------------------------------------------------------

    def _change(self, link: LinkId, changes: dict[Place, list[list[Any]]], claims: Claims) -> None:
        """Run each partition's batches in sequence, those of different partitions concurrently."""
        name = str(link)
        fenced: set[TopicPartition] = set()
        for step in itertools.count():
            due = [place for place, batches in changes.items() if step < len(batches) and place[0] not in fenced]
            if not due:
                break
            batches = []
            for place in due:
                (tp, epoch) = place
                hold = (self._do.hold, (claims[tp], name, *tp, epoch, claims[tp]))
                batches.append([hold, *changes[place][step]])
            for (tp, _), answer in zip(due, self._session.conditional(batches), strict=True):
                if not answer.applied:
                    fenced.add(tp)
        if fenced:
            raise Fenced(sorted(fenced))

    def _note(self, keys: Iterable[tuple[str, str, int, int]]) -> None:
        """Record which partitions of `mapping` exist, so that a link's rows can be removed."""
        new = [key for key in keys if key not in self._noted]
        if new:
            self._session.write_all(self._do.note_partition, [new])
            self._noted.update(new)


def _check_named(places: Iterable[Place], claims: Claims) -> None:
    unnamed = sorted({tp for tp, _ in places if tp not in claims})
    if unnamed:
        raise Fenced(unnamed)

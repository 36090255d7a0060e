"""Who holds a partition of the mapping in the Cassandra backend, and writes that hold only for the holder.

**Rows.** The generation that holds a partition is a static column of it. Rows change in one conditional
batch (`IF generation = …`) with it, so claim and write are decided by one Paxos instance: a late writer
can't come in between. All changes of rows go this way, also those of writers without claims: rows
written both with and without Paxos would be dated by two clocks. Rows are rare, so the few milliseconds
don't matter; different partitions are written at once.

**Watermarks** come every second for every partition, all of a link in one Cassandra partition: too many
for Paxos. They are dated by their writer's generation instead of by a clock (`USING TIMESTAMP
generation + n`, n counting the writes). Generations are `_STRIDE` apart, which no holder's count ever
reaches, and Cassandra keeps the value of the greatest timestamp, so a newer generation's watermark stays
whatever an older one writes later, at no cost. The first generation of a link begins at the present
microsecond, above all timestamps that a schema without generations wrote; removals take a generation of
their own.
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
    """Claims of partitions, and the writes that depend on them.

    Args:
        session: open on a keyspace of the present version.
        statements: prepared on it.
        decided: `CassandraStore`'s way to settle compare-and-sets whose answer is lost.
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

        # a number whose answer was lost is given up: the next one is asked for
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

        # one of the two conditions holds; what is noted was claimed before, as a rule
        answers = self._session.conditional([ask(number, free=not known[number]) for number in range(len(keys))])
        left = [number for number, answer in enumerate(answers) if not answer.applied]
        again = self._session.conditional([ask(number, free=answers[number].held is None) for number in left])
        for number, answer in zip(left, again, strict=True):
            answers[number] = answer
        # `held` equal to ours: an earlier try whose answer was lost
        fenced = [
            tp
            for (tp, _), answer in zip(places, answers, strict=True)
            if not answer.applied and (answer.held or 0) != generation
        ]
        if fenced:
            raise Fenced(sorted(fenced))

    def holding(self, link: LinkId, places: Iterable[Place], claims: Claims | None, act: Callable[[Claims], T]) -> T:
        """What `act` returns, given the claims to write these with: `claims`, or (None) such as are made now.

        Two writers without claims may overtake each other; each then takes the partitions over again.
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
        """Remove a partition's rows from `source_offset` on (None: there are none, and nothing is asked)."""
        _check_named([place], claims)
        if source_offset is None:
            return
        tp, epoch = place
        # all rows from the lowest on: one tombstone however many they are
        removal = (self._do.forget_mappings_from, (str(link), *tp, epoch, source_offset))
        self._change(link, {place: [[removal]]}, claims)

    def forget(self, link: LinkId, topic: str | None = None) -> int:
        """Remove the rows of a link (or of one topic of it); returns the generation that did, which holds them now."""
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
        """The partitions that were ever claimed, of a link or of one topic of it."""
        noted = self._session.rows(self._do.noted_partitions, (str(link),))
        return sorted({TopicPartition(row[0], row[1]) for row in noted if topic in {None, row[0]}})

    def forget_noted(self) -> None:
        """Remember nothing of what was noted: the tables were emptied."""
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
        """Run each partition's batches one after the other, different partitions' at once."""
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
        """Remember which partitions of `mapping` there are, so that a link's rows can be removed."""
        new = [key for key in keys if key not in self._noted]
        if new:
            self._session.write_all(self._do.note_partition, [new])
            self._noted.update(new)


def _check_named(places: Iterable[Place], claims: Claims) -> None:
    unnamed = sorted({tp for tp, _ in places if tp not in claims})
    if unnamed:
        raise Fenced(unnamed)

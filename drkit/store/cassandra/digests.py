"""The Cassandra backend of range digests.

Their timestamps are like those of watermarks (see `claims.py`): the writer's generation, so that a newer holder's row
stays whatever an older one writes later at the same key. A late writer's rows at other keys carry its generation, so
readers prefer the newer holder's.
"""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cassandra.query import PreparedStatement

from drkit.model.digests import RangeDigest
from drkit.model.errors import Fenced
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Claims
from drkit.store.cassandra.claims import CassandraClaims
from drkit.store.cassandra.session import CassandraSession
from drkit.store.codec import digest_row, read_digest

_CQL = {
    "put": (
        "INSERT INTO {k}.range_digest (link, topic, partition, epoch, target_start, target_end, source_start, batches,"
        " records, digest, batch_crc, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
    ),
    "found": (
        "SELECT target_start, target_end, source_start, batches, records, digest, batch_crc, generation"
        " FROM {k}.range_digest WHERE link = ? AND topic = ? AND partition = ? AND epoch = ?"
        " ORDER BY epoch ASC, target_start ASC"
    ),
    "forget_below": (
        "DELETE FROM {k}.range_digest USING TIMESTAMP ?"
        " WHERE link = ? AND topic = ? AND partition = ? AND epoch = ? AND target_start < ?"
    ),
    "forget_earlier": (
        "DELETE FROM {k}.range_digest USING TIMESTAMP ? WHERE link = ? AND topic = ? AND partition = ? AND epoch < ?"
    ),
    "forget": "DELETE FROM {k}.range_digest USING TIMESTAMP ? WHERE link = ? AND topic = ? AND partition = ?",
}


@dataclass(frozen=True, slots=True)
class DigestStatements:
    """The statements of range digests, prepared against one keyspace."""

    put: PreparedStatement
    found: PreparedStatement
    forget_below: PreparedStatement
    forget_earlier: PreparedStatement
    forget: PreparedStatement

    @classmethod
    def prepare(cls, session: CassandraSession) -> Self:
        """Prepare all of them."""
        return cls(**session.prepare_all(_CQL))


class CassandraDigests:
    """The part of `CassandraStore` that keeps range digests."""

    _session: CassandraSession
    _claims: CassandraClaims
    _digests: DigestStatements

    def put_range_digests(self, link: LinkId, digests: Sequence[RangeDigest], claims: Claims | None = None) -> None:
        if not digests:
            return

        def put(held: Claims) -> None:
            unnamed = sorted({each.tp for each in digests if each.tp not in held})
            if unnamed:
                raise Fenced(unnamed)
            dated = self._claims.dates(held)
            rows: dict[TopicPartition, list[tuple[Any, ...]]] = defaultdict(list)
            for each in digests:
                rows[each.tp].append((str(link), *digest_row(each), held[each.tp], dated(each.tp)))
            self._session.write_all(self._digests.put, list(rows.values()))

        self._claims.holding(link, {(each.tp, each.epoch) for each in digests}, claims, put)

    def range_digests(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[RangeDigest]:
        found = self._session.rows(self._digests.found, (str(link), *tp, epoch))
        return [read_digest(tp, epoch, *row) for row in found]

    def forget_range_digests(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_start: int, claims: Claims | None = None
    ) -> None:
        def forget(held: Claims) -> None:
            if tp not in held:
                raise Fenced([tp])
            at = self._claims.dates(held)(tp)
            place = (str(link), *tp, epoch)
            self._session.write(self._digests.forget_earlier, (at, *place))
            self._session.write(self._digests.forget_below, (at, *place, target_start))

        self._claims.holding(link, [(tp, epoch)], claims, forget)

    def _forget_digests(self, link: LinkId, generation: int, tps: Iterable[TopicPartition]) -> None:
        """Remove all digests of these partitions; later writes of an older generation have no effect."""
        name = str(link)
        self._session.write_all(self._digests.forget, [[(generation, name, *tp)] for tp in tps])

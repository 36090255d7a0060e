"""The SQLite backend of range digests."""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

from collections.abc import Sequence

from drkit.model.digests import RangeDigest
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Claims
from drkit.store.codec import digest_row, read_digest
from drkit.store.sqlite.claims import check_claims, held_generation
from drkit.store.sqlite.connection import SqliteConnection

NAME = "range_digest"


class SqliteDigests:
    """The part of `SqliteStore` that keeps range digests."""

    _db: SqliteConnection

    def put_range_digests(self, link: LinkId, digests: Sequence[RangeDigest], claims: Claims | None = None) -> None:
        if not digests:
            return
        name = str(link)
        with self._db.writing() as connection:
            places = {(each.tp, each.epoch) for each in digests}
            check_claims(connection, name, places, claims)
            held = {place: held_generation(connection, name, *place) or 0 for place in places}
            connection.executemany(
                "INSERT OR REPLACE INTO range_digest VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(name, *digest_row(each), held[each.tp, each.epoch]) for each in digests],
            )

    def range_digests(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[RangeDigest]:
        found = self._db.rows(
            "SELECT target_start, target_end, source_start, batches, records, digest, generation FROM range_digest"
            " WHERE link = ? AND topic = ? AND partition = ? AND epoch = ? ORDER BY target_start",
            (str(link), *tp, epoch),
        )
        return [read_digest(tp, epoch, *row) for row in found]

    def forget_range_digests(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_start: int, claims: Claims | None = None
    ) -> None:
        with self._db.writing() as connection:
            check_claims(connection, str(link), {(tp, epoch)}, claims)
            connection.execute(
                "DELETE FROM range_digest WHERE link = ? AND topic = ? AND partition = ?"
                " AND (epoch < ? OR epoch = ? AND target_start < ?)",
                (str(link), *tp, epoch, epoch, target_start),
            )

"""Claims of partitions in the SQLite backend, checked in the transaction that writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from drkit.model.errors import Fenced
from drkit.model.topology import TopicPartition
from drkit.store.api import Claims

_HELD = "SELECT generation FROM mapping_claim WHERE link = ? AND topic = ? AND partition = ? AND epoch = ?"


def next_generation(connection: sqlite3.Connection, link: str) -> int:
    """A number greater than all earlier ones."""
    found = connection.execute(
        "INSERT INTO generation VALUES (?, 1) ON CONFLICT (link) DO UPDATE SET value = value + 1 RETURNING value",
        (link,),
    )
    return int(found.fetchone()[0])


def claim(
    connection: sqlite3.Connection, link: str, places: Iterable[tuple[TopicPartition, int]], generation: int
) -> list[TopicPartition]:
    """Claim partitions; returns those that a newer generation holds and keeps."""
    fenced = []
    for tp, epoch in places:
        if (held_generation(connection, link, tp, epoch) or 0) > generation:
            fenced.append(tp)
        else:
            connection.execute(
                "INSERT OR REPLACE INTO mapping_claim VALUES (?, ?, ?, ?, ?)", (link, *tp, epoch, generation)
            )
    return fenced


def check_claims(
    connection: sqlite3.Connection, link: str, places: Iterable[tuple[TopicPartition, int]], claims: Claims | None
) -> None:
    """Raise `Fenced` unless these are held as `claims` says; without claims, claim them."""
    if claims is None:
        claim(connection, link, places, next_generation(connection, link))
        return
    fenced = [
        tp for tp, epoch in places if tp not in claims or held_generation(connection, link, tp, epoch) != claims[tp]
    ]
    if fenced:
        raise Fenced(sorted(fenced))


def take_all(connection: sqlite3.Connection, link: str, topic: str | None = None) -> None:
    """Claim all partitions of a link, or of one of its topics, whoever holds them."""
    connection.execute(
        "UPDATE mapping_claim SET generation = ? WHERE link = ? AND topic = coalesce(?, topic)",
        (next_generation(connection, link), link, topic),
    )


def held_generation(connection: sqlite3.Connection, link: str, tp: TopicPartition, epoch: int) -> int | None:
    """The generation that holds a partition, or None."""
    found = connection.execute(_HELD, (link, *tp, epoch)).fetchone()
    return None if found is None else int(found[0])

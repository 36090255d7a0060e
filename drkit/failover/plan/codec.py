"""Serialises positions: shared data once, then the groups that share it. Pure.

A thousand groups at the ends of fifty partitions share fifty positions, each with its explanation. Written one by one
they would be tens of megabytes to encode, hash and store during a failover.

    {"looked": [instants], "shared": [[topic, partition, …, why], …], "groups": [[group, [0, 1, [2, "meta", 7, 0]]], …]}

A position is the number of its row in `shared`, or with its own data [number, metadata, existing, number in `looked`].
An array of complete positions is accepted too: plan files have that form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from drkit.failover.positions.positions import NoReset, PlannedPosition, Strategy
from drkit.model.clock import exact_iso
from drkit.model.offsets import Certainty

_FIELDS = (
    "topic",
    "partition",
    "target_topic",
    "source_offset",
    "target_offset",
    "strategy",
    "translation",
    "reread",
    "skipped",
    "lost",
    "reason",
    "why",
    "reread_at_most",
    "transactional",
    "transactions_again",
    "no_reset",
)
_shared = attrgetter(*_FIELDS)


def pack(positions: Sequence[PlannedPosition]) -> dict[str, Any]:
    """Convert to JSON-serialisable values."""
    rows: dict[tuple[Any, ...], int] = {}
    looked: dict[datetime | None, int] = {}
    groups: dict[str, list[Any]] = {}
    for position in positions:
        row = rows.setdefault(_shared(position), len(rows))
        look = looked.setdefault(position.captured_at, len(looked))
        plain = look == 0 and not position.metadata and position.existing is None
        entry = row if plain else [row, position.metadata, position.existing, look]
        groups.setdefault(position.group, []).append(entry)
    return {
        "looked": [None if instant is None else exact_iso(instant) for instant in looked],
        "shared": [list(row) for row in rows],
        "groups": list(groups.items()),
    }


def unpack(written: Any) -> Any:
    """Read what `pack` wrote; other input is validated as an array of positions.

    Raises:
        ValueError: it is damaged.
    """
    if not isinstance(written, dict):
        return written
    try:
        return tuple(_positions(written))
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the positions are damaged: {error!r}") from error


def _positions(written: dict[str, Any]) -> Iterator[PlannedPosition]:
    looked = [None if text is None else datetime.fromisoformat(text) for text in written["looked"]]
    shared = [_read(dict(zip(_FIELDS, row, strict=True))) for row in written["shared"]]
    for group, entries in written["groups"]:
        for entry in entries:
            number, metadata, existing, look = (entry, "", None, 0) if isinstance(entry, int) else entry
            yield PlannedPosition(
                group=group, metadata=metadata, existing=existing, captured_at=looked[look], **shared[number]
            )


def _read(row: dict[str, Any]) -> dict[str, Any]:
    strategy = row["strategy"]
    row["strategy"] = None if strategy is None else Strategy(strategy)
    row["translation"] = Certainty(row["translation"])
    row["no_reset"] = None if row["no_reset"] is None else NoReset(row["no_reset"])
    return row


Packed = Annotated[
    tuple[PlannedPosition, ...], PlainSerializer(pack, return_type=dict[str, Any]), BeforeValidator(unpack)
]
"""The type of a serialised field of positions."""

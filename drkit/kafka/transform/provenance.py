"""Provenance: headers that show where a mirrored record came from, and through which clusters. Pure.

The first mirror of a record adds where it was produced; later mirrors copy these headers unchanged:

    drkit.source      Kafka's id of the cluster that it was produced to
    drkit.topic       its topic there
    drkit.partition   its partition there, decimal
    drkit.offset      its offset there, decimal

Each further mirror (a chain) adds the place where *it* read the record to one more header:

    drkit.via         cluster id/topic/partition/offset, several with commas, in the order of the hops

So in a chain a -> b -> c the record on c has a in `drkit.source` and its place on b in `drkit.via`. A
record whose headers name the cluster that it would be sent to is not sent there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drkit.kafka.protocol import record_body
from drkit.model.record import Header

SOURCE = "drkit.source"
TOPIC = "drkit.topic"
PARTITION = "drkit.partition"
OFFSET = "drkit.offset"
VIA = "drkit.via"
NAMES = frozenset({SOURCE, TOPIC, PARTITION, OFFSET, VIA})
OWN_NAMES = b"drkit."
"""The common prefix: a record without these bytes has none of the headers."""


class Hop(NamedTuple):
    """A place that a record was mirrored from."""

    cluster_id: str
    topic: str
    partition: int
    offset: int


def passed(headers: Iterable[Header]) -> tuple[str, ...]:
    """Ids of the clusters that a record was mirrored from, in order; none for one that was never mirrored so."""
    ids: list[str] = []
    for name, value in headers:
        if name == SOURCE:
            ids.insert(0, _text(value))
        elif name == VIA:
            ids += [entry.partition("/")[0] for entry in _text(value).split(",")]
    return tuple(cluster_id for cluster_id in ids if cluster_id)


def last_hop(headers: Iterable[Header]) -> Hop | None:
    """Where the mirror that wrote the record read it; None if the headers don't show it."""
    found = {name: _text(value) for name, value in headers if name in NAMES}
    if found.get(VIA):
        parts = found[VIA].rpartition(",")[2].split("/")
    else:
        parts = [found.get(name, "") for name in (SOURCE, TOPIC, PARTITION, OFFSET)]
    try:
        cluster_id, topic, partition, offset = parts
        return Hop(cluster_id, topic, int(partition), int(offset)) if cluster_id else None
    except ValueError:
        return None


def read_hop(body: bytes) -> Hop | None:
    """As `last_hop`, of an encoded record's body."""
    try:
        return last_hop(record_body.decode(body)[2])
    except IndexError:
        return None


def origin(hop: Hop) -> tuple[Header, ...]:
    """The headers of a record that was never mirrored before: this is where it was produced."""
    return (
        (SOURCE, hop.cluster_id.encode()),
        (TOPIC, hop.topic.encode()),
        (PARTITION, b"%d" % hop.partition),
        (OFFSET, b"%d" % hop.offset),
    )


def stamped(before: Iterable[Header], headers: Iterable[Header], hop: Hop) -> list[Header]:
    """The headers that a record gets on the target.

    Args:
        before: its headers on the source: their origin is copied, even if a transform changed them.
        headers: its other headers.
        hop: where it was read.
    """
    kept = [(name, value) for name, value in before if name in NAMES]
    plain = [(name, value) for name, value in headers if name not in NAMES]
    if not any(name == SOURCE for name, _ in kept):
        return [*plain, *origin(hop)]
    via = ",".join([_text(value) for name, value in kept if name == VIA] + ["/".join(map(str, hop))])
    return plain + [header for header in kept if header[0] != VIA] + [(VIA, via.encode())]


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")

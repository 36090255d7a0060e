"""Audits of links that alter records: their callables, and why one failed.

The source is read with the link's alterations applied (`drkit.kafka.transform.transformed_reader`), in Spark's tasks;
everything else is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress

from drkit.audit.compare.first_pass import Unreadable
from drkit.audit.compare.scope import Scope
from drkit.audit.read.log_tasks import opened
from drkit.config.schema.config import ForeignKeyConfig
from drkit.kafka.client.log_reader import OffsetsGone, TopicGone
from drkit.kafka.transform.transformed_reader import AlteredReader
from drkit.model.topology import Link

_FEW = 1_000
"""Offsets that are looked at again to say why."""


def callables_of(link: Link, foreign_keys: Iterable[ForeignKeyConfig] = ()) -> set[str]:
    """The user's callables that an audit's tasks import (``module:function``)."""
    own = () if link.inverse else (link.filter, link.transform)
    decoders = (name for each in foreign_keys for name in (each.decoder, each.parent_decoder))
    return {name for name in (*own, *decoders) if name is not None}


def unreadable_source(scope: Scope, ranges: Unreadable) -> list[tuple[int, str]]:
    """Where the source can't be read, or nobody can say what the link made of it, in words: what is there is compared
    with nothing.

    Args:
        scope: what was compared.
        ranges: the source's offsets that tasks could not read.

    Returns:
        The partition's number and the words, of each range.

    Raises:
        Unreachable: the source doesn't answer.
    """
    names = [f"{scope.link.id.source} can't be read at {each.topic}:{each.partition}" for each in scope.partitions]
    return [
        (number, f"{names[number]} from offset {first} to {until - 1}: {_why(scope, number, first, until)}")
        for number, members in sorted(ranges.items())
        for first, until in members
    ]


def _why(scope: Scope, number: int, first: int, until: int) -> str:
    """Why tasks could not tell what a range of the source is on the target: a callable is asked about it once more."""
    damaged = "its batches fail their checksum"
    if not scope.asks_callables:
        return damaged
    each = scope.partitions[number]
    until = min(until, first + _FEW)
    with suppress(OffsetsGone, TopicGone), opened(scope.source_reached()) as reader:
        assert isinstance(reader, AlteredReader)  # noqa: S101 - the link alters
        with closing(reader.read(each.topic, each.partition, first, until)) as answers:
            readable = all(batch.readable for found in answers for batch in found)
        if reader.reasons:
            return reader.reasons[0]
        if readable:
            return "a callable of the link raised, or gave two answers, when Spark's tasks asked it; it does not always"
    return damaged  # or what was there has gone since

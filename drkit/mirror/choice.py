"""Which engine moves a link's records, and why. Pure."""

from __future__ import annotations

from typing import NamedTuple

from drkit.model.topology import EngineChoice, Link

BATCH = "batch"
RECORD = "record"
ENGINES = ("batch engine", "record engine")
"""How each reason begins."""


class EngineFor(NamedTuple):
    """An engine's name, and why it is this one (a phrase for people)."""

    name: str
    reason: str


def engine_for(link: Link) -> EngineFor:
    """The engine for a link: records where they are altered or where that is asked for, else whole batches.

    The way back of a link carries records unaltered, whatever the link itself does to them.
    """
    if link.alters:
        needs = [
            name
            for name, here in (
                ("filter", link.filter is not None),
                ("transform", link.transform is not None),
                ("provenance", link.provenance),
            )
            if here
        ]
        return EngineFor(RECORD, f"record engine: {' and '.join(needs)} work on single records")
    if link.engine is EngineChoice.RECORD:
        return EngineFor(RECORD, "record engine: the configuration asks for it")
    if link.engine is EngineChoice.BATCH:
        return EngineFor(BATCH, "batch engine: the configuration asks for it")
    return EngineFor(BATCH, "batch engine: nothing alters the records")

"""Which engine a link gets, and that the reason says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.mirror.choice import engine_for
from drkit.model.topology import EngineChoice, Link, LinkId

LINK = Link(LinkId("a", "b"), topics=(".*",))


@pytest.mark.parametrize(
    ("changes", "name", "word"),
    [
        ({}, "batch", "nothing alters"),
        ({"engine": EngineChoice.BATCH}, "batch", "asks for it"),
        ({"engine": EngineChoice.RECORD}, "record", "asks for it"),
        ({"filter": "m:f"}, "record", "filter"),
        ({"transform": "m:f"}, "record", "transform"),
        ({"provenance": True}, "record", "provenance"),
        ({"filter": "m:f", "provenance": True}, "record", "filter and provenance"),
    ],
)
def test_engine_and_reason(changes: dict[str, object], name: str, word: str) -> None:
    chosen = engine_for(replace(LINK, **changes))
    assert chosen.name == name
    assert word in chosen.reason


def test_the_way_back_alters_nothing_and_takes_batches() -> None:
    link = replace(LINK, transform="m:f", provenance=True)
    assert engine_for(link.reversed()).name == "batch"
    assert engine_for(link.reversed().reversed()) == engine_for(link)

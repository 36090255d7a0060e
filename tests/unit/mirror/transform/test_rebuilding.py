"""What is said of a link's batches: forwarded as they are, or rebuilt, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drkit.mirror.transform.rebuild_reasons import PHRASES, alterations, how_forwarded
from drkit.model.topology import Link, LinkId

LINK = Link(LinkId("a", "b"), topics=(".*",))


@pytest.mark.parametrize(
    ("changes", "names", "says"),
    [
        ({}, None, "batches are forwarded as they are"),
        ({"filter": "m:f"}, "filter", "every batch is rebuilt: filter alters the records"),
        ({"provenance": True}, "provenance", "every batch is rebuilt: provenance alters the records"),
        (
            {"filter": "m:f", "transform": "m:g"},
            "filter and transform",
            "every batch is rebuilt: filter and transform alter the records",
        ),
    ],
)
def test_what_becomes_of_batches_and_why(changes: dict[str, Any], names: str | None, says: str) -> None:
    link = replace(LINK, **changes)
    assert alterations(link) == names
    assert how_forwarded(link) == says
    assert says.startswith(PHRASES)


def test_the_way_back_alters_nothing() -> None:
    link = replace(LINK, transform="m:f", provenance=True)
    assert alterations(link.reversed()) is None
    assert how_forwarded(link.reversed().reversed()) == how_forwarded(link)

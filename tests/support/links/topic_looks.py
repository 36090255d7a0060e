"""A topic that takes records between looks of a mirror's that find it: these show deletions (`source_growth`)."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from drkit.mirror.topics.source_growth import SourceGrowth
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until


class TakenMeanwhile(Protocol):
    """Have a topic of the source take a record now, while a mirror looks."""

    def __call__(self, topic: str) -> None: ...


def taken_between_looks(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> TakenMeanwhile:
    """One for the mirrors of a link that run in this process."""
    looks: list[int] = []
    saw = SourceGrowth.saw

    def counted(*args: Any) -> None:
        saw(*args)
        looks.append(len(looks))

    monkeypatch.setattr(SourceGrowth, "saw", counted)

    def wait_for(more: int) -> None:
        begun = len(looks)
        wait_until(lambda: len(looks) >= begun + more, 60, "looks at the topics")

    def taken(topic: str) -> None:
        wait_for(2)
        producer = mirrored.source.producer()
        producer.produce(topic, value=b"meanwhile", partition=0)
        assert producer.flush(20) == 0
        wait_for(3)

    return taken

"""Where the source lost what was mirrored: told by its leader epochs, or by what a mirror noted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pytest

from drkit.audit.divergence import source_kept
from drkit.kafka.epochs import EpochEnd
from drkit.model.links import SOURCE_TRUNCATED, Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

AT = datetime(2026, 11, 22, 8, tzinfo=UTC)
LINK = LinkId("primary", "dr")
CUT, WHOLE, OLD = (TopicPartition("flights", number) for number in range(3))


class Source:
    """Answers as a source's leaders would; the newest epoch of partition 0 lost 20 offsets."""

    def epoch_ends(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        assert set(at.values()) <= {3}
        return {tp: EpochEnd(3, 80 if tp == CUT else 100) for tp in at}


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("sqlite:///:memory:")
    opened.put_watermarks(
        LINK,
        [Watermark(*tp, 1, 100, 100, 0, 130, 0, AT, leader_epoch=None if tp == OLD else 3) for tp in (CUT, WHOLE, OLD)],
    )
    yield opened
    opened.close()


def problem(topic: str, partition: int | None, kind: str = SOURCE_TRUNCATED) -> Problem:
    return Problem(kind, topic, partition, "why", "what to do", halted=True, since=AT)


def test_leader_epochs_tell_how_far_the_source_is_whole(store) -> None:
    assert source_kept(LINK, store, Source(), [CUT, WHOLE, OLD]) == {CUT: 80}  # type: ignore[arg-type]  # all it asks
    assert source_kept(LINK, store, Source(), [WHOLE]) == {}  # type: ignore[arg-type]  # as above


def test_where_they_do_not_what_the_mirror_noted_does(store) -> None:
    for each in (problem("flights", 2), problem("flights", 0), problem("other", 1), problem("flights", 1, "foreign")):
        store.put_problem(LINK, each)
    assert source_kept(LINK, store, Source(), [CUT, WHOLE, OLD]) == {CUT: 80, OLD: 0}  # type: ignore[arg-type]  # as above

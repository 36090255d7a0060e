"""What a batch of the source says about all below it: nothing where the cleaner works, or where it can't be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.lag.source_batches import compare_batches
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import TopicPartition

MARK = Watermark("t", 0, 1, 100, 100, 0, 100, 0, datetime(2026, 11, 27, tzinfo=UTC), source_batch=SourceBatch(99, 7))
SAME, OTHER, HOLE = LogBatch(90, 99, 3, 7), LogBatch(90, 99, 3, 8), LogBatch(100, 109, 3, 7)
LONGER = LogBatch(95, 104, 3, 9)


class Source:
    """Answers with what a test sets; a topic without a policy may not be described."""

    def __init__(self, batches: Mapping[str, LogBatch | None], policies: Mapping[str, str]) -> None:
        self.batches, self.policies = batches, policies

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogBatch | None]:
        assert set(offsets.values()) == {99}
        return {tp: self.batches[tp.topic] for tp in offsets if tp.topic in self.batches}

    def topic_configs(self, topics: set[str], *, keys: object, denied: set[str]) -> dict[str, dict[str, str]]:
        del keys
        denied |= topics - self.policies.keys()
        return {topic: {"cleanup.policy": self.policies[topic]} for topic in topics & self.policies.keys()}


def test_another_batch_tells_unless_the_cleaner_may_have_written_it() -> None:
    batches = {"same": SAME, "other": OTHER, "hole": HOLE, "gone": None, "denied": OTHER}
    batches |= {"cleaned": OTHER, "removed": HOLE, "longer": LONGER}
    policies = {"other": "delete", "hole": "delete", "cleaned": "compact,delete"}
    policies |= dict.fromkeys(("removed", "longer"), "compact")
    marks = [replace(MARK, topic=topic) for topic in (*batches, "silent")]
    found = compare_batches(Source(batches, policies), [*marks, replace(MARK, topic="x", source_batch=None)])  # type: ignore[arg-type]  # as it answers here
    assert {tp.topic for tp in found.replaced} == {"other", "hole", "longer"}, "the cleaner joins no batches"
    assert {tp.topic for tp in found.rewritten} == {"cleaned", "removed"}, "only records tell there"
    assert set(found.replaced.values()) == {SourceBatch(99, 7)}
    assert {tp.topic for tp in found.silent} == {"silent", "denied"}
    assert {tp.topic for tp in found.same} == {"same"}


def test_nobody_is_asked_where_no_batch_is_known() -> None:
    assert not any(compare_batches(None, [replace(MARK, source_batch=None)]))  # type: ignore[arg-type]  # it isn't asked

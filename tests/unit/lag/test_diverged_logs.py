"""Which logs still hold what was read of them, which don't, and of which nothing shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from drkit.kafka.admin.logs.leader_epochs import EpochEnd
from drkit.lag.diverged_logs import compare_logs
from drkit.model.topology import TopicPartition
from tests.unit.lag.test_batch_comparison import MARK, OTHER, SAME, Source


class Cluster(Source):
    """One whose topic `purged` begins where reading had ended, and whose other logs begin at 0."""

    def epoch_ends(self, epochs: dict[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        assert not epochs
        return {}

    def end_offsets(self, tps: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        assert not committed
        return {tp: 80 if tp.topic == "cut" else 120 for tp in tps}

    def start_offsets(self, tps: Iterable[TopicPartition], *, partial: bool) -> dict[TopicPartition, int]:
        assert partial
        return {tp: 100 if tp.topic == "purged" else 0 for tp in tps if tp.topic != "silent"}


def test_what_nothing_shows_to_be_there_still_is_told_apart_from_what_is_and_from_what_is_not() -> None:
    batches = {"same": SAME, "other": OTHER, "cleaned": OTHER, "removed": None, "purged": None, "unknown": SAME}
    policies = dict.fromkeys(batches, "delete") | {"cleaned": "compact"}
    marks = {topic: replace(MARK, topic=topic) for topic in (*batches, "silent", "cut")}
    marks["unknown"] = replace(marks["unknown"], source_batch=None)
    found = compare_logs(Cluster(batches, policies), marks.values())  # type: ignore[arg-type]  # as it answers here
    assert {tp.topic: begin for tp, begin in found.diverged.items()} == {"cut": 80, "other": 0}
    assert {tp.topic for tp in found.unproven} == {"cleaned", "removed", "unknown", "silent"}


def test_a_cluster_of_which_nothing_was_read_is_asked_nothing() -> None:
    assert not any(compare_logs(None, []))  # type: ignore[arg-type]  # it isn't asked

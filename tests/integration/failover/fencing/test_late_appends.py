"""A mirror that didn't leave in order may still send: after a failover the target refuses it, and no number is off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drkit.failover.plan.planner import PlanRequest, make_plan
from drkit.failover.run.service import cancel_run, resume_run, run_failover
from drkit.kafka.protocol.record_batch import HEADER_BYTES, header
from drkit.mapping import Translator
from drkit.model.topology import TopicPartition
from drkit.store.link_notes import producer_lease
from drkit.store.workers import lost_workers
from tests.support.clusters import raw
from tests.support.killing.killed_process import OUTCOME, killed
from tests.support.links.batches import batch_bytes
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

COUNT = 20
INVALID_PRODUCER_EPOCH = 47


def mirror_killed(own: OwnLink) -> None:
    """A mirror in its own process that has copied all there was, and is killed."""
    command = [sys.executable, "-m", "drkit", "mirror", "--config", str(own.config_path), "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def copied() -> bool:
            assert process.poll() is None
            marks = own.store.watermarks(own.link.id).values()
            return len(marks) == 2 and all(mark.source_through == COUNT for mark in marks)

        try:
            wait_until(copied, 120)
        finally:
            process.kill()


def zombie(own: OwnLink, topic: str, partition: int) -> int:
    """The error that dr answers to the next batch of the mirror that was killed; 0: it took it."""
    with own.estate() as estate:
        cluster = estate.admin("dr").cluster_id()
    kept = own.store.lease(producer_lease(own.link.id, cluster))
    assert kept is not None
    records = batch_bytes([(1, b"k", b"late", [])])[HEADER_BYTES:]
    head = header(
        attributes=0,
        count=1,
        base_timestamp=1,
        max_timestamp=1,
        producer_id=int(kept.owner),
        producer_epoch=0,
        base_sequence=COUNT,
        records=records,
    )
    (answer,) = raw.answers_to(own.client("dr")["bootstrap.servers"], topic, partition, (head, records))
    return answer.error


@pytest.fixture
def filled(own: OwnLink) -> str:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("early", COUNT))
    return topic


def test_what_a_killed_mirror_still_sends_is_refused_after_a_failover(own: OwnLink, filled: str) -> None:
    group = own.commit("primary", "g", filled, {0: 7, 1: COUNT})
    mirror_killed(own)
    own.produce("primary", filled, texts("late", 3))
    with own.estate() as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    assert result.evidence.rpo_records == 6, "the marker is no record"
    assert [zombie(own, filled, partition) for partition in (0, 1)] == [INVALID_PRODUCER_EPOCH] * 2
    own.produce("dr", filled, texts("on-dr", 2))
    assert own.values("dr", filled) == {
        0: [*texts("early", COUNT)[0], *texts("on-dr", 2)[0]],
        1: [*texts("early", COUNT)[1], *texts("on-dr", 2)[1]],
    }
    assert own.committed("dr", group) == {(filled, 0): 7, (filled, 1): COUNT}
    assert {mark.target_end for mark in own.store.watermarks(own.link.id).values()} == {COUNT}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_behind_the_fence_finds_the_same(own: OwnLink, filled: str, tmp_path: Path, when: str) -> None:
    mirror_killed(own)
    own.produce("primary", filled, texts("late", 3))
    killed(own, "failover", tmp_path, ("drain", OUTCOME, when))
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, None)
    assert result.error is None
    assert result.evidence.rpo_records == 6
    assert {mark.target_end for mark in own.store.watermarks(own.link.id).values()} == {COUNT}


def test_a_cancelled_failover_leaves_a_mirror_that_goes_on(own: OwnLink, filled: str, tmp_path: Path) -> None:
    mirror_killed(own)
    killed(own, "failover", tmp_path, ("drain", OUTCOME, "after"))
    with own.estate() as estate:
        assert cancel_run(estate, own.store.runs()[0].run).error is None
    own.produce("primary", filled, texts("later", 3))
    mirror(own)
    both = {number: [*texts("early", COUNT)[number], *texts("later", 3)[number]] for number in (0, 1)}
    assert own.values("dr", filled) == both
    assert not own.store.problems(own.link.id)
    translator = Translator(own.store, own.link.id)
    there = own.records("dr", filled)
    for offset in range(COUNT + 3):
        answer = translator.translate(TopicPartition(filled, 0), offset)
        assert there[0][answer.target_offset] == both[0][offset]


def test_a_mirror_that_left_in_order_leaves_no_marker(own: OwnLink, filled: str) -> None:
    mirror(own)
    with own.estate() as estate:
        assert lost_workers(own.store, own.link.id, own.store.time()) == []
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        ends = estate.admin("dr").log_ends([TopicPartition(filled, partition) for partition in (0, 1)])
    assert set(ends.values()) == {COUNT}

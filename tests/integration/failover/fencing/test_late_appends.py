"""A mirror that didn't leave in order may still send: after a failover the target refuses it, and no number is off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drkit.failover.context.interfaces import Ports
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import cancel_run, resume_run, run_failback, run_failover
from drkit.kafka.protocol.record_batch import HEADER_BYTES, header
from drkit.lab import Lab
from drkit.mapping import Translator
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from drkit.state_topic.link_copy import read_copy
from drkit.state_topic.recovery import fill
from drkit.store import open_store
from drkit.store.producers import used_producer
from drkit.store.workers import lost_workers
from tests.support.clusters import raw
from tests.support.collection.sampling import sampled, some_of
from tests.support.killing.killed_process import OUTCOME, killed
from tests.support.links.batches import batch_bytes
from tests.support.links.estates import OwnLink, mirror, own_link, texts
from tests.support.recovery.failback_ports import ReadingAuditor, ReadingSalvager, RealMirror
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("late appends", 3)]

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


def producer_of(own: OwnLink) -> int:
    """The producer id of the link's mirror."""
    with own.estate() as estate:
        found = used_producer(own.store, own.link.id, estate.admin("dr").cluster_id())
    assert found is not None
    return found


def zombie(own: OwnLink, topic: str, partition: int, producer: int | None = None) -> int:
    """The error that dr answers to the next batch of the mirror that was killed; 0: it took it."""
    records = batch_bytes([(1, b"k", b"late", [])])[HEADER_BYTES:]
    head = header(
        attributes=0,
        count=1,
        base_timestamp=1,
        max_timestamp=1,
        producer_id=producer_of(own) if producer is None else producer,
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


def test_a_failback_over_the_marker_keeps_offsets_equal(own: OwnLink, filled: str, tmp_path: Path) -> None:
    """Nothing was lost, so nothing is deleted: the way back begins where the marker stands."""
    mirror_killed(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    own.produce("dr", filled, texts("on-dr", 5))
    ports = Ports(RealMirror(own), ReadingSalvager(own), ReadingAuditor(own), tmp_path / "salvage")
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        cluster = estate.admin("primary").cluster_id()
        assert run_failback(estate, plan, ports, cluster_id=cluster, accept_unfenced=True).error is None
    assert own.records("primary", filled) == own.records("dr", filled)
    own.produce("primary", filled, texts("again", 3))
    mirror(own)
    assert own.records("primary", filled) == own.records("dr", filled)
    assert own.values("dr", filled) == {
        number: [*texts("early", COUNT)[number], *texts("on-dr", 5)[number], *texts("again", 3)[number]]
        for number in (0, 1)
    }


@pytest.mark.parametrize("mirrored", [False, True], ids=["at-once", "mirrored-since"])
def test_a_mirror_of_before_the_store_was_lost_is_refused_too(own: OwnLink, filled: str, *, mirrored: bool) -> None:
    """Nothing of how it ended is in the copy that the store is filled from; `mirrored`: another one ran since."""
    mirror(own)
    producer = producer_of(own)
    own.store.close()
    for file in own.config_path.parent.glob("drkit.db*"):
        file.unlink()
    own.store = open_store(own.config.store.plain_url)
    with own.estate() as estate:
        copy = read_copy(own.link, None, own.config.clusters["dr"], estate.admin("dr"))
        assert copy is not None
        fill(own.store, own.link, copy, estate.admin("dr"))
    if mirrored:
        mirror(own)
        assert producer_of(own) != producer
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    assert [zombie(own, filled, number, producer) for number in (0, 1)] == [INVALID_PRODUCER_EPOCH] * 2
    assert own.values("dr", filled) == texts("early", COUNT)


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


KINDS = {
    "deleted": ({}, ""),
    "compacted": ({"cleanup.policy": "compact"}, ""),
    "altered": ({}, 'filter = "tests.support.links.callables:keeps_two_of_three"'),
}


@pytest.fixture
def of_a_kind(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path, unique_name: str) -> tuple[OwnLink, str]:
    """A link and its topic, whose tails a mirror that begins verifies in different ways."""
    settings, extra = KINDS[request.param]
    own = own_link(lab, tmp_path, unique_name, extra=extra)
    topic = own.create("primary", "t", **settings)
    own.produce("primary", topic, texts("early", COUNT))
    return own, topic


@pytest.mark.parametrize("of_a_kind", sampled("tails behind a fence", KINDS, 1), indirect=True)
@pytest.mark.parametrize("written", [True, False], ids=["source-grown", "source-as-it-was"])
def test_a_cancelled_failover_leaves_a_mirror_that_goes_on(
    of_a_kind: tuple[OwnLink, str], tmp_path: Path, *, written: bool
) -> None:
    own, topic = of_a_kind
    mirror_killed(own)
    killed(own, "failover", tmp_path, ("drain", OUTCOME, "after"))
    with own.estate() as estate:
        assert cancel_run(estate, own.store.runs()[0].run).error is None
    assert link_statuses(own.config, own.store, [own.link])[0].recovery_point.records == 0
    own.produce("primary", topic, texts("later", 3) if written else {})
    (status,) = link_statuses(own.config, own.store, [own.link])
    assert status.recovery_point.records == (6 if written else 0), "the marker is none of them"
    mirror(own)
    own.produce("primary", topic, {} if written else texts("later", 3))
    mirror(own)
    altered = own.link.alters
    both = {
        number: [
            text
            for offset, text in enumerate([*texts("early", COUNT)[number], *texts("later", 3)[number]])
            if not altered or offset % 3 != 1
        ]
        for number in (0, 1)
    }
    assert own.values("dr", topic) == both
    assert not own.store.problems(own.link.id)
    translator = Translator(own.store, own.link.id)
    there, source = own.records("dr", topic)[0], own.records("primary", topic)[0]
    for offset in range(COUNT + 3):
        answer = translator.translate(TopicPartition(topic, 0), offset)
        assert answer.certainty is Certainty.EXACT
        next_there = min((at for at in there if at >= (answer.target_offset or 0)), default=-1)
        left = min((at for at in source if at >= offset and source[at] in there.values()), default=-1)
        assert there.get(next_there) == source.get(left)


def test_a_mirror_that_left_in_order_leaves_no_marker(own: OwnLink, filled: str) -> None:
    mirror(own)
    with own.estate() as estate:
        assert lost_workers(own.store, own.link.id, own.store.time()) == []
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        ends = estate.admin("dr").log_ends([TopicPartition(filled, partition) for partition in (0, 1)])
    assert set(ends.values()) == {COUNT}

"""Alignment under adversity: what the target refuses, what kills it, what somebody else puts there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import cancel_run, run_failover
from drkit.failover.stages.failover_stages import Translate, Verify
from drkit.failover.stages.stage import StageContext, StageReport
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.filler import FillerTrimmer
from drkit.mapping import Translator
from drkit.mirror.control import accept_recreated, resume_link
from drkit.mirror.engine.interface import NOT_MOVING
from drkit.mirror.runtime.events import ProgressEvent
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition
from drkit.store.link_notes import alignments
from drkit.store.workers import lose_workers
from tests.support.clusters.raw import advance
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("alignments", 3)]


def _administer(side: Side) -> ClusterAdmin:
    return ClusterAdmin("side", ClusterConfig(bootstrap_servers=side.bootstrap))


def _begin_at(mirrored: Mirrored, topic: str, offset: int) -> None:
    advance(mirrored.source.bootstrap, topic, 0, offset)
    with _administer(mirrored.source) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})


def _set(side: Side, topic: str, **settings: str) -> None:
    with _administer(side) as admin:
        admin.set_topic_configs(topic, {name.replace("_", "."): value for name, value in settings.items()})


def _setting(side: Side, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return side.admin.describe_configs([resource])[resource].result(20)[name].value


def _write(side: Side, topic: str, count: int, value: bytes = b"v", **config: object) -> None:
    producer = side.producer(**config)
    for number in range(count):
        producer.produce(topic, key=b"%d" % number, value=value, partition=0)
    assert producer.flush(30) == 0


def _offsets_are_equal(mirrored: Mirrored, topic: str) -> None:
    ours = mirrored.source.read(topic)
    assert ours
    assert mirrored.target.read(topic, committed=False) == ours, "the same at the same offsets, nothing else visible"


class Trims:
    """Watches the mirror's trimming, and does something before each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[int, int], None]) -> None:
        self.calls: list[tuple[int, int]] = []
        trim = FillerTrimmer.trim

        def watched(trimmer: FillerTrimmer, target: TopicPartition, producer_id: int, begin: int, below: int) -> None:
            self.calls.append((begin, below))
            before(begin, below)
            trim(trimmer, target, producer_id, begin, below)

        monkeypatch.setattr(FillerTrimmer, "trim", watched)


def test_filler_that_a_killed_broker_shows_again_is_removed_again(mirrored: Mirrored) -> None:
    """DeleteRecords is not durable at once; under a running mirror, and for one that begins."""
    topics = [mirrored.name("live"), mirrored.name("later")]
    for topic in topics:
        mirrored.source.create(topic)
        _begin_at(mirrored, topic, 50)
        _write(mirrored.source, topic, 10)

    for _ in range(2):  # the second one sees that all filler is gone
        assert mirrored.catch_up().caught_up

    def forgets(topic: str) -> None:
        with stopped(mirrored.lab, "dr-1", cleanly=False) as disk:
            disk.forget_start(topic, 0)

    with mirrored.running() as running:
        forgets(topics[0])
        with _administer(mirrored.target) as admin:
            place = TopicPartition(topics[0], 0)
            wait_until(lambda: admin.start_offsets([place], partial=True).get(place) == 50, 60, "removed again")
    assert running.error is None
    forgets(topics[1])
    assert len(mirrored.target.read(topics[1], committed=False)) == 60
    with mirrored.running():
        wait_until(lambda: len(mirrored.target.read(topics[1], committed=False)) == 10, 60, "removed again")
    for topic in topics:
        _offsets_are_equal(mirrored, topic)
    assert mirrored.problems() == []


def test_a_target_that_would_compress_anew_takes_filler_and_batches_as_they_are(mirrored: Mirrored) -> None:
    mirrored.configure('topic_settings = { overrides = { "compression.type" = "uncompressed" } }')
    topic = mirrored.name("anew")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 600_000)  # 2.7 MB uncompressed in a batch of 300,000
    _write(mirrored.source, topic, 2_000, b"x" * 1_000, compression_type="zstd", batch_size=3_000_000, linger_ms=500)
    assert mirrored.catch_up().caught_up
    _offsets_are_equal(mirrored, topic)
    assert _setting(mirrored.target, topic, "compression.type") == "producer", "until the switch"
    assert not mirrored.problems()
    assert alignments(mirrored.store, mirrored.link.id).keys() <= {TopicPartition(topic, 0)}


def test_filler_is_as_large_as_the_topic_takes(mirrored: Mirrored) -> None:
    topic = mirrored.name("small")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 300_000)
    _set(mirrored.source, topic, max_message_bytes="40000")
    _write(mirrored.source, topic, 10)
    assert mirrored.catch_up().caught_up
    _offsets_are_equal(mirrored, topic)
    assert not mirrored.problems()


@pytest.mark.parametrize(("codec", "killed"), [("lz4", False), ("gzip", True)])
def test_a_target_that_compresses_anew_by_its_own_choice_is_filled_in_smaller_batches(
    mirrored: Mirrored, tmp_path: Path, codec: str, killed: bool
) -> None:
    """A mirror that is killed before it has removed what it wrote leaves filler that isn't as it was sent: the next one
    knows it all the same."""
    mirrored.configure('topic_settings = { exclude = ["compression.type"] }')
    topic = mirrored.name("own")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 1_000_000)
    _write(mirrored.source, topic, 10)
    mirrored.target.create(topic, compression_type=codec)
    mirrored.created_by_drkit(topic)
    if killed:
        (at_once := tmp_path / "told").touch()
        command = [sys.executable, "-m", "tests.support.killing.stopping_worker", str(mirrored.config_path)]
        ended = subprocess.run(
            [*command, "delete_records", str(at_once), str(int(signal.SIGKILL))], timeout=120, check=False
        )
        assert ended.returncode == -signal.SIGKILL
        assert mirrored.target.read(topic, committed=False), "filler is there to be seen"
    with mirrored.running() as running:
        mirrored.wait_through(topic)
    assert running.error is None
    _offsets_are_equal(mirrored, topic)
    assert _setting(mirrored.target, topic, "compression.type") == codec
    assert not mirrored.problems()


def test_what_only_the_target_has_left_is_not_removed_to_align(mirrored: Mirrored) -> None:
    topic = mirrored.name("purged")
    mirrored.source.create(topic)
    _write(mirrored.source, topic, 100)
    assert mirrored.catch_up().caught_up
    kept = mirrored.target.read(topic)
    with _administer(mirrored.source) as admin:
        admin.delete_records({TopicPartition(topic, 0): 100})
    with _administer(mirrored.source) as source, _administer(mirrored.target) as target:
        accept_recreated(mirrored.store, mirrored.link, topic, source=source, target=target)
    for _ in range(2):
        assert mirrored.catch_up().caught_up
    assert mirrored.target.read(topic) == kept
    assert len(kept) == 100


def test_no_more_than_one_batch_of_filler_is_visible(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = mirrored.name("steps")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 1_700_000)
    _write(mirrored.source, topic, 5)
    trims = Trims(monkeypatch, lambda _begin, _below: None)
    assert mirrored.catch_up().caught_up
    assert trims.calls == [(0, below) for below in (0, 500_000, 1_000_000, 1_500_000, 1_700_000)]
    _offsets_are_equal(mirrored, topic)


@pytest.mark.parametrize("fenced", [False, True], ids=["left-in-order", "fenced-off"])
def test_a_failover_removes_what_a_dead_alignment_left(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch, *, fenced: bool
) -> None:
    """The mirror dies between the filler and its removal; the source is compacted, so the target isn't yet. `fenced`: a
    worker is on record that did not leave in order, so a marker stands behind the filler."""
    topic, place = mirrored.name("dead"), TopicPartition(mirrored.name("dead"), 0)
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 1_200_000)
    _set(mirrored.source, topic, cleanup_policy="compact")
    _write(mirrored.source, topic, 5)

    def dies(begin: int, below: int) -> None:
        if below > begin:
            raise Unreachable("the mirror dies here")

    with monkeypatch.context() as patched:
        Trims(patched, dies)
        with mirrored.running():
            wait_until(lambda: mirrored.target.partitions(topic) and mirrored.target.end(topic) > 0, what="filler")
    assert mirrored.target.end(topic) == 500_000
    assert place in alignments(mirrored.store, mirrored.link.id)
    answer = Translator(mirrored.store, mirrored.link.id).translate(place, 1_200_000)
    assert answer.certainty.value != "exact"
    assert "being aligned" in (answer.reason or "")
    if fenced:
        lose_workers(mirrored.store, mirrored.link.id, ["killed"], mirrored.store.time())
    told = mirrored.drkit("failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced")
    assert told.returncode in {0, 6}, told.stderr + told.stdout
    assert ("did not leave in order" in told.stderr + told.stdout) is fenced
    assert mirrored.target.read(topic, committed=False) == []
    assert mirrored.target.end(topic) == 500_000 + fenced
    noted = alignments(mirrored.store, mirrored.link.id)[place].end
    assert noted == 500_000 + fenced, "what comes behind it is clients'"
    assert _setting(mirrored.target, topic, "cleanup.policy") == "compact"


def test_an_alignment_is_finished_after_a_cancelled_failover_has_fenced_its_mirror_off(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next mirror has another producer id; the filler of before is its link's all the same."""
    topic = mirrored.name("dead")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 1_200_000)
    _write(mirrored.source, topic, 5)

    def dies(begin: int, below: int) -> None:
        if below > begin:
            raise Unreachable("the mirror dies here")

    def refuses(_stage: Translate, _context: StageContext) -> StageReport:
        raise Refused("somebody wants to cancel it here")

    with monkeypatch.context() as patched:
        Trims(patched, dies)
        with mirrored.running():
            wait_until(lambda: mirrored.target.partitions(topic) and mirrored.target.end(topic) > 0, what="filler")
    lose_workers(mirrored.store, mirrored.link.id, ["killed"], mirrored.store.time())
    with monkeypatch.context() as patched, ClusterContext(mirrored.config, mirrored.store) as estate:
        patched.setattr(Translate, "execute", refuses)
        stopped_run = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
        assert cancel_run(estate, stopped_run.run).error is None
    assert mirrored.target.end(topic) == 500_001, "filler, and the marker behind it"
    assert mirrored.catch_up().caught_up
    assert mirrored.problems() == []
    _offsets_are_equal(mirrored, topic)


def test_filler_that_comes_back_when_no_mirror_runs_any_more(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of dr is killed while a failover ends: that removes it again; and once more later, when nobody does."""
    topic, place = mirrored.name("served"), TopicPartition(mirrored.name("served"), 0)
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 50)
    _write(mirrored.source, topic, 10)
    assert mirrored.catch_up().caught_up
    kept = mirrored.target.read(topic)

    def forgets() -> None:
        with stopped(mirrored.lab, "dr-1", cleanly=False) as disk:
            disk.forget_start(topic, 0)

    verify = Verify.execute

    def verified(stage: Verify, context: StageContext) -> StageReport:
        report = verify(stage, context)
        forgets()
        return report

    with monkeypatch.context() as patched, ClusterContext(mirrored.config, mirrored.store) as estate:
        patched.setattr(Verify, "execute", verified)
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    assert mirrored.target.read(topic) == kept
    assert result.stages[-1].name == "close"
    assert f"filler of {topic}:0 was removed: it is removed again" in result.stages[-1].reason

    _write(mirrored.target, topic, 3, b"a client's")
    served = mirrored.target.read(topic)
    forgets()
    assert len(mirrored.target.read(topic)) == len(served) + 50
    said = json.loads(mirrored.drkit("status", "--output", "json").stdout)
    (problem,) = (each for each in said["links"][0]["problems"] if each["kind"] == "filler_visible")
    assert (problem["topic"], problem["partition"]) == (topic, 0)
    assert f"{place} on dr begins at 0 again: up to 50 empty records" in problem["reason"]
    assert "drkit link trim 'primary->dr'" in problem["remedy"]
    assert "filler_visible" in mirrored.drkit("doctor").stdout
    for removed in ([f"{topic}:0"], []):
        done = mirrored.drkit("link", "trim", str(mirrored.link.id), "--output", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["trimmed"] == removed
        assert mirrored.target.read(topic) == served, "nothing else is removed"
    said = json.loads(mirrored.drkit("status", "--output", "json").stdout)
    assert "filler_visible" not in {each["kind"] for each in said["links"][0]["problems"]}


def test_settings_that_an_operator_changes_meanwhile_are_waited_out(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = mirrored.name("changed")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 900_000)
    _write(mirrored.source, topic, 5)
    changed: list[int] = []

    def compacts(_begin: int, below: int) -> None:
        if below == 500_000 and not changed:
            changed.append(below)
            _set(mirrored.target, topic, cleanup_policy="compact")

    Trims(monkeypatch, compacts)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        wait_until(lambda: not mirrored.problems(), what="the problem to clear by itself")
    assert running.error is None
    assert changed
    _offsets_are_equal(mirrored, topic)


def test_records_that_come_meanwhile_stay_and_say_so(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, place = mirrored.name("guest"), TopicPartition(mirrored.name("guest"), 0)
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 1_100_000)
    _write(mirrored.source, topic, 5)
    guests: list[int] = []

    def comes(_begin: int, below: int) -> None:
        if below == 500_000 and not guests:
            guests.append(below)
            _write(mirrored.target, topic, 3, b"guest")

    Trims(monkeypatch, comes)
    with mirrored.running():
        (problem,) = wait_until(lambda: mirrored.problems("alignment_refused"), what="the refusal")
    assert problem.halted
    assert "at offset 500000 that drkit did not write as filler" in problem.reason
    assert "kafka-delete-records" in problem.remedy
    end = mirrored.target.end(topic)
    with _administer(mirrored.target) as admin:
        assert admin.start_offsets([place]) == {place: 500_000}, "the filler below them is gone, they are there"
        admin.delete_records({place: end})  # an operator has read them, and nobody needs them
    resume_link(mirrored.store, mirrored.link, topic)
    assert mirrored.catch_up().caught_up
    _offsets_are_equal(mirrored, topic)


def test_a_refusal_that_repeats_is_a_problem_until_the_partition_moves(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored.configure('topic_settings = { exclude = ["cleanup.policy"] }')  # so nobody puts it back
    topic = mirrored.name("repeats")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 900_000)
    _write(mirrored.source, topic, 5)
    changed: list[int] = []

    def compacts(_begin: int, below: int) -> None:
        if below == 500_000 and not changed:
            changed.append(below)
            _set(mirrored.target, topic, cleanup_policy="compact")

    Trims(monkeypatch, compacts)
    report = mirrored.runtime(patience_seconds=0.5).run(until_caught_up=True)
    assert [problem.kind for problem in report.halted] == [NOT_MOVING], "a run that is to catch up ends, and says why"
    with mirrored.running() as running:
        (problem,) = wait_until(lambda: mirrored.problems(NOT_MOVING), what="the problem")
        assert problem.halted
        assert "attempts or more failed" in problem.reason
        assert "POLICY_VIOLATION" in problem.reason
        assert "retries it automatically" in problem.remedy
        wait_until(
            lambda: "degraded" in {event.state for event in running.events if isinstance(event, ProgressEvent)},
            what="the mirror to call itself degraded",
        )
        _set(mirrored.target, topic, cleanup_policy="delete")
        mirrored.wait_through(topic)
        wait_until(lambda: not mirrored.problems(), what="the problem to clear by itself")
    _offsets_are_equal(mirrored, topic)


def test_a_target_topic_that_is_deleted_meanwhile_is_aligned_anew_once_accepted(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = mirrored.name("gone")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 1_100_000)
    _write(mirrored.source, topic, 5)
    deleted: list[int] = []

    def deletes(_begin: int, below: int) -> None:
        if below == 500_000 and not deleted:
            deleted.append(below)
            mirrored.target.delete(topic)

    Trims(monkeypatch, deletes)
    with mirrored.running() as running:
        (problem,) = wait_until(lambda: mirrored.problems("target_recreated"), what="the problem")
        assert problem.halted
        assert mirrored.target.partitions(topic) == 0, "it is not made again by itself"
        with _administer(mirrored.source) as source, _administer(mirrored.target) as target:
            accept_recreated(mirrored.store, mirrored.link, topic, source=source, target=target)
        wait_until(lambda: mirrored.target.partitions(topic) == 1, what="the topic again")
        mirrored.wait_through(topic)
        wait_until(lambda: not mirrored.problems(), what="the problems to clear by themselves")
    assert running.error is None
    assert deleted
    _offsets_are_equal(mirrored, topic)
    mirrored.assert_translates(topic)

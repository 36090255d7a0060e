"""Nothing unkept is destroyed: a failback rests on both logs, on salvages that were read back, on all offsets."""

import json
import shutil
import signal
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.journal.journal import INTENT, OUTCOME
from drkit.failover.journal.run_record import load_run
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.run.run_document import run_document
from drkit.failover.run.runner import RunResult
from drkit.failover.run.service import resume_run, run_failback, standing_obstacles
from drkit.failover.snapshot.selection import Selection
from drkit.model.errors import PartlyDone, Refused
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import some_of
from tests.support.killing.killed_process import boundaries, frozen_at, killed
from tests.support.links.estates import TIMEOUT, mirror, texts
from tests.support.recovery.failback_ports import reading_ports
from tests.support.recovery.failbacks import fail_back, fail_over
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("what a failback keeps", 4)]


def salvaged(folder: Path) -> Counter[str]:
    """Every value in any salvage that can be read."""
    found: Counter[str] = Counter()
    for file in folder.glob("*/records.jsonl"):
        if file.read_text() == "rot":
            continue
        found.update({json.loads(line)[3] for line in file.read_text().splitlines()})
    return found


def everywhere(own, cluster, topics) -> set[str]:
    there = own.topic_names(cluster)
    return {
        value
        for topic in topics
        if topic in there
        for values in own.values(cluster, topic).values()
        for value in values
    }


def test_topics_deleted_and_cut_on_the_live_cluster_are_named_kept_and_only_then_scrubbed(own, tmp_path):
    """Three topics, one with a tail; one is deleted on dr by mistake, one cut there by retention."""
    topics = [own.create("primary", name) for name in ("tail", "deleted", "cut")]
    for topic in topics:
        own.produce("primary", topic, texts(topic, 30))
    group = own.commit("primary", "g", topics[1], {0: 10, 1: 30})
    mirror(own)
    own.produce("primary", topics[0], texts("never-mirrored", 3))
    fail_over(own)
    with own.estate() as estate:
        estate.admin("dr").delete_topics([topics[1]])
        estate.admin("dr").delete_records({TopicPartition(topics[2], 0): 20})
        plan = make_failback_plan(estate, "primary")
    counted = {topic.topic: (topic.only_here, topic.gap) for topic in plan.topics}
    assert counted == {
        topics[0]: (6, ""),
        topics[1]: (60, "is missing"),
        topics[2]: (20, "starts later than what was mirrored"),
    }
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        (obstacle,) = standing_obstacles(plan, waived=frozenset({ACCEPT_UNFENCED}))
        assert obstacle.waived_by == ACCEPT_SALVAGE_ONLY
        assert f"{topics[1]} is missing (60 offsets)" in obstacle.what
        assert f"{topics[2]} starts later than what was mirrored (20 offsets)" in obstacle.what
    with pytest.raises(Refused, match="lacks records that only primary still holds"):
        fail_back(own, ports)
    before = everywhere(own, "primary", topics)

    result = fail_back(own, ports, accept_salvage_only=True)

    assert result.error is None
    assert result.machine.facts.salvaged == 6 + 60 + 20
    assert before == everywhere(own, "primary", topics) | set(salvaged(tmp_path / "salvage"))
    assert own.values("primary", topics[1]) == {0: [], 1: []}
    assert own.committed("primary", group) == {(topics[1], 0): 0, (topics[1], 1): 0}


def test_groups_left_out_of_the_failover_keep_their_places(own, tmp_path):
    """Not named, or not the link's: what is committed on a scrubbed topic goes with it, whoever's it is."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 40))
    moved = own.commit("primary", "moved", topic, {0: 10, 1: 40})
    left_out = own.commit("primary", "left-out", topic, {0: 25})
    outside = replace(own, name=f"x{own.name}").commit("primary", "outside", topic, {0: 7, 1: 40})
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 2))
    ahead = own.commit("primary", "ahead", topic, {1: 42})  # it has read what dr never got
    fail_over(own, Selection(groups=(moved,)))
    own.produce("dr", topic, texts("on-dr", 20))
    own.commit("dr", "moved", topic, {0: 55})
    replace(own, name=f"x{own.name}").commit("dr", "outside", topic, {0: 50})  # it has read on there since
    on_dr = own.values("dr", topic)
    unread = {
        moved: {0: on_dr[0][55:], 1: on_dr[1][40:]},
        left_out: {0: on_dr[0][25:]},
        outside: {0: on_dr[0][50:], 1: on_dr[1][40:]},
        ahead: {1: on_dr[1][40:]},
    }
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        assert plan.carried == 4
        kept = make_failback_plan(estate, "primary", for_good=True)
    assert any("committed offsets are on primary only" in said for said in plan.warnings)
    (obstacle,) = [each for each in kept.obstacles if "on primary only" in each.what]
    assert all(group in obstacle.what for group in (left_out, outside, ahead))

    result = fail_back(own, reading_ports(own, tmp_path / "salvage"))

    assert result.error is None
    for group, values in unread.items():
        assert own.unread("primary", group, topic) == values, group
    (file,) = (tmp_path / "salvage").glob("*/positions.json")
    rows = [(row["group"], row["partition"], row["offset"]) for row in json.loads(file.read_text())]
    assert sorted(rows) == sorted(
        [(moved, 0, 10), (moved, 1, 40), (left_out, 0, 25), (outside, 0, 7), (outside, 1, 40), (ahead, 1, 42)]
    )


@pytest.mark.parametrize("damage", ["gone", "changed", pytest.param("dr cut", marks=pytest.mark.long)])
def test_a_salvage_that_is_not_all_of_it_any_more_is_made_anew_before_anything_is_deleted(own, tmp_path, damage):
    """Between salvage and scrub: the operator's machine is lost, its disk rots, or dr loses more."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    fail_over(own)
    before = everywhere(own, "primary", [topic])
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    (made,) = (tmp_path / "salvage").iterdir()
    if damage == "gone":
        shutil.rmtree(made)
    elif damage == "changed":
        (made / "records.jsonl").write_text("rot")
    else:
        with own.estate() as estate:
            estate.admin("dr").delete_records({TopicPartition(topic, 0): 12})
    run = own.store.runs()[0].run
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        result = resume_run(estate, run, ports)
        if damage == "dr cut":
            assert isinstance(result.error, PartlyDone)
            assert "starts later" in result.error.what
            assert everywhere(own, "primary", [topic]) == before, "nothing was deleted"
            result = resume_run(estate, run, ports, accept_salvage_only=True)
    assert result.error is None
    assert result.machine.facts.salvaged == (18 if damage == "dr cut" else 6)
    newest = Path(result.machine.facts.salvage_path)
    assert len((newest / "records.jsonl").read_text().splitlines()) == result.machine.facts.salvaged
    assert before <= everywhere(own, "primary", [topic]) | set(salvaged(tmp_path / "salvage"))


@pytest.mark.parametrize("side", ["primary", "dr"])
def test_a_log_that_lost_its_end_and_grew_to_the_same_end_after_the_salvage_is_kept_first(own, lab, tmp_path, side):
    """As in a cluster that is restored from an older copy of its disks: topic ids and log ends are the same."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    fail_over(own)
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    place = TopicPartition(topic, 0)
    with own.estate() as estate:
        end = estate.admin(side).end_offsets([place], committed=False)[place]
    with stopped(lab, f"{side}-1") as disk:
        kept = disk.cut(topic, 0, end - 1)
    own.produce(side, topic, {0: [f"other-{number}" for number in range(end - kept)]})
    before = everywhere(own, "primary", [topic]) | everywhere(own, "dr", [topic])
    assert any(value.startswith("other-") for value in before)
    with own.estate() as estate:
        assert estate.admin(side).end_offsets([place], committed=False)[place] == end
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is None, result.error
    assert before <= everywhere(own, "primary", [topic]) | set(salvaged(tmp_path / "salvage"))


@pytest.mark.parametrize("at", ["salvage", "scrub"])
def test_a_failback_whose_old_primary_loses_its_last_records_says_how_many_and_deletes_nothing(own, lab, tmp_path, at):
    """Before the salvage, which would keep fewer than the plan says; or after it, which has kept them."""
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, texts("before", 20, partitions=[0]))
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 3, partitions=[0]))
    fail_over(own)
    killed(own, "failback", tmp_path / "salvage", (at, INTENT, "after"))
    with stopped(lab, "primary-1") as disk:
        left = disk.cut(topic, 0, 22)
    before = everywhere(own, "primary", [topic])
    with own.estate() as estate:
        run = own.store.runs()[0].run
        result = resume_run(estate, run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is not None
    assert left == 20
    lost = "primary has lost 3 offsets at the end of its logs since the failback was planned"
    assert f"{lost}: {topic}:0 (3)" in result.error.what
    assert everywhere(own, "primary", [topic]) == before
    if at == "scrub":
        assert "what was kept of them before is in" in result.error.meaning
        assert f"drkit abandon {run}" in result.error.remedy
        with own.estate() as estate:
            abandon_run(estate, run, print)
    again = fail_back(own, reading_ports(own, tmp_path / "again"))
    assert again.error is None, again.error
    assert before <= everywhere(own, "primary", [topic]) | set(salvaged(tmp_path / "again"))


def in_transaction(own, alias, topic, values):
    """Write them in one transaction of a new producer; returns the log's end, behind the transaction's marker."""
    producer = Producer({**own.client(alias), "transactional.id": f"{topic}-{uuid4()}"})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value.encode(), key=value.encode(), partition=0)
    producer.commit_transaction(TIMEOUT)
    with own.estate() as estate:
        ends = partial(estate.admin(alias).end_offsets, [TopicPartition(topic, 0)])
        wait_until(lambda: ends(committed=True) == ends(committed=False), what="the marker")
        return ends(committed=False)[TopicPartition(topic, 0)]


def test_a_compacted_log_of_dr_that_ends_with_another_transaction_s_marker_is_no_longer_the_same(own, lab, tmp_path):
    """Only the last place of such a log is compared, and a marker there looks like any other one of a new producer."""
    topic = own.create("primary", "t", partitions=1, cleanup_policy="compact")
    for first in (0, 10):  # batches on dr, too, so that its log can be cut between them
        own.produce("primary", topic, {0: [f"before-{number}" for number in range(first, first + 10)]})
        mirror(own)
    own.produce("primary", topic, {0: ["never-mirrored"]})
    fail_over(own)
    end = in_transaction(own, "dr", topic, ["on-dr"])
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    with stopped(lab, "dr-1") as disk:
        kept = disk.cut(topic, 0, 15)
    assert in_transaction(own, "dr", topic, [f"other-{number}" for number in range(kept, end - 1)]) == end
    before = everywhere(own, "primary", [topic])
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage"))
    assert before <= everywhere(own, "primary", [topic]) | set(salvaged(tmp_path / "salvage"))
    assert result.error is None, result.error


def test_a_partition_added_to_the_old_primary_after_the_salvage_is_kept_before_its_topic_is_deleted(own, tmp_path):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    fail_over(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    with own.estate() as estate:
        estate.admin("primary").add_partitions(topic, 3)
    own.produce("primary", topic, texts("added", 4, (2,)))
    before = everywhere(own, "primary", [topic])
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is None
    assert result.machine.facts.salvaged == 6 + 4
    assert before <= everywhere(own, "primary", [topic]) | set(salvaged(tmp_path / "salvage"))


def test_records_that_somebody_deletes_on_the_live_cluster_after_the_scrub_stop_the_run_until_accepted(own, tmp_path):
    """They stood there alone; no retention is set that would explain it."""
    topic = own.create("primary", "t", retention_ms="-1")
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    fail_over(own)
    killed(own, "failback", tmp_path / "salvage", ("scrub", OUTCOME, "after"))
    run = own.store.runs()[0].run
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 12})
        ports = reading_ports(own, tmp_path / "salvage")
        stopped = resume_run(estate, run, ports)
        assert isinstance(stopped.error, PartlyDone)
        assert f"{topic} (12 offsets): no retention is set, and records were deleted" in stopped.error.what
        assert "is in its salvage" in stopped.error.meaning
        assert folders_not_here(own, run) == []
        (made,) = (tmp_path / "salvage").iterdir()
        made.rename(tmp_path / "elsewhere")
        stopped = resume_run(estate, run, ports)
        assert f"isn't kept either: {made}" in stopped.error.meaning
        assert folders_not_here(own, run) == [str(made)]
        (tmp_path / "elsewhere").rename(made)
        result = resume_run(estate, run, ports, accept_salvage_only=True)
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


@pytest.mark.parametrize("place", [(OUTCOME, "after"), ("create_topics", "after")], ids=["outcome", "created"])
def test_topics_that_an_abandoned_scrub_left_empty_are_seeded_as_before(own, tmp_path, place):
    """At their offsets and with their settings; the journal doesn't always have their ids."""
    settings = {"cleanup_policy": "compact,delete", "segment_ms": "123456789"}
    topic = own.create("primary", "t", **settings)
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 4))
    killed(own, "failback", tmp_path / "salvage", ("scrub", *place))
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 12})
        abandon_run(estate, own.store.runs()[0].run, print)
        plan = make_failback_plan(estate, "primary")
        assert [each.topic for each in plan.topics] == [topic]
        assert {key.replace("_", "."): value for key, value in settings.items()}.items() <= plan.topics[
            0
        ].config.items()
        ports = reading_ports(own, tmp_path / "salvage")
        done = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id, accept_unfenced=True)
        assert done.error is None, done.error
        (found,) = estate.admin("primary").topic_configs([topic], keys=("cleanup.policy", "segment.ms")).values()
    assert own.records("primary", topic) == own.records("dr", topic), "by offset"
    assert found == {"cleanup.policy": "compact,delete", "segment.ms": "123456789"}


def test_what_was_accepted_before_the_scrub_is_no_acceptance_of_what_goes_after_it(own, tmp_path):
    """Of another topic, and of the same one."""
    topics = [own.create("primary", name, retention_ms="-1") for name in ("a", "b")]
    for topic in topics:
        own.produce("primary", topic, texts("before", 20))
    mirror(own)
    for topic in topics:
        own.produce("primary", topic, texts("never-mirrored", 3))
    fail_over(own)
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    run, ports = own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage")

    def purged(stage, record, _text):
        if stage == "reverse" and record is None:
            estate.admin("dr").delete_records({TopicPartition(topic, 0): 12 for topic in topics})

    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topics[0], 0): 5})
        early = resume_run(estate, run, ports, accept_salvage_only=True)
        assert f"{topics[0]} starts later than what was mirrored" in early.error.what, "nothing had been asked"
        stopped = resume_run(estate, run, ports, accept_salvage_only=True, watch=purged)
        assert [each.topic for each in stopped.machine.facts.salvage_only] == [topics[0]]
        assert f"{topics[0]} (7 offsets)" in stopped.error.what
        assert f"{topics[1]} (12 offsets)" in stopped.error.what
        assert "no retention is set, and records were deleted" in stopped.error.what
        done = resume_run(estate, run, ports, accept_salvage_only=True)
    assert done.error is None
    assert [each.topic for each in done.machine.facts.salvage_only] == [topics[0]]
    assert [each.topic for each in done.machine.facts.gone] == topics
    assert done.machine.facts.asked == ()


def test_a_run_that_stood_still_before_its_deletion_deletes_no_topic_of_the_run_that_took_over(own, tmp_path):
    """Frozen when all its checks were done; the topics of that name are live again when it wakes up."""
    topic = own.create("primary", "t", cleanup_policy="compact")
    own.produce("primary", topic, texts("before", 20))
    own.commit("primary", "g", topic, {0: 5})
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    fail_over(own)
    with frozen_at(own, "failback", ("scrub", "delete_exact", "before"), tmp_path / "salvage") as sleeper:

        def taken_over():
            run = own.store.runs()[0].run
            try:
                with own.estate() as estate:
                    return resume_run(estate, run, reading_ports(own, tmp_path / "salvage"))
            except Refused as refused:
                if "is acting on" not in refused.what:
                    raise
                return None  # its lease hasn't expired yet

        taken = wait_until(taken_over, 90, "the run, taken over")
        assert taken.error is None
        own.produce("primary", topic, texts("after", 4))
        live, group = own.values("primary", topic), own.committed("primary", f"{own.name}.g")
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(120) == 1, "it lost the right to run"
    assert own.values("primary", topic) == live
    assert own.committed("primary", f"{own.name}.g") == group
    with own.estate() as estate:
        assert estate.admin("primary").topic_configs([topic])[topic]["cleanup.policy"] == "compact"
    assert own.store.runs()[0].state == State.CLOSED


def test_what_is_written_unfenced_after_the_last_look_is_told_and_kept(own, tmp_path):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    group = own.commit("primary", "g", topic, {0: 3, 1: 10})
    mirror(own)
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 5))
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        refused = run_failback_unaccepted(estate, ports)
        assert "dr can't be fenced" in refused.what
        plan = make_failback_plan(estate, "primary")

        def late(stage, record, _said):
            if stage == "commit" and record is not None:  # after the drain has looked twice
                own.produce("dr", topic, texts("late", 2))

        result = run_failback(
            estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True, watch=late
        )
    assert result.error is None
    assert result.machine.state is State.CLOSED
    assert (result.evidence.rpo_records, result.evidence.fenced) == (4, False)
    assert result.machine.facts.late == {f"{topic}:0": (15, 17), f"{topic}:1": (15, 17)}
    switch = next(stage for stage in result.stages if stage.name == "switch")
    assert "UNFENCED: 4 offsets were written to dr after the last look" in switch.reason
    assert set(salvaged(tmp_path / "salvage")) == {f"late-{partition}-{n}" for partition in (0, 1) for n in (0, 1)}
    assert own.committed("primary", group) == {(topic, 0): 3, (topic, 1): 10}


def test_what_an_open_transaction_holds_of_late_writes_is_told_as_not_kept(own, tmp_path):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    fail_over(own)
    ports = reading_ports(own, tmp_path / "salvage")
    producer = Producer({**own.client("dr"), "transactional.id": own.name, "log_level": 0})
    producer.init_transactions(TIMEOUT)

    class Committed:
        """As Spark's salvage: it reads up to the last stable offset."""

        def salvage(self, *given):
            kept = ports.salvager.salvage(*given)
            return replace(kept, uncommitted={f"{topic}:0": 11} if given[0].inverse else {})

        def check(self, path):
            ports.salvager.check(path)

    def late(stage, record, _said):
        if stage == "commit" and record is not None:
            producer.begin_transaction()
            producer.produce(topic, b"open", partition=0)
            producer.flush(TIMEOUT)

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        result = run_failback(
            estate,
            plan,
            replace(ports, salvager=Committed()),
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            watch=late,
        )
        producer.abort_transaction(TIMEOUT)
    assert result.error is None
    switch = next(stage for stage in result.stages if stage.name == "switch")
    assert f"not what transactions hold that are still open there: {topic}:0 up to 11" in switch.reason
    evidence = result.evidence
    assert (evidence.rpo_records, evidence.rpo_upper_bound) == (1, True)
    assert "what they abort of it is no loss" in evidence.rpo_reason


def folders_not_here(own, run):
    """Salvages of a run that its report says this machine doesn't have."""
    record = load_run(own.store, run)
    return run_document(RunResult.of(record), record.plan)["salvaged"]["not_here"]


def run_failback_unaccepted(estate, ports):
    plan = make_failback_plan(estate, "primary")
    with pytest.raises(Refused) as refused:
        run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "")
    return refused.value


def spots():
    """Where the sweep kills: two in the default suite, before and after the point of no return; all in the long one."""
    sampled = {("salvage", OUTCOME, "after"), ("reseed", OUTCOME, "after")}
    everything = [
        each
        for each in boundaries(Kind.FAILBACK)
        if each != ("close", OUTCOME, "after")  # it is over then
    ]
    return [
        pytest.param(each, id="-".join(each), marks=() if each in sampled else pytest.mark.long) for each in everything
    ]


@pytest.mark.parametrize("boundary", spots())
def test_no_record_and_no_position_is_unaccounted_for_whatever_dr_does_meanwhile(own, tmp_path, boundary):  # noqa: PLR0915 - one story
    """Killed there, and meanwhile a topic is deleted on dr, one is cut, and groups move; then it is taken to its end.

    An independent reader counts: what was ever acknowledged is on the primary, or in a salvage; except for what was on
    dr alone when somebody took it away there, of which the run has to tell.
    """
    names = ("deleted", "cut", "moving")
    topics = {name: own.create("primary", name) for name in names}
    for name, topic in topics.items():
        own.produce("primary", topic, texts(f"{name}-before", 12))
    groups = {name: own.commit("primary", f"on-{name}", topic, {0: 4, 1: 12}) for name, topic in topics.items()}
    left_out = own.commit("primary", "left-out", topics["moving"], {0: 6})
    mirror(own)
    for name, topic in topics.items():
        own.produce("primary", topic, texts(f"{name}-tail", 2))
    fail_over(own, Selection(groups=tuple(groups.values())))
    for name, topic in topics.items():
        own.produce("dr", topic, texts(f"{name}-dr", 5))
    acknowledged = everywhere(own, "primary", topics.values()) | everywhere(own, "dr", topics.values())
    folder = tmp_path / "salvage"

    killed(own, "failback", folder, boundary)

    kept = everywhere(own, "primary", topics.values()) | set(salvaged(folder))
    alone = {
        name: everywhere(own, "dr", [topics[name]]) - kept for name in ("deleted", "cut")
    }  # the only copy, as it is now
    with own.estate() as estate:
        estate.admin("dr").delete_topics([topics["deleted"]])
        estate.admin("dr").delete_records({TopicPartition(topics["cut"], 0): 3})
    alone["cut"] -= everywhere(own, "dr", [topics["cut"]])
    moved_on = boundary[0] not in {"commit", "switch", "verify", "close"} and boundary != (
        "translate",
        OUTCOME,
        "after",
    )
    if moved_on:
        own.commit("dr", "on-moving", topics["moving"], {0: 14, 1: 13})
    ports = reading_ports(own, folder)
    told = []
    with own.estate() as estate:
        run = own.store.runs()[0].run
        result = resume_run(estate, run, ports)
        while result.error is not None:
            assert len(told) < 3, told
            told.append(result.error.what)
            if result.machine.finished:
                plan = make_failback_plan(estate, "primary")
                result = run_failback(
                    estate,
                    plan,
                    ports,
                    cluster_id=plan.target.cluster_id or "",
                    accept_unfenced=True,
                    accept_salvage_only=True,
                )
            else:
                result = resume_run(estate, run, ports, accept_unfenced=True, accept_salvage_only=True)

    assert result.machine.state is State.CLOSED
    there = everywhere(own, "primary", topics.values())
    missing = acknowledged - there - set(salvaged(folder))
    assert missing <= alone["deleted"] | alone["cut"], "nothing but what somebody took from dr, where it was alone"
    reasons = " ".join((*told, *(stage.reason for stage in result.stages)))
    for name, lost in alone.items():
        if lost & missing:
            assert topics[name] in reasons, (name, reasons)
    on_primary = own.records("primary", topics["moving"])
    stands = own.committed("primary", groups["moving"])
    wanted = {0: 14, 1: 13} if moved_on else {0: 4, 1: 12}
    assert stands == {(topics["moving"], partition): offset for partition, offset in wanted.items()}
    assert [value for offset, value in on_primary[0].items() if offset >= wanted[0]][-1] == "moving-dr-0-4"
    assert own.committed("primary", left_out) == {(topics["moving"], 0): 6}
    for name in ("deleted", "cut"):
        unread = own.unread("primary", groups[name], topics[name])
        skipped = {
            value
            for partition, values in own.values("primary", topics[name]).items()
            for value in values
            if value not in unread.get(partition, ()) and "-before-" not in value
        }
        assert own.committed("primary", groups[name]).keys() == {(topics[name], 0), (topics[name], 1)}
        assert not skipped, "of what its group had not read"

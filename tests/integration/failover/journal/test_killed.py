"""SIGKILL at every boundary of the journal, as the machine itself enumerates them; then resume.

A stage has three boundaries: its intent is written and nothing done; it has acted and nothing says
so; its outcome is written and the next stage not begun.
"""

import shutil

import pytest

from drkit.directory import open_directories
from drkit.failover.context.state_machine import PATHS, Kind, StageOutcome, State
from drkit.failover.journal.journal import INTENT, OUTCOME
from drkit.failover.journal.run_record import load_run, run_to_resume
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import resume_run, run_failover
from drkit.failover.stages.hooks import When
from drkit.model.link_state import Direction
from drkit.model.runs import verify_chain
from drkit.model.topology import TopicPartition
from drkit.state_topic.records import state_topic
from tests.support.collection.sampling import sampled, swept
from tests.support.killing.killed_process import BOUNDARIES, boundaries, killed
from tests.support.links.estates import mirror, open_link, own_link, texts
from tests.support.recovery.failback_ports import reading_ports

pytestmark = pytest.mark.lab


def with_hooks():
    """The stages of a failover, and the hooks where they are called."""
    names = [step.stage for step in PATHS[Kind.FAILOVER]]
    return ["pre_hooks", *names[:-1], "post_hooks", names[-1]]


HOOKS = [(hook, event, when) for hook in When for event, when in BOUNDARIES]
"""Their boundaries."""


@pytest.fixture(scope="module")
def prepared(lab, tmp_path_factory):
    """One mirrored link; each test works on a copy of its store."""
    folder = tmp_path_factory.mktemp("killed")
    hook = f'[["/bin/sh", "-c", "echo $DRKIT_HOOK >> {folder}/hooks"]]'
    extra = f'[directory]\nurl = "file://{folder}/active.json"\n[hooks]\npre_failover = {hook}\npost_failover = {hook}'
    own = own_link(lab, folder, "killed-failover", extra=extra)
    topic = own.create("primary", "t", partitions=3)
    own.produce("primary", topic, texts("x", 60, range(3)))
    groups = [
        own.commit("primary", "g1", topic, {0: 60, 1: 59, 2: 3}),
        own.commit("primary", "g2", topic, {0: 10}),
        own.commit("primary", "g3", topic, {2: 44}),
    ]
    mirror(own)
    own.produce("primary", topic, texts("late", 2, range(3)))
    own.store.close()
    return folder, own, topic, groups


@pytest.fixture
def fresh(prepared, tmp_path):
    """The prepared link over a copy of its store, with no group on dr, nor what the test before decided: of the two a
    store that is brought back is the older.
    """
    folder, own, topic, groups = prepared
    for file in folder.iterdir():
        shutil.copy(file, tmp_path / file.name)
    text = own.config_path.read_text().replace(str(folder), str(tmp_path))
    (tmp_path / "drkit.toml").write_text(text)
    mine = open_link(tmp_path / "drkit.toml", own.name)
    with mine.estate() as estate:
        estate.groups("dr").delete_groups(groups)
        estate.admin("dr").delete_topics([state_topic(mine.link)])
    yield mine, topic, groups
    mine.store.close()


def end_state(own, run, groups):
    """Everything a failover leaves behind, except for ids and times."""
    record = load_run(own.store, run)
    control = own.store.link_control(own.link.id)
    return {
        "state": record.machine.state,
        "control": (control.direction, control.run == run),
        "positions": [(p.group, p.topic, p.partition, p.target_offset, p.reread, p.lost) for p in record.positions],
        "committed": {group: own.committed("dr", group) for group in groups},
        "stages": [(stage.name, stage.outcome) for stage in record.stages],
        "lost": record.machine.facts.loss.records,
        "published": [
            (found.active, found.run == run) for found in [open_directories(own.config, own.link.id)[0].read()]
        ],
        "listed": [(summary.kind, summary.state) for summary in own.store.runs()],
    }


@pytest.mark.parametrize(
    "boundary", sampled("a failover killed", [*boundaries(Kind.FAILOVER), *HOOKS], 2), ids="-".join
)
def test_a_killed_failover_is_taken_to_the_same_end(fresh, tmp_path, boundary):
    own, topic, groups = fresh
    killed(own, "failover", tmp_path, boundary)
    run = own.store.runs()[0].run
    if boundary != ("close", OUTCOME, "after"):
        assert run_to_resume(own.store, None) == run
    with own.estate() as estate:
        result = resume_run(estate, run, None)
    assert result.error is None
    told = (tmp_path / "hooks").read_text().splitlines()
    assert told.count("pre_hook") == 1 + (boundary == (When.PRE, OUTCOME, "before"))
    assert told.count("post_hook") == 1 + (boundary == (When.POST, OUTCOME, "before"))
    stages = with_hooks()
    assert verify_chain(own.store.entries(run)) is None
    assert end_state(own, run, groups) == {
        "state": State.CLOSED,
        "control": (Direction.SEALED, True),
        "positions": [
            (groups[0], topic, 0, 60, 0, 0),
            (groups[0], topic, 1, 59, 0, 0),
            (groups[0], topic, 2, 3, 0, 0),
            (groups[1], topic, 0, 10, 0, 0),
            (groups[2], topic, 2, 44, 0, 0),
        ],
        "committed": {
            groups[0]: {(topic, 0): 60, (topic, 1): 59, (topic, 2): 3},
            groups[1]: {(topic, 0): 10},
            groups[2]: {(topic, 2): 44},
        },
        "stages": [(name, StageOutcome.OK) for name in stages],
        "lost": 6,
        "published": [("dr", True)],
        "listed": [("failover", "closed")],
    }


def test_consumers_that_went_on_meanwhile_are_not_taken_back(fresh, tmp_path):
    own, topic, groups = fresh
    killed(own, "failover", tmp_path, ("commit", OUTCOME, "before"))
    own.commit("dr", "g2", topic, {0: 35})  # the group's consumers began on dr before the run was resumed
    run = own.store.runs()[0].run
    with own.estate() as estate:
        result = resume_run(estate, run, None)
    assert result.error is None
    assert own.committed("dr", groups[1]) == {(topic, 0): 35}
    assert own.committed("dr", groups[0])[topic, 2] == 3
    verified = next(stage for stage in result.stages if stage.name == "verify")
    assert "1 group read on already" in verified.reason


@pytest.mark.parametrize("place", [INTENT, OUTCOME])
def test_a_group_that_others_put_further_before_the_run_had_committed_it_is_not_moved_back_unasked(
    fresh, tmp_path, place
):
    """The run's own commit is told from a consumer's that came early; where it stood doesn't count as read."""
    own, topic, groups = fresh
    stage, when = ("commit", "after") if place == INTENT else ("translate", "after")
    killed(own, "failover", tmp_path, (stage, place, when))
    own.commit("dr", "g2", topic, {0: 60})  # a consumer with auto.offset.reset=latest: 50 records skipped
    run = own.store.runs()[0].run
    with own.estate() as estate:
        stopped = resume_run(estate, run, None)
        assert f"{groups[1]} would be moved back on dr: {groups[1]} on {topic}:0 from 60 to 10" in stopped.error.what
        assert own.committed("dr", groups[1]) == {(topic, 0): 60}
        assert own.committed("dr", groups[2]) == {(topic, 2): 44}, "the others are where they belong"
        assert f"--group {groups[1]} --topic {topic}:0 --delete-offsets" in stopped.error.remedy
        estate.groups("dr").delete_offsets(groups[1], [TopicPartition(topic, 0)])
        result = resume_run(estate, run, None)
    assert result.error is None
    assert own.committed("dr", groups[1]) == {(topic, 0): 10}


def test_a_run_killed_before_it_changed_anything_makes_way_for_a_new_one(fresh, tmp_path):
    own, _topic, _groups = fresh
    killed(own, "failover", tmp_path, ("fence", INTENT, "after"))
    old = own.store.runs()[0].run
    with own.estate() as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    assert {summary.run: summary.state for summary in own.store.runs()} == {old: "cancelled", result.run: "closed"}


WITHIN = [
    ("scrub", "delete_exact", "after"),
    ("scrub", "create_topics", "after"),
    ("scrub", "set_many_topic_configs", "after"),
    ("reverse", "set_link_control", "after"),
    ("reverse", "forget_link_data", "after"),
    ("reseed", "append_mappings", "after"),  # by the mirror: what it holds outlives it for a while
    ("drain", "set_link_control", "after"),
    ("switch", "forget_link_data", "after"),
    ("switch", "append_mappings", "after"),
    ("switch", "put_topic_states", "after"),
    ("switch", "set_link_control", "after"),
]
"""Between the acts of a stage that acts more than once."""


@pytest.mark.parametrize(
    "places",
    [
        *swept("a failback killed at boundaries", boundaries(Kind.FAILBACK), 2),
        *swept("a failback killed within stages", WITHIN, 2),
    ],
)
def test_a_failback_killed_again_and_again_comes_to_its_end(lab, tmp_path, unique_name, places):
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t", retention_ms="987654321")
        own.produce("primary", topic, texts("x", 40))
        own.commit("primary", "g", topic, {0: 33, 1: 40})
        mirror(own)
        own.produce("primary", topic, texts("only-here", 3))
        with own.estate() as estate:
            away = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
        assert away.error is None
        own.produce("dr", topic, texts("on-dr", 25))
        group = own.commit("dr", "g", topic, {0: 50, 1: 65})
        on_dr, unread = own.values("dr", topic), own.unread("dr", group, topic)

        salvage = tmp_path / "salvage"
        action = "failback"
        for boundary in places:
            killed(own, action, salvage, boundary)
            action = "resume"
        run = own.store.runs()[0].run
        with own.estate() as estate:
            result = resume_run(estate, run, reading_ports(own, salvage))

        assert result.error is None
        assert result.machine.state is State.CLOSED
        assert own.values("primary", topic) == on_dr
        assert own.unread("primary", group, topic) == unread
        assert len((salvage / run / "records.jsonl").read_text().splitlines()) == 6
        assert own.store.link_control(own.link.id).direction is Direction.ACTIVE
        assert verify_chain(own.store.entries(run)) is None
        own.produce("primary", topic, texts("after", 5))
        assert mirror(own) == 10
        assert own.values("dr", topic) == own.values("primary", topic)
    finally:
        own.store.close()


@pytest.mark.parametrize("places", swept("a reprotect killed again and again", boundaries(Kind.REPROTECT), 2))
def test_keeping_the_primary_killed_again_and_again_comes_to_its_end(lab, tmp_path, unique_name, places):
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("x", 20))
        group = own.commit("primary", "g", topic, {0: 3, 1: 20})
        mirror(own)
        own.produce("primary", topic, texts("only-here", 2))
        with own.estate() as estate:
            assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        own.produce("dr", topic, texts("on-dr", 10))
        own.commit("dr", "g", topic, {0: 25, 1: 30})
        action = "reprotect"
        for boundary in places:
            killed(own, action, tmp_path / "salvage", boundary)
            action = "resume"
        run = own.store.runs()[0].run
        with own.estate() as estate:
            result = resume_run(estate, run, reading_ports(own, tmp_path / "salvage"))
        assert result.error is None
        assert (result.machine.state, result.machine.facts.salvaged) == (State.CLOSED, 4)
        assert len((tmp_path / "salvage" / run / "records.jsonl").read_text().splitlines()) == 4
        assert own.values("primary", topic) == own.values("dr", topic)
        assert (own.committed("primary", group), own.committed("dr", group)) == ({}, {(topic, 0): 25, (topic, 1): 30})
        assert verify_chain(own.store.entries(run)) is None
    finally:
        own.store.close()


TURNING = [
    ("scrub", OUTCOME, "before"),
    ("reverse", "append_mappings", "after"),
    ("reverse", "put_topic_states", "after"),
    ("reverse", "set_link_control", "after"),
    ("switch", "append_mappings", "after"),
]
"""Where a failback that deletes nothing turns the link's record round, there and back."""


def test_a_failback_that_deletes_nothing_killed_while_it_turns_round(lab, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("x", 20))
        group = own.commit("primary", "g", topic, {0: 13, 1: 20})
        mirror(own)
        with own.estate() as estate:
            assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        own.produce("dr", topic, texts("on-dr", 5))
        unread = own.unread("dr", group, topic)
        action = "failback"
        for boundary in TURNING:
            killed(own, action, tmp_path / "salvage", boundary)
            action = "resume"
        run = own.store.runs()[0].run
        with own.estate() as estate:
            result = resume_run(estate, run, reading_ports(own, tmp_path / "salvage"))
        assert result.error is None
        assert {stage.name: stage.reason for stage in result.stages}["reseed"].startswith("10 records")
        assert own.values("primary", topic) == own.values("dr", topic)
        assert own.unread("primary", group, topic) == unread
        own.produce("primary", topic, texts("after", 5))
        assert mirror(own) == 10
        assert own.values("primary", topic) == own.values("dr", topic)
    finally:
        own.store.close()

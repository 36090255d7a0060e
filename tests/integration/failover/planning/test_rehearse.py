"""A rehearsal on real clusters: it does what a failover would, with groups of its own, and leaves nothing."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from drkit.directory import Entry, open_directories
from drkit.failover.context.state_machine import StageOutcome, State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.rehearsal import REHEARSAL_GROUPS, clean_up, find_rehearsal, rehearse
from drkit.failover.run.service import run_failover
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs import verify_chain
from tests.integration.failover.running.test_verbs import document
from tests.support.links.estates import mirror, open_link, own_link, texts

pytestmark = pytest.mark.lab


@pytest.fixture
def own(lab, tmp_path, unique_name):
    """Mirrored, with records and groups that are ahead of it, a directory, and hooks that must not be called."""
    extra = f'[directory]\nurl = "file://{tmp_path}/active.json"\n[hooks]\npre_failover = [["/bin/false"]]\n'
    mine = own_link(lab, tmp_path, unique_name, extra=extra)
    topic = mine.create("primary", "t")
    mine.produce("primary", topic, texts("x", 30))
    mine.commit("primary", "g1", topic, {0: 30, 1: 7})
    mine.commit("primary", "g2", topic, {1: 0})
    mirror(mine)
    mine.produce("primary", topic, texts("late", 4))
    mine.commit("primary", "ahead", topic, {0: 33})
    mine.commit("dr", "g2", topic, {1: 0})
    yield mine
    mine.store.close()


def production(own):
    """All that a failover would touch."""
    with own.estate() as estate:
        admin = estate.admin("dr")
        topics = admin.topics([own.topic("t")])
        groups = {
            alias: sorted((c.group, *c.tp, c.offset, c.metadata) for c in estate.groups(alias).committed() if mine(c))
            for alias in ("primary", "dr")
            for mine in [lambda c: c.group.startswith(own.name)]
        }
        return {
            "groups": groups,
            "topics": topics,
            "settings": admin.topic_configs(topics),
            "values": own.values("dr", own.topic("t")),
            "link": own.store.link_control(own.link.id),
            "notes": own.store.topic_states(own.link.id),
            "marks": own.store.watermarks(own.link.id),
            "leases": own.store.lease(f"run:{own.link.id}"),
            "directory": open_directories(own.config, own.link.id)[0].read(),
        }


def shadows(own):
    """Shadow groups on dr, by run, of this test's link (the lab is shared)."""
    with own.estate() as estate:
        return [
            group
            for group in estate.groups("dr").list_groups()
            if group.startswith(REHEARSAL_GROUPS) and own.name in group
        ]


def test_a_rehearsal_does_what_a_failover_would_and_touches_nothing(own):
    open_directories(own.config, own.link.id)[0].publish(
        Entry("primary->dr", "primary", "somewhere:1", 0, "BEFORE", now())
    )
    before = production(own)
    seen = []
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        result = rehearse(
            estate,
            plan,
            watch=lambda stage, record, _text: seen.append(shadows(own)) if record and stage == "verify" else None,
        )
    assert result.error is None
    assert result.machine.state is State.CLOSED
    assert [(stage.name, stage.outcome) for stage in result.stages] == [
        (name, StageOutcome.OK) for name in ("translate", "commit", "verify", "clean")
    ]
    assert sorted(seen[0]) == [f"{REHEARSAL_GROUPS}{result.run}.{own.name}.{group}" for group in ("ahead", "g1", "g2")]
    assert shadows(own) == []
    assert production(own) == before
    assert result.evidence.rpo_records == 8
    assert result.evidence.rto_seconds > 0
    assert result.machine.facts.places.same + result.machine.facts.places.end == len(plan.places)
    assert verify_chain(own.store.entries(result.run)) is None

    found = document(own, "failover", "--to", "dr", "--rehearse", "--accept-loss", "8")
    assert (found["kind"], found["state"], found["dry_run"]) == ("rehearsal", "closed", False)
    assert found["needs"] == ["--accept-unfenced"]
    assert found["refusals"] == []
    assert {group["target_offset"] for group in found["groups"]} == {30, 7, 0}
    assert production(own) == before
    assert document(own, "failover", "--to", "dr", "--rehearse", "--dry-run", code=2, schema="error")

    own.config_path.write_text(own.config_path.read_text().replace("/bin/false", "/bin/true"))
    mended = open_link(own.config_path, own.name)
    try:
        with mended.estate() as estate:
            real = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    finally:
        mended.store.close()
    assert real.error is None
    rehearsed = {(p.group, p.topic, p.partition): p.target_offset for p in result.positions}
    assert {(p.group, p.topic, p.partition): p.target_offset for p in real.positions} == rehearsed


def test_what_a_killed_rehearsal_left_is_removed_and_a_failing_one_cleans_up(own, monkeypatch):
    killing = f"""
import os, signal, sys
from pathlib import Path
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.rehearsal import rehearse
from tests.support.links.estates import open_link
own = open_link(Path({str(own.config_path)!r}), {own.name!r})
def watch(stage, record, text):
    if stage == "commit" and record is not None:
        os.kill(os.getpid(), signal.SIGKILL)
with own.estate() as estate:
    rehearse(estate, make_plan(estate, PlanRequest("dr")), watch=watch)
"""
    before = production(own)

    def kill_one():
        ended = subprocess.run(
            [sys.executable, "-c", killing], capture_output=True, timeout=60, check=False, env=os.environ
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert len(shadows(own)) == 3
        return own.store.runs()[0].run

    first = kill_one()
    with own.estate() as estate:
        result, _plan = clean_up(estate, find_rehearsal(own.store, first))
    assert result.machine.state is State.CANCELLED
    assert "3 shadow groups" in result.stages[-1].reason
    assert shadows(own) == []
    second = kill_one()
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert rehearse(estate, plan).error is None
        assert shadows(own) == []
        assert {run.run: run.state for run in own.store.runs()}[second] == "cancelled"

        def refuse(_coordinator, wanted):
            return {group: Refused(f"{group} may not commit") for group in wanted}

        monkeypatch.setattr(GroupAdmin, "commit_many", refuse)
        failed = rehearse(estate, plan)
        assert isinstance(failed.error, DrkitError)
        assert "3 of 3 shadow groups can't be committed" in failed.error.what
        monkeypatch.undo()
        others = tuple(place if place.record is None else place._replace(crc=1) for place in plan.places)
        lying = rehearse(estate, replace(plan, places=others))
        assert lying.error is not None
        assert "are not as planned" in lying.error.what
        assert lying.machine.state is State.CANCELLED
    assert shadows(own) == []
    assert production(own) == before

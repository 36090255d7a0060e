"""Failback where records are deleted in its middle: on dr before they were brought back, or on the old primary."""

from __future__ import annotations

from pathlib import Path

import pytest

from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import INTENT
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.run.service import run_failback
from drkit.failover.stages.audit_stage import AuditFailed
from drkit.mirror.control import acknowledge
from drkit.model.errors import PartlyDone, Refused
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import some_of
from tests.support.killing.killed_process import killed
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.recovery.failback_ports import reading_ports, salvaged
from tests.support.recovery.failbacks import fail_back, fail_over, resume

pytestmark = [pytest.mark.lab, some_of("purges in a failback", 2)]


@pytest.fixture
def away(own: OwnLink) -> str:
    """Failed over with all of a topic without retention mirrored, and 30 records written on dr since."""
    topic = own.create("primary", "t", retention_ms="-1")
    own.produce("primary", topic, texts("before", 50))
    own.commit("primary", "g", topic, {0: 10, 1: 50})
    mirror(own)
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 30))
    return topic


def purge(own: OwnLink, alias: str, topic: str, below: int) -> None:
    with own.estate() as estate:
        estate.admin(alias).delete_records({TopicPartition(topic, 0): below})


def test_what_is_deleted_on_dr_before_a_failback_that_deletes_nothing_brought_it_back_stops_it(
    own: OwnLink, away: str, tmp_path: Path
) -> None:
    killed(own, "failback", tmp_path, ("reseed", INTENT, "after"))
    purge(own, "dr", away, 60)
    stopped = resume(own, reading_ports(own, tmp_path))
    assert isinstance(stopped.error, AuditFailed), stopped.error
    assert f"{away}:0 on dr no longer has offsets 50 to 59" in stopped.error.what
    assert "and no retention is set" in stopped.error.what
    assert own.committed("primary", f"{own.name}.g") == {(away, 0): 10, (away, 1): 50}
    done = resume(own, reading_ports(own, tmp_path), accept_salvage_only=True)
    assert done.error is None, done.error
    assert own.values("primary", away)[0][50:] == own.values("dr", away)[0]


def test_what_is_deleted_on_dr_in_the_middle_of_it_and_the_old_primary_still_holds_puts_no_group_behind_it(
    own: OwnLink, away: str, tmp_path: Path
) -> None:
    killed(own, "failback", tmp_path, ("reseed", INTENT, "after"))
    purge(own, "dr", away, 30)
    own.commit("dr", "g", away, {0: 30})  # as its reset policy has it
    stopped = resume(own, reading_ports(own, tmp_path))
    assert isinstance(stopped.error, AuditFailed), stopped.error
    assert "begins later than on primary, and no retention explains it" in stopped.error.what
    with own.estate() as estate:
        abandon_run(estate, stopped.run, print)
        plan = make_failback_plan(estate, "primary")
        assert not plan.level
    result = fail_back(own, reading_ports(own, tmp_path), accept_salvage_only=True)
    assert result.error is None, result.error
    assert own.records("primary", away) == own.records("dr", away)
    assert {f"before-0-{number}" for number in range(30)} <= salvaged(tmp_path)


def test_a_failback_that_deletes_nothing_looks_at_dr_again_before_it_begins(
    own: OwnLink, away: str, tmp_path: Path
) -> None:
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        assert plan.level
        purge(own, "dr", away, 60)
        result = run_failback(
            estate, plan, reading_ports(own, tmp_path), cluster_id=plan.target.cluster_id or "", accept_unfenced=True
        )
    assert isinstance(result.error, Refused)
    assert "primary can't just be brought up to date any more" in result.error.what
    assert result.machine.state is State.CANCELLED


@pytest.mark.parametrize("level", [True, False], ids=["nothing deleted", "seeded anew"])
def test_what_is_deleted_on_dr_after_the_audit_before_it_was_brought_back_stops_the_move(
    own: OwnLink, away: str, tmp_path: Path, level: bool
) -> None:
    if not level:
        own.produce("primary", away, texts("only-here", 2))

    def deleted() -> None:
        own.produce("dr", away, texts("late", 10))
        purge(own, "dr", away, 85)

    stopped = fail_back(own, reading_ports(own, tmp_path), before_fence=deleted)
    assert isinstance(stopped.error, PartlyDone), stopped.error
    assert "removed before they were mirrored, and no retention is set" in stopped.error.what
    assert stopped.machine.state is State.AUDITED
    done = resume(own, reading_ports(own, tmp_path), accept_salvage_only=True)
    assert done.error is None, done.error
    assert own.values("primary", away)[0][-5:] == own.values("dr", away)[0]


@pytest.mark.parametrize("level", [True, False], ids=["nothing deleted", "seeded anew"])
def test_what_is_deleted_on_the_old_primary_after_the_audit_stops_the_move(
    own: OwnLink, away: str, tmp_path: Path, level: bool
) -> None:
    if not level:
        own.produce("primary", away, texts("only-here", 2))
    ports = reading_ports(own, tmp_path)
    stopped = fail_back(own, ports, before_fence=lambda: purge(own, "primary", away, 40))
    assert isinstance(stopped.error, PartlyDone), stopped.error
    assert "primary lacks records that dr holds" in stopped.error.what
    assert "source offsets 0 to 39" in stopped.error.what
    assert stopped.machine.state is State.AUDITED
    again = resume(own, reading_ports(own, tmp_path))
    assert "primary lacks records that dr holds" in str(again.error)
    back = own.link.reversed()
    mirror(own, back)
    acknowledge(own.store, back, "target_purged", away)
    done = resume(own, reading_ports(own, tmp_path))
    assert done.error is None, done.error

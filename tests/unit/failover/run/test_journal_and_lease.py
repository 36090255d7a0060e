"""The journal and the lease over a real SQLite store."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.failover.context.lease import TTL_SECONDS, Owner, RunLease
from drkit.failover.context.state_machine import Facts, Kind, Mode, Run, StageOutcome, State
from drkit.failover.journal.journal import OUTCOME, PLAN, Journal, StageRecord, new_run_id
from drkit.failover.journal.run_record import begin, load_run, run_to_resume, since_brought_back, unfinished
from drkit.failover.plan.failover_plan import plan_json
from drkit.failover.positions.positions import PlannedPosition
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.offsets import Certainty
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId
from drkit.store import open_store
from tests.support.wait import wait_until
from tests.unit.failover.plan.test_plan import a_plan

LINK = LinkId("primary", "dr")
FACTS = Facts(mode=Mode.UNPLANNED, unfenced_accepted=True)


@pytest.fixture
def store(tmp_path):
    opened = open_store(f"sqlite:///{tmp_path}/drkit.db")
    yield opened
    opened.close()


# -- journal ---------------------------------------------------------------------------------------


def test_run_ids_sort_by_time_and_have_a_ulids_form():
    ids = [new_run_id() for _ in range(50)]
    assert all(len(run) == 26 and run.isalnum() and run.isupper() for run in ids)
    assert len(set(ids)) == 50
    assert [run[:10] for run in ids] == sorted(run[:10] for run in ids)


def test_a_run_is_read_back_where_it_stands(store):
    plan = a_plan()
    journal = Journal(store, "R")
    begin(journal, plan, FACTS, plan.made_at, plan_json(plan), {})
    journal.intent("fence")
    sealed = replace(FACTS, sealed=True, fenced=False, fenced_at=now())
    journal.outcome(StageRecord("fence", StageOutcome.OK, "link sealed", 0.25), sealed)
    journal.intent("drain")
    journal.outcome(StageRecord("drain", StageOutcome.FAILED, "a mirror is still running", 1.0), sealed)
    record = load_run(store, "R")
    assert record.plan == plan
    assert record.machine == Run(plan.kind, State.FENCED, sealed)
    assert [(s.name, s.outcome) for s in record.stages] == [("fence", StageOutcome.OK), ("drain", StageOutcome.FAILED)]
    assert record.started_at == plan.made_at
    assert record.journal.attempted("drain")
    assert not record.journal.attempted("commit")


@pytest.mark.parametrize(
    ("kind", "state", "reached", "seen"),
    [
        (Kind.FAILOVER, State.CLOSED, None, True),  # it may have moved single groups
        (Kind.FAILBACK, State.CANCELLED, None, True),
        (Kind.FAILBACK, State.ABANDONED, "scrub", True),
        (Kind.FAILBACK, State.ABANDONED, "switch", False),
        (Kind.FAILBACK, State.CLOSED, None, False),
        (Kind.REPROTECT, State.CLOSED, None, False),
    ],
)
def test_an_abandoned_failback_is_settled_by_one_that_came_to_its_switch_only(store, kind, state, reached, seen):
    for number, (run, its_kind, its_state) in enumerate([("A", Kind.FAILBACK, State.ABANDONED), ("B", kind, state)]):
        at = now() + timedelta(seconds=number)
        store.put_run(RunSummary(run, its_kind, its_state, at, at, f"{LINK} planned to primary"))
    store.put_run(RunSummary("C", Kind.FAILBACK, State.CLOSED, at, at, f"{LINK.reversed()} planned to dr"))
    if reached is not None:
        Journal(store, "B").intent(reached)
    assert ("A" in [each.run for each in since_brought_back(store, LINK)]) is seen


def test_a_cancelled_run_stays_cancelled(store):
    journal = Journal(store, "R")
    begin(journal, a_plan(), FACTS, now(), plan_json(a_plan()), {})
    journal.write("cancel", "cancelled", {"reason": "why"})
    assert load_run(store, "R").machine.state is State.CANCELLED


def test_a_long_payload_is_kept_in_parts_and_read_whole(store):
    journal = Journal(store, "R")
    text = json.dumps({"x": "ä" * 700_000})
    journal.write(PLAN, PLAN, text)
    assert len(journal.entries) > 2
    assert Journal.open(store, "R").read(PLAN) == text


def test_parts_that_a_kill_cut_short_are_not_taken_for_the_whole(store):
    journal = Journal(store, "R")
    journal.write("translate", "positions", '{"the": "first"}')
    journal.write("translate", "positions", {"part": 1, "of": 2, "text": "{"})
    assert Journal.open(store, "R").read("positions") == '{"the": "first"}'
    journal.write("translate", "positions", "[" + '"x",' * 100_000 + '"y"]')
    assert Journal.open(store, "R").read("positions").endswith('"y"]')


def test_where_a_run_has_put_groups_is_known(store):
    def position(group, partition, offset):
        return PlannedPosition(group, "t", partition, "t", 3, offset, None, Certainty.EXACT, 0, 0, 0, None, "")

    def known():
        found = Journal.open(store, "R").offsets_committed()
        return {(group, tp.partition): offset for (group, tp), offset in found.items()}

    journal = Journal(store, "R")
    journal.positions("translate", (position("g", 0, 5), position("h", 0, 6), position("h", 1, None)))
    assert known() == {}
    journal.committed("commit", ["g"])
    journal.committed("commit", ["h"])
    assert known() == {("g", 0): 5, ("h", 0): 6}
    journal.positions("translate", (position("g", 0, 8), position("g", 1, 9), position("h", 0, 7)))  # another fence
    assert known() == {("g", 0): 5, ("h", 0): 6}
    journal.committed("commit", ["g"])
    assert known() == {("g", 0): 8, ("g", 1): 9, ("h", 0): 6}


def test_a_broken_chain_is_not_believed(store):
    journal = Journal(store, "R")
    journal.write(PLAN, PLAN, {})
    first = journal.entries[0]
    store.append_entry(JournalEntry("R", 1, first.at, "fence", OUTCOME, "{}", first.hash, "0" * 64))
    with pytest.raises(DrkitError, match="broken at entry 1: it was changed"):
        Journal.open(store, "R")


def test_two_writers_of_one_run_stop_the_second(store):
    one, two = Journal(store, "R"), Journal(store, "R")
    one.write(PLAN, PLAN, {"by": 1})
    with pytest.raises(Refused, match="another process has written"):
        two.write(PLAN, PLAN, {"by": 2})


def test_an_append_repeated_after_a_lost_answer_is_one_entry(store):
    journal = Journal(store, "R")
    journal.write(PLAN, PLAN, {})
    again = Journal(store, "R")
    again.entries = []
    entry = journal.entries[0]
    assert store.append_entry(entry) is False
    assert again._mine(entry)


def test_an_unknown_run_is_refused(store):
    with pytest.raises(Refused, match="there is no run nope"):
        load_run(store, "nope")


def test_another_kind_of_run_is_no_failover(store):
    Journal(store, "R").write("audit", "begun", {"kind": "audit"})
    with pytest.raises(Refused, match="neither a failover nor a failback, or was killed before its plan was written"):
        load_run(store, "R")


def test_a_run_of_another_kind_is_not_said_to_have_changed_nothing(store):
    Journal(store, "R").write("fence", "begun", {})
    store.put_run(RunSummary("R", "fence", "closed", now(), now(), "primary->dr primary"))
    with pytest.raises(Refused, match="run R is of kind fence: neither a failover nor a failback") as refused:
        load_run(store, "R")
    assert refused.value.remedy == "drkit runs lists all runs with their kinds; drkit runs R shows this one"


def test_which_run_is_resumed(store):
    with pytest.raises(Refused, match="no run is unfinished"):
        run_to_resume(store, None)
    for run, kind, state in (
        ("A", "failover", "closed"),
        ("B", "failover", "fenced"),
        ("C", "audit", "running"),
        ("D", "failback", "cancelled"),
    ):
        store.put_run(RunSummary(run, kind, state, now(), now(), "primary->dr unplanned to dr"))
    assert run_to_resume(store, None) == "B"
    assert run_to_resume(store, "A") == "A"
    assert [summary.run for summary in unfinished(store, "primary->dr")] == ["B"]
    assert unfinished(store, "other->dr") == []
    store.put_run(RunSummary("E", "failback", "scrubbed", now(), now(), "x->y planned to x"))
    with pytest.raises(Refused, match="2 runs are unfinished"):
        run_to_resume(store, None)


# -- lease -----------------------------------------------------------------------------------------


def test_one_run_at_a_time_and_the_other_is_told_who(store):
    with RunLease(store, LINK, "A"):
        with (
            pytest.raises(Refused, match=rf"pid {os.getpid()}, run A\) is acting on primary->dr"),
            RunLease(store, LINK, "B"),
        ):
            pytest.fail("two runs at once")
        with RunLease(store, LinkId("a", "b"), "C") as elsewhere:
            elsewhere.check()
    with RunLease(store, LINK, "B") as after:
        after.check()


HOLDER = """
import sys
from drkit.failover.context.lease import RunLease
from drkit.model.topology import LinkId
from drkit.store import open_store
with RunLease(open_store(sys.argv[1]), LinkId("primary", "dr"), "KILLED"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lease_of_a_killed_process_of_this_machine_is_taken_at_once(store, tmp_path):
    url = f"sqlite:///{tmp_path}/drkit.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(Refused, match="run KILLED"), RunLease(store, LINK, "B"):
                pytest.fail("the holder is alive")
        finally:
            holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunLease(store, LINK, "B") as mine:
        mine.check()
        assert store.lease("run:primary->dr").epoch == 2


@pytest.mark.parametrize(
    "elsewhere", ["root@host pid 1 started 1 on another-boot/4026531836 run X", "somebody who is no drkit"]
)
def test_a_holder_elsewhere_is_never_taken_for_dead(store, elsewhere):
    store.acquire_lease("run:primary->dr", elsewhere, TTL_SECONDS, now())
    with pytest.raises(Refused, match="is acting on primary->dr"), RunLease(store, LINK, "B"):
        pytest.fail("it was broken")


def test_an_expired_lease_is_free(store):
    store.acquire_lease("run:primary->dr", "elsewhere", 1.0, now() - timedelta(seconds=5))
    with RunLease(store, LINK, "B") as mine:
        mine.check()


@pytest.mark.parametrize("ahead", [60, -60])
def test_a_machine_whose_clock_is_wrong_takes_nothing(store, monkeypatch, ahead):
    """By an operator's clock a minute ahead every lease has expired: the store's decides, and the run is refused."""
    held = store.acquire_lease("run:primary->dr", "elsewhere", TTL_SECONDS, store.time())
    monkeypatch.setattr("drkit.failover.context.lease.now", lambda: now() + timedelta(seconds=ahead))
    with pytest.raises(Refused, match="clock is 60 s"), RunLease(store, LINK, "B"):
        pytest.fail("it was taken")
    assert store.lease("run:primary->dr") == held


def test_a_clock_that_is_a_little_off_does_not_take_a_live_lease(store, monkeypatch):
    store.acquire_lease("run:primary->dr", "elsewhere", 2.0, store.time())
    monkeypatch.setattr("drkit.failover.context.lease.now", lambda: now() + timedelta(seconds=4))
    with pytest.raises(Refused, match="is acting on"), RunLease(store, LINK, "B"):
        pytest.fail("it was taken")


def test_who_lost_the_lease_stops(store):
    with RunLease(store, LINK, "A") as mine:
        mine.check()
        store.break_lease("run:primary->dr", mine.owner)
        store.acquire_lease("run:primary->dr", "another operator", 60.0, now())

        def stopped():
            try:
                mine.check()
            except PartlyDone as error:
                return error
            return None

        error = wait_until(stopped, timeout=30.0, what="the loss of the lease to be seen")
        assert "another operator" in error.what
        assert "drkit resume A" in error.remedy


def test_who_stood_still_while_another_took_over_and_finished_has_lost_the_lease_that_is_free_again(store):
    with RunLease(store, LINK, "A") as mine:
        mine.check()
        store.break_lease("run:primary->dr", mine.owner)
        store.acquire_lease("run:primary->dr", "another operator", 60.0, now())
        store.release_lease("run:primary->dr", "another operator")

        def stopped():
            try:
                mine.check()
            except PartlyDone as error:
                return error
            return None

        error = wait_until(stopped, timeout=30.0, what="the loss of the lease to be seen")
        assert "another process had it meanwhile" in error.what
        wait_until(lambda: store.lease("run:primary->dr") is None, what="the lease to be free for others")


def test_an_owner_reads_back():
    me = Owner.this_process("01J")
    assert Owner.parse(str(me)) == me
    assert not me.known_dead()
    assert replace(me, started=me.started - 100).known_dead()
    assert Owner.parse("drkit mirror on host") is None

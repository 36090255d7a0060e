"""A run's journal and what is anchored of it; who holds a run; epochs of directories that a store took over."""

from __future__ import annotations

import getpass
import json
import os
import re
import stat
import threading
import time
from dataclasses import replace
from datetime import timedelta

import psutil
import pytest

from drkit.config import Config
from drkit.config.schema.config import ApprovalsConfig
from drkit.directory import Entry
from drkit.failover.context import anchors as anchors_module
from drkit.failover.context import lease as lease_module
from drkit.failover.context.anchors import (
    Anchors,
    _record,
    anchor_file,
    append_anchor,
    read_anchor_file,
    read_anchors,
)
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import Owner, RunLease
from drkit.failover.context.state_machine import Facts, Kind, Loss, Mode, StageOutcome, State
from drkit.failover.journal import journal as journal_module
from drkit.failover.journal.files import _listed, _place, entry_document, json_lines
from drkit.failover.journal.journal import AUDITED, LOSS, Journal, StageRecord
from drkit.failover.journal.run_record import (
    begin,
    label_of,
    load_anchored_run,
    load_run,
    origin_of,
    planned_places,
)
from drkit.failover.plan.approvals import check_approved, flags_of
from drkit.failover.plan.failback_plan import failback_plan_json
from drkit.failover.plan.failover_plan import plan_json
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.stages.directory_update import recover_epoch
from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import now, to_millis
from drkit.model.errors import DrkitError, PartlyDone, Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.runs import JOURNAL_TOPIC, Anchor, AnchorPlace, Approval, JournalEntry, RunSummary
from drkit.model.topology import LinkId
from tests.support.wait import wait_until
from tests.unit.failover.plan.test_plan import a_plan
from tests.unit.failover.plan.worlds import AT
from tests.unit.failover.site.test_site_failback_plan import a_link_plan

LINK = LinkId("primary", "dr")
FACTS = Facts(mode=Mode.UNPLANNED, unfenced_accepted=True)


def config(**more):
    return Config.model_validate(
        {
            "clusters": {name: {"bootstrap_servers": f"127.0.0.1:{9 + n}"} for n, name in enumerate(("primary", "dr"))},
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": "primary", "target": "dr", "topics": [".*"]}],
            **more,
        }
    )


@pytest.fixture
def estate(store):
    with ClusterContext(config(), store, patience_seconds=0.05) as context:
        yield context


# -- the journal -----------------------------------------------------------------------------------


def test_a_payload_is_parted_where_it_is_too_long_and_no_sooner(store, monkeypatch):
    monkeypatch.setattr(journal_module, "_PART_CHARACTERS", 10)
    journal = Journal(store, "R")
    journal.write("a", "one", '"12345678"')
    assert len(journal.entries) == 1
    assert journal.entries[0].payload == '"12345678"', "as it is: no series of one part"
    journal.write("a", "two", '"123456789"')
    journal.write("a", "three", '"' + "x" * 28 + '"')
    parts = [json.loads(entry.payload) for entry in journal.entries[1:]]
    assert [(part["part"], part["of"], len(part["text"])) for part in parts] == [
        (1, 2, 10), (2, 2, 1), (1, 3, 10), (2, 3, 10), (3, 3, 10),
    ]  # fmt: skip
    assert [(each.event, each.payload) for each in Journal.open(store, "R").events()] == [
        ("one", '"12345678"'),
        ("two", '"123456789"'),
        ("three", '"' + "x" * 28 + '"'),
    ]
    assert journal.read("four") is None
    journal.write("a", "one", "2")
    assert journal.read("one") == "2"


def test_parts_that_are_not_one_series_are_not_put_together(store):
    journal = Journal(store, "R")
    for number, text in ((1, "a"), (2, "b"), (1, "c"), (3, "d")):
        journal.write("s", "e", {"part": number, "of": 3, "text": text})
    assert list(journal.events()) == []
    for number, text in ((1, "x"), (2, "y"), (3, "z")):
        journal.write("s", "e", {"part": number, "of": 3, "text": text})
    assert [each.payload for each in journal.events()] == ["xyz"]


def test_what_ends_a_step_is_anchored(store):
    heads = []
    journal = Journal(store, "R", anchor=heads.append)
    journal.write("plan", "plan", {})
    journal.intent("fence")
    journal.positions("fence", ())
    journal.places("fence", ())
    journal.carried("fence", ())
    journal.established("fence", FACTS)
    journal.outcome(StageRecord("fence", StageOutcome.OK, "done", 0.12345), FACTS)
    journal.rewound(FACTS, "it was opened")
    assert [(head.event, head.seq) for head in heads] == [("plan", 0), ("facts", 5), ("outcome", 6), ("rewound", 7)]
    assert json.loads(journal.entries[6].payload)["seconds"] == 0.123
    assert json.loads(journal.entries[7].payload)["reason"] == "it was opened"
    assert journal.entries[7].stage == "fence"


def test_an_append_whose_answer_was_lost_is_made_once_more(store, monkeypatch):
    journal, append, lost = Journal(store, "R"), store.append_entry, []

    def silent(entry):
        if not lost:
            lost.append(append(entry))
            raise Unreachable("no answer")
        return append(entry)

    monkeypatch.setattr(store, "append_entry", silent)
    journal.write("plan", "plan", {})
    assert lost == [True]
    assert [entry.event for entry in store.entries("R")] == ["plan"]
    journal.write("fence", "intent", {})
    assert len(journal.entries) == 2


def test_another_s_entry_at_the_same_place_is_not_one_s_own(store):
    one, other = Journal(store, "R"), Journal(store, "R")
    one.write("plan", "plan", {})
    stranger = JournalEntry.chained(None, run="R", at=now(), stage="plan", event="plan", payload='{"by": 2}')
    assert not other._mine(stranger)
    beyond = JournalEntry.chained(one.entries[0], run="R", at=now(), stage="fence", event="intent", payload="{}")
    assert not other._mine(beyond)
    assert other._mine(one.entries[0])


def test_a_run_s_id_begins_with_its_time(monkeypatch):
    """Ten characters of five bits: milliseconds, as a ULID has them."""
    monkeypatch.setattr(journal_module, "now", lambda: AT)
    run = journal_module.new_run_id()
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    assert sum(digits.index(digit) << 5 * (9 - n) for n, digit in enumerate(run[:10])) == to_millis(AT)


# -- a run read back -------------------------------------------------------------------------------


def test_a_run_is_read_back_with_all_that_it_kept(store):
    plan, place = a_plan(), PositionCheck("t", 0, 3, 3, 1_000, 0xABC, None)
    journal = Journal(store, "R")
    begin(journal, plan, FACTS, AT, plan_json(plan), {"operator": "ana"}, site="S")
    assert load_run(store, "R").places == planned_places(plan) == plan.places
    journal.places("translate", (place,))
    journal.positions("translate", plan.positions)
    journal.carried("salvage", plan.positions)
    journal.established("scrub", replace(FACTS, salvage_path="/x"))
    journal.write(AUDITED, AUDITED, LOSS.dump_json(Loss(7, 1.0, AT, basis="audited")).decode())
    record = load_run(store, "R")
    assert (record.places, record.positions, record.carried) == ((place,), plan.positions, plan.positions)
    assert (record.machine.facts.salvage_path, record.machine.facts.loss.records) == ("/x", 7)
    assert (record.site, record.run, record.started_at) == ("S", "R", AT)
    assert record.label == label_of(plan, "S") == "primary->dr unplanned to dr, of site run S"
    assert label_of(plan) == "primary->dr unplanned to dr"
    assert json.loads(journal.read("plan"))["origin"] == {"operator": "ana"}


def test_a_run_of_no_site_says_none(store):
    plan = a_link_plan(LINK)
    begin(Journal(store, "R"), plan, FACTS, AT, failback_plan_json(plan), {})
    record = load_run(store, "R")
    assert (record.site, record.plan, record.machine.kind, record.places) == (None, plan, Kind.FAILBACK, ())
    assert "site" not in json.loads(store.entries("R")[0].payload)


@pytest.mark.parametrize(
    ("event", "state"),
    [("cancelled", State.CANCELLED), ("abandoned", State.ABANDONED), ("rewound", State.PLANNED)],
)
def test_where_a_journal_leaves_a_run(store, event, state):
    plan = a_plan()
    journal = Journal(store, "R")
    begin(journal, plan, FACTS, AT, plan_json(plan), {})
    later = replace(FACTS, sealed=True)
    for stage, outcome in (("pre_hooks", "ok"), ("fence", "ok"), ("drain", "skipped"), ("translate", "unknown")):
        journal.outcome(StageRecord(stage, StageOutcome(outcome), "", 0.0), later)
    assert (load_run(store, "R").machine.state, load_run(store, "R").machine.facts) == (State.DRAINED, later)
    if event == "rewound":
        journal.rewound(FACTS, "why")
    else:
        journal.write("x", event, {"reason": "why"})
    assert load_run(store, "R").machine.state is state
    assert load_run(store, "R").machine.facts == (later if event == "abandoned" else FACTS), "cancelled: taken back"


def test_what_follows_in_a_journal_counts_too(store):
    """A run that went back before its fence was fenced again; its loss was counted before it was closed."""
    plan = a_plan()
    journal = Journal(store, "R")
    begin(journal, plan, FACTS, AT, plan_json(plan), {})
    journal.outcome(StageRecord("fence", StageOutcome.OK, "", 0.0), FACTS)
    journal.rewound(FACTS, "it was opened")
    journal.outcome(StageRecord("fence", StageOutcome.OK, "", 0.0), replace(FACTS, sealed=True))
    journal.write(AUDITED, AUDITED, LOSS.dump_json(Loss(7, 1.0, AT, basis="audited")).decode())
    assert load_run(store, "R").machine.state is State.FENCED
    journal.outcome(StageRecord("drain", StageOutcome.OK, "", 0.0), FACTS)
    assert load_run(store, "R").machine.state is State.DRAINED


def test_what_a_run_comes_from_is_journaled():
    found = origin_of(config(objectives={"rpo_records": 3, "rto_seconds": 60}), "ana@host")
    assert (found["operator"], found["links"]) == ("ana@host", ["primary->dr"])
    assert found["objectives"] == {"rpo_records": 3, "rpo_seconds": None, "rto_seconds": 60}
    assert "approval" not in found
    assert origin_of(config(), "ana", Approval(emergency="fire"))["approval"] == {"emergency": "fire"}


# -- anchors ---------------------------------------------------------------------------------------


def an_anchor(seq=0, run="R", **more):
    return Anchor(run, seq, more.pop("hash", "h" * 64), AT, more.pop("store", "s"), "dr")


def test_an_anchor_is_a_line_of_the_operator_s_file_which_is_theirs(tmp_path):
    file = tmp_path / "state" / "journal.anchor"
    append_anchor(an_anchor(), file)
    append_anchor(an_anchor(1), file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["seq"] for line in lines] == [0, 1]
    assert lines[0] == {
        "run": "R", "seq": 0, "hash": "h" * 64, "at": "2026-11-20T04:03:00.000Z", "store": "s", "cluster": "dr",
    }  # fmt: skip
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_heads_are_anchored_in_the_background_until_all_are(tmp_path, store, caplog):
    file = tmp_path / "journal.anchor"
    with Clusters({}) as clusters:
        anchors = Anchors(clusters, "s", file)
        anchors._gone.add("dr")  # it was given up before
        anchors.close()  # nothing was handed over
        journal = Journal(store, "R", anchor=anchors.on("dr"))
        journal.write("plan", "plan", {})
        journal.write("x", "cancelled", {})
        anchors.close()
        (place,) = read_anchors(clusters, [], file)
        assert [(each.run, each.seq, each.hash, each.store, each.cluster) for each in place.anchors] == [
            ("R", entry.seq, entry.hash, "s", "dr") for entry in journal.entries
        ]
        anchors.put("dr", journal.entries[0])  # opened once more
        anchors.close()
        assert len(file.read_text().splitlines()) == 3
    assert [record.message for record in caplog.records if "may not be anchored" in record.message] == []


def test_a_cluster_that_holds_up_the_anchors_is_waited_for_a_bounded_time(tmp_path, store, monkeypatch, caplog):
    """The file has all by then."""
    monkeypatch.setattr(anchors_module, "_CLOSE_SECONDS", 0.1)
    file, answered = tmp_path / "journal.anchor", threading.Event()

    def silent(alias):
        answered.wait(60)
        raise Unreachable(f"{alias} does not answer")

    with Clusters({}) as clusters:
        anchors = Anchors(clusters, "s", file)
        monkeypatch.setattr(anchors, "_writer", silent)
        Journal(store, "R", anchor=anchors.on("dr")).write("plan", "plan", {})
        threads = anchors._threads
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), timeout=30, what="the file has it")
        anchors.close()
        told = [record.message for record in caplog.records if "may not be anchored" in record.message]
        assert told == ["the journal's last heads may not be anchored: a cluster doesn't answer"]
        answered.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def test_a_line_that_a_power_cut_tore_does_not_swallow_the_next(tmp_path):
    file = tmp_path / "journal.anchor"
    file.write_text("x")
    append_anchor(an_anchor(), file)
    append_anchor(an_anchor(1), file)
    assert [line[:1] for line in file.read_bytes().split(b"\n")] == [b"x", b"{", b"{", b""]


def test_the_file_is_closed_each_time(tmp_path):
    me, file = psutil.Process(), tmp_path / "journal.anchor"
    before = me.num_fds()
    for number in range(50):
        append_anchor(an_anchor(number), file)
    assert me.num_fds() < before + 25


def test_an_anchor_is_a_record_whose_key_is_run_and_number():
    key, value = _record(an_anchor(3))
    assert (key, json.loads(value)["hash"], json.loads(value)["seq"]) == (b"R/3", "h" * 64, 3)


def test_a_file_that_can_t_be_written_fails_no_run_and_is_said_once(tmp_path, store, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Clusters({}) as clusters:
        anchors = Anchors(clusters, "s", blocked / "journal.anchor")
        anchors._gone.add("dr")
        journal = Journal(store, "R", anchor=anchors.on("dr"))
        journal.write("plan", "plan", {})
        journal.write("x", "cancelled", {})
        anchors.close()
    warned = [record for record in caplog.records if "isn't anchored in" in record.message]
    assert [record.levelname for record in warned if record.levelname == "WARNING"] == ["WARNING"]


def test_a_cluster_that_is_gone_is_tried_once_and_said(tmp_path, estate, caplog):
    estate.anchors._file = tmp_path / "journal.anchor"
    journal = Journal(estate.store, "R", anchor=estate.anchors.on("dr"))
    journal.write("plan", "plan", {})
    journal.write("x", "cancelled", {})
    wait_until(lambda: "dr" in estate.anchors._gone, timeout=30, what="the cluster is given up")
    estate.anchors.close()
    (told,) = [record.message for record in caplog.records if "isn't anchored on dr" in record.message]
    assert "Unreachable" not in told, "drkit's own words, not the name of a class"
    assert len((tmp_path / "journal.anchor").read_text().splitlines()) == 2


def test_what_is_anchored_is_read_from_everywhere_it_can_be(tmp_path, estate):
    missing, here = tmp_path / "none", tmp_path / "journal.anchor"
    append_anchor(an_anchor(), here)
    here.write_text("[]\n" + '{"run": "cut"\n' + here.read_text() + '{"seq": "x"}\n' + '{"at": 3}\n')
    (nothing,) = read_anchors(estate, [], missing)
    assert (nothing.name, nothing.anchors, nothing.reason) == (str(missing), (), "")
    file, dr = read_anchors(estate, ["dr"], here)
    assert file.anchors == (an_anchor(),)
    assert (dr.name, dr.anchors, dr.cluster) == (f"{JOURNAL_TOPIC} on dr", None, "dr")
    assert "dr" in dr.reason
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\n")
    (spoiled,) = read_anchors(estate, [], binary)
    assert (spoiled.anchors, bool(spoiled.reason)) == (None, True)


def test_the_operator_s_own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert read_anchor_file() == ()
    append_anchor(an_anchor(3))
    assert read_anchor_file() == (an_anchor(3),)
    assert anchor_file() == tmp_path / "drkit" / "journal.anchor"


def test_a_journal_that_is_not_what_was_anchored_is_not_acted_on(tmp_path, monkeypatch, estate):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plan = a_plan()
    journal = Journal(estate.store, "R")
    begin(journal, plan, FACTS, AT, plan_json(plan), {})
    assert load_anchored_run(estate, "R").run == "R"
    append_anchor(an_anchor(0, hash=journal.entries[0].hash))
    assert load_anchored_run(estate, "R").run == "R"
    append_anchor(an_anchor(0, hash="f" * 64))
    with pytest.raises(DrkitError, match="the journal of run R is not what was written") as caught:
        load_anchored_run(estate, "R")
    assert "drkit abandon R" in caught.value.remedy


def test_what_another_process_writes_meanwhile_is_not_missing(tmp_path, monkeypatch, estate):
    """It writes an entry and anchors it while the anchors of the clusters are asked for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plan = a_plan()
    journal = Journal(estate.store, "R")
    begin(journal, plan, FACTS, AT, plan_json(plan), {})

    def slowly(*arguments):
        journal.write("hooks", "said", "{}")
        append_anchor(an_anchor(1, hash=journal.entries[1].hash))
        return read_anchors(*arguments)

    monkeypatch.setattr("drkit.failover.journal.run_record.read_anchors", slowly)
    assert load_anchored_run(estate, "R").run == "R"


def test_an_entry_as_evidence_has_it(store):
    journal = Journal(store, "R")
    journal.write("plan", "plan", {"a": 1})
    entry = journal.entries[0]
    document = entry_document(entry)
    assert (document["run"], document["seq"], document["payload_text"]) == ("R", 0, '{"a":1}')
    assert (document["stage"], document["event"], document["hash"]) == ("plan", "plan", entry.hash)
    assert json_lines([document, {"b": 2}]).decode().splitlines()[1] == '{"b":2}'


def test_anchors_as_evidence_has_them_are_those_of_the_store_or_of_the_runs():
    anchors = (an_anchor(0), an_anchor(1, "OTHER"), an_anchor(2, "OTHER", store="elsewhere"), an_anchor(3, store="x"))
    found = _place(AnchorPlace("a", anchors, "dr"), "s", {"R"})
    assert [(each["run"], each["seq"]) for each in found["anchors"]] == [("R", 0), ("OTHER", 1), ("R", 3)]
    assert (found["place"], found["cluster"], found["reason"]) == ("a", "dr", None)
    assert found["anchors"][0] == {"run": "R", "seq": 0, "hash": "h" * 64, "at": "2026-11-20T04:03:00.000Z"}
    silent = _place(AnchorPlace("b", None, "dr", "no answer"), "s", {"R"})
    assert (silent["anchors"], silent["reason"]) == (None, "no answer")
    listed = _listed(RunSummary("R", Kind.FAILOVER, State.CLOSED, AT, AT, "primary->dr"))
    assert (listed["run"], listed["kind"], listed["state"], listed["detail"]) == (
        "R",
        "failover",
        "closed",
        "primary->dr",
    )


# -- who holds a run -------------------------------------------------------------------------------


def test_whether_a_holder_is_known_to_be_dead():
    me = Owner.this_process("R")
    assert [replace(me, started=me.started + by).known_dead() for by in (-1, 0, 1)] == [True, False, True]
    assert replace(me, pid=2**22 + 1).known_dead()
    assert not replace(me, pid=2**22 + 1, machine="another").known_dead()


def test_who_is_told_to_stop_or_could_not_renew_in_time_does_nothing_more(store):
    with RunLease(store, LINK, "R") as held:
        held.check()
        assert held.operator == Owner.parse(held.owner).who
        held._valid_until = time.monotonic()
        with pytest.raises(PartlyDone, match="the right to run on primary->dr was lost: it could not be renewed"):
            held.check()
        held._valid_until = time.monotonic() + 60
        held.check()
        held.stop_acting("the terminal was closed")
        with pytest.raises(PartlyDone, match="the terminal was closed while it acted on primary->dr") as told:
            held.check()
        assert told.value.remedy == "drkit resume R"


def test_a_lease_is_renewed_as_long_as_it_is_held_and_free_afterwards(store, monkeypatch):
    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 0.01)
    with RunLease(store, LINK, "R") as held:
        first = held._valid_until
        wait_until(lambda: held._valid_until != first, timeout=30, what="it is renewed")
        assert held._valid_until > first
        assert store.lease(f"run:{LINK}").owner == held.owner
    with RunLease(store, LINK, "OTHER", what="rehearsal"), RunLease(store, LINK, "R"):
        assert store.lease(f"rehearsal:{LINK}").owner.endswith("run OTHER")


def test_a_renewal_that_is_under_way_at_the_end_does_not_take_the_lease_once_more(store, monkeypatch):
    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 0.01)
    asked, answered, acquire = threading.Event(), threading.Event(), store.acquire_lease

    def slow(*given):
        asked.set()
        assert answered.wait(60)
        return acquire(*given)

    with RunLease(store, LINK, "R") as held:
        assert held._renewer.daemon, "it must not keep a process that dies"
        monkeypatch.setattr(store, "acquire_lease", slow)
        assert asked.wait(60)
        threading.Timer(0.2, answered.set).start()
    held._renewer.join(60)
    assert store.lease(f"run:{LINK}") is None


def test_a_user_without_a_name_is_told_by_number(monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert Owner.this_process("R").who.startswith(f"{os.getuid()}@")


def test_a_store_that_is_silent_for_a_moment_costs_no_lease(store, monkeypatch):
    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 0.01)
    silent = []

    def no_answer(*_):
        silent.append(1)
        raise Unreachable("no answer")

    with RunLease(store, LINK, "R") as held:
        acquire = store.acquire_lease
        monkeypatch.setattr(store, "acquire_lease", no_answer)
        wait_until(lambda: len(silent) > 2, timeout=30, what="renewals fail")
        assert held._lost is None
        last = held._valid_until
        monkeypatch.setattr(store, "acquire_lease", acquire)
        wait_until(lambda: held._valid_until != last, timeout=30, what="it is renewed")
        assert held._valid_until > last
        monkeypatch.setattr(store, "release_lease", no_answer)
    assert store.lease(f"run:{LINK}") is not None, "it expires by itself"


def test_what_is_not_the_run_of_a_link_is_waited_for_without_a_resume(store):
    with RunLease(store, LINK, "A"), pytest.raises(Refused) as run, RunLease(store, LINK, "B"):
        pytest.fail("two at once")
    assert re.fullmatch(
        "Wait for it to end, or stop that process and then `drkit resume`. If it was frozen, or its machine is gone, "
        r"the same command works in 1?[0-9] s",
        run.value.remedy,
    )
    with RunLease(store, LINK, "A", what="rehearsal"), pytest.raises(Refused) as other:
        RunLease(store, LINK, "B", what="rehearsal").__enter__()
    assert other.value.remedy.startswith("Wait for it to end, or stop that process. If it was frozen")


@pytest.mark.parametrize(("seconds", "refused"), [(4, False), (-4, False), (7, True), (-7, True)])
def test_a_clock_may_differ_from_the_store_s_by_some_seconds(store, monkeypatch, seconds, refused):
    monkeypatch.setattr(lease_module, "now", lambda: now() + timedelta(seconds=seconds))
    if not refused:
        with RunLease(store, LINK, "R") as held:
            held.check()
        return
    side = "ahead of" if seconds > 0 else "behind"
    with pytest.raises(Refused, match=f"this machine's clock is 7 s {side} the store's"):
        RunLease(store, LINK, "R").__enter__()


# -- approvals -------------------------------------------------------------------------------------


def test_the_flags_that_a_plan_is_carried_out_with():
    assert flags_of(a_plan(), ["--accept-unfenced"]) == {"--accept-unfenced"}
    assert flags_of(a_plan(accept_loss=5, allow_rewind=True), []) == {"--accept-loss 5", "--allow-rewind"}
    assert flags_of(a_plan(accept_loss=0), []) == {"--accept-loss 0"}
    assert flags_of(a_link_plan(LINK), ["--accept-salvage-only"]) == {"--accept-salvage-only"}
    check_approved(None, None, "", frozenset({"--x"}), "it")
    given = Approval("d" * 64, ("ana", "ben"), frozenset())
    for digest, told in (("", "none"), ("e" * 64, "e" * 64)):
        with pytest.raises(Refused) as refused:
            check_approved(ApprovalsConfig.model_construct(emergency=True), given, digest, frozenset(), "it")
        assert refused.value.meaning.startswith(f"The plan's digest is {told}, theirs {'d' * 64}")


# -- directories of a store that was lost ----------------------------------------------------------


@pytest.fixture
def published(tmp_path, store):
    """A store, and a directory that is a file."""
    file = tmp_path / "active.json"
    with ClusterContext(config(directory=[{"url": f"file://{file}"}]), store, patience_seconds=0.05) as context:
        yield lambda *entries: ([context.directories(LINK)[0].publish(each) for each in entries] and context) or context


def entry(epoch, *, active="primary", link=LINK):
    return Entry(str(link), active, "h:1", epoch, "OLD", AT)


def test_a_store_that_knows_no_epoch_takes_the_greatest_over(published):
    estate = published(entry(7))
    control, changed = recover_epoch(estate, LINK)
    assert (control.version, control.direction, changed) == (7, Direction.ACTIVE, True)
    assert estate.store.link_control(LINK) == control
    assert recover_epoch(estate, LINK) == (control, False)


def test_a_store_that_is_ahead_or_a_directory_without_an_entry_changes_nothing(published):
    estate = published()
    control, changed = recover_epoch(estate, LINK)
    assert (control.version, changed, estate.store.link_control(LINK)) == (0, False, None)
    kept = LinkControl(LINK, Direction.ACTIVE, 9, AT, "", None, frozenset())
    estate.store.set_link_control(kept, expected_version=None)
    published(entry(8))
    assert recover_epoch(estate, LINK) == (kept, False)
    published(entry(12, link=LINK.reversed()))
    assert recover_epoch(estate, LINK)[0].version == 12
    assert estate.store.link_control(LINK).version == 12


def test_a_directory_that_says_another_cluster_serves_is_no_mere_count(published):
    estate = published(entry(7, active="dr"))
    with pytest.raises(Refused, match=r"says that dr serves \(epoch 7, run OLD\); by the store primary does"):
        recover_epoch(estate, LINK)
    other = published(entry(8, link=LinkId("a", "b")))
    with pytest.raises(Refused, match="holds the entry of a->b, not of primary->dr"):
        recover_epoch(other, LINK)
    assert estate.store.link_control(LINK) is None


def test_a_link_that_is_decided_at_the_same_moment_is_not_overwritten(published, monkeypatch):
    estate = published(entry(7))
    monkeypatch.setattr(estate.store, "set_link_control", lambda *_, **__: False)
    with pytest.raises(Refused, match="was changed at the same time"):
        recover_epoch(estate, LINK)

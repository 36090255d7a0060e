"""What is concluded from a run's journal: complete, in the middle, cancelled, of each kind; and what is refused."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.config import load_config
from drkit.config.schema.config import EvidenceConfig
from drkit.evidence import verifier
from drkit.evidence.bundle import write_bundle
from drkit.evidence.run_evidence import gather_run
from drkit.evidence.signing import make_key, open_signer
from drkit.evidence.statements import ExportStatements
from drkit.failover.context.evidence import missed_objectives
from drkit.failover.context.state_machine import PATHS, Facts, Kind, Loss, Mode, PlacesSeen, StageOutcome
from drkit.failover.journal.journal import AUDITED, LOSS, PLAN, Journal, StageRecord
from drkit.failover.journal.run_record import begin, load_run, origin_of
from drkit.failover.plan.failback_plan import FailbackPlan, failback_plan_json
from drkit.failover.plan.failover_plan import plan_json
from drkit.failover.run.runner import RunResult
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.runs import RunSummary
from drkit.model.topology import LinkId
from drkit.store import open_store
from tests.support.drills.bundles import document_of
from tests.unit.failover.plan.test_plan import a_plan

AT = now()
FACTS = Facts(mode=Mode.UNPLANNED, unfenced_accepted=True)
DONE = replace(
    FACTS,
    sealed=True,
    reversed=True,
    fenced=True,
    fence_reason="denied on 3 brokers",
    fenced_at=AT - timedelta(seconds=4),
    mirror_stopped=True,
    lag=0,
    loss=Loss(records=3, seconds=0.5, observed_at=AT),
    placed=2,
    committed=2,
    verified=2,
    places=PlacesSeen(same=2),
    verified_at=AT,
    salvaged=1,
    cluster_confirmed="P",
    audit="clean",
)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "drkit.toml"
    file.write_text(
        f'[clusters.primary]\nbootstrap_servers = "h:1"\n[clusters.dr]\nbootstrap_servers = "h:2"\n'
        f'[store]\nurl = "sqlite:///{tmp_path}/drkit.db"\n[objectives]\nrpo_records = 2\nrto_seconds = 60\n'
    )
    return load_config(file)


@pytest.fixture
def store(config):
    opened = open_store(config.store.plain_url)
    yield opened
    opened.close()


def failback_plan():
    """The least of one; both clusters answered."""
    clusters = {name: ClusterView(name, reachable=True, cluster_id=name) for name in ("primary", "dr")}
    return FailbackPlan(
        link=LinkId("primary", "dr"),
        made_at=now(),
        target=clusters["primary"],
        live=clusters["dr"],
        endpoint="h:1",
        control="reversed",
        control_version=1,
        failover_run=None,
        topics=(),
        offsets={},
        positions=(),
        digest="d" * 64,
    )


def played(store, config, kind, facts=DONE, *, upto=99):
    """A run of this kind as its runner journals it, up to a stage."""
    plan = a_plan() if kind is Kind.FAILOVER else replace(failback_plan(), kind=kind)
    text = plan_json(plan) if kind is Kind.FAILOVER else failback_plan_json(plan)
    journal = Journal(store, "R")
    store.put_run(RunSummary("R", kind, "closed", now(), now(), "primary->dr"))
    begin(journal, plan, FACTS, AT - timedelta(seconds=10), text, origin_of(config, "ada@here"))
    for step in PATHS[kind][:upto]:
        journal.intent(step.stage)
        journal.outcome(StageRecord(step.stage, StageOutcome.OK, "done", 0.2), facts)
    return journal


def bundle_of(tmp_path, config, store):
    make_key(tmp_path / "signer")
    signer, _ = open_signer(EvidenceConfig(key=tmp_path / "signer"))
    write_bundle(tmp_path / "bundle", gather_run(config, store, "R", ExportStatements()), signer)
    assert verifier.verify(tmp_path / "bundle").problems == []
    return document_of(tmp_path / "bundle")


@pytest.mark.parametrize("kind", [*Kind])
def test_a_complete_run_says_what_drkit_says_of_it(tmp_path, config, store, kind):
    played(store, config, kind)
    document = bundle_of(tmp_path, config, store)
    assert {each["outcome"] for each in document["checks"]} == {"passed"}
    record = load_run(store, "R")
    evidence = RunResult("R", record.machine, record.started_at, record.stages, record.positions).evidence
    assert document["state"] == record.machine.state
    assert document["measured"]["rpo_records"] == evidence.rpo_records
    assert document["measured"]["rto_seconds"] == pytest.approx(evidence.rto_seconds, abs=0.001)
    assert (document["who"]["operator"], document["kind"]) == ("ada@here", kind)
    missed = [each["name"] for each in document["objectives"] if each["outcome"] == "missed"]
    if kind is Kind.REPROTECT:
        assert (document["verdict"], document["objectives"]) == ("passed", [])
    else:
        assert (document["verdict"], missed) == ("failed", ["rpo_records"])
        assert len(missed_objectives(evidence, config.objectives)) == 1


def test_a_loss_that_is_a_lower_bound_meets_no_objective(tmp_path, config, store):
    loss = Loss(records=1, seconds=0.5, observed_at=now(), reason="primary does not answer", lower_bound=True)
    played(store, config, Kind.FAILOVER, replace(DONE, loss=loss))
    document = bundle_of(tmp_path, config, store)
    assert document["verdict"] == "unknown"
    (records,) = (each for each in document["objectives"] if each["name"] == "rpo_records")
    assert (records["outcome"], records["reason"]) == ("unknown", "primary does not answer")


def test_a_loss_that_is_counted_days_later_does_not_prolong_the_run(tmp_path, config, store, monkeypatch):
    """A failover of 10 s, whose primary came back after three days, had taken three days."""
    journal = played(store, config, Kind.FAILOVER)
    before = gather_run(config, store, "R", ExportStatements()).document
    assert 10 <= before["seconds"] < 3600
    loss = Loss(records=2, seconds=0.5, observed_at=now(), basis="audited")
    later = now() + timedelta(days=3)
    monkeypatch.setattr("drkit.failover.journal.journal.now", lambda: later)
    journal.write(AUDITED, AUDITED, LOSS.dump_json(loss).decode())
    document = bundle_of(tmp_path, config, store)
    assert document["measured"]["rpo_records"] == 2
    assert [document[name] for name in ("ended_at", "seconds")] == [before[name] for name in ("ended_at", "seconds")]
    assert document["timeline"]["events"][-1]["seconds"] > 3 * 86400


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("records", [0, 2, 3])
def test_a_loss_that_may_be_smaller_is_judged_as_drkit_judges_it(tmp_path, config, store, records, lower):
    """A loss of 3 or fewer, objective 2: the bundle called it missed, and the run not judged."""
    loss = Loss(records, 0.5, now(), reason="t was accepted anew", lower_bound=lower, upper_bound=True)
    played(store, config, Kind.FAILOVER, replace(DONE, loss=loss))
    document = bundle_of(tmp_path, config, store)
    record = load_run(store, "R")
    judgement = RunResult("R", record.machine, record.started_at, record.stages, record.positions).judged(
        config.objectives
    )
    assert judgement.missed == []
    (objective,) = (each for each in document["objectives"] if each["name"] == "rpo_records")
    assert objective["outcome"] == ("unknown" if judgement.unproven else "met")
    assert document["verdict"] == ("unknown" if judgement.unproven else "passed")
    measured = document["measured"]
    assert (measured["rpo_records"], measured["rpo_lower_bound"], measured["rpo_upper_bound"]) == (records, lower, True)


@pytest.mark.parametrize(
    ("changes", "check", "outcome"),
    [
        ({"late": {"t:0": (3, 5)}}, "old_cluster_not_written", "failed"),
        ({"fenced": False}, "old_cluster_not_written", "unknown"),
        ({"unseen": ("hidden",)}, "old_cluster_not_written", "unknown"),
        ({"verified": 1}, "positions_read_back", "failed"),
        ({"places": PlacesSeen(same=1, unknown=1)}, "records_at_positions_unchanged", "unknown"),
        ({"mirror_stopped": False}, "no_mirror_writes_below", "unknown"),
    ],
)
def test_facts_that_do_not_hold_are_no_passed_check(tmp_path, config, store, changes, check, outcome):
    played(store, config, Kind.FAILOVER, replace(DONE, **changes))
    document = bundle_of(tmp_path, config, store)
    assert {each["check"]: each["outcome"] for each in document["checks"]}[check] == outcome
    assert document["verdict"] == outcome, "what is not known outweighs an objective that is missed"


def test_a_run_in_the_middle_and_a_cancelled_one(tmp_path, config, store):
    journal = played(store, config, Kind.FAILOVER, upto=2)
    document = gather_run(config, store, "R", ExportStatements()).document
    assert (document["state"], document["verdict"]) == ("drained", "unknown")
    journal.write("resume", "taken", {"by": "grace@there"})
    journal.intent("translate")
    journal.write("cancel", "cancelled", {"reason": "the primary is back"})
    document = bundle_of(tmp_path, config, store)
    assert (document["state"], document["verdict"]) == ("cancelled", "failed")
    assert document["who"]["taken_over_by"] == ["grace@there"]
    assert any("the primary is back" in deviation for deviation in document["deviations"])


def test_what_is_no_run_or_of_another_kind_is_refused(config, store):
    with pytest.raises(Refused, match="no run R"):
        gather_run(config, store, "R", ExportStatements())
    Journal(store, "R").write(PLAN, PLAN, {"kind": "audit"})
    with pytest.raises(Refused, match="of kind audit"):
        gather_run(config, store, "R", ExportStatements())


def test_no_secret_is_in_the_origin(tmp_path, config):
    file = tmp_path / "secret.toml"
    text = (tmp_path / "drkit.toml").read_text()
    digests = []
    for secret in ("hush-hush", "another"):
        file.write_text(text.replace('"h:1"\n', f'"h:1"\n[clusters.primary.client]\n"sasl.password" = "{secret}"\n'))
        origin = origin_of(load_config(file), "ada@here")
        assert secret not in json.dumps(origin)
        digests.append(origin["configuration_digest"])
    assert digests[0] == digests[1] != origin_of(config, "ada@here")["configuration_digest"]


def without_objectives(config, **kept):
    """The configuration with these objectives only."""
    wanted = {"rpo_records": None, "rpo_seconds": None, "rto_seconds": None} | kept
    return config.model_copy(update={"objectives": config.objectives.model_copy(update=wanted)})


@pytest.mark.parametrize(
    "loss",
    [
        Loss(records=1, seconds=0.5, observed_at=now(), reason="primary does not answer", lower_bound=True),
        Loss(records=1, seconds=0.5, observed_at=now(), reason="primary does not answer", upper_bound=True),
        Loss(records=None, seconds=None, observed_at=None, reason="primary does not answer"),
    ],
)
@pytest.mark.parametrize("kept", [{}, {"rto_seconds": 60}])
def test_a_loss_that_is_not_counted_is_not_passed_for_want_of_an_objective(tmp_path, config, store, loss, kept):
    config = without_objectives(config, **kept)
    played(store, config, Kind.FAILOVER, replace(DONE, loss=loss))
    document = bundle_of(tmp_path, config, store)
    assert document["verdict"] == "unknown"
    assert "primary does not answer; no RPO objective was set" in document["reasons"][0]
    assert next(each["id"] for each in document["findings"]) == "check:loss_known"


def test_a_loss_that_no_objective_judges_is_said(tmp_path, config, store):
    config = without_objectives(config)
    played(store, config, Kind.FAILOVER)
    document = bundle_of(tmp_path, config, store)
    assert document["verdict"] == "passed"
    assert document["reasons"] == ["no RPO objective was set: nothing judges that records were lost, 3 of them"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"placed": 0, "committed": 0, "verified": 0, "places": PlacesSeen()}, "no position was moved"),
        ({"places": PlacesSeen(gone=7)}, "no place was compared: of 7 the record is gone"),
    ],
)
def test_positions_of_which_none_was_looked_at_are_not_unchanged(tmp_path, config, store, changes, reason):
    played(store, config, Kind.FAILOVER, replace(DONE, **changes))
    document = bundle_of(tmp_path, config, store)
    (found,) = (each for each in document["checks"] if each["check"] == "records_at_positions_unchanged")
    assert (document["verdict"], found["outcome"], found["reason"]) == ("unknown", "unknown", reason)


def test_a_clock_that_went_back_measures_no_recovery_time(tmp_path, config, store):
    played(store, config, Kind.FAILOVER, replace(DONE, verified_at=now() - timedelta(hours=2)))
    document = bundle_of(tmp_path, config, store)
    (recovery,) = (each for each in document["objectives"] if each["name"] == "rto_seconds")
    assert (recovery["outcome"], recovery["measured"]) == ("unknown", None)
    assert recovery["reason"] == document["unknown"]["/measured/rto_seconds"] == "the clock went back during the run"
    assert document["verdict"] == "unknown"
    record = load_run(store, "R")
    assert RunResult("R", record.machine, record.started_at, (), ()).evidence.rto_seconds is None


def test_entries_whose_times_go_back_are_noted(tmp_path, config, store, monkeypatch):
    journal = played(store, config, Kind.FAILOVER, upto=3)
    monkeypatch.setattr("drkit.failover.journal.journal.now", lambda: now() - timedelta(hours=1))
    journal.write("cancel", "cancelled", {"reason": "the primary is back"})
    last = len(store.entries("R")) - 2
    bundle_of(tmp_path, config, store)
    notes = verifier.verify(tmp_path / "bundle").notes
    assert f"The clock went back in the journal of R after entry {last}" in notes

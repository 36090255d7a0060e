"""RPO, RTO and the verdict, from histories and outcomes by hand."""

import pytest

from drkit.drill.experiment.experiment import Objectives
from drkit.drill.judge.history import Attempt, AttemptOutcome, ClientHistory, HistoryPart, Landed, Poll, RecordId
from drkit.drill.judge.result import CheckResult, Measurements, ObjectiveResult, SteadyStateResult, StepResult
from drkit.drill.judge.verdict import measure, measure_site, objective_results, verdict

STEADY = SteadyStateResult(reached=True, reason="as it should be", seconds=1.0)


def sent(seq, at, outcome=AttemptOutcome.ACKED):
    return Attempt(
        RecordId("k", seq), "primary", 0, at, 0, outcome, seq if outcome is AttemptOutcome.ACKED else None, at
    )


def poll(seq, cluster, at):
    return Poll("s", 1, cluster, 0, seq, RecordId("k", seq), at)


@pytest.fixture
def history():
    """Five acknowledged and one without an answer; three on dr; killed at 10 s, read on dr from 13.5 s."""
    return ClientHistory(
        "primary",
        "dr",
        attempts=(*(sent(n, 5.0 + n) for n in range(5)), sent(5, 9.9, AttemptOutcome.UNKNOWN)),
        polls=(poll(0, "primary", 6.0), poll(1, "primary", 7.0), poll(1, "dr", 13.5), poll(2, "dr", 13.6)),
        landed=tuple(Landed(0, n, RecordId("k", n), 0) for n in range(3)),
    )


def test_what_was_acknowledged_and_is_missing_is_the_rpo(history):
    found = measure(history, disaster_at=10.0, moved=True)
    assert found.rpo_records == 2  # 3 and 4; the one without an answer was never promised
    assert found.rpo_seconds == 2.0  # the oldest of them was sent at 8 s
    assert found.rto_seconds == 3.5
    assert (found.acknowledged, found.unknown, found.landed, found.reread) == (5, 1, 3, 1)


def test_what_is_lost_after_the_first_disaster_has_its_age(history):
    """Struck at 1 s (and up again), then for good at 10 s: 3 and 4, sent at 8 and 9 s, are missing."""
    found = measure(history, disaster_at=1.0, moved=True)
    assert (found.rpo_records, found.rpo_seconds) == (2, 1.0)


def test_no_loss_is_an_rpo_of_zero(history):
    whole = ClientHistory("primary", "dr", history.attempts[:3], history.polls, (), history.landed)
    found = measure(whole, disaster_at=None, moved=False)
    assert (found.rpo_records, found.rpo_seconds, found.rto_seconds) == (0, 0.0, None)


def test_without_a_failover_there_is_no_rto(history):
    assert measure(history, disaster_at=10.0, moved=False).rto_seconds is None


def test_a_read_before_the_disaster_is_no_recovery(history):
    early = ClientHistory("primary", "dr", history.attempts, (poll(1, "dr", 9.0),), (), history.landed)
    assert measure(early, disaster_at=10.0, moved=True).rto_seconds is None


@pytest.mark.parametrize("part", [HistoryPart.ATTEMPTS, HistoryPart.LANDED])
def test_an_incomplete_history_has_no_rpo(history, part):
    half = ClientHistory("primary", "dr", history.attempts, history.polls, (), history.landed, {part: "broke off"})
    found = measure(half, disaster_at=10.0, moved=True)
    assert (found.rpo_records, found.rpo_seconds) == (None, None)


def test_objectives_are_met_missed_or_unknown():
    measured = of_a_link(rpo_records=10, rpo_seconds=None, rto_seconds=30.0)
    found = objective_results(Objectives(rpo_records=9, rpo_seconds=1.0, rto_seconds=30.0), measured)
    assert [(o.name, o.outcome) for o in found] == [
        ("rpo_records", "missed"),
        ("rpo_seconds", "unknown"),
        ("rto_seconds", "met"),
    ]
    assert objective_results(Objectives(), measured) == []


def step(outcome, section="method"):
    return StepResult(section=section, step="kill primary", line=12, outcome=outcome, reason="because", seconds=0.1)


def check(outcome):
    anomalies = {"passed": 0, "failed": 3}.get(outcome)
    return CheckResult(
        check="lost", link="primary->dr", outcome=outcome, anomalies=anomalies, reason=None, witnesses=[]
    )


def objective(outcome):
    measured = None if outcome == "unknown" else 12
    return ObjectiveResult(name="rpo_records", objective=5, measured=measured, outcome=outcome)


GOOD = {"steady_state": STEADY, "steps": [step("ok")], "checks": [check("passed")], "objectives": [objective("met")]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ("passed", 0)),
        ({"checks": [check("failed")]}, ("failed", 1)),
        ({"checks": [check("unknown")]}, ("unknown", 8)),
        ({"checks": [check("failed"), check("unknown")]}, ("failed", 1)),
        ({"objectives": [objective("missed")]}, ("failed", 6)),
        ({"objectives": [objective("unknown")]}, ("unknown", 8)),
        ({"objectives": [objective("missed")], "checks": [check("failed")]}, ("failed", 1)),
        ({"objectives": [objective("missed")], "checks": [check("unknown")]}, ("unknown", 8)),
        ({"steps": [step("failed"), step("skipped")]}, ("failed", 1)),
        ({"steps": [step("unknown")]}, ("unknown", 8)),
        ({"steps": [step("failed", "setup")]}, ("unknown", 8)),
        ({"steps": [step("ok"), step("failed", "rollbacks")]}, ("unknown", 8)),
        ({"steps": [step("unknown", "rollbacks")], "objectives": [objective("missed")]}, ("failed", 6)),
        ({"steady_state": SteadyStateResult(reached=False, reason="too slow", seconds=60.0)}, ("unknown", 8)),
        ({"interrupted": "interrupted by a signal"}, ("unknown", 8)),
    ],
)
def test_verdict(change, expected):
    judged, code, reasons = verdict(**{**GOOD, **change})
    assert (judged, code) == expected
    assert bool(reasons) == (change != {})


def test_the_reasons_say_what_and_where():
    _, _, reasons = verdict(**{**GOOD, "steps": [step("failed")], "objectives": [objective("missed")]})
    assert reasons == ["kill primary (line 12) failed: because", "rpo_records is 12, the objective is 5"]


def test_where_nothing_was_acknowledged_there_is_no_rpo(history):
    unsure = ClientHistory("primary", "dr", (sent(0, 5.0, AttemptOutcome.UNKNOWN),), history.polls, (), history.landed)
    found = measure(unsure, disaster_at=10.0, moved=True)
    assert (found.rpo_records, found.rpo_seconds, found.acknowledged) == (None, None, 0)


def of_a_link(**numbers):
    plain = {
        "rpo_records": 1,
        "rpo_seconds": 2.0,
        "rto_seconds": 3.0,
        "acknowledged": 10,
        "unknown": 1,
        "landed": 9,
        "reread": 4,
    }
    return Measurements(**plain | numbers)


def test_a_site_is_the_sum_of_records_and_the_greatest_of_seconds():
    found = measure_site({"a": of_a_link(), "b": of_a_link(rpo_seconds=5.0, rto_seconds=None)}, moving=["a"])
    assert found == of_a_link(rpo_records=2, rpo_seconds=5.0, acknowledged=20, unknown=2, landed=18, reread=8)
    assert measure_site({"a": of_a_link()}, moving=["a"]) == of_a_link(), "one link is the site"


@pytest.mark.parametrize("name", ["rpo_records", "rpo_seconds", "landed", "reread"])
def test_what_is_unknown_of_one_link_is_unknown_of_the_site(name):
    found = measure_site({"a": of_a_link(), "b": of_a_link(**{name: None})}, moving=["a", "b"])
    assert getattr(found, name) is None
    assert found.acknowledged == 20


def test_the_rto_of_a_site_needs_that_of_every_link_whose_clients_move():
    links = {"a": of_a_link(), "b": of_a_link(rto_seconds=None)}
    assert measure_site(links, moving=["a", "b"]).rto_seconds is None
    assert measure_site(links, moving=["a"]).rto_seconds == 3.0
    assert measure_site(links, moving=[]).rto_seconds is None

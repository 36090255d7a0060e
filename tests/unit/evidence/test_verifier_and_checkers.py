"""The verifier's own reading of a history agrees with the drill's checks and measurements, whatever the history."""

from dataclasses import replace
from random import Random

import pytest

from drkit.drill.judge.checkers import CHECKERS, judge
from drkit.drill.judge.history import (
    Attempt,
    AttemptOutcome,
    ClientHistory,
    ConfirmedPosition,
    HistoryPart,
    Landed,
    LinkHistory,
    LogEnd,
    Poll,
    RecordId,
    Returned,
    StatedLoss,
    StatedPosition,
)
from drkit.drill.judge.verdict import check_result, measure
from drkit.drill.results.recording import write_history
from drkit.evidence import verifier

CLUSTERS = ("primary", "dr")


def some(random, most, make):
    return tuple(make() for _ in range(random.randrange(most + 1)))


def a_history(random):
    """A small history of anything that can be in one, so that every anomaly is in some of them."""

    def record(sometimes_none=False):
        return None if sometimes_none and random.random() < 0.1 else RecordId(random.choice("ab"), random.randrange(5))

    def at():
        return random.uniform(0, 100)

    def attempt():
        sent, transaction = at(), random.choice([None, "t1", "t2"])
        outcome = random.choices([*AttemptOutcome], [8, 1 if transaction else 0, 2])[0]
        acked = outcome is AttemptOutcome.ACKED
        answer = (outcome, random.randrange(10), sent + 1) if acked else (outcome, None, None)
        return Attempt(
            record(), random.choice(CLUSTERS), random.randrange(2), sent, random.randrange(2), *answer, transaction
        )

    def poll():
        session, cluster = random.choice(["c1", "c2"]), random.choice(CLUSTERS)
        return Poll(session, 1, cluster, random.randrange(2), random.randrange(10), record(True), at())

    def log():
        places = [(partition, offset) for partition in range(2) for offset in range(10)]
        chosen = random.sample(places, random.randrange(9))
        return tuple(Landed(partition, at, record(True), random.randrange(2)) for partition, at in chosen)

    def ends():
        return tuple(LogEnd(partition, random.choice([8, 9, 9]), 9) for partition in range(random.randrange(3)))

    unread = random.choice([{}, {}, {HistoryPart.LANDED: "it is silent"}, {HistoryPart.ENDS: "it is silent"}])
    part = random.choice([*HistoryPart, None, None])
    return ClientHistory(
        source="primary",
        target="dr",
        attempts=some(random, 8, attempt),
        polls=some(random, 8, poll),
        positions=some(random, 3, lambda: ConfirmedPosition(random.choice(CLUSTERS), 0, random.randrange(10), at())),
        landed=log(),
        incomplete={} if part is None else {part: "it died"},
        stated=tuple(
            StatedPosition(partition, random.randrange(10), random.choice([0, 1, None]), random.uniform(0, 50))
            for partition in range(random.randrange(3))
        ),
        ends=ends(),
        returned=random.choice([None, Returned(at(), log(), ends(), unread)]),
        stated_loss=random.choice([None, StatedLoss(random.randrange(3), random.random() < 0.3, at())]),
    )


def test_the_verifier_judges_as_the_drill_does(tmp_path):
    random, seen = Random(19), set()  # noqa: S311 - a seed that gives the same histories every time
    for _ in range(400):
        history = a_history(random)
        disaster_at, moved = random.choice([None, random.uniform(0, 100)]), random.random() < 0.5
        other = LinkHistory(replace(a_history(random), source="west", target="east"))
        write_history(tmp_path, [LinkHistory(history, disaster_at, moved), other], interrupted=None)
        _, (read, _) = verifier.histories(tmp_path)
        assert read.measure() == measure(history, disaster_at=disaster_at, moved=moved).model_dump(), history
        for name in CHECKERS:
            theirs, ours = check_result(name, history.link, judge(name, history)), read.judge(name)
            assert ours == theirs.model_dump(mode="json"), (name, history)  # witnesses, texts and reasons, too
            seen.add((name, theirs.outcome))
    assert seen == {(name, outcome) for name in CHECKERS for outcome in ("passed", "failed", "unknown")}


def test_every_check_of_drills_is_one_of_the_verifiers():
    assert verifier.CHECKS.keys() == CHECKERS.keys()
    for name, (_, needs, forged) in verifier.CHECKS.items():
        assert (needs, forged) == (set(CHECKERS[name].needs), set(CHECKERS[name].forged_by))


def test_the_paths_of_runs_are_those_of_the_machine():
    from drkit.failover.context.state_machine import FINAL_STATES, PATHS  # noqa: PLC0415

    for kind, steps in PATHS.items():
        assert verifier.PATHS[kind] == " ".join(f"{step.stage}:{step.reaches}" for step in steps)
    assert set(verifier.ENDED) == {*FINAL_STATES} - {"closed"}


@pytest.mark.parametrize("number", range(2))
def test_a_chain_without_entries_or_of_another_run_is_none(number):
    entries = [] if number == 0 else [{"run": "other", "seq": 0, "previous": "0" * 64, "hash": "", "at": ""}]
    if entries:
        entries[0] |= {"stage": "", "event": "", "payload_text": ""}
    assert verifier.chain_problem("mine", entries) is not None

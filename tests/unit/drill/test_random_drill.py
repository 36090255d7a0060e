"""Composed experiments are valid, repeatable and steered; what finds something is cut down and kept; limits end it."""

import io
import json
import time
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
import yaml
from rich.console import Console

from drkit.cli.views.drill_view import show_random
from drkit.drill.coverage import CELLS, FAILED_OVER, NETWORK, STEADY, Cell, planned_strikes
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.judge.result import CheckResult
from drkit.drill.random_drill.composition import MOST_BLOCKS, composable, compose, planned_cells, to_yaml
from drkit.drill.random_drill.play import RandomSession, SessionLimits, failures, shrink
from drkit.drill.results.archive import Drills
from drkit.model.errors import DrkitError
from tests.support.drills.drill_results import result_of
from tools.drill_schemas import schemas

SEEDS = range(25)
NO_LIMIT = SessionLimits(None, None, 10)


def loaded(tmp_path, composition):
    file = tmp_path / "composed.yaml"
    file.write_text(to_yaml(composition))
    return load_experiment(file)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_composed_is_valid_and_strikes_where_it_says(tmp_path, seed):
    composition = compose(seed, 1, {})
    file = loaded(tmp_path, composition)
    assert "&id" not in file.path.read_text(), "no anchors: people read it"
    jsonschema.validate(yaml.safe_load(file.path.read_text()), schemas()["drill-experiment.schema.json"])
    struck = Counter(strike.cell for strike in planned_strikes(file) if strike.cell in planned_cells(composition))
    assert all(struck[cell] for cell in planned_cells(composition)), composition.struck
    assert 1 <= len(composition.blocks) <= MOST_BLOCKS
    assert file.experiment.disturbance is not None
    for block in composition.blocks:
        loaded(tmp_path, composition.without(block))


def test_the_same_seed_and_number_give_the_same_experiment():
    assert [to_yaml(compose(7, n, {})) for n in range(1, 6)] == [to_yaml(compose(7, n, {})) for n in range(1, 6)]
    assert len({to_yaml(compose(seed, 1, {})) for seed in SEEDS}) > len(SEEDS) / 2
    assert to_yaml(compose(7, 1, {})) != to_yaml(compose(7, 2, {}))


def test_what_was_struck_least_comes_first():
    """As many experiments as there are cells strike in every one of them."""
    struck = dict.fromkeys(composable(), 3) | {Cell("kill", "run", "failover verify"): 0}
    assert composes_first(struck) == {Cell("kill", "run", "failover verify")}
    counts = Counter()
    for number in range(1, len(composable()) + 1):
        counts.update(planned_cells(compose(1, number, counts)))
    assert set(composable()) <= set(counts)


def composes_first(struck):
    """The cells that each of some experiments strikes in."""
    return set.intersection(*(set(planned_cells(compose(seed, 1, struck))) for seed in SEEDS))


def test_cells_that_can_be_composed_are_cells_of_the_table():
    cells = composable()
    assert len(cells) == len(set(cells))
    assert set(cells) <= {cell for cell in CELLS if cell.impossible is None}
    assert {cell.on for cell in cells} >= {"primary", "dr", "mirror", "run", "cassandra", NETWORK, "topic on primary"}


def test_the_store_is_left_alone_where_that_is_asked(tmp_path):
    compositions = [compose(seed, 1, {}, cassandra=False) for seed in SEEDS]
    assert all(loaded(tmp_path, each).experiment.lab.store == "sqlite" for each in compositions)
    stores = {loaded(tmp_path, compose(seed, 1, {})).experiment.lab.store for seed in SEEDS}
    assert stores == {"sqlite", "cassandra"}


def test_a_dead_mirror_is_not_killed_again_at_a_later_stage():
    for seed in range(300):
        struck = [cell for cell in planned_cells(compose(seed, 1, {})) if cell.on == "mirror" and cell.do != "restart"]
        assert sum(cell.state.startswith("failover ") for cell in struck) <= 1, seed


def parallel_steps(composition):
    return [step for step in composition.experiment()["method"] if step["do"] == "parallel"]


def test_some_blocks_strike_at_the_same_time_and_never_at_both_clusters(tmp_path):
    composed = [compose(seed, 1, {}) for seed in range(200)]
    beside = [each for each in composed if parallel_steps(each)]
    assert 5 < len(beside) < 100
    for composition in beside:
        (step,) = parallel_steps(composition)
        blocks = [block for block in composition.blocks if list(block.steps) in step["branches"]]
        assert len(blocks) == len(step["branches"]) > 1
        assert len({block.cell.on for block in blocks}) == len(blocks)
        assert sum(block.cell.on in ("primary", "dr") for block in blocks) <= 1
        file = loaded(tmp_path, composition)
        assert {block.cell for block in blocks} <= {strike.cell for strike in planned_strikes(file)}
        assert f"in parallel: {' | '.join(map(str, blocks))}" in composition.struck
        for block in blocks:
            composition = composition.without(block)  # noqa: PLW2901 - block by block, as a finding is cut down
        assert parallel_steps(composition) == []
        loaded(tmp_path, composition)


def test_one_block_that_is_left_of_a_parallel_step_is_played_by_itself():
    composition = next(each for seed in range(200) if parallel_steps(each := compose(seed, 1, {})))
    (step,) = parallel_steps(composition)
    while len(step["branches"]) > 1:
        left = next(block for block in composition.blocks if list(block.steps) == step["branches"][-1])
        composition = composition.without(left)
        step = {"branches": step["branches"][:-1]}
    assert parallel_steps(composition) == []
    method = composition.experiment()["method"]
    assert all(one in method for one in step["branches"][0])


def test_some_workloads_write_in_transactions_and_are_judged_by_them(tmp_path):
    composed = [compose(seed, 1, {}, cassandra=False) for seed in range(60)]
    kinds = {each.ending: each for each in composed if "transactions" in each.workload}
    assert set(kinds) == {"quiet", "failover"}
    for ending, composition in kinds.items():
        checks = loaded(tmp_path, composition).experiment.checks
        assert {"aborted_read", "dirty_commit", "stable_offset_stuck"} <= set(checks)
        assert ("torn_transaction" in checks) == (ending == "quiet"), "the tail of a lost primary may be torn"
    plain = next(each for each in composed if "transactions" not in each.workload)
    assert not {"aborted_read", "stable_offset_stuck"} & set(loaded(tmp_path, plain).experiment.checks)


def three_blocks():
    """A composition with as many blocks as there can be, each in another kind of state."""
    return next(
        each
        for seed in range(2000)
        if len((each := compose(seed, 1, {}, cassandra=False)).blocks) == MOST_BLOCKS
        and {STEADY, FAILED_OVER} < {block.cell.state for block in each.blocks}
    )


@pytest.mark.parametrize("needed", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_a_finding_is_cut_down_to_the_blocks_that_it_needs(needed):
    composition = three_blocks()
    wanted = [composition.blocks[n] for n in needed]
    cut = shrink(composition, lambda smaller: set(map(id, wanted)) <= set(map(id, smaller.blocks)), NO_LIMIT)
    assert list(cut.composition.blocks) == wanted
    assert (cut.replays, cut.cut_short) == (3, None)
    assert len(cut.left_out) == 3 - len(wanted)


def test_cutting_down_is_bounded():
    composition = three_blocks()
    cut = shrink(composition, lambda _: True, SessionLimits(None, None, 2))
    assert (cut.replays, len(cut.composition.blocks)) == (2, 1)
    assert "the limit of replays" in cut.cut_short
    late = shrink(composition, lambda _: True, SessionLimits(time.monotonic(), None, 9))
    assert (late.replays, late.cut_short, late.composition) == (0, "the time is up", composition)


class Player:
    """Refutes a drill that `fails` says fails; keeps what was played. `interrupt_at`: a signal ends that drill."""

    def __init__(self, fails=lambda _: False, interrupt_at=None):
        self.fails = fails
        self.interrupt_at = interrupt_at
        self.played = []

    def __call__(self, file):
        self.played.append(file.path.read_text())
        assert file.experiment.title
        failed = self.fails(file)
        interrupted = len(self.played) == self.interrupt_at
        return result_of(
            f"drill-{len(self.played)}",
            "kept",
            title=file.experiment.title,
            exit_code=8 if interrupted else 1 if failed else 0,
            verdict="unknown" if interrupted else "failed" if failed else "passed",
            interrupted=interrupted,
            reasons=["lost: 1 anomaly"] if failed else [],
        )


def session(tmp_path, player, limits, seed=11, struck=None):
    said = []
    work = tmp_path / "work"
    work.mkdir()
    found = RandomSession(
        seed, struck or {}, Drills(tmp_path / "drills"), work, player, said.append, cassandra=False
    ).run(limits)
    jsonschema.validate(json.loads(found.model_dump_json()), schemas()["drill.schema.json"])
    return found, said


def test_a_session_plays_as_many_as_were_asked_for_and_says_what_it_plays(tmp_path):
    player = Player()
    found, said = session(tmp_path, player, SessionLimits(None, 3, 4))
    assert [each.experiment for each in found.random] == player.played
    assert (found.exit_code, found.findings, found.ended_because) == (0, [], "3 drills were asked for")
    assert set(player.played) <= set(said), "the YAML of each is shown"
    assert not (tmp_path / "drills" / "found").exists()


def test_a_session_begins_no_drill_once_its_time_is_up(tmp_path):
    found, _ = session(tmp_path, Player(), SessionLimits(time.monotonic(), None, 4))
    assert (found.random, found.ended_because, found.exit_code) == ([], "the time is up", 8)


def test_a_session_strikes_somewhere_else_each_time(tmp_path):
    found, _ = session(tmp_path, Player(), SessionLimits(None, 20, 4))
    assert len({tuple(each.strikes) for each in found.random}) == 20


def strikes_at_mirror(file):
    return any(strike.cell.on == "mirror" for strike in planned_strikes(file))


def test_what_is_found_is_cut_down_and_kept_as_an_experiment(tmp_path):
    player = Player(fails=strikes_at_mirror)
    found, said = session(tmp_path, player, SessionLimits(None, 12, 4))
    assert found.exit_code == 1
    assert 0 < len(found.findings) < 12
    replays = sum(finding.replays for finding in found.findings)
    assert len(player.played) == 12 + replays
    for finding in found.findings:
        (kept,) = (tmp_path / "drills" / "found").glob(f"random-11-{finding.number}.yaml")
        assert str(kept) == finding.file
        assert strikes_at_mirror(load_experiment(kept))
        assert finding.kept == [each for each in finding.kept if "mirror" in each]
        assert (len(finding.kept), finding.cut_short) == (1, None)
        assert finding.failed == ["lost"]
        assert f"kept: drkit drill run {kept}" in said
    assert any(finding.left_out for finding in found.findings)


def test_another_failure_is_not_the_same_finding(tmp_path):
    """Once a block is left out, something else fails: that block is needed for what was found."""
    whole = {}

    def play(file):
        first = whole.setdefault(file.experiment.title, file.path.read_text()) == file.path.read_text()
        check = {"check": "lost" if first else "foreign", "link": "primary->dr", "outcome": "failed", "anomalies": 1}
        return result_of(
            "drill-x", "kept", exit_code=1, verdict="failed", checks=[{**check, "reason": None, "witnesses": []}]
        )

    found, _ = session(tmp_path, play, SessionLimits(None, 5, 4))
    assert all(finding.failed == ["lost"] and not finding.left_out for finding in found.findings)
    assert any(finding.replays for finding in found.findings)


def refuted(*checks, steps=()):
    """A refuted result with these failed checks and steps."""
    failed = {"outcome": "failed", "anomalies": 1, "reason": None, "witnesses": []}
    return result_of(
        "drill-x",
        "kept",
        exit_code=1,
        verdict="failed",
        checks=[{"check": check, "link": "primary->dr", **failed} for check in checks],
        steps=list(steps),
    )


def strikes(file, what):
    return any(strike.cell.on == what for strike in planned_strikes(file))


def test_each_of_two_findings_of_a_drill_is_kept_with_the_blocks_that_it_needs(tmp_path):
    """Each has a block of its own: cut down to one of them, the experiment no longer shows the other."""

    def play(file):
        checks = [check for check, on in (("lost", "mirror"), ("foreign", "dr")) if strikes(file, on)]
        return refuted(*checks) if checks else result_of("drill-x", "kept")

    found, _ = session(tmp_path, play, SessionLimits(None, 40, 9))
    both = [each for each in found.findings if each.file.endswith("-2.yaml")]
    assert both
    for second in both:
        first = next(each for each in found.findings if each.number == second.number)
        assert {*first.failed, *second.failed} == {"lost", "foreign"}
        for each in (first, second):
            (check,) = each.failed
            on = {"lost": "mirror", "foreign": "dr"}
            other = on[{"lost": "foreign", "foreign": "lost"}[check]]
            file = load_experiment(Path(each.file))
            assert (strikes(file, on[check]), strikes(file, other)) == (True, False)


def a_step(step, outcome="failed", **more):
    return {"section": "method", "step": step, "line": 3, "outcome": outcome, "reason": None, "seconds": 0.1, **more}


def test_a_step_that_fails_in_a_parallel_one_is_the_finding_whatever_stands_beside_it():
    def branches(*beside):
        inner = [a_step("failover to dr", reason="exit code 7 (failover.log)"), a_step("hold 1 s", "skipped")]
        others = [[a_step(each, "ok")] for each in beside]
        name = f"in parallel: failover to dr | {' | '.join(beside)}"
        return refuted(steps=[a_step(name, branches=[inner, *others])])

    whole = failures(branches("kill mirror", "disconnect mirror"))
    assert whole == {"failover to dr: exit code 7"}
    assert failures(branches("kill mirror")) == whole
    assert failures(refuted(steps=[a_step("failover to dr", reason="exit code 7 (x)")])) == whole, "it stands alone"
    assert not failures(refuted(steps=[a_step("failover to dr", reason="exit code 8 (x)")])) & whole


def test_the_same_check_of_another_link_is_another_finding():
    other = {"check": "lost", "link": "a->b", "outcome": "failed", "anomalies": 1, "reason": None, "witnesses": []}
    assert failures(refuted("lost")) == {"lost"}
    assert failures(refuted().model_copy(update={"checks": [CheckResult(**other)]})) == {"lost of a->b"}


@pytest.mark.parametrize("at", [1, 2])
def test_a_signal_ends_the_session(tmp_path, at):
    player = Player(interrupt_at=at)
    found, _ = session(tmp_path, player, SessionLimits(None, 9, 4))
    assert (len(found.random), found.exit_code, found.ended_because) == (at, 8, "interrupted by a signal")


def test_a_signal_while_a_finding_is_cut_down_keeps_the_finding(tmp_path):
    player = Player(fails=lambda _: True, interrupt_at=2)
    found, _ = session(tmp_path, player, SessionLimits(None, 9, 4))
    assert (found.exit_code, found.ended_because) == (1, "interrupted by a signal")
    (finding,) = found.findings
    assert finding.cut_short == "interrupted by a signal"
    assert load_experiment(tmp_path / "drills" / "found" / "random-11-1.yaml").experiment.title == found.random[0].title


def test_a_drill_that_cannot_be_kept_is_an_error_at_first_and_an_end_later(tmp_path):
    def full(_):
        raise DrkitError("the disk is full")

    with pytest.raises(DrkitError, match="the disk is full"):
        session(tmp_path, full, SessionLimits(None, 3, 4))
    player = Player()

    def full_later(file):
        return player(file) if not player.played else full(file)

    (tmp_path / "later").mkdir()
    found, _ = session(tmp_path / "later", full_later, SessionLimits(None, 3, 4))
    assert (len(found.random), found.verdict, found.exit_code) == (1, "unknown", 8)
    assert found.ended_because == "the disk is full"


def test_every_cell_can_be_composed(tmp_path):
    for cell in composable():
        struck = {each: 0 if each == cell else 5 for each in composable()}
        assert cell in {strike.cell for strike in planned_strikes(loaded(tmp_path, compose(1, 1, struck)))}


def test_people_see_the_seed_and_how_a_finding_is_played_again(tmp_path):
    found, _ = session(tmp_path, Player(fails=strikes_at_mirror), SessionLimits(None, 12, 4))
    console = Console(width=400, file=io.StringIO())
    show_random(console, found)
    said = console.file.getvalue()
    assert said.startswith("seed 11: 12 drills were asked for\n")
    for finding in found.findings:
        assert f"again: drkit drill run {finding.file}\n" in said
    assert "verdict: failed  (exit code 1, the worst)" in said

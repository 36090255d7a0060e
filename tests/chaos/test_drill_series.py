"""`drkit drill run` of several experiments, `drkit drill random` and `drkit drill coverage`, on real clusters."""

import json
import signal

import jsonschema
import pytest

from drkit.drill.experiment.reader import load_experiment
from drkit.drill.random_drill.composition import compose, planned_cells, to_yaml
from tests.support.wait import wait_until
from tools.drill_schemas import schemas

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]

QUICK = """\
title: The mirror is restarted
hypothesis: Nothing is lost
steady_state:
  within_seconds: 120
  conditions:
    - { condition: acknowledged, cluster: primary, at_least: 100 }
    - { condition: mirrored, at_most_behind: 1000 }
method:
  - do: workload
    partitions: 2
    records_per_second: 200
  - do: mirror
  - do: restart
    node: mirror
  - do: stop_clients
    who: producer
  - do: wait
    until: { condition: mirrored, at_most_behind: 0 }
    timeout_seconds: 120
checks: [lost, duplicated]
objectives: { rpo_records: 0 }
"""
HANGS = """\
title: The primary hangs and nobody does anything
hypothesis: Nothing happens
steady_state:
  conditions:
    - { condition: acknowledged, cluster: primary, at_least: 100 }
method:
  - do: workload
    records_per_second: 200
  - do: pause
    node: primary
  - do: wait
    until: { condition: answers, cluster: primary }
    timeout_seconds: 300
checks: [duplicated]
rollbacks:
  - do: resume
    node: primary
"""
SEED = 223
"""Its first experiment restarts the mirror at a stage of the failover, and kills the run's own process at another."""


def cells_of(document):
    return {(cell["fault"], cell["state"]): cell for cell in document["cells"]}


def test_an_interrupted_series_says_what_ran_and_coverage_where_it_struck(play, tmp_path):
    """Each twice: the first passes, a signal comes in the second; the other two don't run."""
    files = []
    for name, text in (("quick", QUICK), ("hangs", HANGS)):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(text)
    series = play("run", *map(str, files), "--repeat", "2")
    wait_until(lambda: series.said("wait until answers …"), 240, "the hang")
    series.process.send_signal(signal.SIGTERM)
    code, document = series.end()
    jsonschema.validate(document, schemas()["drill.schema.json"])
    assert (code, document["exit_code"], document["verdict"]) == (8, 8, "unknown")
    assert document["ended_early"] == "interrupted by a signal; 2 drills did not run"
    assert [each["verdict"] for each in document["series"]] == ["passed", "unknown", None, None]
    assert [(each["passed"], each["unknown"], each["not_run"]) for each in document["experiments"]] == [
        (1, 0, 1),
        (0, 1, 1),
    ]
    assert series.said("resume primary: ok"), "its rollback ran"

    code, table = play("coverage").end(60)
    jsonschema.validate(table, schemas()["drill.schema.json"])
    assert code == 0
    cells = cells_of(table)
    restarted, paused = cells["restart mirror", "steady"], cells["pause primary", "steady"]
    assert (restarted["struck"], restarted["last"]["verdict"]) == (1, "passed")
    assert restarted["last"]["run"] == document["series"][0]["run"]
    assert (paused["struck"], paused["last"]["verdict"]) == (1, "unknown")
    assert cells["kill primary", "steady"]["struck"] == 0
    assert "The primary is lost under load" in cells["kill primary", "steady"]["experiments"]
    assert table["totals"]["struck"] == 2


@pytest.mark.long
def test_a_random_drill_is_played_kept_and_counted(play):
    drill = play("random", "--seed", str(SEED), "--runs", "1", "--no-cassandra", "--ignore-history")
    code, document = drill.end(500)
    jsonschema.validate(document, schemas()["drill.schema.json"])
    (played,) = document["random"]
    assert (code, played["verdict"]) == (0, "passed"), played
    composition = compose(SEED, 1, {}, cassandra=False)
    assert played["experiment"] == to_yaml(composition)
    kept = load_experiment(drill.kept / played["run"] / "experiment.yaml")
    assert kept.path.read_text() == played["experiment"], "it is replayed by `drill run`"
    result = json.loads((drill.kept / played["run"] / "result.json").read_text())
    assert {step["outcome"] for step in result["steps"]} == {"ok"}
    (strikes,) = (step["strikes"] for step in result["steps"] if step["strikes"])
    assert [(each["step"], each["outcome"]) for each in strikes] == [
        ("restart mirror at failover translate", "ok"),
        ("kill run at failover verify", "ok"),
    ]
    assert result["failover"]["state"] == "closed", "drkit resume took it to its end"

    cells = cells_of(play("coverage").end(60)[1])
    assert all(cells[cell.fault, cell.state]["struck"] == 1 for cell in planned_cells(composition))
    assert all(cells[cell.fault, cell.state]["last"]["run"] == played["run"] for cell in planned_cells(composition))

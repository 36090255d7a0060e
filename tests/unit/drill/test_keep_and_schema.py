"""Drills that are kept: found by name, listed with or without a result; and their published schemas."""

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
import yaml

from drkit.drill.experiment.experiment import Objectives
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.judge.history import ClientHistory, LinkHistory
from drkit.drill.judge.result import DrillHistory
from drkit.drill.results.archive import RESULT, Drills, new_run
from drkit.drill.results.recording import write_history
from drkit.model.errors import ConfigError, DrkitError
from tests.support.drills.drill_results import result_of
from tools.drill_schemas import schemas, text_of

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENTS = sorted((ROOT / "chaos").glob("*.yaml"))


@pytest.fixture
def drills(tmp_path):
    return Drills(tmp_path / "drills")


def keep_one(drills, tmp_path, at, *, result=True):
    experiment = tmp_path / "x.yaml"
    experiment.write_text("title: t\n")
    run = new_run(at)
    folder = drills.begin(run, experiment)
    if result:
        drills.keep(result_of(run, folder))
    return run


def test_a_drill_is_kept_and_found(drills, tmp_path):
    first = keep_one(drills, tmp_path, datetime(2026, 11, 20, 4, tzinfo=UTC))
    second = keep_one(drills, tmp_path, datetime(2026, 11, 20, 5, tzinfo=UTC))
    assert drills.runs() == [second, first]
    assert drills.find("last") == second
    assert drills.find(first) == drills.find(first[-6:]) == drills.find(first[:22]) == first
    kept = drills.result(first)
    assert kept == result_of(first, drills.path / first)
    assert (drills.path / first / "experiment.yaml").read_text() == "title: t\n"


def test_a_name_of_none_or_several_is_refused(drills, tmp_path):
    with pytest.raises(ConfigError, match="no drill"):
        drills.find("last")
    for _ in range(2):
        keep_one(drills, tmp_path, datetime(2026, 11, 20, 4, tzinfo=UTC))
    with pytest.raises(ConfigError, match="2 drills"):
        drills.find("drill-2026")


def test_a_drill_that_left_no_result_is_listed_as_such(drills, tmp_path):
    run = keep_one(drills, tmp_path, datetime(2026, 11, 20, 4, 3, tzinfo=UTC), result=False)
    (summary,) = drills.summaries()
    assert (summary.run, summary.verdict, summary.started_at) == (run, None, datetime(2026, 11, 20, 4, 3, tzinfo=UTC))
    assert "left no result" in summary.reason
    with pytest.raises(DrkitError, match="still runs, or it was killed"):
        drills.result(run)
    (drills.path / run / "lab").write_text("/somewhere/lab\n")
    with pytest.raises(DrkitError) as caught:
        drills.result(run)
    assert caught.value.remedy.endswith("drkit lab down --dir /somewhere/lab")


def test_a_damaged_result_is_told(drills, tmp_path):
    run = keep_one(drills, tmp_path, datetime(2026, 11, 20, 4, tzinfo=UTC))
    (drills.path / run / RESULT).write_text('{"run": 1}')
    assert "can't be read" in drills.summaries()[0].reason


def test_other_things_in_the_folder_are_no_drills(drills, tmp_path):
    keep_one(drills, tmp_path, datetime(2026, 11, 20, 4, tzinfo=UTC))
    (drills.path / "notes").mkdir()
    assert len(drills.runs()) == 1


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DrkitError, match="can't be written"):
        Drills(tmp_path / "file").begin("drill-x", tmp_path / "file")


@pytest.mark.parametrize("name", sorted(schemas()))
def test_the_published_schema_is_the_one_of_the_types(name):
    assert (ROOT / "docs" / "schemas" / name).read_text() == text_of(schemas()[name]), (
        "write it again: python -m drkit.drill.schema docs/schemas"
    )


def test_documents_keep_to_the_schema(tmp_path):
    schema = schemas()["drill.schema.json"]
    result = result_of("drill-20261120T040300Z-abcdef", tmp_path)
    jsonschema.validate(json.loads(result.model_dump_json()), schema)
    jsonschema.validate(json.loads(DrillHistory(drills=[]).model_dump_json()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(result.model_dump_json()), "verdict": "fine"}, schema)


def test_instants_end_in_z():
    document = json.loads(result_of("r", "f").model_dump_json())
    assert document["started_at"] == "2026-11-20T04:03:00.000Z"


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.name)
def test_every_experiment_of_the_project_is_sound(file):
    load_experiment(file)
    jsonschema.validate(yaml.safe_load(file.read_text()), schemas()["drill-experiment.schema.json"])


def test_there_are_experiments():
    assert "primary-lost.yaml" in {file.name for file in EXPERIMENTS}


def test_configured_objectives_stand_in_where_the_experiment_sets_none():
    lost = load_experiment(ROOT / "chaos" / "primary-lost.yaml").experiment
    bare = lost.model_copy(update={"objectives": Objectives(rpo_records=7)})
    filled = bare.with_defaults(Objectives(rpo_records=1, rpo_seconds=2.0, rto_seconds=3.0))
    assert filled.objectives == Objectives(rpo_records=7, rpo_seconds=2.0, rto_seconds=3.0)


def test_a_configured_rto_is_no_objective_where_none_can_be_measured():
    mirror = load_experiment(ROOT / "chaos" / "mirror-killed.yaml").experiment
    assert mirror.with_defaults(Objectives(rto_seconds=3.0)).objectives.rto_seconds is None


def test_the_lag_is_that_of_each_link_also_once_it_is_turned_round(tmp_path):
    """Reports of other links, and a line that a kill cut short, are none of it."""
    said = [("primary->dr", 5), ("dr->primary", 3), ("west->east", 7), ("a->b", 9)]
    report = {"type": "progress", "at": "2026-11-20T04:03:00Z"}
    lines = "".join(json.dumps({**report, "link": link, "lag_records": lag}) + "\n" for link, lag in said)
    (tmp_path / "mirror.log").write_text(f'{lines}{{"type": "progress", "li')
    links = [LinkHistory(ClientHistory("primary", "dr")), LinkHistory(ClientHistory("west", "east"))]
    write_history(tmp_path, links, interrupted=None)
    rows = [json.loads(line) for line in (tmp_path / "history" / "lag.jsonl").read_text().splitlines()]
    assert [(link, lag) for link, _, lag in rows] == [("primary->dr", 5), ("primary->dr", 3), ("west->east", 7)]

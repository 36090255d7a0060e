"""Which experiments are meant; several of them played, with the worst exit code and what did not run."""

import io
import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from drkit.cli.views.drill_view import show_series
from drkit.drill.experiment.reader import (
    LIBRARY,
    experiment_file,
    experiment_files,
    library_files,
    load_experiment,
    load_experiments,
)
from drkit.drill.series import play_series, worst
from drkit.model.errors import ConfigError, DrkitError
from tests.support.drills.drill_results import result_of
from tools.drill_schemas import schemas

CHAOS = Path(__file__).resolve().parents[4] / "chaos"


def test_the_library_is_what_chaos_holds():
    """An installed drkit has the files of drkit/drill/library alone: link each experiment of chaos/ there."""
    assert {each.name: each.read_text() for each in library_files()} == {
        each.name: each.read_text() for each in CHAOS.glob("*.yaml")
    }


def test_an_experiment_is_a_file_a_name_of_the_library_or_all_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert experiment_file(Path("primary-lost")) == LIBRARY / "primary-lost.yaml"
    own = tmp_path / "primary-lost"
    own.write_text("")
    assert experiment_file(Path("primary-lost")) == Path("primary-lost"), "a file that is there comes first"
    assert experiment_file(Path("no/primary-lost")) == Path("no/primary-lost")
    (tmp_path / "mine").mkdir()
    for name in ("b.yaml", "a.yaml", "notes.md"):
        (tmp_path / "mine" / name).write_text("")
    found = experiment_files([Path("mine"), Path("mirror-killed"), Path("mine/a.yaml")], whole_library=False)
    assert [each.name for each in found] == ["a.yaml", "b.yaml", "mirror-killed.yaml"]


def test_the_library_is_not_played_twice():
    found = experiment_files([CHAOS, Path("primary-lost")], whole_library=True)
    assert [each.name for each in found] == [each.name for each in library_files()]


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="holds no experiment"):
        experiment_files([tmp_path], whole_library=False)


def test_what_is_wrong_with_several_files_is_said_at_once(tmp_path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("title: x\n")
    with pytest.raises(ConfigError) as caught:
        load_experiments([tmp_path / "a.yaml", library_files()[0], tmp_path / "b.yaml"])
    assert "a.yaml:1: method: is missing" in caught.value.what
    assert "b.yaml:1: method: is missing" in caught.value.what


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 0], 0), ([0, 6], 6), ([6, 8, 0], 8), ([8, 1, 6], 1), ([], 0), ([6, 6], 6)]
)
def test_the_worst_exit_code(codes, code):
    assert worst(codes) == code


def files(*names: str):
    return [load_experiment(LIBRARY / f"{name}.yaml") for name in names]


class Player:
    """Ends each drill as it is told: an exit code, or an error that is raised; "signal": ended by one."""

    def __init__(self, *ends):
        self.ends = list(ends)
        self.played = []

    def __call__(self, file):
        self.played.append(file.path.stem)
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        code = 8 if end == "signal" else end
        verdict = {0: "passed", 8: "unknown"}.get(code, "failed")
        return result_of(
            f"drill-{len(self.played)}",
            "kept",
            file=str(file.path),
            title=file.experiment.title,
            verdict=verdict,
            exit_code=code,
            reasons=[] if code == 0 else ["why"],
            interrupted=end == "signal",
        )


def series_of(player, *names, repeat=1):
    said = []
    result = play_series(files(*names), repeat, player, said.append)
    jsonschema.validate(json.loads(result.model_dump_json()), schemas()["drill.schema.json"])
    assert len(said) >= len(player.played)
    return result


def test_each_is_played_once_and_then_all_again():
    player = Player(0, 0, 6, 0)
    result = series_of(player, "mirror-killed", "primary-lost", repeat=2)
    assert player.played == ["mirror-killed", "primary-lost"] * 2
    assert (result.exit_code, result.verdict, result.ended_early) == (6, "failed", None)
    assert [(each.repetition, each.exit_code, each.reason) for each in result.series] == [
        (1, 0, None),
        (1, 0, None),
        (2, 6, "why"),
        (2, 0, None),
    ]
    assert [(each.passed, each.failed, each.unknown, each.not_run) for each in result.experiments] == [
        (1, 1, 0, 0),
        (2, 0, 0, 0),
    ]


@pytest.mark.parametrize("end", ["signal", KeyboardInterrupt()])
def test_an_interrupted_series_says_what_ran(end):
    """A drill that a signal ended has a result; one that came between two has none."""
    ran = 2 if end == "signal" else 1
    result = series_of(Player(0, end), "mirror-killed", "primary-lost", repeat=2)
    assert [each.run is not None for each in result.series] == [True] * ran + [False] * (4 - ran)
    assert result.ended_early == f"interrupted by a signal; {4 - ran} drills did not run"
    assert all("interrupted by a signal" in each.reason for each in result.series[ran:])
    assert (result.exit_code, result.verdict) == (8, "unknown"), "nobody saw what the others would have shown"
    assert sum(each.not_run for each in result.experiments) == 4 - ran


def test_what_was_refuted_outweighs_what_did_not_run():
    result = series_of(Player(1, KeyboardInterrupt()), "mirror-killed", "primary-lost")
    assert (result.exit_code, result.verdict) == (1, "failed")


def test_a_signal_in_the_last_drill_ends_no_series_early():
    result = series_of(Player(0, "signal"), "mirror-killed", "primary-lost")
    assert (result.exit_code, result.ended_early) == (8, None)


def test_a_drill_that_cannot_be_kept_ends_the_series():
    result = series_of(Player(0, DrkitError("the disk is full", remedy="Free some")), "mirror-killed", repeat=3)
    assert result.ended_early == "the disk is full; 2 drills did not run"
    assert result.exit_code == 8


def test_people_see_what_ran_and_what_did_not():
    result = series_of(Player(6, KeyboardInterrupt()), "mirror-killed", "primary-lost")
    console = Console(width=200, file=io.StringIO())
    show_series(console, result)
    said = console.file.getvalue()
    assert "The mirror is killed and continues: 1 failed\n" in said
    assert "The primary is lost under load: 1 not run\n" in said
    assert "ended early  interrupted by a signal; 1 drill did not run" in said
    assert "verdict: unknown  (exit code 8, the worst)" in said


def test_the_docs_name_each_experiment_of_the_library():
    page = (CHAOS.parent / "docs" / "drills.md").read_text()
    section = page[page.index("## The library") : page.index("## Several experiments")]
    assert [name for each in library_files() if f"| `{(name := each.stem)}` |" not in section] == []

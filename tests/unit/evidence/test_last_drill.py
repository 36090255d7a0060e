"""`drkit evidence export last`, as the quarterly runbook has it: the newest drill's bundle, without its name."""

import json

from drkit.drill.results.archive import Drills
from tests.support.commands.in_process import in_process
from tests.support.drills.kept_drills import a_history, keep, name


def test_last_is_the_newest_drill(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drills").mkdir()
    drills = Drills(tmp_path / "drills")
    for number in range(2):
        keep(drills, name(number), a_history(), number=number)
    command = ["evidence", "export", "last", "--drills", str(drills.path), "--out", str(tmp_path / "bundle")]
    done = in_process([*command, "--output", "json"])
    assert done.code == 0, done.err
    assert json.loads(done.out)["run"] == max(name(0), name(1))
    assert (tmp_path / "bundle" / "evidence.json").exists()


def test_without_any_drill_there_is_no_last_one(tmp_path):
    (tmp_path / "drills").mkdir()
    done = in_process(
        ["evidence", "export", "last", "--drills", str(tmp_path / "drills"), "--out", str(tmp_path / "b")]
    )
    assert done.code == 2
    assert "no drill of the name 'last'" in done.err

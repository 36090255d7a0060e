"""The folder that Spark writes to: whose process was killed, the next one removes; no other."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from drkit.audit.spark.session import OWNER, make_folder, sweep

MAKES = "from drkit.audit.spark.session import make_folder as m; made = m(); print(made.path, flush=True); input()"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_live_one_is_not(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", MAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        path = one.stdout.readline().strip()
        mine = make_folder()
        assert {str(each) for each in tmp_path.iterdir()} == {path, str(mine.path)}

        one.kill()
        one.wait(30)
        sweep()

        assert list(tmp_path.iterdir()) == [mine.path]
        assert [each.name for each in mine.path.iterdir()] == [OWNER]
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_an_owner_is_left(tmp_path):
    (tmp_path / "drkit-spark-x" / "local").mkdir(parents=True)
    (tmp_path / "drkit-spark-y").symlink_to(tmp_path / "drkit-spark-x")

    make_folder().remove()

    assert {each.name for each in tmp_path.iterdir()} == {"drkit-spark-x", "drkit-spark-y"}

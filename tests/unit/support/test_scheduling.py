"""Tests that start the same clusters run on one worker, which starts them once."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.collection.scheduling import TOGETHER, begins_before, durations, scope

ROOT = Path(__file__).resolve().parents[3]


def test_a_test_is_scheduled_with_those_that_need_the_same_else_with_its_file():
    assert scope("tests/integration/topologies/test_denied.py::test_a[x::y]") == "a lab of three clusters"
    assert scope("tests/integration/audit/command/test_rights.py::test_b") == "the secure lab"
    assert scope("tests/unit/model/test_units.py::test_c[1]") == "tests/unit/model/test_units.py"


def test_all_that_is_named_is_there():
    for paths in TOGETHER.values():
        for path in paths:
            assert (ROOT / path).exists(), path
            assert path.endswith("/") == (ROOT / path).is_dir(), path


def test_every_file_that_needs_the_secure_lab_is_scheduled_where_one_is_started():
    files = (ROOT / "tests" / "integration").rglob("test_*.py")
    needing = {path.relative_to(ROOT).as_posix() for path in files if re.search(r"\bsecure_lab\b", path.read_text())}
    assert {file for file in needing if scope(file) not in TOGETHER} == set()


def test_what_took_long_begins_first_then_what_is_unknown_and_unit_tests_fill_the_gaps():
    known = {"the secure lab": 300.0, "tests/integration/a.py": 20.0, "tests/unit/slow.py": 15.0}
    names = ["tests/unit/b.py", "tests/integration/b.py", "tests/unit/slow.py", "tests/integration/a.py"]
    assert sorted([*names, "the secure lab"], key=lambda name: begins_before(known, name)) == [
        "the secure lab",
        "tests/integration/a.py",
        "tests/unit/slow.py",
        "tests/integration/b.py",
        "tests/unit/b.py",
    ]


def test_the_table_of_durations_names_what_is_there():
    table = durations()
    assert {*TOGETHER} <= {*table}
    for name, seconds in table.items():
        assert name in TOGETHER or (scope(name) == name and (ROOT / name).is_file()), name
        assert seconds > 0


def test_workers_begin_with_the_longest_and_the_run_says_what_each_took(tmp_path):
    """Two files of one worker each: the one whose tests are few but long is first, although the other has more."""
    (tmp_path / "test_many.py").write_text("".join(f"def test_{n}(): pass\n" for n in range(8)))
    (tmp_path / "test_long.py").write_text("def test_long(): pass\n")
    (tmp_path / "conftest.py").write_text(
        "from tests.support.collection import scheduling\n"
        "scheduling.durations = lambda: {'test_long.py': 20.0}\n"
        "scheduling.SHOWN_SECONDS = 0.0\n"
        "pytest_plugins = ['tests.support.collection.scheduling']\n"
    )
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", "1", "--dist", "loadfile"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"PASSED (test_\w+\.py)::", done.stdout)
    assert ran == ["test_long.py", *["test_many.py"] * 8]
    assert re.search(r"^\d+ test_many\.py$", done.stdout, re.MULTILINE)
    assert re.search(r"^# \d+ in all$", done.stdout, re.MULTILINE)

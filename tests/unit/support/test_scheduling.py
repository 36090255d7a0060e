"""Tests that start the same clusters run on one worker, which starts them once."""

import re
from pathlib import Path

from tests.support.scheduling import TOGETHER, scope

ROOT = Path(__file__).resolve().parents[3]


def test_a_test_is_scheduled_with_those_that_need_the_same_else_with_its_file():
    assert scope("tests/integration/topologies/test_denied.py::test_a[x::y]") == "a lab of three clusters"
    assert scope("tests/integration/audit/test_rights.py::test_b") == "the secure lab"
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

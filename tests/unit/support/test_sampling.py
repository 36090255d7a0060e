"""Wide groups are sampled: the same everywhere for one seed, whole with `-m long`; and the page lists them all."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.collection.sampling import SEED, _drawn_tests, among, modules_in_turn, sampled, seed, swept
from tests.support.collection.turns import TURNS

ROOT = Path(__file__).resolve().parents[3]
SAMPLING = {"among", "sampled", "some_of", "swept"}
SUITE = """\
import pytest
from tests.support.collection.sampling import sampled


CASES = [(number, "x") for number in range(12)]


@pytest.mark.parametrize("case", sampled("a group", CASES, 3), ids=lambda case: case[0])
def test_a_case(case):
    assert case[1] == "x"


@pytest.mark.parametrize(("one", "two"), sampled("pairs", [pytest.param(n, -n, id=f"pair-{n}") for n in range(5)], 1))
def test_a_pair(one, two):
    assert one + two == 0


def test_another():
    pass
"""


SCENARIOS = """\
import pytest
from tests.support.collection.sampling import sampled, some_of

pytestmark = [pytest.mark.filterwarnings("error"), some_of("scenarios", 2)]


def test_one():
    pass


@pytest.mark.parametrize("number", [1, 2])
def test_two(number):
    assert number


@pytest.mark.parametrize("number", sampled("numbers", range(4), 1))
def test_three(number):
    assert number < 4


def test_four():
    pass
"""


def drawn(cases):
    return [case.values[0] for case in cases if any(mark.name == "sample" for mark in case.marks)]


def suite(tmp_path, *options, chosen="a seed", tests=SUITE, code=0):
    """What pytest says of a suite of its own, in a process of its own; its plugins are the sampling alone."""
    (tmp_path / "test_suite.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  long: x\n  sample: x\n  some_of: x\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in (SEED, "PYTEST_ADDOPTS"):  # the run's own
        environment.pop(name, None)
    if chosen is not None:
        environment[SEED] = chosen
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.collection.sampling",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_one_seed_draws_the_same_and_each_group_by_itself(monkeypatch):
    monkeypatch.setenv(SEED, "one")
    first = [drawn(sampled(group, range(100), 10)) for group in ("a", "b")]
    assert [len(each) for each in first] == [10, 10]
    assert first[0] != first[1]
    assert [drawn(sampled(group, range(100), 10)) for group in ("a", "b")] == first
    monkeypatch.setenv(SEED, "two")
    assert drawn(sampled("a", range(100), 10)) != first[0]


def test_every_case_is_drawn_by_some_seed_and_the_others_are_left_to_the_long_run(monkeypatch):
    seen = set()
    for number in range(200):
        monkeypatch.setenv(SEED, str(number))
        cases = sampled("a", "abcdef", 2)
        assert {mark.name for case in cases for mark in case.marks} == {"sample", "long"}
        assert sum(case.marks[-1].name == "long" for case in cases) == 4
        seen |= {*drawn(cases)}
    assert seen == {*"abcdef"}


@pytest.mark.parametrize("count", [0, 3, 4])
def test_what_leaves_nothing_out_or_draws_nothing_is_no_sample(count):
    with pytest.raises(ValueError, match=f"a group: {count} of 3 cases"):
        sampled("a group", "abc", count)


def test_a_sweep_goes_through_what_is_drawn_in_its_order_and_the_long_run_through_all(monkeypatch):
    seen = set()
    for number in range(200):
        monkeypatch.setenv(SEED, str(number))
        short, whole = swept("a", "abcdef", 2)
        assert (short.id, short.marks, whole.id) == ("drawn", (), "whole")
        assert [mark.name for mark in whole.marks] == ["long"]
        ((drawn,), (every,)) = (short.values, whole.values)
        assert (len(drawn), drawn == sorted(drawn), every) == (2, True, list("abcdef"))
        seen |= {*drawn}
    assert seen == {*"abcdef"}
    with pytest.raises(ValueError, match="a: 6 of 6 cases"):
        swept("a", "abcdef", 6)


def test_of_several_tests_some_are_drawn_and_each_is_by_some_seed(monkeypatch):
    names, seen = ["one", "two", "three"], set()
    for number in range(100):
        monkeypatch.setenv(SEED, str(number))
        mark = among("a", names, 1)
        marks = {name: mark(name).name for name in names}
        assert sorted(marks.values()) == ["long", "long", "sample"]
        seen |= {name for name, given in marks.items() if given == "sample"}
    assert seen == {*names}
    with pytest.raises(ValueError, match="four"):
        mark("four")


def test_the_seed_is_settled_once_and_processes_that_are_started_inherit_it(monkeypatch):
    monkeypatch.delenv(SEED)
    first = seed()
    assert re.fullmatch(r"[0-9a-f]{12}|\d{4}-\d\d-\d\d", first)
    assert os.environ[SEED] == seed() == first


def test_a_run_leaves_out_what_is_not_drawn_and_the_long_one_runs_all_of_a_group(tmp_path):
    short = suite(tmp_path, "-q", "-rN", "-m", "not long")
    assert "5 passed, 13 deselected" in short
    assert "17 passed, 1 deselected" in suite(tmp_path, "-q", "-m", "long", chosen="another seed")


def test_of_a_module_of_scenarios_each_is_drawn_by_some_seed(monkeypatch):
    module, seen = ModuleType("scenarios"), set()
    for name in ("test_one", "test_two", "test_three"):
        setattr(module, name, lambda: None)
    module.helper = lambda: None
    for number in range(100):
        monkeypatch.setenv(SEED, str(number))
        drawn_now = _drawn_tests(module, "a", 2)
        assert len(drawn_now) == 2
        seen |= drawn_now
    assert seen == {"test_one", "test_two", "test_three"}


def test_of_a_module_of_scenarios_some_run_and_the_long_run_has_all(tmp_path):
    told = suite(tmp_path, "-v", "-m", "not long", tests=SCENARIOS)
    ran = re.findall(r"test_suite.py::(\w+)\S* PASSED", told)
    assert len({*ran}) == 2
    assert len(ran) == sum({"test_two": 2}.get(name, 1) for name in {*ran}), "what one samples itself stays sampled"
    assert "8 passed" in suite(tmp_path, "-q", "-m", "long", tests=SCENARIOS)


def test_a_module_that_leaves_nothing_out_is_a_mistake(tmp_path):
    every = SCENARIOS.replace('"scenarios", 2', '"scenarios", 4')
    told = suite(tmp_path, "-q", tests=every, code=pytest.ExitCode.USAGE_ERROR)
    assert "scenarios: 4 of 4 cases is no sample" in told


def test_the_workers_of_a_run_collect_the_same_tests_as_the_header_says(tmp_path):
    told = suite(tmp_path, "-n", "2", "-m", "not long", "-v", chosen=None)
    assert "5 passed" in told
    (chosen,) = re.findall(rf"^sampled groups: {SEED}=(\S+) ", told, re.MULTILINE)
    ran = {*re.findall(r"PASSED \S*?(test_suite.py::\S+)", told)}
    again = suite(tmp_path, "-q", "--collect-only", "-m", "not long", chosen=chosen)
    assert ran == {*re.findall(r"test_suite.py::\S+", again)}


def calls():
    """Each call of `among`, `sampled`, `some_of` and `swept` in the tests: its file, group and count."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAMPLING:
                group, count = ast.literal_eval(node.args[0]), ast.literal_eval(node.args[-1])
                yield path.relative_to(ROOT / "tests").as_posix(), group, count


def test_the_page_lists_every_group_that_is_sampled():
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| ([^|`]+) \| `([^`]+)` \| (\d+)(?: of \d+)?(?: places| tests?)? \|", text, re.MULTILINE)
    listed = {(file, group, int(count)) for group, file, count in rows}
    found = list(calls())
    assert listed == {*found}
    assert len({group for _, group, _ in found}) == len(found), "two groups of one name would be drawn alike"


def test_modules_take_turns_and_each_is_drawn_by_some_seed(monkeypatch):
    for group, (count, files) in TURNS.items():
        seen = set()
        for number in range(200):
            monkeypatch.setenv(SEED, str(number))
            drawn_now = modules_in_turn(group)
            assert len(drawn_now) == count < len(files)
            seen |= drawn_now
        assert seen == {*files}


def test_modules_that_take_turns_are_there_and_each_is_of_one_group():
    files = [file for _, files in TURNS.values() for file in files]
    assert len({*files}) == len(files)
    assert [file for file in files if not (ROOT / "tests" / file).is_file()] == []


def test_of_modules_in_turn_the_drawn_ones_run_and_the_long_run_has_all(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_it(): pass\n")
    two = "import pytest\n@pytest.mark.long\ndef test_long(): pass\ndef test_it(): pass\n"
    (tmp_path / "test_two.py").write_text(two)
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from tests.support.collection import sampling\n"
        "sampling.TURNS = {'a pair': (1, ('test_one.py', 'test_two.py'))}\n"
        "sampling._TESTS = Path(__file__).parent\n"
    )
    always = "def test_always(): pass\n"
    told = suite(tmp_path, "-q", "--collect-only", "-m", "not long", tests=always)
    assert len({*re.findall(r"^(test_\w+\.py)::test_it", told, re.MULTILINE)}) == 1
    assert "test_suite.py::test_always" in told
    assert "test_long" not in told
    told = suite(tmp_path, "-q", "--collect-only", "-m", "long", tests=always)
    ids = {*re.findall(r"^(test_\w+\.py::\w+)", told, re.MULTILINE)}
    assert ids == {"test_one.py::test_it", "test_two.py::test_it", "test_two.py::test_long"}


def test_the_page_lists_every_module_that_takes_turns():
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| ([^|`]+) \| ((?:`[^`]+`(?:, )?)+) \| (\d+) of (\d+) files \|$", text, re.MULTILINE)
    listed = {group: (int(count), tuple(re.findall("`([^`]+)`", files))) for group, files, count, _ in rows}
    assert listed == TURNS
    assert all(int(of) == len(TURNS[group][1]) for group, _, _, of in rows)

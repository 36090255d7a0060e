"""Large groups of tests: `make test` runs a sample of each, drawn with one seed; `make test-long` runs all.

    @pytest.mark.parametrize("boundary", sampled("killed failover", boundaries(Kind.FAILOVER), 6), ids="-".join)
    @pytest.mark.parametrize("places", swept("killed again and again", boundaries(Kind.FAILBACK), 5))
    pytestmark = [pytest.mark.lab, some_of("ways to lose a store", 7)]

Every member of a group must pass alone, in any order, on the shared lab: another commit draws others. docs/testing.md
lists the groups, and the modules that alternate (`turns.py`); `tests/unit/support/test_sampling.py` checks that.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.collection.turns import TURNS

SEED = "TEST_SEED"
"""The variable that chooses the seed: any text. Workers of pytest-xdist inherit what their controller set. (A name that
begins with DRKIT_ would be refused by every drkit that a test starts.)"""
_GIT_SECONDS = 10.0
_TESTS = Path(__file__).resolve().parents[2]


def seed() -> str:
    """This run's seed: as chosen, else the commit, else (without a repository) the day. The first call decides it."""
    return os.environ.setdefault(SEED, _commit() or f"{datetime.now(UTC):%Y-%m-%d}")


def sampled(group: str, cases: Iterable[Any], count: int) -> list[Any]:
    """All cases for `parametrize`; the seed draws `count` of them, the others are marked `long`.

    Args:
        group: its name in docs/testing.md; each group is drawn separately.
        cases: values, or (for several arguments) `pytest.param`s.
        count: how many are drawn; at least 1.

    Raises:
        ValueError: nothing would be left out, or nothing drawn.
    """
    every = [case if isinstance(case, _Parameters) else pytest.param(case) for case in cases]
    drawn = _drawn(group, len(every), count)
    marks = {True: pytest.mark.sample, False: pytest.mark.long}
    return [
        pytest.param(*case.values, id=case.id, marks=(*case.marks, marks[number in drawn]))
        for number, case in enumerate(every)
    ]


def swept(group: str, places: Iterable[Any], count: int) -> list[Any]:
    """Two cases for `parametrize`, for a test that visits places one after the other: those that the seed draws, in
    their order (`drawn`), and all of them (`whole`, which is `long`).

    Args:
        group: as for `sampled`.
        places: all places. The drawn ones must lead to the same end without the others.
        count: how many are drawn; at least 1.

    Raises:
        ValueError: nothing would be left out, or nothing drawn.
    """
    every = list(places)
    drawn = _drawn(group, len(every), count)
    return [
        pytest.param([place for number, place in enumerate(every) if number in drawn], id="drawn"),
        pytest.param(every, id="whole", marks=pytest.mark.long),
    ]


def among(group: str, names: Sequence[str], count: int) -> Callable[[str], pytest.MarkDecorator]:
    """The marks of several separate test functions: `@DRAWN("name")` above the test with this name.

    Args:
        group: as for `sampled`.
        names: the tests' names.
        count: how many are drawn; at least 1.

    Raises:
        ValueError: nothing would be left out, or nothing drawn; or a requested mark is of no test of the group.
    """
    drawn = _drawn(group, len(names), count)
    return lambda name: pytest.mark.sample if names.index(name) in drawn else pytest.mark.long


def some_of(group: str, count: int) -> pytest.MarkDecorator:
    """For the `pytestmark` of a module whose tests share no state: `make test` runs `count` of its test functions,
    which the seed draws; the others are `long`. Drawn ones that sample their own cases continue to do so.

    Args:
        group: as for `sampled`.
        count: how many are drawn; at least 1.
    """
    return pytest.mark.some_of(group, count)


def modules_in_turn(group: str) -> set[str]:
    """The modules of a group of `TURNS` that the seed draws, by their paths below tests/.

    Raises:
        ValueError: nothing would be left out, or nothing drawn.
    """
    count, files = TURNS[group]
    drawn = _drawn(group, len(files), count)
    return {files[number] for number in drawn}


def _drawn(group: str, many: int, count: int) -> set[int]:
    """The numbers of the drawn ones."""
    if not 0 < count < many:
        raise ValueError(f"{group}: {count} of {many} cases is no sample")
    return set(random.Random(f"{seed()} {group}").sample(range(many), count))  # noqa: S311 - a choice of tests


def _drawn_tests(module: ModuleType, group: str, count: int) -> set[str]:
    """The names of a module's drawn test functions; all of its functions count, not only those of this run."""
    names = [name for name, value in vars(module).items() if name.startswith("test_") and callable(value)]
    try:
        drawn = _drawn(group, len(names), count)
    except ValueError as error:
        raise pytest.UsageError(f"{module.__file__}: {error}") from None
    return {names[number] for number in drawn}


_Parameters = type(pytest.param())


def _commit() -> str | None:
    """The checked-out commit; None: this is not a repository, or git is missing."""
    try:
        told = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None


def pytest_configure() -> None:
    """Decide the seed before pytest-xdist starts its workers: they must collect the same tests."""
    seed()


def pytest_report_header() -> str:
    """Report the seed."""
    return f"sampled groups: {SEED}={seed()} (the same value draws the same tests; -m long runs them whole)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-m long` the drawn ones run, too: the whole group, with any seed.

    Raises:
        UsageError: `some_of` in a module leaves out none of its tests, or draws none.
    """
    in_turn = {file: file in modules_in_turn(group) for group, (_, files) in TURNS.items() for file in files}
    for item in items:
        drawn = in_turn.get(item.path.relative_to(_TESTS).as_posix()) if item.path.is_relative_to(_TESTS) else None
        if drawn is not None:
            item.add_marker("sample" if drawn else "long")
        if isinstance(item, pytest.Function) and (mark := item.get_closest_marker("some_of")) is not None:
            item.add_marker("sample" if item.originalname in _drawn_tests(item.module, *mark.args) else "long")
    if config.option.markexpr.strip() == "long":
        for item in items:
            if item.get_closest_marker("sample") is not None:
                item.add_marker(pytest.mark.long)

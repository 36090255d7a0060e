#!/usr/bin/env python3
"""Mutation testing: how many small faults in a package its own unit tests find (docs/mutation.md).

    .venv/bin/python tools/mutate.py mapping                                  # every mutant
    .venv/bin/python tools/mutate.py kafka/protocol --sample 400 --seed 7     # some of them
    .venv/bin/python tools/mutate.py audit/classify --module ordering         # of one module

The tests are collected once, and run once to see which functions each calls. Each mutant is then a forked process: one
function's code, or one constant of a module, is replaced, and the tests that call this function run, the quick ones
first, until one fails. Texts, annotations, defaults, class bodies and `assert` are not mutated.

Exits 1 where fewer than nine of ten mutants are killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import math
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "mapping": ("mapping",),
    "audit/classify": ("audit",),
    "failover/plan": ("failover",),
    "failover/run": ("failover", "evidence/test_approvals.py"),
    "kafka/protocol": ("kafka",),
}
"""The packages, and where their own tests are."""
BESIDE = {
    "audit/classify": ("audit/compare/log_lookups.py",),
    "failover/plan": ("failover/snapshot", "failover/planning"),
    "failover/run": ("failover/context", "failover/journal"),
}
"""What is measured with a package, from other folders."""
SHOWN_ELSEWHERE = (
    "audit/classify/run_classification.py",
    "audit/classify/foreign_keys.py",
    "failover/snapshot/take_snapshot.py",
    "failover/plan/shared_preconditions.py",
    "failover/run/service.py",
    "failover/run/rehearsal.py",
    "failover/stages/audited_loss.py",
)
"""Modules that are left out unless they are named: docs/mutation.md says why, and what shows that they work."""
ENOUGH = 0.9
_SHOWN = 100
_NOT_PUT = "?"
_OPERATORS = (
    "Lt LtE GtE, LtE Lt Gt, Gt GtE LtE, GtE Gt Lt, Eq NotEq, NotEq Eq, Is IsNot, IsNot Is, In NotIn, NotIn In, "
    "Add Sub, Sub Add, Mult FloorDiv, FloorDiv Mult, Div Mult, Mod FloorDiv, BitAnd BitOr, BitOr BitAnd, BitXor BitOr, "
    "LShift RShift, RShift LShift, And Or, Or And"
)
_OTHERS = {names.split()[0]: [getattr(ast, name) for name in names.split()[1:]] for names in _OPERATORS.split(", ")}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}

Place = tuple[ast.AST, str, int | None]
"""A node, its field, and the index in this."""
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_CONSTANT = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Mutant:
    """A module in which something else stands at one place. `holder`: the function or constant that this is in."""

    path: Path
    tree: ast.Module
    holder: Any
    place: Place
    new: Any
    shown: ast.expr | ast.stmt

    @property
    def name(self) -> str:
        """Of the holder."""
        if isinstance(self.holder, _FUNCTION):
            return self.holder.name
        return ast.unparse(self.holder.targets[0] if isinstance(self.holder, ast.Assign) else self.holder.target)

    def __str__(self) -> str:
        before = ast.unparse(self.shown)
        held = self._put(self.new)
        after = ast.unparse(self.new if held is self.shown else self.shown)
        self._put(held)
        lines = [" ".join(text.split())[:_SHOWN] for text in (before, after)]
        return f"{self.path.name}:{self.shown.lineno} {self.name}: `{lines[0]}` became `{lines[1]}`"

    def _put(self, value: Any) -> Any:
        """Put a value there; returns what was there."""
        owner, field, index = self.place
        held = getattr(owner, field)
        if index is None:
            setattr(owner, field, value)
            return held
        held[index], before = value, held[index]
        return before

    def apply(self, loaded: Sequence[types.FunctionType]) -> None:
        """Become this process's code. Raises: LookupError, ValueError: it can't be put into what is loaded."""
        self._put(self.new)
        whole = compile(ast.fix_missing_locations(self.tree), str(self.path), "exec", dont_inherit=True)
        if isinstance(self.holder, _CONSTANT):
            return self._rebind(self.holder)
        place = (str(self.path), min(each.lineno for each in (self.holder, *self.holder.decorator_list)), self.name)
        (code,) = (each for each in _codes(whole) if (each.co_filename, each.co_firstlineno, each.co_name) == place)
        for function in loaded:
            old = function.__code__
            if (old.co_filename, old.co_firstlineno, old.co_name) == place:
                function.__code__ = code
        return None

    def _rebind(self, holder: ast.Assign | ast.AnnAssign) -> None:
        """Give a constant its other value, also where it was imported by its name."""
        home = vars(importlib.import_module(".".join(self.path.relative_to(ROOT).with_suffix("").parts)))
        expression = compile(ast.Expression(cast("ast.expr", holder.value)), str(self.path), "eval", dont_inherit=True)
        was, value = home[self.name], eval(expression, home)  # noqa: S307 - drkit's own source
        for each in [vars(each) for each in list(sys.modules.values()) if isinstance(each, types.ModuleType)]:
            if self.name in each and each[self.name] is was:
                each[self.name] = value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of the functions and constants of a module."""
    tree = ast.parse(path.read_text())
    rest = list(tree.body)
    while rest:
        node = rest.pop(0)
        if isinstance(node, ast.ClassDef):
            rest[:0] = [each for each in node.body if not isinstance(each, _CONSTANT)]
        elif isinstance(node, _FUNCTION):
            for index, child in enumerate(node.body):
                yield from (Mutant(path, tree, node, *each) for each in _edits(child, (node, "body", index), node))
        elif isinstance(node, _CONSTANT) and node.value is not None:
            yield from (Mutant(path, tree, node, *each) for each in _edits(node.value, (node, "value", None), node))


def _edits(node: ast.AST, place: Place, shown: Any) -> Iterator[tuple[Place, Any, Any]]:
    """What can be put where, in a node that stands at `place` and in all below it, and what to show of it."""
    if isinstance(node, ast.Assert):
        return
    if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, ast.Constant):
        shown = node
    yield from ((where, new, shown) for where, new in _edits_of(node, place))
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and field not in {"annotation", "returns", "decorator_list"}:
                yield from _edits(child, (node, field, index), shown)


def _edits_of(node: ast.AST, place: Place) -> Iterator[tuple[Place, Any]]:  # noqa: C901, PLR0912 - one table
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                yield from (((node, "ops", index), other()) for other in _OTHERS[type(operator).__name__])
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            yield from (((node, "op", None), other()) for other in _OTHERS.get(type(node.op).__name__, ()))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield place, node.operand
        case ast.Constant(value=bool()):
            yield (node, "value", None), not node.value
        case ast.Constant(value=(int() | float()) as number):
            yield (node, "value", None), number + 1
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield (node, "value", None), ast.Constant(None)
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield place, ast.Pass()
        case ast.Continue() | ast.Break():
            yield place, ast.Break() if isinstance(node, ast.Continue) else ast.Continue()
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield (node.func, "id", None), _CALLS[name]
        case ast.Slice():
            yield from (((node, side, None), None) for side in ("lower", "upper") if getattr(node, side) is not None)
        case ast.comprehension():
            yield from (((node, "ifs", index), ast.Constant(True)) for index in range(len(node.ifs)))
        case ast.If() | ast.While() | ast.IfExp() if isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            yield (node, "test", None), ast.UnaryOp(ast.Not(), node.test)


class Trials:
    """A pytest plugin: instead of running the tests once, it runs them against each mutant."""

    def __init__(self, every: Sequence[Mutant]) -> None:
        self._every = every
        self.tallies: defaultdict[Path, list[int]] = defaultdict(lambda: [0, 0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Before the tests are imported: the same examples each time, and none shrunk."""
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - pytest must load it first, to rewrite it

        same: dict[str, Any] = {"deadline": None, "database": None, "derandomize": True}
        same["phases"] = (Phase.explicit, Phase.generate)
        settings.register_profile("mutate", suppress_health_check=list(HealthCheck), **same)
        settings.load_profile("mutate")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants."""
        baseline = in_child(lambda: self._calls(session), 3600)
        if not isinstance(baseline, list):
            raise pytest.UsageError(f"without a mutant this fails, too: {baseline or 'the run'}")
        loaded = [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]
        gc.freeze()  # so that children share the memory
        kills: Counter[tuple[str, int]] = Counter()
        for mutant in self._every:
            calling = [number for number, (_, called) in enumerate(baseline) if _calls_it(called, mutant)]
            calling.sort(key=lambda number: (-kills[mutant.name, number], baseline[number][0]))
            tests = {number: baseline[number][0] for number in calling}
            told = in_child(partial(_attempt, session, mutant, loaded, tests), sum(tests.values()) + 60)
            if told == _NOT_PUT:
                continue
            if told == "":
                print(f"  survived {len(calling)} tests: {mutant}", flush=True)
            elif told is not None:
                kills[mutant.name, told] += 1
            self.tallies[mutant.path][0] += told != ""
            self.tallies[mutant.path][1] += 1
        return True

    def _calls(self, session: pytest.Session) -> list[tuple[float, set[tuple[str, str]]]] | str:
        """Of each test its CPU seconds, and the functions of the package that it calls; or the first one that fails."""
        paths = {str(each.path) for each in self._every}
        called: set[tuple[str, str]] = set()

        def trace(frame: types.FrameType, _event: str, _value: object) -> None:
            if frame.f_code.co_filename in paths:
                outermost = frame.f_code.co_qualname.partition(".<locals>")[0]
                called.add((frame.f_code.co_filename, outermost.rpartition(".")[2]))

        found = []
        for item in session.items:
            called.clear()
            began = time.process_time()
            threading.settrace(trace)
            sys.settrace(trace)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.settrace(None)
            if session.testsfailed:
                return item.nodeid
            found.append((time.process_time() - began, set(called)))
        return found


def _calls_it(called: set[tuple[str, str]], mutant: Mutant) -> bool:
    constant = isinstance(mutant.holder, _CONSTANT)
    return any(path == str(mutant.path) and (constant or name == mutant.name) for path, name in called)


def _attempt(session: pytest.Session, mutant: Mutant, loaded: Sequence[Any], tests: Mapping[int, float]) -> int | str:
    """The test that kills a mutant, by number; empty: none does. `tests`: with the CPU seconds that each took traced,
    and may take now: beyond, the process ends."""
    try:
        mutant.apply(loaded)
    except (LookupError, ValueError):
        return _NOT_PUT
    for number, seconds in tests.items():
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds + 2)
        session.items[number].ihook.pytest_runtest_protocol(item=session.items[number], nextitem=None)
        if session.testsfailed:
            return number
    return ""


def in_child(work: Callable[[], Any], cpu_seconds: float) -> Any:
    """What `work` returns in a forked process of a group of its own; None where this dies or takes too long."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_seconds), math.ceil(cpu_seconds) + 5))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(math.ceil(cpu_seconds) * 5 + 60)
                pickle.dump(work(), answer)
                answer.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what a test left behind
        answer.seek(0)
        with contextlib.suppress(EOFError):
            return pickle.load(answer)  # noqa: S301 - of a child of this process
        return None


def main() -> int:
    """Try the mutants of a package; how many its tests kill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=TESTS)
    parser.add_argument("--module", action="append", help="of these modules alone, by their names")
    parser.add_argument("--sample", type=int, help="so many of them")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    beside = (ROOT / "drkit" / each for each in BESIDE.get(options.package, ()))
    found = (each.rglob("*.py") if each.is_dir() else (each,) for each in (ROOT / "drkit" / options.package, *beside))
    paths = sorted(chain.from_iterable(found))
    left_out = {ROOT / "drkit" / name for name in SHOWN_ELSEWHERE}
    asked = [path for path in paths if (path.stem in options.module if options.module else path not in left_out)]
    every = [each for path in asked for each in mutants(path)]
    drawn = random.Random(options.seed).sample(range(len(every)), min(options.sample or len(every), len(every)))  # noqa: S311
    print(f"{options.package}: {len(drawn)} of {len(every)} mutants, seed {options.seed}", flush=True)
    trials = Trials([every[number] for number in sorted(drawn)])
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        plain = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "-o", "timeout=0", "-m", "not long"]
        tests = [f"tests/unit/{each}" for each in TESTS[options.package]]
        code = pytest.main([*plain, f"--basetemp={folder}/pytest", *tests], plugins=[trials])
    if code != pytest.ExitCode.OK or not trials.tallies:
        return 2
    for path, (dead, of) in trials.tallies.items():
        print(f"{dead} of {of} killed: {path.relative_to(ROOT)}")
    killed, tried = (sum(each) for each in zip(*trials.tallies.values(), strict=True))
    print(f"{killed} of {tried} mutants killed ({killed / tried:.1%})")
    return 0 if killed >= ENOUGH * tried else 1


if __name__ == "__main__":
    sys.exit(main())

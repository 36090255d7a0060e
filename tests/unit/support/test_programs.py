"""Programs that tests hand to another interpreter are strings: what checks the tree sees no name in them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]


def programs(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each string of several lines that is a program with imports."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or "\n" not in node.value:
            continue
        text = textwrap.dedent(node.value)
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        if any(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.walk(tree)):
            yield node.lineno, text


def of_all_tests() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("*.py")):
        for line, text in programs(path.read_text()):
            yield f"{path.relative_to(TESTS)}:{line}", text


def undefined(folder: Path, texts: dict[str, str]) -> str:
    """What ruff says of names that nothing binds; each program has a file of its own."""
    for place, text in texts.items():
        (folder / f"{place.replace('/', '.')}.py").write_text(text)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    return subprocess.run([*ruff, str(folder)], capture_output=True, text=True, check=False).stdout


def test_every_name_in_a_program_is_bound(tmp_path: Path) -> None:
    texts = dict(of_all_tests())
    assert texts
    assert "All checks passed" in undefined(tmp_path, texts)


def test_what_a_program_imports_from_here_exists() -> None:
    for place, text in of_all_tests():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"drkit", "chaos", "tests"}:
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or importlib.util.find_spec(name), f"{place}: {name}"


def test_an_unbound_name_is_found(tmp_path: Path) -> None:
    (found,) = programs('CODE = """\nimport sys\nsys.exit(gone.code)\n"""\n')
    assert "Undefined name `gone`" in undefined(tmp_path, {"sample:1": found[1]})

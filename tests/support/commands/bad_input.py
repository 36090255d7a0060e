"""Runs drkit on bad input, through its real entry point, and checks the requirements for every refusal.

A row is data: the error, the command, the exit code of the contract, what the only message must name. `refused` runs it
for people and for programs: one message that says what happened and what to do, no stack trace, one document on stdout
with --output json, and all files unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.commands.in_process import Ended, in_process

ROOT = Path(__file__).parents[3]
ERROR_SCHEMA = json.loads((ROOT / "docs" / "schemas" / "error.schema.json").read_text())
CONFIG = """\
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"

[clusters.dr]
bootstrap_servers = "127.0.0.1:2"

[store]
url = "sqlite:///drkit.db"

[[links]]
source = "primary"
target = "dr"
topics = ["flights", "orders[.].*"]

[objectives]
rpo_records = 0
"""
_MARKS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Bad:
    """One bad input.

    Attributes:
        what: a short description; the test's name.
        command: the arguments of `drkit`.
        names: what the message must name: file, key, value, line.
        code: the exit code.
        remedy: what the remedy must name.
        config: the content of drkit.toml; None: there is none.
        files: further files by name, with their content.
        variables: of the environment.
        unsaid: what the message must not name.
        prepare: creates in the folder what files alone can't express.
    """

    what: str
    command: str | Sequence[str]
    names: Sequence[str] = ()
    code: int = 2
    remedy: str = ""
    config: str | bytes | None = CONFIG
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    unsaid: Sequence[str] = ()
    prepare: Callable[[Path], object] | None = None

    @property
    def arguments(self) -> list[str]:
        """The command's words."""
        return shlex.split(self.command) if isinstance(self.command, str) else list(self.command)


def rows(found: Sequence[Bad]) -> Any:
    """A parametrization by rows; two with the same name are a mistake."""
    names = [each.what for each in found]
    assert len(set(names)) == len(names), sorted({name for name in names if names.count(name) > 1})
    return pytest.mark.parametrize("bad", found, ids=[name.replace(" ", "-") for name in names])


def changed(text: str, old: str, new: str) -> str:
    """A text with a part of it replaced, which must exist."""
    assert old in text, old
    return text.replace(old, new, 1)


def lay(bad: Bad, folder: Path) -> None:
    """Write the row's files to drkit's working directory."""
    files = dict(bad.files)
    if bad.config is not None:
        files["drkit.toml"] = bad.config
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    if bad.prepare is not None:
        bad.prepare(folder)


def refused(bad: Bad, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a row for people and for programs, and check the output."""
    lay(bad, folder)
    settle(folder, bad.variables, monkeypatch)
    before = contents(folder)
    people = in_process(bad.arguments)
    programs = in_process([*bad.arguments, "--output", "json"])
    check(bad, people, programs)
    assert contents(folder) == before, "something was changed"


def settle(folder: Path, variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to the folder, with a state directory in it and only the row's variables of drkit."""
    for name in [name for name in os.environ if name.upper().startswith("DRKIT_")]:
        monkeypatch.delenv(name)
    for name, value in {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)


def check(bad: Bad, people: Ended, programs: Ended) -> None:
    """One message with location and remedy, for people and as a document."""
    assert (people.code, programs.code) == (bad.code, bad.code), f"{people.err}\n{programs.err}"
    text = _MARKS.sub("", people.err)
    assert "Traceback" not in text + programs.err
    assert "internal error" not in text
    assert text.count("error: ") == 1 or text.count("\nerror: ") + text.startswith("error: ") == 1, text
    assert people.out == "", people.out
    document = json.loads(programs.out)
    jsonschema.validate(document, ERROR_SCHEMA)
    error = document["error"]
    assert error["exit_code"] == bad.code
    said = f"{error['what']} {error['meaning'] or ''} {error['remedy'] or ''}"
    for name in bad.names:
        assert name in said, f"{name!r} is not named: {said}"
    for name in bad.unsaid:
        assert name not in said, f"{name!r} is named: {said}"
    assert error["meaning"] or bad.code != 2, f"no meaning: {said}"
    assert error["remedy"], f"no remedy: {said}"
    assert bad.remedy in error["remedy"], error["remedy"]
    assert _flat(error["what"]) in _flat(text), "people and programs are told the same"
    assert "sesame" not in said + text, "a secret is told"


def _flat(text: str) -> str:
    return re.sub(r"[^\w]+", " ", text)


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder: its mode, and the digest of its content (of a link: its target)."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            inside = str(path.readlink())
        elif stat.S_ISREG(mode):
            inside = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            inside = ""
        found[str(path.relative_to(folder))] = (mode, inside)
    return found

"""What people add to a bundle, and values that are unknown.

Statements: witness, purpose, runbook, and the owner and due date of each finding. An unknown value is null in the
document, with the reason under `unknown`, by JSON pointer (RFC 6901).
"""

from __future__ import annotations

import getpass
import platform
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from drkit.model.errors import ConfigError

# --- unknown values ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unknown:
    """The placeholder of an unknown value."""

    reason: str


def known(value: Any, reason: str) -> Any:
    """The value, or the reason why it is unknown."""
    return Unknown(reason) if value is None else value


def with_reasons(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with null for each unknown value, and `unknown` with the reasons."""
    reasons: dict[str, str] = {}
    settled: dict[str, Any] = _replace_unknowns(document, "", reasons)
    return {**settled, "unknown": reasons}


def _replace_unknowns(value: Any, pointer: str, reasons: dict[str, str]) -> Any:
    if isinstance(value, Unknown):
        reasons[pointer] = value.reason
        return None
    if isinstance(value, Mapping):
        return {key: _replace_unknowns(each, f"{pointer}/{_escaped(str(key))}", reasons) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_unknowns(each, f"{pointer}/{number}", reasons) for number, each in enumerate(value)]
    return value


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


# --- statements ----------------------------------------------------------------------------------------------------

_GIT_SECONDS = 10.0
NOT_NAMED = "nobody was named: --findings FILE at the export"


class StatedFinding(BaseModel):
    """One `[[finding]]` of the file: `id` of a finding of the bundle, or a new one with `what`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    what: str | None = None
    owner: str | None = None
    due: date | None = None
    retest: str | None = None


class _FindingsFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    finding: tuple[StatedFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportStatements:
    """The statements of an export. `purpose`: drill, recovery or another word; `why`: a sentence."""

    witness: str | None = None
    purpose: str | None = None
    why: str | None = None
    runbook: Path | None = None
    findings: tuple[StatedFinding, ...] = ()
    exported_by: str = field(default_factory=lambda: f"{_user()}@{platform.node()}")


def read_findings(file: Path | None) -> tuple[StatedFinding, ...]:
    """The findings of a TOML file.

    Raises:
        ConfigError: it can't be read, or is wrong.
    """
    if file is None:
        return ()
    try:
        return _FindingsFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).finding
    except (OSError, ValueError, RecursionError) as error:  # ValidationError is a ValueError
        raise ConfigError(
            f"--findings: {file}: {error}", remedy='Write [[finding]] with id, owner, due = 2026-12-01, retest = "RUN"'
        ) from None


def findings_of(
    found: Iterable[tuple[str, str]], stated: Collection[StatedFinding], passed_drills: Collection[str]
) -> list[dict[str, Any]]:
    """Findings (id, what) with the statements about them. Only a passed retest closes one.

    Raises:
        ConfigError: a statement is about an unknown finding and doesn't say `what` it is.
    """
    by_id = {each.id: each for each in stated}
    all_found = dict(found)
    for each in stated:
        if each.id not in all_found:
            if each.what is None:
                names = ", ".join(all_found) or "none"
                raise ConfigError(
                    f"--findings: the bundle has no finding {each.id!r} (it has: {names})",
                    remedy="Correct the id, or add `what` it is",
                )
            all_found[each.id] = each.what
    rows = []
    for name, what in all_found.items():
        said = by_id.get(name)
        retest = None if said is None else said.retest
        rows.append(
            {
                "id": name,
                "what": what,
                "owner": known(None if said is None else said.owner, NOT_NAMED),
                "due": known(None if said is None or said.due is None else said.due.isoformat(), NOT_NAMED),
                "retest": known(retest, "no retest was named: --findings FILE at the export"),
                "status": "closed" if retest in passed_drills and retest is not None else "open",
            }
        )
    return rows


def runbook_of(file: Path | None) -> tuple[dict[str, Any] | Unknown, dict[str, bytes]]:
    """The document's entry about the runbook, and the file to add to the bundle.

    Raises:
        ConfigError: it can't be read.
    """
    if file is None:
        return Unknown("no runbook was named: --runbook FILE, or evidence.runbook in the configuration"), {}
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the runbook {file} can't be read: {error.strerror or error}", remedy="Correct it") from None
    name = f"runbook{file.suffix or '.txt'}"
    revision = _git(file, "log", "-1", "--format=%H")
    changed = _git(file, "status", "--porcelain")
    why = "it isn't in a git repository, or git isn't installed"
    return {
        "file": name,
        "path": str(file),
        "revision": known(revision or None, why),
        "changed_since": known(None if not revision or changed is None else bool(changed), why),
    }, {name: content}


def _git(file: Path, *arguments: str) -> str | None:
    """The output of git about a file; None: there is none."""
    try:
        done = subprocess.run(
            ["git", "-C", str(file.resolve().parent), *arguments, "--", file.resolve().name],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _user() -> str:
    try:
        return getpass.getuser()
    except OSError:  # no such user in a container
        return "unknown"

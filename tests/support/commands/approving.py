"""Two operators, ana and ben, who sign plans with `drkit evidence approve`."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config import Config
from drkit.evidence.approvals import read_approvals
from drkit.evidence.signing import make_key
from drkit.model.clock import now
from drkit.model.runs import Approval

OPERATORS = ("ana", "ben")


def operators(folder: Path) -> str:
    """Create their keys in `folder`; returns the table of the configuration with them."""
    keys = "".join(f'{name} = "{make_key(folder / name)}"\n' for name in OPERATORS)
    return f"\n[approvals.operators]\n{keys}"


def approved(config: Path, folder: Path, name: str, plan: str, *flags: str) -> Path:
    """The approval of one of them: of a plan's file or digest, and the flags that its execution may use."""
    out = folder / f"{name}.approval"
    out.unlink(missing_ok=True)
    words = ["evidence", "approve", plan, "--key", str(folder / name), "--out", str(out), *flags]
    done = CliRunner().invoke(application(("evidence",)), [*words, "--output", "json", "--config", str(config)])
    assert done.exit_code == 0, f"{done.exit_code}: {done.stdout}\n{done.stderr}"
    json.loads(done.stdout)
    return out


def approved_by_both(config: Path, folder: Path, digest: str, *flags: str) -> list[Path]:
    return [approved(config, folder, name, digest, *flags) for name in OPERATORS]


def approval(config: Config, folder: Path, digest: str, *flags: str) -> Approval:
    """Both signatures, as a command gets them from its options."""
    assert config.file is not None
    assert config.approvals is not None
    files = approved_by_both(config.file, folder, digest, *flags)
    return read_approvals(files, config.approvals.operators, now())

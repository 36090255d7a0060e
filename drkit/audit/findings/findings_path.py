"""The path of an audit's findings: it must be unused, and is cleared if the audit didn't finish."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from drkit.model.audit.audit_result import AuditRequest
from drkit.model.errors import Refused


def findings_path(request: AuditRequest) -> Path:
    """Where an audit's findings go.

    Raises:
        Refused: there are findings already.
    """
    path = _path(request)
    if path.exists():
        raise Refused(
            f"there are findings at {path} already",
            meaning="An audit never overwrites another's findings",
            remedy="Give another --out",
        )
    return path


def discard_findings(request: AuditRequest) -> None:
    """Remove an audit's findings, and their folder if it is empty then."""
    path = _path(request)
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # somebody else's files are in it
        path.parent.rmdir()


def _path(request: AuditRequest) -> Path:
    return Path(request.out).expanduser().resolve() / "findings.parquet"

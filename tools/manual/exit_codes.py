"""What each exit code means: the table of docs/contract.md, held against the codes that there are."""

from __future__ import annotations

import re
from pathlib import Path

from drkit.model.errors import ExitCode

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "contract.md"
_ROW = re.compile(r"^\| (\d+) \| (.+?) \|$", re.MULTILINE)


def meanings() -> dict[ExitCode, str]:
    """The meaning of each exit code.

    Raises:
        KeyError: docs/contract.md has no row for one.
    """
    rows = {int(code): text for code, text in _ROW.findall(CONTRACT.read_text(encoding="utf-8"))}
    return {code: rows[int(code)] for code in ExitCode}

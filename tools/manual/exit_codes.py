"""What each exit code means: the table of docs/contract.md, held against the codes that there are."""

from __future__ import annotations

import re
from pathlib import Path

from drkit.model.errors import ExitCode

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "contract.md"
_ROW = re.compile(r"^\| (\d+) \| (.+?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def meanings() -> dict[ExitCode, str]:
    """The meaning of each exit code, without links.

    Raises:
        KeyError: docs/contract.md has no row for one.
    """
    rows = {int(code): _LINK.sub(r"\1", text) for code, text in _ROW.findall(CONTRACT.read_text(encoding="utf-8"))}
    return {code: rows[int(code)] for code in ExitCode}

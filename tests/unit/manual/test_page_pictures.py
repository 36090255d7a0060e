"""The pictures of the status page that docs/page.md shows are those that `make page-pictures` makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 300_000


def test_the_page_of_the_docs_shows_each_picture_that_is_made_and_no_other():
    tools = pytest.importorskip("tools.page_pictures", reason="playwright isn't installed: pip install playwright")
    made = {f"{shot.name}.webp" for shot in (*tools.SHOTS_10, *tools.SHOTS_10_000)}
    shown = re.findall(r"!\[[^]]+\]\(pictures/([^)]+)\)", (ROOT / "docs" / "page.md").read_text())
    assert set(shown) == made
    assert {path.name for path in PICTURES.iterdir()} == made


def test_they_are_pictures_and_small_together():
    found = [path.read_bytes() for path in PICTURES.iterdir()]
    assert {content[:4] + content[8:12] for content in found} == {b"RIFFWEBP"}
    assert sum(map(len, found)) <= MOST_BYTES

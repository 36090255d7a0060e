"""Salvages that were made before, and what is refused of them before any cluster is asked."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from drkit.audit.replay import FORMAT, MANIFEST, is_salvage, replay
from drkit.cli.salvage import _manifest, _print
from drkit.config import Config
from drkit.model.audit import Standing
from drkit.model.errors import Refused
from drkit.model.topology import LinkId

LINK = LinkId("primary", "dr")
SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "salvage.schema.json").read_text())
NOWHERE = Config.model_validate(
    {
        "clusters": {name: {"bootstrap_servers": "127.0.0.1:1"} for name in (LINK.source, LINK.target)},
        "store": {"url": "sqlite:///none"},
    }
)
FIRST = {
    "format": 1,
    "source": "primary",
    "source_cluster_id": "s",
    "target": "dr",
    "observed_at": "2026-11-20T04:02:59Z",
    "records": {"unseen": 0, "lost": 2, "corrupted": 0},
    "partitions": [{"topic": "t", "partition": 0, "through": 9, "uncommitted_end": None, "records": {}}],
    "files": [],
}
"""As drkit wrote it before it classed records."""


def kept(folder: Path, manifest: object) -> Path:
    (folder / MANIFEST).write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    assert is_salvage(folder)
    return folder


def test_what_was_never_classed_is_shown_as_unknown(tmp_path: Path) -> None:
    document = _manifest(kept(tmp_path, FIRST))
    assert document["standings"] is None
    jsonschema.validate(document | {"replayed": None}, SCHEMA)
    shown = StringIO()
    _print(Console(file=shown, width=200), document | {"replayed": None}, made=False)
    assert "how they stand to what dr holds was not asked then" in shown.getvalue()


@pytest.mark.parametrize("approved", [[Standing.NEW], list(Standing)])
def test_what_was_never_classed_is_not_replayed_by_class(tmp_path: Path, approved: list[Standing]) -> None:
    with pytest.raises(Refused, match=f"doesn't say which records are new.*{FORMAT - 1}.*Leave --approve out"):
        replay(kept(tmp_path, FIRST), "into", LINK, NOWHERE, approved=approved)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (FIRST | {"format": FORMAT + 1}, f"has format {FORMAT + 1}, and this drkit reads 1 and 2"),
        ("{", "can't be read as a salvage's manifest"),
        ("[]", "can't be read as a salvage's manifest"),
        ("{}", "can't be read as a salvage's manifest"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(tmp_path: Path, manifest: object, reason: str) -> None:
    folder = kept(tmp_path, manifest)
    with pytest.raises(Refused, match=reason):
        replay(folder, "into", LINK, NOWHERE)
    with pytest.raises(Refused, match=reason):
        _manifest(folder)

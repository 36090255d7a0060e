"""What is refused of a salvage before any cluster is asked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from drkit.audit.salvage.replay import refuse_mirrored, replay
from drkit.audit.salvage.salvage import _sync
from drkit.audit.salvage.salvage_folder import FORMAT, MANIFEST, POSITIONS, checked_manifest, is_salvage
from drkit.cli.verbs.audit.salvage import _manifest_document
from drkit.config import Config
from drkit.model.audit.audit_result import TopicChoice
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.topology import LinkId
from drkit.store import open_store
from drkit.store.api import Store

LINK = LinkId("primary", "dr")
SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "salvage.schema.json").read_text())
NOWHERE = Config.model_validate(
    {
        "clusters": {
            LINK.source: {"bootstrap_servers": "127.0.0.1:1"},
            LINK.target: {"bootstrap_servers": "127.0.0.1:2"},
        },
        "store": {"url": "sqlite:///none"},
        "links": [{"source": LINK.source, "target": LINK.target}],
    }
)
EMPTY = {
    "format": FORMAT,
    "source": "primary",
    "source_cluster_id": "s",
    "target": "dr",
    "observed_at": "2026-11-20T04:02:59Z",
    "records": {"unseen": 0, "lost": 0, "corrupted": 0, "retired": 0},
    "standings": {"new": 0, "conflicting": 0, "identical": 0},
    "partitions": [
        {
            "topic": "t",
            "partition": 0,
            "through": 9,
            "uncommitted_end": None,
            "unreadable": [[3, 5]],
            "target_topic": "t",
            "target_through": 9,
            "records": {},
        }
    ],
    "files": [],
}


@pytest.fixture
def store():
    made = open_store("sqlite:///:memory:")
    yield made
    made.close()


def kept(folder: Path, manifest: object) -> Path:
    (folder / MANIFEST).write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    assert is_salvage(folder)
    return folder


def with_file(folder: Path, text: str = "[1, 2]", records: int = 2) -> Path:
    (folder / POSITIONS).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return kept(folder, EMPTY | {"files": [{"path": POSITIONS, "records": records, "sha256": digest}]})


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (EMPTY | {"format": FORMAT + 1}, f"has format {FORMAT + 1}, and this drkit reads {FORMAT}"),
        ("{", "can't be read as a salvage's manifest"),
        ("[]", "can't be read as a salvage's manifest"),
        ("{}", "can't be read as a salvage's manifest"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(
    tmp_path: Path, store: Store, manifest: object, reason: str
) -> None:
    folder = kept(tmp_path, manifest)
    with pytest.raises(Refused, match=reason):
        replay(folder, "into", LINK, NOWHERE, store)
    with pytest.raises(Refused, match=reason):
        _manifest_document(folder)


def test_the_document_of_a_salvage_made_before(tmp_path: Path) -> None:
    jsonschema.validate(_manifest_document(kept(tmp_path, EMPTY)) | {"replayed": None}, SCHEMA)


def test_a_salvage_is_whole_where_every_file_is_as_its_manifest_says(tmp_path: Path) -> None:
    assert checked_manifest(with_file(tmp_path))["records"] == EMPTY["records"]


@pytest.mark.parametrize("damage", ["gone", "changed", "miscounted", "fewer records"])
def test_a_salvage_that_is_not_whole_is_refused(tmp_path: Path, damage: str) -> None:
    folder = with_file(tmp_path, records=3 if damage == "miscounted" else 2)
    if damage == "gone":
        (folder / POSITIONS).unlink()
    elif damage == "changed":
        (folder / POSITIONS).write_text("[1, 3]")
    elif damage == "fewer records":
        manifest = json.loads((folder / MANIFEST).read_text())
        kept(folder, manifest | {"records": {"unseen": 1}})
    with pytest.raises(Refused, match="does not match the salvage's manifest"):
        checked_manifest(folder)


def test_topics_that_the_salvage_does_not_hold_are_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(ConfigError, match=r"--topic other: the salvage in .* holds no such topic"):
        replay(kept(tmp_path, EMPTY), "into", LINK, NOWHERE, store, topics=[TopicChoice("other")])


@pytest.mark.parametrize(
    ("link", "direction", "cluster", "refused"),
    [
        (LINK, None, "dr", True),
        (LINK, Direction.ACTIVE, "dr", True),
        (LINK, Direction.PAUSED, "dr", True),
        (LINK, Direction.SEALED, "dr", False),
        (LINK, Direction.ACTIVE, "primary", False),
        (LINK.reversed(), Direction.REVERSED, "primary", True),
        (LINK.reversed(), Direction.REVERSED, "dr", False),
    ],
)
def test_nothing_is_replayed_into_what_a_mirror_writes(
    store: Store, link: LinkId, direction: Direction | None, cluster: str, *, refused: bool
) -> None:
    state = TopicState("t", "t", "a", "b", 0, 1, created_by_drkit=True)
    store.put_topic_states(link, [state])
    if direction is not None:
        control = LinkControl(LINK, direction, version=1, changed_at=now(), reason="")
        assert store.set_link_control(control, expected_version=None)
    refuse_mirrored("other", cluster, NOWHERE, store)
    if refused:
        with pytest.raises(Refused, match=f"t on {cluster} is written by the mirror of {link}"):
            refuse_mirrored("t", cluster, NOWHERE, store)
    else:
        refuse_mirrored("t", cluster, NOWHERE, store)


def test_what_the_disk_does_not_take_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's fsync that fails says that the file may not be there; only folders may be beyond a file system."""
    (tmp_path / "file").write_text("kept")

    def failing(handle: int) -> None:
        del handle
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", failing)
    with pytest.raises(OSError, match="Input/output error"):
        _sync(tmp_path)

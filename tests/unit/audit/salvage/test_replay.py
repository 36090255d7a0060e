"""What is refused of a salvage before any cluster is asked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drkit.audit.salvage import replay as replaying
from drkit.audit.salvage.replay import _batches, _portions, refuse_mirrored, replay
from drkit.audit.salvage.salvage import _sync
from drkit.audit.salvage.salvage_folder import (
    FORMAT,
    MANIFEST,
    PARQUET,
    POSITIONS,
    checked_manifest,
    is_salvage,
    salvaged_link,
)
from drkit.cli.verbs.audit.salvage import _keeps_less, _manifest_document
from drkit.config import Config
from drkit.model.audit.audit_result import TopicChoice
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.topology import Link, LinkId
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
            "target_batch": None,
            "records": {},
        }
    ],
    "files": [],
}


def kept(folder: Path, manifest: object) -> Path:
    (folder / MANIFEST).write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    assert is_salvage(folder)
    return folder


def with_file(folder: Path, text: str = "[1, 2]", records: int = 2) -> Path:
    (folder / POSITIONS).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return kept(folder, EMPTY | {"files": [{"path": POSITIONS, "records": records, "sha256": digest}]})


@pytest.mark.parametrize(("source", "target"), [("primary", "dr"), ("dr", "primary")])
def test_a_salvage_says_which_link_it_is_of_also_that_of_a_failback_s_late_writes(
    tmp_path: Path, source: str, target: str
) -> None:
    links = [Link(LinkId("other", "dr"), (".*",)), Link(LINK, (".*",))]
    kept(tmp_path, EMPTY | {"source": source, "target": target})
    assert salvaged_link(tmp_path, links).id == LinkId(source, target)
    with pytest.raises(Refused, match=f"is of {source}->{target}, not of other->dr"):
        salvaged_link(tmp_path, links[:1])


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


@pytest.mark.parametrize(
    "less",
    [{"unreadable": {"t:0": [[3, 5]]}}, {"uncommitted": {"t:0": 8}}, {"incomplete": ["primary lists no topic t"]}],
)
def test_a_salvage_that_may_keep_less_than_there_is_does_not_exit_as_a_whole_one(less: dict[str, object]) -> None:
    whole: dict[str, object] = {"unreadable": {}, "uncommitted": {}, "incomplete": []}
    assert not _keeps_less(whole)
    assert _keeps_less(whole | less)


def test_of_the_records_of_a_key_only_the_last_one_is_missing_in_a_compacted_topic() -> None:
    rows = [
        {"topic": "t", "partition": 0, "offset": at, "key": key, "value": b"v", "timestamp_ms": at, "headers": []}
        | {"standing": "new"}
        for at, key in enumerate([b"k", b"other", b"k", b"k", None])
    ]
    contents = replaying._TargetContents("cluster")
    contents.expect(rows)
    names = [contents.provenance(row) for row in rows]
    contents.add(1, replaying._Seen(7, b"k", [(replaying.PROVENANCE, names[2])]), 0)

    there = [contents.superseded(name, row["key"], 1) for name, row in zip(names, rows, strict=True)]

    assert there == [True, False, False, False, False]
    assert not contents.superseded(names[0], b"k", 0)  # another partition's cleaner knows nothing of it
    assert contents.oldest == 0


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


def test_a_transaction_has_so_many_bytes_at_most_or_one_larger_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 records of 1 MB each are never through within a transaction's time, however often it is tried."""
    monkeypatch.setattr(replaying, "_BYTES_A_TRANSACTION", 1_000)
    sizes = [400] * 7 + [5_000] + [1] * 3_000
    rows = [
        {"key": None, "value": bytes(size), "timestamp_ms": 1, "headers": [], "offset": at}
        for at, size in enumerate(sizes)
    ]
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("timestamp_ms", pa.int64()),
            (
                "headers",
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("key_bytes", pa.binary())])),
            ),
            ("offset", pa.int64()),
        ]
    )
    (tmp_path / PARQUET).mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / PARQUET / "part-0.parquet")

    read = list(_batches(tmp_path))
    portions = [[row["offset"] for row, _ in each] for rows in read for each in _portions([(row, b"") for row in rows])]

    assert [at for each in portions for at in each] == list(range(len(sizes)))
    assert portions[:5] == [[0, 1], [2, 3], [4, 5], [6], [7]]
    assert max(sum(sizes[at] for at in each) for each in portions if each != [7]) <= 1_000


def test_large_records_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_BYTES_A_TRANSACTION", 10_000)
    table = pa.table({"value": [b"%d" % at * 1_000 for at in range(100, 200)]})
    (tmp_path / PARQUET).mkdir()
    pq.write_table(table, tmp_path / PARQUET / "part-0.parquet")

    assert max(sum(len(row["value"]) for row in rows) for rows in _batches(tmp_path)) <= 10_000

"""Reads a salvage's folder back: its manifest, and whether every file matches it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from drkit.files import sha256_of
from drkit.model.errors import Refused
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more

MANIFEST = "manifest.json"
PARQUET = "records.parquet"
POSITIONS = "positions.json"
FORMAT = 3
"""Of a salvage's files."""


def is_salvage(folder: Path) -> bool:
    """Whether a whole salvage is in the folder."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a whole salvage.

    Raises:
        Refused: there is none, it can't be read, or another version of drkit wrote it.
    """
    if not is_salvage(folder):
        raise Refused(f"{folder} holds no complete salvage", remedy="Give the folder of one, or a new one for --out")
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        made = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"{path} can't be read as a salvage's manifest: {error}", remedy="Restore it, or salvage again"
        ) from error
    if made != FORMAT:
        raise Refused(
            f"{path} has format {made!r}, and this drkit reads {FORMAT}",
            remedy="Replay it with the drkit that made it",
        )
    return manifest


def salvaged_link(folder: Path, links: Sequence[Link]) -> Link:
    """The link among these that a salvage is of: in its own direction, or in that of its way back, which a failback
    salvages what was written late to the live cluster by.

    Raises:
        Refused: as `read_manifest`; or it is of none of them.
    """
    manifest = read_manifest(folder)
    of = LinkId(manifest["source"], manifest["target"])
    found = next((way for link in links for way in (link, link.reversed()) if way.id == of), None)
    if found is None:
        raise Refused(
            f"the salvage in {folder} is of {of}, not of {and_more([str(link.id) for link in links])}",
            remedy="Name its link with --link",
        )
    return found


def checked_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a salvage whose every file was read back: there, of its SHA-256, with as many records.

    Raises:
        Refused: a file is missing, changed or unreadable, or the numbers don't agree.
    """
    manifest = read_manifest(folder)
    counted = {".parquet": 0, ".gz": 0}
    for file in manifest["files"]:
        path = folder / file["path"]
        try:
            same = sha256_of(path) == file["sha256"]
            records = _records(path) if same else None
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(path, str(error)) from error
        if records != file["records"]:
            raise _damaged(path, "it does not match the salvage's manifest")
        if path.suffix in counted:
            counted[path.suffix] += file["records"]
    wanted = sum(manifest["records"].values())
    if set(counted.values()) != {wanted}:
        raise _damaged(
            folder, f"its files hold {counted['.parquet']} and {counted['.gz']} records, its manifest says {wanted}"
        )
    return manifest


def _records(path: Path) -> int:
    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    if path.name == POSITIONS:
        return len(json.loads(path.read_text(encoding="utf-8")))
    with gzip.open(path, "rb") as lines:
        return sum(1 for _ in lines)


def _damaged(path: Path, why: str) -> Refused:
    return Refused(
        f"{path} does not match the salvage's manifest: {why}",
        meaning="It was changed, damaged or removed after it was written",
        remedy="Restore it, or salvage again while the source still holds the records",
    )

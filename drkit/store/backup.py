"""A copy of a whole store in a file: gzip over JSON lines, the same from either backend (docs/store.md, "A backup").

The first line is a header; then rows by kind, at most `ROWS` a line; the last line has the number of rows of each kind,
and the SHA-256 of all lines before it. A file without a matching last line is no backup.
Claims and leases belong to processes and are left out: a restored store gives out greater generations than the old one.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from drkit.model.clock import exact_iso, iso, now
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.topology import LinkId
from drkit.store import codec, version
from drkit.store.api import StoreSchema, WholeStore
from drkit.store.timeline import state_row

FORMAT = "drkit-store-backup"
FORMAT_VERSION = 1
ROWS = 1_000
KINDS = (
    "generation",
    "link_control",
    "topic_state",
    "note",
    "problem",
    "group_position",
    "group_state",
    "watermark",
    "mapping",
    "range_digest",
    "run",
    "journal",
)
_TAKE = (
    "Stop every mirror. With the drkit that wrote the store: drkit store backup --out FILE. Then: drkit store migrate"
)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup file's header, once the whole file was read and verified. `rows`: their number, by kind."""

    path: Path
    created_at: datetime
    backend: str
    links: tuple[LinkId, ...]
    rows: Mapping[str, int]
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class BackupBlock:
    """Some rows of one kind; `link` is None for runs and journals."""

    kind: str
    link: LinkId | None
    rows: list[list[Any]]


def write_backup(store: WholeStore, path: Path, *, backend: str) -> Backup:
    """Copy a store's whole content into a new file, and verify it by reading it back.

    The file appears only when it is complete; only its owner can read it; no existing file is overwritten.

    Raises:
        ConfigError: there is no such folder.
        Refused: there is a file of that name.
        DrkitError: it can't be written, or reading it back gives other data.
        Unreachable: the store doesn't answer.
    """
    if path.exists():
        raise Refused(f"{path} exists already", meaning="A backup never overwrites a file", remedy="Name another file")
    if not path.parent.is_dir():
        raise ConfigError(f"{path} can't be written: there is no folder {path.parent}", remedy="Name another file")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as raw, store.snapshot():
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
                written = _write(store, file, backend)
            raw.flush()
            os.fsync(raw.fileno())
        if read_backup(partial).sha256 != written:
            raise DrkitError(
                f"{partial} read back differs from what was written", remedy="Check the disk; write it elsewhere"
            )
        os.link(partial, path)  # fails where the file has appeared meanwhile
    except FileExistsError:
        raise Refused(
            f"{path} exists already", meaning="A backup never overwrites a file", remedy="Name another file"
        ) from None
    except OSError as error:
        raise DrkitError(f"{path} can't be written: {error.strerror or error}", remedy="Name another file") from error
    finally:
        partial.unlink(missing_ok=True)
    return read_backup(path)


def read_backup(path: Path, schema: int | None = None) -> Backup:
    """Read a whole backup and check it.

    Args:
        path: the file.
        schema: the schema version that it must have; default: this drkit's.

    Raises:
        ConfigError: there is no such file.
        DrkitError: it can't be read, is truncated or changed, or is no backup.
        Refused: another version of drkit wrote it.
    """
    links: set[LinkId] = set()
    counts: Counter[str] = Counter()
    head: dict[str, Any] = {}
    foot: dict[str, Any] = {}
    digest = hashlib.sha256()
    try:
        for line in _lines(path):
            found = json.loads(line)
            if not head:
                head = _checked_head(path, found, version.SCHEMA_VERSION if schema is None else schema)
            elif "sha256" in found:
                foot = found
                continue
            elif foot:
                raise _damaged(path, "more lines follow its last line")
            else:
                block = _block(found)
                counts[block.kind] += len(block.rows)
                links |= set() if block.link is None else {block.link}
            digest.update(line)
    except (ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not foot:
        raise _damaged(path, "it is truncated: its last line is missing")
    if foot["sha256"] != digest.hexdigest():
        raise _damaged(path, "its checksum doesn't match")
    try:
        counted = {kind: count for kind, count in foot["rows"].items() if count}
        created_at, backend = datetime.fromisoformat(head["created_at"]), str(head["backend"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, str(error)) from error
    if counted != dict(counts):
        raise _damaged(path, "its row counts don't match")
    rows = {kind: counts[kind] for kind in KINDS}
    size = path.stat().st_size
    return Backup(path, created_at, backend, tuple(sorted(links, key=str)), rows, foot["sha256"], size)


def blocks(path: Path) -> Iterator[BackupBlock]:
    """The rows of a backup that `read_backup` has checked, in the order of `KINDS`."""
    for line in _lines(path):
        found = json.loads(line)
        if "kind" in found:
            yield _block(found)


def _write(store: WholeStore, file: gzip.GzipFile, backend: str) -> str:
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()

    def put(document: Mapping[str, Any]) -> None:
        line = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        digest.update(line)
        file.write(line)

    head = {"format": FORMAT, "version": FORMAT_VERSION, "schema": version.SCHEMA_VERSION}
    put(head | {"backend": backend, "created_at": exact_iso(now())})
    for kind, link, rows in _contents(store):
        iterator = iter(rows)
        while some := [[_plain(value) for value in row] for row in islice(iterator, ROWS)]:
            put({"kind": kind, "link": None if link is None else str(link), "rows": some})
            counts[kind] += len(some)
    found = digest.hexdigest()
    foot = {"rows": {kind: counts[kind] for kind in KINDS}, "sha256": found}
    file.write(json.dumps(foot).encode() + b"\n")
    return found


def _contents(store: WholeStore) -> Iterator[tuple[str, LinkId | None, Iterable[Sequence[Any]]]]:
    """Everything. Positions and watermarks are read before the rows that they refer to: rows are written first."""
    links = store.links()
    for link in links:
        yield "generation", link, [(store.generation(link),)]
        control = store.link_control(link)
        yield "link_control", link, [] if control is None else [codec.link_control_row(control)]
        yield "topic_state", link, map(codec.topic_state_row, store.topic_states(link).values())
        for kind in sorted(store.note_kinds(link)):
            yield "note", link, [(kind, name, body) for name, body in store.notes(link, kind).items()]
        yield "problem", link, map(codec.problem_row, store.problems(link))
        yield "group_position", link, map(codec.group_position_row, store.group_positions(link))
        yield "group_state", link, map(state_row, store.group_states(link))
        yield "watermark", link, map(codec.watermark_row, store.watermarks(link).values())
        places = store.places(link)
        for (tp, epoch), rows in zip(places, store.mappings_of(link, places), strict=True):
            yield "mapping", link, ((*tp, epoch, row.source_offset, row.target_offset) for row in rows)
        for tp, epoch in places:
            digests = store.range_digests(link, tp, epoch)
            yield "range_digest", link, ((*codec.digest_row(each), each.generation) for each in digests)
    summaries = store.runs()
    yield "run", None, map(codec.run_row, summaries)
    for run in sorted({*store.journals(), *(each.run for each in summaries)}):
        yield "journal", None, map(codec.entry_row, store.entries(run))


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}", remedy="Name a file that `drkit store backup` wrote") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise DrkitError(f"{path} can't be read: {error.strerror or error}", remedy="Check the file") from error


def _checked_head(path: Path, found: Any, schema: int) -> dict[str, Any]:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise _damaged(path, "its first line is not a backup's")
    if (found["version"], found["schema"]) != (FORMAT_VERSION, schema):
        raise Refused(
            f"{path} has format {found['version']} of schema version {found['schema']}; this drkit needs format "
            f"{FORMAT_VERSION} of schema version {schema}",
            meaning="Another version of drkit wrote it. Nothing was changed",
            remedy="Restore it with that version (drkit --version), then drkit store migrate with this one",
        )
    return found


def _block(found: Mapping[str, Any]) -> BackupBlock:
    kind, link = found["kind"], found["link"]
    if kind not in KINDS:
        raise ValueError(f"an unknown kind of row, {kind!r}")
    return BackupBlock(kind, None if link is None else LinkId.parse(link), found["rows"])


def _damaged(path: Path, why: str) -> DrkitError:
    return DrkitError(
        f"{path} is not a complete backup: {why}",
        meaning="drkit used none of it",
        remedy="Take another backup; or drkit store recover --from the cluster mirrored to fills a new store",
    )


def checked_backup(schema: StoreSchema, file: Path | None) -> Backup:
    """Check the backup of a store that is about to be migrated: complete, of this store, and up to date.

    Raises:
        Refused: there is none, it is of another store or another version, or the store was changed since.
        DrkitError: it is damaged.
    """
    if file is None:
        raise Refused(
            f"{schema.where} is to be migrated, but no backup is named",
            meaning="Without a backup there is no way back. Nothing was changed",
            remedy=f"{_TAKE} --backup FILE",
        )
    kept = schema.version()
    found = read_backup(file, kept if kept > 0 else -kept - 1)
    changed_at, counts = schema.changed_at(), schema.counts()
    if changed_at is not None and changed_at > found.created_at:
        raise _not_of_it(
            schema, file, f"the store was changed at {iso(changed_at)}, after it was taken ({iso(found.created_at)})"
        )
    for kind, count in counts.items():
        if found.rows[kind] != count:
            raise _not_of_it(schema, file, f"the store has {count} rows of {kind}, the backup {found.rows[kind]}")
    return found


def _not_of_it(schema: StoreSchema, file: Path, why: str) -> Refused:
    return Refused(
        f"{file} is not a backup of the current content of {schema.where}: {why}",
        meaning="It is an old backup, or one of another store, and can't undo the migration. Nothing was changed",
        remedy=f"{_TAKE} --backup with that file",
    )

"""`drkit store backup|restore|migrate`: a copy of the whole store in a file, and the version of its schema."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.wiring.context import Invocation, verb
from drkit.model.clock import iso
from drkit.model.errors import Refused, StoreMissing
from drkit.model.link_state import Direction, LinkControl
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.store.api import StoreSchema
    from drkit.store.backup import Backup

_SQLITE = "sqlite:///"


def register(store: typer.Typer) -> None:
    """Add the verbs to `drkit store`."""
    store.command("migrate")(migrate)
    store.command("backup")(backup)
    store.command("restore")(restore_store)


@verb(unfinished="The store may be closed for the migration: the same command finishes it")
def migrate(
    run: Invocation,
    backup_file: Annotated[
        Path | None,
        typer.Option("--backup", metavar="FILE", help="This store's backup, by the drkit that wrote it."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what there would be to do.")] = False,
) -> None:
    """Migrate the store's schema to this drkit's version, while nobody uses the store.

    Every other command refuses a store of another version (exit 3) and leaves it unchanged. There is only one version
    so far, so there is nothing to do yet.
    """
    from drkit.config.effective import without_credentials
    from drkit.store import version
    from drkit.store.backup import checked_backup
    from drkit.store.open import open_schema
    from drkit.store.users import in_use

    url = run.config.store.plain_url
    with closing(open_schema(url)) as schema:
        kept = schema.version()
        steps = () if kept == version.SCHEMA_VERSION else version.migrations_from(kept, schema.where)
        made: Backup | None = None
        users = schema.users() if steps else []
        runs = _open_runs(schema) if steps else []
        if steps and not (dry_run and backup_file is None):
            if users:
                raise in_use(schema.where, users)
            if runs:
                raise _run_stands_open(runs)
            made = checked_backup(schema, backup_file)
        if steps and not dry_run:
            schema.apply(steps)
    document = {
        "store": without_credentials(url),
        "version": kept,
        "wanted": version.SCHEMA_VERSION,
        "dry_run": dry_run,
        "steps": [f"{each.version}: {each.what}" for each in steps],
        "in_use_by": users,
        "open_runs": runs,
        "backup": None if made is None else _backup_document(made),
        "migrated": bool(steps) and not dry_run,
    }
    run.writer.emit(document, lambda console: _print_migration(console, document))


def _open_runs(schema: StoreSchema) -> list[str]:
    """Runs that aren't over: their journals are for the drkit that wrote them to continue."""
    from drkit.failover.run.state_machine import FINAL_STATES, State

    unfinished = {each.value for each in State} - {each.value for each in FINAL_STATES}
    return [run for run, _, state in schema.runs() if state in unfinished]


def _run_stands_open(runs: Sequence[str]) -> Refused:
    return Refused(
        f"run {runs[0]} is not over",
        meaning="Only the drkit that began it can continue it. Nothing was changed",
        remedy=f"With that drkit: drkit resume {runs[0]} --yes, or drkit abandon {runs[0]}. Then run this again",
    )


def _print_migration(console: Console, found: dict[str, Any]) -> None:
    if not found["steps"]:
        console.print(f"schema version {found['version']}: nothing to do")
        return
    word = "is now at" if found["migrated"] else "would go to"
    console.print(f"{escape(found['store'])} {word} schema version {found['wanted']}", soft_wrap=True)
    for step in found["steps"]:
        console.print(f"  {escape(step)}", soft_wrap=True)
    for who in found["in_use_by"]:
        console.print(f"  [yellow]in use[/] {escape(who)}: stop it first", soft_wrap=True)
    for run in found["open_runs"]:
        console.print(f"  [yellow]not over[/] run {escape(run)}: end it with the drkit that began it", soft_wrap=True)
    if not found["migrated"]:
        console.print("  [bold]do:[/] drkit store migrate --backup FILE, with the older drkit's backup of this store")


@verb()
def backup(
    run: Invocation,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; none is overwritten.")],
) -> None:
    """Copy the whole store into a file, and read it back: mapping, positions, states of links, journals.

    A mirror may run meanwhile. The file holds no password; only its owner can read it.
    """
    from drkit.store.backup import write_backup

    url = run.config.store.plain_url
    store = run.plain_store()
    made = write_backup(store, out, backend=url.partition(":")[0])
    run.writer.emit(_backup_document(made), lambda console: _print_backup(console, made, "written and read back"))


@verb(unfinished="The store may be partly filled: the same command fills it")
def restore_store(
    run: Invocation,
    file: Annotated[Path, typer.Option("--from", metavar="FILE", help="A file that `drkit store backup` wrote.")],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace a store that holds data: a SQLite file is kept aside, Cassandra's tables are emptied.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and the store; change nothing.")] = False,
) -> None:
    """Fill the configured store, SQLite or Cassandra, from a backup of either. Stop the mirror first.

    Refused (exit 3) where the store holds data, unless --replace is given. Links are paused until you resume them, and
    positions beyond the backup's watermarks are conservative, because the backup can't know them.
    """
    from drkit.store.backup import read_backup

    found = read_backup(file)
    kept = _kept(run)
    if kept and not replace:
        raise Refused(
            "the store holds data",
            meaning="A restore overwrites only with --replace. Nothing was changed",
            remedy="Name a new store in store.url; or drkit store backup --out FILE, and then this with --replace",
        )
    aside, controls = (None, []) if dry_run else _restore(run, found, replace=kept)
    document = _backup_document(found) | {
        "dry_run": dry_run,
        "replaced": bool(kept and not dry_run),
        "kept_aside": None if aside is None else str(aside),
        "restored": [
            {"link": str(each.link), "direction": each.direction.value, "reason": each.reason} for each in controls
        ],
        "next": _next(controls),
    }
    run.writer.emit(document, lambda console: _print_restored(console, found, aside, controls, dry_run=dry_run))


def _kept(run: Invocation) -> bool:
    """Whether the store holds something. None is created."""
    from drkit.state_topic.restore import holds_something
    from drkit.store import open_whole_store

    try:
        store = open_whole_store(run.config.store.plain_url, create=False)
    except StoreMissing:
        return False
    try:
        return holds_something(store)
    finally:
        store.close()


def _restore(run: Invocation, found: Backup, *, replace: bool) -> tuple[Path | None, list[LinkControl]]:
    """Fill the store; where a SQLite file was put aside, its new name."""
    from drkit.state_topic.restore import restore
    from drkit.store import open_whole_store

    url = run.config.store.plain_url
    configured = [each.link().id for each in run.config.links]
    file = Path(url.removeprefix(_SQLITE).partition("?")[0]) if url.startswith(_SQLITE) else None
    if file is None:
        store = open_whole_store(url, create=True)
        try:
            if replace:
                store.remove_all()
            return None, restore(store, found, configured)
        finally:
            store.close()
    filling = file.with_name(f".{file.name}.restoring")
    _remove(filling)
    store = open_whole_store(f"{_SQLITE}{filling}", create=True)
    try:
        controls = restore(store, found, configured)
    finally:
        store.close()
    aside = _put_aside(file) if replace else None
    _remove(file)
    filling.replace(file)
    return aside, controls


def _put_aside(file: Path) -> Path:
    """Give a SQLite file another name, whole: what its log holds is in it once it was opened and closed."""
    from drkit.store import open_whole_store

    open_whole_store(f"{_SQLITE}{file}", create=False).close()
    aside = file.with_name(f"{file.name}.before-restore-{int(time.time())}")
    for suffix in ("-wal", "-shm", ""):
        part = Path(f"{file}{suffix}")
        if part.exists():
            part.rename(f"{aside}{suffix}")
    return aside


def _remove(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


def _next(controls: Sequence[LinkControl]) -> list[str]:
    paused = [each for each in controls if each.direction is Direction.PAUSED]
    return ["drkit status", *(f"drkit link resume '{each.link}'" for each in paused), "drkit mirror"]


def _backup_document(found: Backup) -> dict[str, Any]:
    return {
        "file": str(found.path.absolute()),
        "created_at": found.created_at,
        "backend": found.backend,
        "links": [str(link) for link in found.links],
        "rows": dict(found.rows),
        "bytes": found.bytes,
        "sha256": found.sha256,
    }


def _print_backup(console: Console, found: Backup, done: str) -> None:
    rows = found.rows
    what = (
        f"{counted(len(found.links), 'link')}, {counted(rows['mapping'], 'mapping row')}, "
        f"{counted(rows['watermark'], 'watermark')}, {counted(rows['group_position'], 'group position')}, "
        f"{counted(rows['run'], 'run')} with {counted(rows['journal'], 'journal entry', 'journal entries')}"
    )
    console.print(f"{escape(str(found.path))} of {iso(found.created_at)}, {done}: {what}", soft_wrap=True)
    console.print(f"  {counted(found.bytes, 'byte')}, SHA-256 of its rows {found.sha256}", soft_wrap=True)


def _print_restored(
    console: Console, found: Backup, aside: Path | None, controls: Sequence[LinkControl], *, dry_run: bool
) -> None:
    _print_backup(console, found, "complete; nothing was restored" if dry_run else "restored")
    if aside is not None:
        console.print(f"  what was there before is {escape(str(aside))}", soft_wrap=True)
    for each in controls:
        console.print(f"  {escape(str(each.link))} is {each.direction.value}: {escape(each.reason)}", soft_wrap=True)
    if not dry_run:
        console.print(f"  [bold]do:[/] {escape('; then '.join(_next(controls)))}", soft_wrap=True)

"""`drkit store`: recover a lost one from the copies that targets keep; copy it to a file, restore it, migrate it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.output import NOTHING_CHANGED
from drkit.cli.wiring.context import Invocation, LinksOption, verb
from drkit.failover.recovery.way_out import FAIL_OVER, WayOut
from drkit.model.clock import iso
from drkit.model.errors import ConfigError, Refused, StoreMissing
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import Link
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.kafka.admin.clusters import Clusters
    from drkit.state_topic.link_copy import LinkCopy
    from drkit.state_topic.recovery import Recovered
    from drkit.store.api import Store, StoreSchema
    from drkit.store.backup import Backup


MIRROR = "drkit mirror --link LINK"
MOVE_AGAIN = "drkit failover --to TARGET --unplanned --accept-unfenced --link LINK GROUPS"
OPEN_TARGET = "drkit fence --lift --cluster TARGET --yes --link LINK"
_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the verb."""
    store = typer.Typer(
        name="store",
        help="Back up and restore the store; refill a lost one from the copy that a target cluster keeps.",
        no_args_is_help=True,
    )
    store.callback()(_about)
    store.command("recover")(recover)
    store.command("migrate")(migrate)
    store.command("backup")(backup)
    store.command("restore")(restore_store)
    app.add_typer(store)


def _about() -> None:
    """Copy and recover the store."""


@verb()
def recover(
    run: Invocation,
    cluster: Annotated[
        str, typer.Option("--from", metavar="CLUSTER", help="The cluster mirrored to, which keeps a copy.")
    ],
    from_logs: Annotated[
        bool,
        typer.Option(
            "--from-logs",
            help="There is no copy: rebuild links that preserve offsets from both clusters' logs, conservatively.",
        ),
    ] = False,
    link: LinksOption = None,
) -> None:
    """Fill a new, empty store from the copy of its links' state that the target cluster keeps.

    Says up to when the copy was written, what it proves exactly, what is conservative and what no copy holds; and the
    next command to run. Refused where the store holds data of these links.
    """
    from drkit.kafka.admin.clusters import Clusters
    from drkit.state_topic.recovery import MISSING, fill

    links = _links_of(run, cluster, run.links_like(link), from_logs=from_logs)
    with Clusters(run.config.clusters) as clusters:
        if from_logs:
            found = _from_logs(run, links, clusters)
        else:
            copies = _copies(run, links, clusters)
            _check_no_mirror(copies, clusters)
            store, unfilled = _empty_store(run, links)
            found = [fill(store, each, copy, clusters.admin(cluster)) for each, copy in copies if each in unfilled]
        ways = [way_on(each, source_answers=_answers(clusters, each.link.id.source)) for each in found]
    run.writer.emit(
        {"from": cluster, "links": [_document(*each) for each in zip(found, ways, strict=True)]}
        | {"missing": list(MISSING)},
        lambda console: _print(console, found, ways),
    )


def _from_logs(run: Invocation, links: Sequence[Link], clusters: Clusters) -> list[Recovered]:
    """Without a copy: refused where there is one, because it says more."""
    from drkit.state_topic.from_logs import answering, fill_from_logs
    from drkit.state_topic.link_copy import read_copy

    sides = []
    for each in links:
        source, target = (
            answering(clusters.admin(alias, may_be_gone=True)) for alias in (each.id.source, each.id.target)
        )
        if target is not None:
            copy = read_copy(each, None, run.config.clusters[each.id.target], target)
            if copy is not None and copy.topics:
                raise Refused(
                    f"{each.id.target} has a copy of the state of {each.id}",
                    meaning="It has more than the logs alone, above all group positions. Nothing was created",
                    remedy=f"drkit store recover --from {each.id.target} --link '{each.id}', without --from-logs; "
                    f"if you don't want to use that copy: delete topic {copy.topic} first",
                )
        sides.append((each, target, source))
    store, unfilled = _empty_store(run, links)
    return [fill_from_logs(store, each, target, source) for each, target, source in sides if each in unfilled]


def _links_of(run: Invocation, cluster: str, links: Sequence[Link], *, from_logs: bool) -> list[Link]:
    run.check_cluster(cluster, "--from")
    found = [each for each in links if each.id.target == cluster or (from_logs and each.id.source == cluster)]
    if not found:
        raise ConfigError(
            f"--from: no link leads to {cluster}",
            meaning="A copy of a link's state is on its target",
            remedy=f"Name the target of a link: {', '.join(str(each.id) for each in links)}",
        )
    return found


def _copies(run: Invocation, links: Sequence[Link], clusters: Clusters) -> list[tuple[Link, LinkCopy]]:
    """The copies of all links, read before anything is created."""
    from drkit.state_topic.copy_topic import copy_under_other_aliases
    from drkit.state_topic.link_copy import read_copy
    from drkit.state_topic.records import state_topic, state_topic_prefix

    found, without = [], []
    for each in links:
        copy = read_copy(each, None, run.config.clusters[each.id.target], clusters.admin(each.id.target))
        if copy is None or not copy.topics:
            without.append(each)
        else:
            found.append((each, copy))
    if without:
        first = without[0]
        target = first.id.target
        renamed = copy_under_other_aliases(first, clusters.admin(target), run.config.clusters[target], lambda: None)
        others = [each.id for each, _ in found]
        raise Refused(
            f"{first.id.target} has no copy of the state of {first.id}: there is no record in topic "
            f"{state_topic(first)}, and no other {state_topic_prefix(first.id)}… names one of the link's topics there",
            meaning="The first topic patterns of a link give its copy the name; later ones find it by the topics that "
            "it names. Nothing was created",
            remedy=(f"{renamed} has topics of it: give the clusters the aliases in that name. " if renamed else "")
            + "If all topics of the link were replaced by others: set `topics` and `exclude_topics` to their old "
            "values. If there is no copy: --from-logs rebuilds a link that preserves offsets from both clusters' logs"
            + (f". The others alone: --link '{others[0]}'" if others else ""),
        )
    return found


def _check_no_mirror(copies: Sequence[tuple[Link, LinkCopy]], clusters: Clusters) -> None:
    """Raise `Refused` where a mirror of a link is running: it has a store, and that is not the one to be filled."""
    from drkit.state_topic.other_store import mirrors_of_any_store

    for link, copy in copies:
        if found := mirrors_of_any_store(clusters.groups(link.id.target), link, copy.topic):
            raise Refused(
                f"a mirror of {link.id} is running: {found[0]}",
                meaning="Its store is not lost; this configuration names another one (store.url). With two stores "
                "the mirror would continue after a failover. Nothing was created",
                remedy="Name the mirror's store in store.url. If that one is really lost: stop the mirror, then run "
                "this again",
            )


def _empty_store(run: Invocation, links: Sequence[Link]) -> tuple[Store, list[Link]]:
    """The store, and the links of which it holds no data: where several were being filled, some may be over.

    Raises:
        Refused: it holds data of all, or a part of a backup.
    """
    from drkit.state_topic.guard import RESTORING, begun, interrupted
    from drkit.state_topic.recovery import has_data

    store = run.store(create=True, recorded=False)  # the copy stays as it is until all of it is read back
    held: list[Link] = []
    unfilled: list[Link] = []
    for link in links:
        if begun(store, link) == RESTORING:
            raise interrupted(link.id, RESTORING)
        (held if has_data(store, link) else unfilled).append(link)
    if not unfilled:
        raise Refused(
            f"the store holds data of {held[0].id}",
            meaning="A recovery fills a new store; it never overwrites one. Nothing was changed",
            remedy="If that store is damaged, move it away first (SQLite: rename the file; Cassandra: name another "
            "keyspace in store.url), then run this again",
        )
    for link in held:
        run.writer.log.print(f"[yellow]![/] {link.id} stays as it is: the store holds data of it", soft_wrap=True)
    return store, unfilled


def _answers(clusters: Clusters, alias: str) -> bool:
    from drkit.state_topic.from_logs import answering

    return answering(clusters.admin(alias, may_be_gone=True)) is not None


def way_on(found: Recovered, *, source_answers: bool) -> WayOut:
    """The commands to run after a store was recovered."""
    ids = found.link.id
    control = found.control
    groups = " ".join(f"--group {shlex.quote(name)}" for name in found.group_names)
    if control is not None and not control.direction.serves_source:
        by = f"run {control.run}, whose journal is lost" if control.run else "an operator"
        moves = (MOVE_AGAIN,) if groups else ()
        which = "the first command moves groups, the second" if groups else "this command"
        costs = (
            f"the link is {control.direction} by {by}: where clients use TARGET already, nothing is to be done. Else "
            f"{which} opens TARGET to clients"
        )
        way = WayOut((*moves, OPEN_TARGET), None, costs)
    elif source_answers:
        out = sum(each.partition is not None for each in found.left_out)
        if out:
            left = f"{counted(out, 'partition')} that {'was' if out == 1 else 'were'} left out"
            costs = f"what landed on TARGET since is compared with SOURCE; {left}: halted until the topic is accepted"
        else:
            costs = "nothing: what landed on TARGET since is compared with SOURCE"
        way = WayOut((MIRROR,), None, costs)
    else:
        way = WayOut((FAIL_OVER,), None, "groups beyond what is proven read some records again; the loss is not known")
    way = way.filled("RUN", str(ids), ids.source, ids.target)
    return replace(way, commands=tuple(command.replace("GROUPS", groups) for command in way.commands))


def _document(found: Recovered, way: WayOut) -> dict[str, Any]:
    control = found.control
    return {
        "link": str(found.link.id),
        "basis": found.basis,
        "copy": found.copy or None,
        "written_at": found.written_at,
        "direction": (control.direction if control is not None else Direction.ACTIVE).value,
        "control_version": None if control is None else control.version,
        "run": None if control is None else control.run,
        "topics": found.topics,
        "partitions": found.partitions,
        "mapping_rows": found.rows,
        "groups": len(found.group_names),
        "positions": found.positions,
        "left_out": [
            {"topic": each.topic, "partition": each.partition, "reason": each.reason} for each in found.left_out
        ],
        "conservative": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "source_offset": each.source_offset,
                "target_offset": each.target_offset,
                "target_end": each.target_end,
                "reason": each.reason,
            }
            for each in found.conservative
        ],
        "next": {"commands": list(way.commands), "costs": way.costs},
    }


def _print(console: Console, found: Sequence[Recovered], ways: Sequence[WayOut]) -> None:
    from drkit.state_topic.recovery import MISSING

    for each, way in zip(found, ways, strict=True):
        what = (
            f"{counted(each.topics, 'topic')}, {counted(each.partitions, 'partition')}, "
            f"{counted(each.rows, 'mapping row')}, {counted(len(each.group_names), 'group')}"
        )
        basis = each.copy or "what both clusters hold: all of it is conservative"
        console.print(f"[bold]{escape(str(each.link.id))}[/] recovered from {escape(basis)}: {what}", soft_wrap=True)
        if each.written_at is not None:
            console.print(f"  the copy was written up to {iso(each.written_at)}")
        for out in each.left_out[:_SHOWN]:
            where = out.topic if out.partition is None else f"{out.topic}:{out.partition}"
            console.print(f"  [yellow]left out[/] {escape(where)}: {escape(out.reason)}", soft_wrap=True)
        for doubt in each.conservative[:_SHOWN]:
            where = f"{doubt.topic}:{doubt.partition}"
            console.print(f"  [yellow]conservative[/] {escape(where)}: {escape(doubt.reason)}", soft_wrap=True)
        more = max(0, len(each.left_out) - _SHOWN) + max(0, len(each.conservative) - _SHOWN)
        if more:
            console.print(f"  … and {more:,} more: --output json lists all")
        console.print(f"  [bold]do:[/] {escape('; then '.join(way.commands))}", soft_wrap=True)
        console.print(f"  {escape(way.costs)}", soft_wrap=True)
    console.print("Not in any copy:")
    for missing in MISSING:
        console.print(f"  {escape(missing)}", soft_wrap=True)


_SQLITE = "sqlite:///"


@verb(unfinished=NOTHING_CHANGED)
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
    from drkit.store.workers import in_use

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
            run.begins_to_change("The store may be closed for the migration")
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
    from drkit.failover.context.state_machine import FINAL_STATES, State

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
    from drkit.state_topic.guard import check_all_recovered
    from drkit.store.backup import write_backup

    url = run.config.store.plain_url
    store = run.plain_store()
    check_all_recovered(store)
    made = write_backup(store, out, backend=url.partition(":")[0])
    run.writer.emit(_backup_document(made), lambda console: _print_backup(console, made, "written and read back"))


@verb(unfinished=NOTHING_CHANGED)
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

    Refused (exit 3) while a mirror or a run uses the store; and where it holds data, unless --replace is given. Links
    are paused until you resume them, and positions beyond the backup's watermarks are conservative, because the backup
    can't know them.
    """
    from drkit.state_topic.restore import check_whole
    from drkit.store.backup import read_backup

    found = read_backup(file)
    check_whole(found)
    kept = _kept(run)
    if kept and not replace:
        raise Refused(
            "the store holds data",
            meaning="A restore overwrites only with --replace. Nothing was changed",
            remedy="Name a new store in store.url; or drkit store backup --out FILE, and then this with --replace",
        )
    _check_not_in_use(run)
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


def _check_not_in_use(run: Invocation) -> None:
    """Raise `Refused` while a mirror or a run works with the store: it would write on what it knows of the old one."""
    from drkit.store.open import open_schema
    from drkit.store.workers import in_use

    try:
        schema = open_schema(run.config.store.plain_url)
    except StoreMissing:
        return
    with closing(schema):
        if users := schema.users():
            raise in_use(
                schema.where,
                users,
                "They would continue with what they know of the store before: rows and positions that the backup lacks "
                "would be lost in the copy on the target, too. Nothing was changed",
            )


def _restore(run: Invocation, found: Backup, *, replace: bool) -> tuple[Path | None, list[LinkControl]]:
    """Fill the store; where a SQLite file was put aside, its new name."""
    from drkit.state_topic.restore import restore
    from drkit.store import open_whole_store

    url = run.config.store.plain_url
    configured = [each.link().id for each in run.config.links]
    file = Path(url.removeprefix(_SQLITE).partition("?")[0]) if url.startswith(_SQLITE) else None
    if file is None:
        run.begins_to_change("The store may be filled in part")
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
    try:
        _check_not_in_use(run)  # again: filling it may take minutes, and a mirror that begins has the old file open
    except Refused:
        _remove(filling)
        raise
    run.begins_to_change("The store may be on its way to its place, and the former one kept aside")
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

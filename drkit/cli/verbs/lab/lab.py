"""`drkit lab`: real clusters on this machine. `load.py` holds `drkit lab load`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from drkit.cli.wiring.context import Invocation, bounded, verb
from drkit.model.errors import DrkitError

if TYPE_CHECKING:
    from drkit.lab import Lab, NodeStatus
    from drkit.lab.layout import StoreKind

lab_app = typer.Typer(
    name="lab", help="Real Kafka clusters and Cassandra on this machine, for trying and testing.", no_args_is_help=True
)

DirOption = Annotated[
    Path | None, typer.Option("--dir", help="The lab's folder (default: under your state directory).", metavar="D")
]
NodeArgument = Annotated[
    list[str], typer.Argument(metavar="NODE…", help="primary-1, dr-1, cassandra-1 …; an alias means all its nodes.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=1.0, callback=bounded, help="Seconds that the nodes have to answer (default: 120)."),
]

_STYLE = {"up": "green", "down": "red", "paused": "yellow", "starting": "yellow"}


class StoreChoice(StrEnum):
    """What the lab's drkit.toml takes as its store."""

    CASSANDRA = "cassandra"
    SQLITE = "sqlite"


_STORES: dict[StoreChoice | None, StoreKind | None] = {
    None: None,
    StoreChoice.CASSANDRA: "cassandra",
    StoreChoice.SQLITE: "sqlite",
}


def register(app: typer.Typer) -> None:
    """Add the verb and its subcommands."""
    from drkit.cli.verbs.lab.load import register_load

    register_load(lab_app)
    app.add_typer(lab_app)


@lab_app.command("up")
@verb()
def up(
    run: Invocation,
    dir: DirOption = None,  # noqa: A002 - the option's name
    brokers: Annotated[
        int | None, typer.Option("--brokers", min=1, max=9, help="Brokers of each cluster (default 1).")
    ] = None,
    store: Annotated[StoreChoice | None, typer.Option("--store", help="Default: cassandra.")] = None,
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure/--open",
            show_default=False,
            help="TLS, users by SCRAM and an authorizer, drkit with only the rights of `drkit acls` (default: open, or "
            "as an existing lab is).",
        ),
    ] = None,
    timeout: TimeoutOption = None,
) -> None:
    """Start two Kafka clusters and Cassandra, wait until each answers, write a drkit.toml for them."""
    from drkit.config.environment import forget_foreign_secrets
    from drkit.lab.lab import START_SECONDS, Lab

    forget_foreign_secrets()
    lab = Lab.up(dir, brokers, _STORES[store], secure=secure, timeout_seconds=timeout or START_SECONDS, say=run.say)
    if lab.started:
        _create_store(lab)
        if lab.secure:
            from drkit.cli.verbs.lab.secured_lab import create_users

            create_users(lab)
    statuses = lab.status()

    def human(console: Console) -> None:
        if lab.started:
            console.print(f"The lab is up in {lab.dir}")
        else:
            console.print(f"The lab in {lab.dir} is up already")
        _table(console, statuses)
        console.print(f"Use it: drkit --help, with --config {lab.config_path}", soft_wrap=True)
        if lab.secure:
            console.print(
                f"Users, passwords and client properties for Kafka's tools: {lab.secure_dir.path}", soft_wrap=True
            )

    run.writer.emit(document(lab, statuses, started=lab.started), human)


def _create_store(lab: Lab) -> None:
    """Every verb finds the lab's store, before a mirror has run too; a paused node doesn't keep the others down."""
    from drkit.config import load_config
    from drkit.store import open_store

    with suppress(DrkitError):
        open_store(load_config(lab.config_path).store.plain_url).close()


@lab_app.command("down")
@verb()
def down(
    run: Invocation,
    dir: DirOption = None,  # noqa: A002 - the option's name
    keep_data: Annotated[bool, typer.Option("--keep-data", help="Stop the nodes and keep the folder.")] = False,
) -> None:
    """Stop every node of the lab, paused ones too, and remove its data."""
    from drkit.lab.lab import take_down_folder

    folder, stopped = take_down_folder(dir, keep_data=keep_data, say=run.say)
    words = f"Stopped {', '.join(stopped)}" if stopped else "No node was running"
    kept = f"its data stays in {folder}" if keep_data else f"its data in {folder} is removed"
    run.writer.emit(
        {"dir": str(folder), "stopped": stopped, "data_kept": keep_data},
        lambda console: console.print(f"{words}; {kept}", soft_wrap=True),
    )


@lab_app.command("status")
@verb()
def status(
    run: Invocation,
    dir: DirOption = None,  # noqa: A002 - the option's name
) -> None:
    """Show every node: up, down, paused or starting, and where it answers."""
    from drkit.lab import Lab

    lab = Lab.open(dir)
    statuses = lab.status()
    run.writer.emit(document(lab, statuses), lambda console: _table(console, statuses))


def _node_verb(name: str, done: str, what: str) -> None:
    """Add a verb that does to nodes what the lab's method of that name does."""

    @lab_app.command(name, help=what)
    @verb()
    def node_command(
        run: Invocation,
        node: NodeArgument,
        dir: DirOption = None,  # noqa: A002 - the option's name
    ) -> None:
        _change_nodes(run, dir, done, lambda lab: getattr(lab, name)(*node))


_node_verb("kill", "killed", "SIGKILL nodes, like a power cut.")
_node_verb("pause", "paused", "SIGSTOP nodes: their connections stay open and nothing answers.")
_node_verb("resume", "resumed", "SIGCONT paused nodes.")


@lab_app.command("restart")
@verb()
def restart(
    run: Invocation,
    node: NodeArgument,
    dir: DirOption = None,  # noqa: A002 - the option's name
    timeout: TimeoutOption = None,
) -> None:
    """Stop nodes if they run and start them on the same ports and data."""
    from drkit.lab.lab import START_SECONDS

    _change_nodes(
        run,
        dir,
        "restarted",
        lambda lab: lab.restart(*node, timeout_seconds=timeout or START_SECONDS, say=run.say),
    )


def document(lab: Lab, statuses: Sequence[NodeStatus], **more: Any) -> dict[str, Any]:
    """The JSON of `drkit lab` (docs/contract.md): the lab and its nodes as they are now."""
    return {
        "dir": str(lab.dir),
        "config": str(lab.config_path),
        **more,
        "nodes": [
            {
                "name": each.name,
                "cluster": each.cluster,
                "state": each.state,
                "pid": each.pid,
                "port": each.port,
                "bootstrap": each.bootstrap,
                "reason": each.reason,
            }
            for each in statuses
        ],
    }


def _change_nodes(
    run: Invocation,
    directory: Path | None,
    done: str,
    do: Callable[[Lab], list[str]],
) -> None:
    """Do something to nodes, then show the lab as it is; `done` is the participle and the JSON key."""
    from drkit.lab import Lab

    lab = Lab.open(directory)
    changed = do(lab)
    statuses = lab.status()

    def human(console: Console) -> None:
        console.print(f"{done}: {', '.join(changed) or 'none was running'}")
        _table(console, statuses)

    run.writer.emit(document(lab, statuses, **{done: changed}), human)


def _table(console: Console, statuses: Sequence[NodeStatus]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("node", "state", "address", "pid", ""):
        table.add_column(title)
    for each in statuses:
        style = _STYLE[each.state]
        pid = "" if each.pid is None else str(each.pid)
        table.add_row(each.name, f"[{style}]{each.state}[/]", each.bootstrap, pid, each.reason or "")
    console.print(table)

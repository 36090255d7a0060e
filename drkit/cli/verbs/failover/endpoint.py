"""`drkit endpoint`: the bootstrap servers of a cluster, or of the one that serves now, for a client's start script."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.cli.output import OutputMode
from drkit.cli.wiring.context import Invocation, LinkOption, verb
from drkit.model.clock import iso
from drkit.model.errors import ConfigError, DrkitError, Refused, Unreachable
from drkit.model.topology import Link

if TYPE_CHECKING:
    from drkit.directory import Entry

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


class Form(StrEnum):
    """Output formats for people and scripts."""

    PLAIN = "plain"
    EXPORT = "export"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("endpoint")(endpoint)


@verb()
def endpoint(
    run: Invocation,
    cluster: Annotated[
        str | None, typer.Argument(metavar="[CLUSTER]", help="This cluster, whichever serves now.")
    ] = None,
    link: LinkOption = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="G", help="The cluster that serves this group's link now.")
    ] = None,
    form: Annotated[
        Form,
        typer.Option("--format", help=f"plain: host:port,host:port; export: for a shell's eval, as {VARIABLE}; json."),
    ] = Form.PLAIN,
) -> None:
    """Print where clients connect: to a cluster, or to the one that serves a link (or a group's link) now."""
    if form is Form.JSON:
        run.writer.mode = OutputMode.JSON
    if sum(given is not None for given in (cluster, link, group)) != 1:
        raise ConfigError(
            "name one of a cluster, --link L and --group G",
            remedy="For instance: drkit endpoint --group billing",
        )
    found = _of_links(run, _links(run, link, group)) if cluster is None else _of_cluster(run, cluster)
    servers = str(found["bootstrap_servers"])
    text = f"export {VARIABLE}={shlex.quote(servers)}" if form is Form.EXPORT else servers
    document = {**found, "bootstrap_servers": servers.split(",")}
    run.writer.emit(document, lambda console: console.print(text, soft_wrap=True, markup=False))


def _of_cluster(run: Invocation, alias: str) -> dict[str, object]:
    run.check_cluster(alias)
    return _document(run, alias, "configuration")


def _links(run: Invocation, link: str | None, group: str | None) -> list[Link]:
    if group is None:
        return run.links(link)
    links = [each for each in run.links(None) if each.covers_group(group)]
    if not links:
        raise ConfigError(f"no link carries the group {group}", remedy="Check `groups` of the configured links")
    return links


def _of_links(run: Invocation, links: list[Link]) -> dict[str, object]:
    found = [_of_link(run, link) for link in links]
    if len({each["cluster"] for each in found}) > 1:
        named = ", ".join(f"{each['link']}: {each['cluster']}" for each in found)
        raise Refused(
            f"several links carry it, and they are served by different clusters ({named})",
            meaning="Which one this client needs depends on its topics",
            remedy="Name one with --link",
        )
    return found[0]


def _of_link(run: Invocation, link: Link) -> dict[str, object]:
    """By the directory's word; where there is none, or it can't be asked, by the store's."""
    from drkit.directory import open_directories

    entries: list[tuple[Entry, str]] = []
    silent: list[DrkitError] = []
    for directory in open_directories(run.config, link.id):
        try:
            entry = directory.read()
        except DrkitError as error:
            silent.append(error)
            run.writer.log.print(f"[yellow]![/] {error.what}", soft_wrap=True)
            continue
        if entry is not None:
            entries.append((entry, directory.name))
    if entries:
        entry, name = max(entries, key=lambda each: each[0].epoch)
        return {
            **_document(run, entry.active, "directory"),
            "bootstrap_servers": entry.bootstrap_servers,
            "link": str(link.id),
            "directory": name,
            "epoch": entry.epoch,
            "since": iso(entry.at),
        }
    try:
        control = run.store().link_control(link.id)
    except DrkitError as error:
        if silent:
            raise Unreachable(
                f"neither a directory nor the store says who serves {link.id}: {error.what}",
                remedy="Name a cluster: drkit endpoint CLUSTER",
            ) from error
        raise
    away = control is not None and not control.direction.serves_source
    found = _document(run, link.id.target if away else link.id.source, "store")
    since = None if control is None else iso(control.changed_at)
    return {**found, "link": str(link.id), "epoch": None if control is None else control.version, "since": since}


def _document(run: Invocation, alias: str, basis: str) -> dict[str, object]:
    cluster = run.config.clusters.get(alias)
    servers = "" if cluster is None else ",".join(each.strip() for each in cluster.bootstrap_servers.split(","))
    return {
        "cluster": alias,
        "bootstrap_servers": servers,
        "basis": basis,
        "link": None,
        "directory": None,
        "epoch": None,
        "since": None,
    }

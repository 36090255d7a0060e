"""`drkit acls`: the least rights that drkit's commands need, from the configuration. Connects to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from drkit.cli.wiring.context import Invocation, LinksOption, verb
from drkit.model.errors import ConfigError
from drkit.permissions.table import Command

if TYPE_CHECKING:
    from drkit.cli.views.acls_view import PrintedRights
    from drkit.permissions.resolve import ClusterRights, Principal, Right
    from drkit.permissions.table import Who


class AclsFormat(StrEnum):
    """How the rights are printed for people."""

    TABLE = "table"
    KAFKA_ACLS = "kafka-acls"
    STRIMZI = "strimzi"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("acls")(acls)


@verb()
def acls(
    run: Invocation,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal",
            metavar="P",
            help="drkit's principal, as the cluster names it (User: may be left out). Default: the user of each "
            "cluster's client settings, else a placeholder.",
        ),
    ] = None,
    only: Annotated[
        list[Command] | None,
        typer.Option("--command", help="Rights for this command; repeat it (default: all commands)."),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="C", help="Rights on this cluster; repeat it (default: all)."),
    ] = None,
    form: Annotated[
        AclsFormat,
        typer.Option("--format", help="A table, calls of kafka-acls.sh, or Strimzi's KafkaUser."),
    ] = AclsFormat.TABLE,
    required: Annotated[
        bool, typer.Option("--required", help="Leave out rights without which every command works, at a cost.")
    ] = False,
    replay_to: Annotated[
        str | None, typer.Option("--replay-to", metavar="TOPIC", help="Include what drkit salvage --replay-to needs.")
    ] = None,
    link: LinksOption = None,
) -> None:
    """Print the least rights (ACLs) that drkit's commands need, by cluster and principal.

    They follow from the configuration: links, patterns, policy, offsets, fences. Connects to nothing, changes nothing.
    """
    from drkit.cli.views.acls_view import kafka_acls_text, print_rights, strimzi_text
    from drkit.permissions.resolve import rights_of

    commands = only or list(Command)
    if replay_to is not None and Command.SALVAGE not in commands:
        raise ConfigError("--replay-to belongs to drkit salvage", remedy="Add --command salvage, or leave it out")
    links = run.links_like(link)
    found = rights_of(run.config, links, commands, replay_to=replay_to)
    printed = [_printed(run, each, principal, required=required) for each in _on(run, found, cluster)]
    document = _document(printed, [str(each.id) for each in links], commands)

    def human(console: Console) -> None:
        if form is AclsFormat.TABLE:
            print_rights(console, printed, whole=run.verbose)
        else:
            typer.echo(text, nl=False)

    text = {AclsFormat.KAFKA_ACLS: kafka_acls_text, AclsFormat.STRIMZI: strimzi_text}.get(form, _nothing)(printed)
    run.writer.emit(document, human)


def _nothing(_: Sequence[PrintedRights]) -> str:
    return ""


def _on(run: Invocation, found: Sequence[ClusterRights], clusters: Sequence[str] | None) -> list[ClusterRights]:
    for alias in clusters or ():
        run.check_cluster(alias, "--cluster")
    return [each for each in found if not clusters or each.cluster in clusters]


def _printed(run: Invocation, found: ClusterRights, given: str | None, *, required: bool) -> PrintedRights:
    from drkit.cli.views.acls_view import PrintedRights

    cluster = run.config.clusters[found.cluster]
    principal = _principal(run, found.cluster, found.who, given)
    rights = tuple(right for right in found.rights if not (required and right.optional))
    notes = (*filter(None, (principal.note,)), *found.notes)
    servers = ",".join(server.strip() for server in cluster.bootstrap_servers.split(","))
    return PrintedRights(found.cluster, servers, principal, rights, notes)


def _principal(run: Invocation, alias: str, who: Who, given: str | None) -> Principal:
    from drkit.permissions.resolve import given_principal, principal_of
    from drkit.permissions.table import Who

    cluster = run.config.clusters[alias]
    if who is Who.WRITER:
        found = principal_of(cluster.writer())
        return replace(found, note="; ".join(filter(None, (f"this is {who.value}", found.note))))
    return principal_of(cluster) if given is None else given_principal(given)


def _document(printed: Sequence[PrintedRights], links: Sequence[str], commands: Sequence[Command]) -> dict[str, Any]:
    from drkit.cli.views.acls_view import kafka_acls_commands, strimzi_user

    return {
        "links": list(links),
        "commands": [each.value for each in commands],
        "clusters": [
            {
                "cluster": each.cluster,
                "bootstrap_servers": each.bootstrap_servers,
                "principal": each.principal.name,
                "principal_from": each.principal.origin.value,
                "rights": [_right(right) for right in each.rights],
                "notes": list(each.notes),
                "kafka_acls": kafka_acls_commands(each),
                "strimzi": strimzi_user(each),
            }
            for each in printed
        ],
    }


def _right(right: Right) -> dict[str, Any]:
    return {
        "resource": right.on.resource.value,
        "name": right.on.name,
        "pattern": "prefixed" if right.on.prefixed else "literal",
        "operation": right.operation.value,
        "optional": right.optional,
        "commands": [each.value for each in right.commands],
        "reasons": [
            {
                "command": reason.command.value,
                "operation": reason.operation.value,
                "for": reason.purpose,
                "without": reason.without,
                "optional": reason.optional,
            }
            for reason in right.reasons
        ],
    }

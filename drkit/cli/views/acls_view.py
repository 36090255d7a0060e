"""Rights as people read them, as commands of Kafka's own tool, and as Strimzi's KafkaUser."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drkit.model.errors import ConfigError
from drkit.permissions.resolve import Principal, ResourcePattern, Right
from drkit.permissions.table import Command, Resource

_FLAGS = {
    Resource.TOPIC: "--topic",
    Resource.GROUP: "--group",
    Resource.TRANSACTIONAL_ID: "--transactional-id",
}
_STRIMZI_TYPES = {Resource.TRANSACTIONAL_ID: "transactionalId"}
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
_CERTIFICATE = "CN="


@dataclass(frozen=True, slots=True)
class PrintedRights:
    """What is printed of one principal of one cluster."""

    cluster: str
    bootstrap_servers: str
    principal: Principal
    rights: tuple[Right, ...]
    notes: tuple[str, ...]

    @property
    def command_config(self) -> str:
        """The commands' file with client properties of somebody who may alter the cluster's rules."""
        return f"admin-{self.cluster}.properties"

    def by_resource(self) -> Iterator[tuple[ResourcePattern, list[Right]]]:
        """The rights, by what they are about."""
        for on, rights in groupby(self.rights, key=lambda right: right.on):
            yield on, list(rights)


def print_rights(console: Console, printed: Sequence[PrintedRights], *, whole: bool) -> None:
    """The rights of each principal of each cluster; `whole`: with what each is for, and what happens without."""
    for each in printed:
        console.print(Text.assemble((each.cluster, "bold"), f"  {each.principal.name}"), soft_wrap=True)
        if whole:
            _print_whole(console, each)
        else:
            console.print(_table(each))
        for note in each.notes:
            console.print(Text(f"  {note}", "yellow"), soft_wrap=True)
    if any(right.optional for each in printed for right in each.rights):
        console.print(Text("(…): optional; the commands do without, at a cost that --verbose names", "dim"))


def _table(each: PrintedRights) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("resource", "operations", "commands"):
        table.add_column(column, overflow="fold")
    for on, rights in each.by_resource():
        commands = {command for right in rights for command in right.commands}
        table.add_row(Text(str(on)), Text(", ".join(map(_named, rights))), _commands(commands))
    return table


def _print_whole(console: Console, each: PrintedRights) -> None:
    for on, rights in each.by_resource():
        console.print(Text(f"  {on}"), soft_wrap=True)
        for right in rights:
            console.print(Text(f"    {_named(right)}", "bold"), soft_wrap=True)
            for line in _lines(right):
                console.print(Text(f"      {line}", "dim"), soft_wrap=True)


def _named(right: Right) -> str:
    title = right.operation.title_in_kafka
    return f"({title})" if right.optional else title


def _lines(right: Right) -> Iterator[str]:
    by_purpose: dict[tuple[str, str], list[str]] = {}
    for reason in right.reasons:
        by_purpose.setdefault((reason.purpose, reason.without), []).append(reason.command.value)
    for (purpose, without), commands in by_purpose.items():
        yield f"{', '.join(commands)}: {purpose}. Without: {without}"


def _commands(found: set[Command]) -> str:
    return "all" if found == set(Command) else ", ".join(command for command in Command if command in found)


def kafka_acls_commands(each: PrintedRights) -> list[str]:
    """Calls of kafka-acls.sh that add the rights, one for each resource."""
    return [" ".join(words) for words in _kafka_acls_calls(each)]


def _kafka_acls_calls(each: PrintedRights) -> Iterator[list[str]]:
    for on, rights in each.by_resource():
        words = ["kafka-acls.sh", "--bootstrap-server", each.bootstrap_servers]
        words += ["--command-config", each.command_config]
        words += ["--add", "--allow-principal", each.principal.name]
        for right in rights:
            words += ["--operation", right.operation.title_in_kafka]
        if on.resource is Resource.CLUSTER:
            words.append("--cluster")
        else:
            words += [_FLAGS[on.resource], on.name]
            words += ["--resource-pattern-type", "prefixed" if on.prefixed else "literal"]
        yield [shlex.quote(word) for word in words]


def kafka_acls_text(printed: Sequence[PrintedRights]) -> str:
    """The calls of all principals, with comments: a script."""
    files = dict.fromkeys((each.command_config, each.cluster) for each in printed)
    lines = [f"# {name}: client properties of somebody who may alter the rules of {of}" for name, of in files]
    for each in printed:
        lines += ["", *_header_comments(each)]
        lines += [_on_two_lines(words) for words in _kafka_acls_calls(each)]
    return "\n".join(lines) + "\n"


def _on_two_lines(words: Sequence[str]) -> str:
    """A call on two lines."""
    add = words.index("--add")
    return f"{' '.join(words[:add])} \\\n  {' '.join(words[add:])}"


def _header_comments(each: PrintedRights) -> list[str]:
    optional = [f"{right.operation.title_in_kafka} on {right.on}" for right in each.rights if right.optional]
    lines = [f"# cluster {each.cluster}, principal {each.principal.name}"]
    lines += [f"# {note}" for note in each.notes]
    return [*lines, *([f"# optional: {', '.join(optional)}"] if optional else [])]


def strimzi_user(each: PrintedRights) -> str | None:
    """A KafkaUser with the rights (YAML); None: the principal has a name that a KafkaUser can't have."""
    kind, _, name = each.principal.name.partition(":")
    by_certificate = name.startswith(_CERTIFICATE)
    name = name.removeprefix(_CERTIFICATE)
    if kind != "User" or not _OBJECT_NAME.fullmatch(name):
        return None
    lines = [
        *_header_comments(each),
        "apiVersion: kafka.strimzi.io/v1beta2",
        "kind: KafkaUser",
        "metadata:",
        f"  name: {json.dumps(name)}",
        "  labels:",
        f"    strimzi.io/cluster: {json.dumps(each.cluster)}  # the name of that cluster's Kafka resource",
        "spec:",
    ]
    if by_certificate:
        lines += ["  authentication:", "    type: tls-external"]
    lines += ["  authorization:", "    type: simple", "    acls:"]
    for on, rights in each.by_resource():
        lines += ["      - resource:", f"          type: {_STRIMZI_TYPES.get(on.resource, on.resource.value)}"]
        if on.resource is not Resource.CLUSTER:
            lines.append(f"          name: {json.dumps(on.name)}")
            lines.append(f"          patternType: {'prefix' if on.prefixed else 'literal'}")
        lines.append("        operations:")
        lines += [f"          - {right.operation.title_in_kafka}" for right in rights]
    return "\n".join(lines) + "\n"


def strimzi_text(printed: Sequence[PrintedRights]) -> str:
    """The KafkaUsers of all principals, as documents of one YAML stream.

    Raises:
        ConfigError: a principal that no KafkaUser can have.
    """
    users = []
    for each in printed:
        user = strimzi_user(each)
        if user is None:
            raise ConfigError(
                f"{each.principal.name} of cluster {each.cluster} is no name that a KafkaUser can have",
                meaning="Its name would have to be one of Kubernetes: lower case letters, digits, dashes and dots",
                remedy="Give the user that Strimzi knows with --principal, or take --format kafka-acls",
            )
        users.append(user)
    return "---\n".join(users)

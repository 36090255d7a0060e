"""`drkit init`: writes a commented `drkit.toml` for two clusters, from flags or questions and what the clusters
hold."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.output import OutputMode
from drkit.cli.wiring.context import Invocation, TimeoutOption, verb
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.config import Config
    from drkit.config.template import ClusterDraft, ConfigDraft
    from drkit.observe.link_proposal import Proposal

_ALIAS = re.compile(r"[A-Za-z0-9_-]+")
_NEXT = ("drkit config check --connect", "drkit mirror", "drkit doctor")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("init")(init)


@verb(drafts=True)
def init(
    run: Invocation,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="[ALIAS=]HOST:PORT,…", help="The cluster that serves now (alias: primary)."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="[ALIAS=]HOST:PORT,…", help="The standby (alias: dr).")
    ] = None,
    source_client: Annotated[
        list[str] | None,
        typer.Option(
            "--source-client",
            metavar="NAME=VALUE",
            help="A client property of the source by its librdkafka name; repeat it. Secrets: NAME=env:VARIABLE or "
            "NAME=file:PATH.",
        ),
    ] = None,
    target_client: Annotated[
        list[str] | None, typer.Option("--target-client", metavar="NAME=VALUE", help="The same for the target.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="PATTERN", help="Topics to mirror (default: all); repeat it.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="PATTERN", help="Groups to carry (default: all); repeat it.")
    ] = None,
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="Where drkit keeps its state; env:NAME or file:PATH hides it.")
    ] = "sqlite:///drkit.db",
    offline: Annotated[bool, typer.Option("--offline", help="Don't connect; propose everything.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; print the file.")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Write a commented drkit.toml for two clusters. Connects, proposes topics and groups; overwrites nothing.

    At a terminal it asks for missing flags; without one, --source and --target are needed. The file goes where
    --config says (default: $DRKIT_CONFIG, else ./drkit.toml) and holds no secret.
    """
    from drkit.config.load import find_config
    from drkit.config.template import ConfigDraft, render

    file = find_config(run.config_path)
    if file.exists() and not dry_run:
        raise Refused(
            f"{file} exists already",
            meaning="drkit init overwrites no file. Nothing was changed",
            remedy="Name another with --config; or look at what is there: drkit config show",
        )
    asks = sys.stdin.isatty() and run.writer.mode is OutputMode.HUMAN
    try:
        draft = ConfigDraft(
            _cluster("--source", source, "primary", source_client, asks=asks),
            _cluster("--target", target, "dr", target_client, asks=asks),
            _checked_store(store),
            topics=tuple(topic or (".*",)),
            groups=tuple(group or (".*",)),
        )
        read = _read(draft)
        proposal = None
        if not offline:
            proposal = _propose(read, draft, timeout)
            draft = _with(draft, proposal)
            if asks and topic is None:
                draft = replace(draft, topics=(_ask("Topics, as a regular expression", ".*"),))
            if asks and group is None:
                draft = replace(draft, groups=(_ask("Consumer groups, as a regular expression", ".*"),))
    except typer.Abort:  # Ctrl-C at a question
        raise KeyboardInterrupt from None
    _read(draft)
    text = render(draft)
    if not dry_run:
        _write(file, text)
    document = _document(file, draft, proposal, text, written=not dry_run)
    run.writer.emit(document, lambda console: _print(console, file, proposal, text, written=not dry_run))


def _propose(read: Config, draft: ConfigDraft, timeout: float | None) -> Proposal:
    from drkit.kafka.admin.clusters import TIMEOUT_SECONDS, Clusters
    from drkit.kafka.config.client_config import kafka_python_config
    from drkit.observe.link_proposal import propose

    for cluster in read.clusters.values():
        kafka_python_config(cluster)  # a wrong property is told before anything is asked
    with Clusters(read.clusters, timeout_seconds=timeout or TIMEOUT_SECONDS) as clusters:
        return propose(clusters, draft.source.alias, draft.target.alias)


def _cluster(flag: str, given: str | None, alias: str, client: Sequence[str] | None, *, asks: bool) -> ClusterDraft:
    """A cluster from its flag, or from questions."""
    from drkit.config.template import ClusterDraft, parse_client

    try:
        properties = parse_client(client or ())
    except ValueError as error:
        raise ConfigError(
            f"{flag}-client: {error}", remedy=f"For example {flag}-client security.protocol=SSL"
        ) from None
    asked = given is None and asks
    if given is None:
        if not asks:
            raise ConfigError(
                f"{flag} is missing, and there is no terminal to ask at",
                remedy=f"{flag} HOST:PORT, or {flag} {alias}=HOST:PORT,HOST:PORT",
            )
        given = _ask(f"Bootstrap servers of the {flag.strip('-')} ([ALIAS=]HOST:PORT,…)", None)
    name, equals, servers = given.partition("=")
    if not equals:
        name, servers = alias, given
    if not _ALIAS.fullmatch(name):
        raise ConfigError(f"{flag}: {name!r} is no alias", remedy="Use letters, digits, - and _")
    if asked and not properties:
        properties = _ask_client(name)
    return ClusterDraft(name, servers, properties)


def _ask_client(alias: str) -> dict[str, str]:
    from drkit.config.template import ENV
    from drkit.kafka.config.client_config import PROTOCOLS

    protocol = _ask(f"security.protocol of {alias} ({', '.join(sorted(PROTOCOLS))})", "PLAINTEXT").upper()
    found = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        found["sasl.mechanisms"] = _ask("sasl.mechanisms (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)", "SCRAM-SHA-512")
        found["sasl.username"] = _ask("sasl.username", "drkit")
        variable = re.sub(r"[^A-Za-z0-9]", "_", f"DRKIT_{alias}_PASSWORD").upper()
        found["sasl.password"] = ENV + _ask("The environment variable that holds the password", variable)
    if protocol.endswith("SSL"):
        authority = _ask("ssl.ca.location, the PEM file of the authority (empty: the system's)", "")
        if authority:
            found["ssl.ca.location"] = authority
    return found


def _ask(question: str, default: str | None) -> str:
    return str(typer.prompt(question, default=default, err=True)).strip()


def _checked_store(url: str) -> str:
    from drkit.config.effective import without_credentials
    from drkit.config.template import ENV, FILE

    if not url.startswith((ENV, FILE)) and without_credentials(url) != url:
        raise ConfigError(
            "--store holds a password",
            meaning="It would be in the file, and in the list of processes",
            remedy="Write the URL into a variable: --store env:DRKIT_STORE_SECRET",
        )
    return url


def _read(draft: ConfigDraft) -> Config:
    """The configuration that the draft makes, checked as any other.

    Raises:
        ConfigError: a value that is wrong, by its key.
    """
    from pydantic import ValidationError

    from drkit.config import Config
    from drkit.config.environment import check_names
    from drkit.config.template import render

    if draft.source.alias == draft.target.alias:
        raise ConfigError(
            f"--source and --target are both called {draft.source.alias}",
            remedy="Give each its own alias: --source primary=HOST:PORT --target dr=HOST:PORT",
        )
    values = tomllib.loads(render(draft))
    check_names(values, "it is being written")  # whoever edits it may name others for secrets
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{key}: {first['msg'].removeprefix('Value error, ')}", remedy="Correct the flag (drkit init --help)"
        ) from None


def _with(draft: ConfigDraft, found: Proposal) -> ConfigDraft:
    return replace(
        draft,
        exclude_topics=found.exclude_topics,
        exclude_groups=found.exclude_groups,
        offsets="translate" if found.occupied else "preserve",
        remarks=found.remarks,
    )


def _write(file: Path, text: str) -> None:
    """A new file that only its owner can read."""
    made = False
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        made = True
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Refused(f"{file} exists already", remedy="Name another with --config") from None
    except OSError as error:
        if made:  # a part of a configuration is none, and would stand in the next one's way
            file.unlink(missing_ok=True)
        raise DrkitError(f"{file} can't be written: {error.strerror or error}", remedy="Name another file") from error


def _document(file: Path, draft: ConfigDraft, found: Proposal | None, text: str, *, written: bool) -> dict[str, Any]:
    return {
        "file": str(file.absolute()),
        "written": written,
        "connected": found is not None,
        "link": f"{draft.source.alias}->{draft.target.alias}",
        "topics": None if found is None else list(found.topics),
        "groups": None if found is None else list(found.groups),
        "warnings": [] if found is None else list(found.warnings),
        "text": text,
        "next": list(_NEXT),
    }


def _print(console: Console, file: Path, found: Proposal | None, text: str, *, written: bool) -> None:
    if not written:
        console.out(text, end="", highlight=False)
        return
    console.print(f"{escape(str(file))} is written", soft_wrap=True)
    if found is not None:
        topics = f"{counted(len(found.topics), 'topic')} ({and_more(found.topics)})" if found.topics else "no topic yet"
        console.print(escape(f"  found: {topics}, {counted(len(found.groups), 'consumer group')}"), soft_wrap=True)
        for warning in found.warnings:
            console.print(f"  [yellow]{escape(warning)}[/]", soft_wrap=True)
    console.print(f"  [bold]do:[/] {'; then '.join(_NEXT)}", soft_wrap=True)

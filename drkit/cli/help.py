"""The help of commands: its looks, and the examples that each ends with.

Paragraphs fill the terminal, and a flag, which takes no value, has no type.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import typer
from typer._click.core import Command  # of the click in Typer: no public name exists
from typer.core import TyperCommand, TyperGroup


class _Helpful(Command):
    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.help = None if self.help is None else reflowed(self.help)

    def get_params(self, ctx: Any) -> Any:
        """Typer's own hook: all parameters, `--help` included."""
        return _without_types_of_flags(super().get_params(ctx))


class HelpfulCommand(_Helpful, TyperCommand):
    """A command with such a help."""


class HelpfulGroup(_Helpful, TyperGroup):
    """A group of commands with such a help."""


def reflowed(text: str) -> str:
    """A docstring with each paragraph on one line (Typer keeps the breaks of its source); lists stay as they are."""
    return "\n\n".join(map(_joined, inspect.cleandoc(text).split("\n\n")))


def _joined(paragraph: str) -> str:
    lines = paragraph.splitlines()
    kept = any(line.startswith((" ", "- ", "* ", "\b", "[")) for line in lines)
    return paragraph if kept else " ".join(lines)


def _without_types_of_flags(params: Iterable[Any]) -> list[Any]:
    """The same, but Typer doesn't say `<bool>` beside a flag, as if it wanted a value."""
    found = list(params)
    for param in found:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return found


EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("drkit demo",),
    "lab": ("drkit lab up", "drkit lab load flights", "drkit lab kill primary", "drkit lab down"),
    "lab up": ("drkit lab up", "drkit lab up --brokers 3 --store sqlite", "drkit lab up --secure"),
    "lab down": ("drkit lab down", "drkit lab down --keep-data"),
    "lab status": ("drkit lab status",),
    "lab kill": ("drkit lab kill primary-1", "drkit lab kill primary"),
    "lab pause": ("drkit lab pause primary",),
    "lab resume": ("drkit lab resume primary",),
    "lab restart": ("drkit lab restart primary-1",),
    "lab load": ("drkit lab load flights --limit 10000", "drkit lab load orders --transactional --rate 2000"),
    "mirror": ("drkit mirror", "drkit mirror --link 'primary->dr' --until-caught-up"),
    "config": ("drkit config show", "drkit config check --connect"),
    "config show": ("drkit config show --config drkit.toml --output json",),
    "config check": ("drkit config check --connect",),
    "config schema": ("drkit config schema",),
    "acls": (
        "drkit acls",
        "drkit acls --format kafka-acls --principal User:drkit",
        "drkit acls --format strimzi --cluster dr",
        "drkit acls --command failover --link 'primary->dr' --verbose",
    ),
    "status": ("drkit status", "drkit status --watch", "drkit status --output json"),
    "doctor": ("drkit doctor", "drkit doctor --to dr"),
    "translate": ("drkit translate --group billing", "drkit translate --topic flights --partition 0 --offset 900"),
    "link": ("drkit link pause 'primary->dr'", "drkit link resume 'primary->dr'"),
    "link pause": ("drkit link pause 'primary->dr' --reason 'upgrade of dr'",),
    "link resume": (
        "drkit link resume 'primary->dr'",
        "drkit link resume 'primary->dr' --topic orders --accept-recreated",
        "drkit link resume 'primary->dr' --accept-recreated --cluster-id ID",
    ),
    "link acknowledge": (
        "drkit link acknowledge 'primary->dr' target_purged --topic orders",
        "drkit link acknowledge 'primary->dr' retention_gap",
    ),
    "link recover": ("drkit link recover 'primary->dr'",),
    "link trim": ("drkit link trim 'primary->dr'",),
    "endpoint": ("drkit endpoint --link 'primary->dr'", "drkit endpoint dr --format export"),
    "failover": (
        "drkit failover --to dr --dry-run",
        "drkit failover --to dr --planned",
        "drkit failover --to dr --at 04:03 --group billing",
    ),
    "failback": (
        "drkit failback --dry-run",
        "drkit failback --yes --cluster-id ID",
        "drkit failback --yes --cluster-id east=ID --cluster-id west=ID",
    ),
    "reprotect": ("drkit reprotect --dry-run", "drkit reprotect --link 'eu-.*->dr'"),
    "fence": ("drkit fence --wait 3600", "drkit fence --link 'eu-.*->dr'", "drkit fence --link 'primary->dr' --lift"),
    "resume": ("drkit resume", "drkit resume RUN --cancel"),
    "abandon": ("drkit abandon RUN",),
    "runs": ("drkit runs", "drkit runs RUN"),
    "evidence": ("drkit evidence export RUN --out evidence/RUN", "drkit evidence verify evidence/RUN"),
    "evidence export": ("drkit evidence export RUN --out evidence/RUN --witness 'Ada Lovelace'",),
    "evidence verify": ("drkit evidence verify evidence/RUN --key drkit-evidence.pub",),
    "evidence key": ("drkit evidence key --out evidence.key",),
    "evidence approve": ("drkit evidence approve plan.json --key ana.key --out plan.ana",),
    "init": ("drkit init --source kafka-1.eu:9092 --target kafka-1.us:9092 --topic 'flights|orders[.].*'",),
    "store": ("drkit store backup --out drkit-backup.gz", "drkit store recover --from dr"),
    "store migrate": ("drkit store migrate --dry-run",),
    "store backup": ("drkit store backup --out /var/backups/drkit-2026-11-23.gz",),
    "store restore": ("drkit store restore --from /var/backups/drkit-2026-11-23.gz",),
    "store recover": (
        "drkit store recover --from dr",
        "drkit store recover --from dr --link 'primary->dr' --from-logs",
    ),
    "audit": (
        "drkit audit",
        "drkit audit --topic orders --report audit.html",
        "drkit audit --from -2h --fail-on unseen:5m",
        "drkit audit --from-digests",
    ),
    "audit group": ("drkit audit group billing --report billing.html",),
    "audit watch": ("drkit audit watch --link 'primary->dr' --metrics 127.0.0.1:9402",),
    "audit history": ("drkit audit history --last 10",),
    "salvage": (
        "drkit salvage --out salvage",
        "drkit salvage --out salvage --link 'eu-.*->dr'",
        "drkit salvage --out salvage --link 'primary->dr' --replay-to orders-recovered",
    ),
    "drill": ("drkit drill run primary-lost", "drkit drill history", "drkit drill coverage"),
    "drill run": (
        "drkit drill run primary-lost",
        "drkit drill run my-drills/",
        "drkit drill run --all --repeat 3 --output json",
    ),
    "drill random": ("drkit drill random --minutes 60", "drkit drill random --seed 7 --runs 3 --no-cassandra"),
    "drill coverage": ("drkit drill coverage", "drkit drill coverage my-drills/"),
    "drill export": ("drkit drill export primary-lost --out primary-lost.json", "drkit drill export my-drill.yaml"),
    "drill schedule": ("drkit drill schedule primary-lost --cron '0 4 * * 1'",),
    "drill history": ("drkit drill history",),
    "drill report": ("drkit drill report RUN",),
    "jars": ("drkit jars fetch",),
    "jars fetch": ("drkit jars fetch --dry-run", "drkit jars fetch --repository https://maven.example.com/central"),
    "serve": ("drkit serve", "drkit serve --listen 127.0.0.1:8080"),
}
"""By command: calls of it, the most usual first."""


def add_examples(app: typer.Typer, path: str = "") -> None:
    """Let the help of each of the commands look as described above, and end with its examples."""
    for command in app.registered_commands:
        command.cls = HelpfulCommand
        command.epilog = _epilog(f"{path}{command.name}")
    for group in app.registered_groups:
        instance = group.typer_instance
        if instance is None:
            continue
        name = f"{path}{group.name or instance.info.name}"
        group.epilog = _epilog(name)
        group.cls = HelpfulGroup
        add_examples(instance, f"{name} ")


def _epilog(name: str) -> str | None:
    if name not in EXAMPLES:
        return None
    # Typer prints the paragraphs of an epilog each on a line of its own
    return "\n\n".join(("Examples:", *(f"[cyan]{each}[/cyan]" for each in EXAMPLES[name])))

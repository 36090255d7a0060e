"""`drkit jars fetch`: bring what runs on Java here ahead of time, from the central repository or one of your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from drkit.cli.wiring.context import Invocation, verb
from drkit.model.errors import ConfigError, DrkitError, ExitCode, ExtraMissing
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.lab.toolchain.lockfile import Jar

_USED_BY = {
    "kafka": "drkit lab, demo and drill: brokers",
    "kafka-3.9": "tests: brokers of the last release before 4.0",
    "clients-3.9": "benchmarks: clients of the last release before 4.0",
    "cassandra": "drkit lab, demo and drill with --store cassandra",
    "mirrormaker": "benchmarks and tests: MirrorMaker 2",
    "spark": "benchmarks and tests: Spark's own Kafka connector",
}
_DEFAULT = ("kafka", "cassandra")
_WITHOUT_JARS = (
    "drkit audit, salvage and the bulk seed need no jars: drkit reads and writes Kafka in Spark's Python tasks. They "
    "need PySpark and Java 17, which the extra spark brings (pip install 'drkit[spark]')"
)
_NO_JAVA = "missing: pip install 'drkit[lab]' brings it, or DRKIT_JAVA_HOME names one"


@dataclass(frozen=True, slots=True)
class _JarSet:
    """One set of jars: what was missing before, and what is missing now."""

    name: str
    jars: tuple[Jar, ...]
    before: tuple[Jar, ...]
    missing: tuple[Jar, ...]

    @property
    def used_by(self) -> str:
        return _USED_BY[self.name]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    jars = typer.Typer(name="jars", help="Fetch the lab's jars in advance; the audit needs none.", no_args_is_help=True)
    jars.callback()(_about)
    jars.command("fetch")(fetch)
    app.add_typer(jars)


def _about() -> None:
    """Manage the jars of the lab."""


@verb()
def fetch(
    run: Invocation,
    sets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SET]...",
            help=f"kafka, kafka-3.9, clients-3.9, cassandra, mirrormaker, spark (default: {' '.join(_DEFAULT)}).",
        ),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(
            "--repository",
            metavar="URL",
            help="Your own Maven repository, https://… or file:///… (default: $DRKIT_JAR_REPOSITORY, else the "
            "central one).",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Fetch nothing; say what is there and what is missing.")
    ] = False,
) -> None:
    """Fetch missing jars of the lab into the user's cache; idempotent. The audit needs none.

    Each jar is checked against its SHA-256. With --dry-run: exits 0 where all are there, 3 where one is missing.
    """
    from drkit.lab.toolchain import ensure, known_sets, missing_jars
    from drkit.lab.toolchain.lockfile import read_lock
    from drkit.lab.toolchain.repository import chosen_repository

    names = tuple(dict.fromkeys(sets or _DEFAULT))
    unknown = [name for name in names if name not in known_sets()]
    if unknown:
        raise ConfigError(f"there is no jar set {unknown[0]!r}", remedy=f"Known sets are: {', '.join(known_sets())}")
    chosen = chosen_repository(repository)
    before = {name: tuple(missing_jars(name)) for name in names}
    java = _java() if dry_run else str(ensure(*names, repository=repository).java_home)
    found = [
        _JarSet(name, read_lock(name).jars, before[name], before[name] if dry_run else tuple(missing_jars(name)))
        for name in names
    ]
    run.writer.emit(_document(found, java, chosen), lambda console: _print(console, found, java))
    if java is None or any(each.missing for each in found):
        run.exit(ExitCode.REFUSED)


def _java() -> str | None:
    from drkit.lab.toolchain.java import find_java_home

    try:
        return str(find_java_home())
    except ExtraMissing:
        return None
    except ConfigError:
        raise
    except DrkitError:
        return None


def _document(found: Sequence[_JarSet], java: str | None, repository: str | None) -> dict[str, Any]:
    from drkit.config.environment import cache_dir

    return {
        "cache": str(cache_dir()),
        "repository": repository,
        "java_home": java,
        "sets": [
            {
                "set": each.name,
                "used_by": each.used_by,
                "jars": len(each.jars),
                "bytes": sum(jar.size for jar in each.jars),
                "present": len(each.jars) - len(each.missing),
                "fetched": len(each.before) - len(each.missing),
                "missing": [str(jar) for jar in each.missing],
            }
            for each in found
        ],
        "without_jars": _WITHOUT_JARS,
    }


def _print(console: Console, found: Sequence[_JarSet], java: str | None) -> None:
    from drkit.config.environment import cache_dir

    console.print(Text(f"Cache: {cache_dir()}"), soft_wrap=True)
    console.print(Text(f"Java 17: {java or _NO_JAVA}"), soft_wrap=True)
    for each in found:
        size = sum(jar.size for jar in each.jars) >> 20
        state = f"missing: {and_more([str(jar) for jar in each.missing])}" if each.missing else "all here"
        fetched = len(each.before) - len(each.missing)
        if fetched:
            state += f", {fetched} fetched"
        console.print(
            Text.assemble((each.name, "bold"), f"  {counted(len(each.jars), 'jar')}, {size} MiB: {state}  "),
            Text(f"({each.used_by})", "dim"),
            soft_wrap=True,
        )
    console.print(Text(_WITHOUT_JARS, "dim"), soft_wrap=True)

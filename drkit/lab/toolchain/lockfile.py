"""Lock files: the exact jars of a set, each with the SHA-256 that its bytes must have.

One TOML file per set is in `locks/`. `python -m drkit.lab.toolchain lock` writes it; no other jar is ever
put on a class path.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from drkit.model.errors import ConfigError

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """A Maven coordinate without its artifact: `org:name:rev`."""

    org: str
    name: str
    rev: str

    def __str__(self) -> str:
        return f"{self.org}:{self.name}:{self.rev}"

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Parse `org:name:rev`. Raises ValueError if it doesn't have that form."""
        parts = text.split(":")
        if len(parts) != 3 or not all(_NAME.fullmatch(part) for part in parts):  # noqa: PLR2004 - org, name, rev
            raise ValueError(f"{text!r} is not org:name:rev")
        return cls(*parts)


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One locked jar. `size` is in bytes; `classifier` is empty for a module's main artifact."""

    module: Coordinate
    classifier: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """The name in a Maven repository: `name-rev(-classifier).jar`."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.module.name}-{self.module.rev}{tail}.jar"

    @property
    def relative_path(self) -> Path:
        """The jar's path below the cache's jar folder."""
        return Path(self.module.org, self.module.name, self.module.rev, self.file_name)

    def __str__(self) -> str:
        return f"{self.module}:{self.classifier}" if self.classifier else str(self.module)


@dataclass(frozen=True, slots=True)
class Lock:
    """One set: its `roots`, and every jar that they resolve to, in class-path order."""

    name: str
    roots: tuple[Coordinate, ...]
    transitive: bool
    jars: tuple[Jar, ...]


def lock_path(name: str) -> Path:
    """The checked-in lock file of a set."""
    return Path(str(resources.files(__package__) / "locks" / f"{name}.toml"))


def known_sets() -> tuple[str, ...]:
    """The names of the sets that have a lock file."""
    return tuple(sorted(path.stem for path in lock_path("any").parent.glob("*.toml")))


def read_lock(name: str) -> Lock:
    """The lock of a set.

    Raises:
        ConfigError: there is no such set, or its file is damaged.
    """
    path = lock_path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no jar set {name!r}", remedy=f"Known sets are: {', '.join(known_sets())}"
        ) from None
    return parse_lock(text, origin=str(path))


def parse_lock(text: str, *, origin: str) -> Lock:
    """Read a lock file's text; `origin` names it in errors.

    Raises:
        ConfigError: not TOML, a missing key, a malformed coordinate or checksum, a jar twice.
    """
    try:
        data: dict[str, Any] = tomllib.loads(text)
        jars = tuple(_jar(row) for row in data["jars"])
        lock = Lock(
            name=str(data["set"]),
            roots=tuple(Coordinate.parse(root) for root in data["roots"]),
            transitive=bool(data["transitive"]),
            jars=jars,
        )
        _refuse_doubles(jars)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        detail = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"the lock file {origin} is damaged: {detail}",
            remedy="Restore it from the release, or write it again with `python -m drkit.lab.toolchain lock`",
        ) from error
    return lock


def render_lock(lock: Lock) -> str:
    """The text of a lock file; `parse_lock` reads it back to an equal `Lock`."""
    lines = [
        "# The exact jars of one set. Made by `python -m drkit.lab.toolchain lock`; don't edit by hand.",
        f'set = "{lock.name}"',
        "roots = [" + ", ".join(f'"{root}"' for root in lock.roots) + "]",
        f"transitive = {str(lock.transitive).lower()}",
        "jars = [",
    ]
    for jar in lock.jars:
        classifier = f', classifier = "{jar.classifier}"' if jar.classifier else ""
        lines.append(f'  {{ module = "{jar.module}"{classifier}, size = {jar.size}, sha256 = "{jar.sha256}" }},')
    return "\n".join([*lines, "]", ""])


def _jar(row: dict[str, Any]) -> Jar:
    module = Coordinate.parse(row["module"])
    sha256, size, classifier = row["sha256"], row["size"], row.get("classifier", "")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{module}: {sha256!r} is not a SHA-256 in lower-case hexadecimal")
    if not isinstance(size, int) or size <= 0:
        raise ValueError(f"{module}: {size!r} is not a size in bytes")
    if classifier and not _NAME.fullmatch(classifier):
        raise ValueError(f"{module}: {classifier!r} is not a classifier")
    return Jar(module, classifier, sha256, size)


def _refuse_doubles(jars: tuple[Jar, ...]) -> None:
    seen: set[Path] = set()
    for jar in jars:
        if jar.relative_path in seen:
            raise ValueError(f"{jar} is listed twice")
        seen.add(jar.relative_path)

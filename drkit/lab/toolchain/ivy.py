"""Runs Ivy as a child process: fetches locked jars (with several processes), or resolves roots for a lock.

Ivy's built-in default settings find the central repository; nothing here names a registry host. Another Maven
repository, such as the user's own proxy, is given by its URL.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from drkit.lab.toolchain.lockfile import Coordinate, Jar

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

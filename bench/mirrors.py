"""The compared mirrors, each started like by its users, and the scene of a measurement."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from bench.clusters import Cluster, Clusters
from bench.processes import CONFIG, MeasurementFailed, Running, drkit
from bench.report import DRKIT, OTHER
from bench.wire import Codec
from drkit.lab.toolchain import Toolchain

STORE = "drkit.db"
PROPERTIES = Path(__file__).parent / "mm2.properties"
_BACKLOG_LINGER_MS = 20
_CALM_SECONDS, _CALM_GROUP_SECONDS = 60, 600  # of checkpoints and of group refreshes: MirrorMaker 2's defaults
_BUSY_SECONDS = 2
_DATA_PATH = re.compile(r"^connector-producer-MirrorSourceConnector|\|replication-consumer$")

_LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders><Console name="console"><PatternLayout pattern="[%d] %p %m (%c{1})%n"/></Console></Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class Job:
    """The job of a mirror. `folder`: empty, for its files. `topics`: a regular expression (Java's and Python's).

    `codec`: of the source's batches, for a mirror that compresses again. `live`: tuned for latency.
    `groups`: whether to translate group positions, often enough to read them soon.
    """

    folder: Path
    source: Cluster
    target: Cluster
    topics: str
    codec: Codec
    live: bool = False
    groups: bool = False


class Mirror(ABC):
    """A mirror to measure. `name`: in results."""

    name: str

    @abstractmethod
    def launch(self, job: Job) -> Running:
        """Start it; it runs until stopped."""

    def check(self, job: Job, running: Running) -> None:  # noqa: B027 - most have nothing that can be tuned
        """Raise `MeasurementFailed` if it did not run with its settings; call it once it has mirrored something."""


@dataclass(frozen=True)
class Drkit(Mirror):
    """`drkit mirror` with its own drkit.toml and the embedded store. `lines`: further keys of the link."""

    lines: tuple[str, ...] = ()
    processes: int = 1
    name: str = DRKIT

    def launch(self, job: Job) -> Running:
        """Start `drkit mirror`."""
        write_config(job, self.lines)
        words = ("--processes", str(self.processes)) if self.processes > 1 else ()
        return Running.launch(drkit(job.folder, "mirror", *words), job.folder / "mirror.log", job.folder)


@dataclass(frozen=True)
class MirrorMaker(Mirror):
    """MirrorMaker 2 as a dedicated cluster of one node, from Kafka's own jars (set `mirrormaker`)."""

    toolchain: Toolchain
    name: str = OTHER

    def launch(self, job: Job) -> Running:
        """Start it with mm2.properties."""
        properties, logging = job.folder / "mm2.properties", job.folder / "log4j2.xml"
        properties.write_text(mirrormaker_properties(job), encoding="utf-8")
        logging.write_text(_LOG4J, encoding="utf-8")
        command = [
            *(str(self.toolchain.java), "-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-Djava.awt.headless=true"),
            *(f"-Dlog4j2.configurationFile={logging.as_uri()}", "-cp", self.toolchain.classpath("mirrormaker")),
            *("org.apache.kafka.connect.mirror.MirrorMaker", str(properties)),
        ]
        return Running.launch(command, job.folder / "mirror.log", job.folder)

    def check(self, job: Job, running: Running) -> None:
        """Compare the settings that its clients logged with those it was given."""
        said = running.log.read_text(encoding="utf-8", errors="replace")
        if wrong := settings_not_in_force(mirrormaker_properties(job), said, job):
            raise MeasurementFailed(f"MirrorMaker 2 did not run as tuned: {'; '.join(wrong)}")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a case is measured in.

    Args:
        work: an existing folder for its files.
        clusters: the pair, which runs only for the cases on it.
        mirrors: drkit and MirrorMaker 2.
        toolchain: for Kafka's own tools.
        full: whether this is a full run, not a quick one.
        repeats: how often each measurement is made.
        turn: the case's number: which mirror comes first alternates from case to case and from repeat to repeat.
        say: gets a line for people about each step.
    """

    work: Path
    clusters: Clusters
    mirrors: tuple[Mirror, ...]
    toolchain: Toolchain
    full: bool
    repeats: int
    say: Callable[[str], None]
    turn: int = 0

    def in_turn(self, repeat: int) -> tuple[Mirror, ...]:
        """The mirrors, in the order of this repeat."""
        return self.mirrors[:: 1 if (self.turn + repeat) % 2 else -1]

    @contextmanager
    def folder(self) -> Iterator[Scene]:
        """The same with a folder of its own, which is removed at the end."""
        with TemporaryDirectory(dir=self.work) as name:
            yield replace(self, work=Path(name))


# --- drkit's configuration ----------------------------------------------------------------------


def drkit_toml(clusters: Sequence[Cluster], links: Sequence[Sequence[str]]) -> str:
    """A drkit.toml with the SQLite store. `links`: the keys of each, as lines."""
    tables = [f'[clusters.{each.alias}]\nbootstrap_servers = "{each.address}"\n' for each in clusters]
    tables.append(f'[store]\nurl = "sqlite:///{STORE}"\n')
    return "\n".join([*tables, *("\n".join(["[[links]]", *lines, ""]) for lines in links)])


def job_toml(job: Job, lines: Sequence[str] = ()) -> str:
    """The drkit.toml of a job: defaults, and further keys of the link."""
    source, target = job.source, job.target
    keys = (f'source = "{source.alias}"', f'target = "{target.alias}"', f"topics = ['{job.topics}']", *lines)
    return drkit_toml((source, target), [keys])


def write_config(job: Job, lines: Sequence[str] = ()) -> None:
    """Write the drkit.toml of a job to its folder."""
    (job.folder / CONFIG).write_text(job_toml(job, lines), encoding="utf-8")


# --- MirrorMaker 2's configuration --------------------------------------------------------------


def mirrormaker_properties(job: Job) -> str:
    """mm2.properties of a job."""
    return Template(PROPERTIES.read_text(encoding="utf-8")).substitute(
        source=job.source.alias,
        target=job.target.alias,
        source_address=job.source.address,
        target_address=job.target.address,
        topics=job.topics,
        codec=job.codec,
        linger_ms=0 if job.live else _BACKLOG_LINGER_MS,
        checkpoint_seconds=_BUSY_SECONDS if job.groups else _CALM_SECONDS,
        group_seconds=_BUSY_SECONDS if job.groups else _CALM_GROUP_SECONDS,
    )


def effective_settings(log: str) -> dict[str, set[str]]:
    """The effective settings of the data path's clients, from MirrorMaker 2's own log.

    All values of each setting, as `consumer.NAME` or `producer.NAME`, in the blocks that the source connector's
    consumers and producers log when they start, without its internal clients.
    """
    found: dict[str, set[str]] = {}
    for kind, block in re.findall(r"(Consumer|Producer)Config values:\s*\n((?:\t[^\n]*\n)+)", log):
        pairs = (line.partition(" =") for line in block.splitlines())
        settings = {name.strip(): value.strip() for name, _, value in pairs}
        if _DATA_PATH.search(settings.get("client.id", "")):
            for name, value in settings.items():
                found.setdefault(f"{kind.lower()}.{name}", set()).add(value)
    return found


def settings_not_in_force(properties: str, log: str, job: Job) -> list[str]:
    """Client settings of a properties text that are not in force, each with the effective value."""
    in_force = effective_settings(log)
    prefixes = {f"{job.source.alias}.consumer.": "consumer.", f"{job.target.alias}.producer.": "producer."}
    wrong = []
    for line in properties.splitlines():
        name, _, value = line.partition(" = ")
        for prefix, kind in prefixes.items():
            seen = in_force.get(kind + name.removeprefix(prefix), set())
            if name.startswith(prefix) and seen != {value}:
                wrong.append(f"{name} = {value}, in force: {', '.join(sorted(seen)) or 'nothing'}")
    return wrong

"""MirrorMaker 2 as a dedicated cluster of one node, from Kafka's own jars; its settings are in bench/mm2.properties."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from bench.peers.base import Job, Running, launched
from bench.processes import MeasurementFailed
from drkit.lab.toolchain import Toolchain

PROPERTIES = Path(__file__).parents[1] / "mm2.properties"
_BACKLOG_LINGER_MS = 20
_HEAP = "-Xmx1g"
_CALM_SECONDS = 60  # between checkpoints, and 600 between looks at groups: MirrorMaker 2's defaults
_CALM_GROUP_SECONDS = 600
_BUSY_SECONDS = 2

_DATA_PATH = re.compile(r"^connector-producer-MirrorSourceConnector|\|replication-consumer$")

_LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders><Console name="console"><PatternLayout pattern="[%d] %p %m (%c{1})%n"/></Console></Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""


def render(job: Job) -> str:
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


class MirrorMaker:
    """MirrorMaker 2. `toolchain`: with the jar set `mirrormaker`."""

    name = "mirrormaker"
    title = "MirrorMaker 2"

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain

    def launch(self, job: Job) -> Running:
        """Start it; it runs until stopped."""
        properties, logging = job.folder / "mm2.properties", job.folder / "log4j2.xml"
        properties.write_text(render(job), encoding="utf-8")
        logging.write_text(_LOG4J, encoding="utf-8")
        command = [
            str(self._toolchain.java),
            "-Xms256m",
            _HEAP,
            "-XX:+UseG1GC",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "-cp",
            self._toolchain.classpath("mirrormaker"),
            "org.apache.kafka.connect.mirror.MirrorMaker",
            str(properties),
        ]
        return launched(command, job.folder / "mirror.log", cwd=job.folder)

    def check(self, job: Job, running: Running) -> None:
        """Compare the settings that its clients logged with those it was given."""
        wrong = untuned(render(job), running.log.read_text(encoding="utf-8", errors="replace"), job)
        if wrong:
            raise MeasurementFailed(f"MirrorMaker 2 did not run as tuned: {'; '.join(wrong)}")


def effective_settings(log: str) -> dict[str, set[str]]:
    """What the clients of the data path say they run with, from MirrorMaker 2's own log.

    Every value seen of each setting, as `consumer.NAME` or `producer.NAME`, in the blocks that the source
    connector's consumers and producers log when they start; not those of its bookkeeping.
    """
    found: dict[str, set[str]] = {}
    for kind, block in re.findall(r"(Consumer|Producer)Config values:\s*\n((?:\t[^\n]*\n)+)", log):
        pairs = (line.partition(" =") for line in block.splitlines())
        settings = {name.strip(): value.strip() for name, _, value in pairs}
        if _DATA_PATH.search(settings.get("client.id", "")):
            for name, value in settings.items():
                found.setdefault(f"{kind.lower()}.{name}", set()).add(value)
    return found


def untuned(properties: str, log: str, job: Job) -> list[str]:
    """Client settings of a properties text that aren't the ones in force, each with what is."""
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

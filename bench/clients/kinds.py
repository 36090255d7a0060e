"""The kinds of client, their settings, and the command lines of their applications.

The Java applications are Kafka's own VerifiableProducer and VerifiableConsumer, from the jars of each release: they
need no compiler, and print each record with its time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError

DEFAULTS = "defaults"
NO_REBOOTSTRAP = "no rebootstrap"
RECOMMENDED = "recommended"

_GO_SECONDS = 900.0
_JAVA_RECORDS_A_SECOND = "10"
Settings = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Told:
    """The input of an application.

    `name`: its group, or the prefix of the values that it writes (Java: `number`); `folder`: for its files.
    """

    reads: bool
    bootstrap: str
    topic: str
    name: str
    number: int
    settings: Settings
    folder: Path


@dataclass(frozen=True, slots=True)
class Event:
    """A read or acknowledged record. `at`: seconds since the epoch."""

    at: float
    read: bool
    value: str


class Kind(ABC):
    """A client library."""

    name: str
    variants: Mapping[str, Settings]

    @property
    @abstractmethod
    def title(self) -> str:
        """Library and version."""

    @abstractmethod
    def command(self, told: Told) -> list[str]:
        """The command line of its application."""

    def event(self, line: str) -> Event | None:
        """Parse a line of the application's output; None: it is not about a record."""
        try:
            said = json.loads(line)
        except ValueError:
            return None
        if "read" in said:
            return Event(said["at"] / 1000, True, said["read"])
        return Event(said["at"] / 1000, False, said["written"])


_JVM = "jvm:"
"""The prefix of settings of the JVM."""


@dataclass(frozen=True)
class Java(Kind):
    """The kafka-clients of one release. `jars`: the set with its tools."""

    name: str
    toolchain: Toolchain
    jars: str
    variants: Mapping[str, Settings]

    @property
    def title(self) -> str:
        """Library and version."""
        jar = next(path for path in self.toolchain.jars(self.jars) if path.name.startswith("kafka-clients-"))
        return f"Java, {jar.stem}"

    def command(self, told: Told) -> list[str]:
        """The command line of its application."""
        role = "consumer" if told.reads else "producer"
        own = {key: value for key, value in told.settings.items() if not key.startswith(_JVM)}
        # the producer's tool sets retries to 0, which is not the library's default
        own = own if told.reads else {"retries": 2147483647, **own}
        file = told.folder / f"{told.name}-{role}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in own.items()), encoding="utf-8")
        jvm = [f"-D{key.removeprefix(_JVM)}={value}" for key, value in told.settings.items() if key.startswith(_JVM)]
        java = [str(self.toolchain.java), "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm]
        java += ["-cp", self.toolchain.classpath(self.jars)]
        common = ["--bootstrap-server", told.bootstrap, "--topic", told.topic]
        if told.reads:
            return [
                *(*java, "org.apache.kafka.tools.VerifiableConsumer", *common, "--group-id", told.name, "--verbose"),
                *("--enable-autocommit", "--reset-policy", "earliest", "--consumer.config", str(file)),
            ]
        return [
            *(*java, "org.apache.kafka.tools.VerifiableProducer", *common, "--throughput", _JAVA_RECORDS_A_SECOND),
            *("--value-prefix", str(told.number), "--producer.config", str(file)),
        ]

    def event(self, line: str) -> Event | None:
        """Parse a line of these tools."""
        try:
            said = json.loads(line)
        except ValueError:
            return None
        if said.get("name") == "record_data":
            return Event(said["timestamp"] / 1000, True, said["value"])
        if said.get("name") == "producer_send_success":
            return Event(said["timestamp"] / 1000, False, said["value"])
        return None


@dataclass(frozen=True)
class Python(Kind):
    """A client library of Python. `name`: also its application's; `package`: the installed distribution."""

    name: str
    package: str
    variants: Mapping[str, Settings]

    @property
    def title(self) -> str:
        """Library and version."""
        return f"{self.package} {version(self.package)}"

    def command(self, told: Told) -> list[str]:
        """The command line of its application."""
        return [sys.executable, "-m", "bench.clients.apps", self.name, *_spec(told)]


@dataclass(frozen=True)
class Go(Kind):
    """The client franz-go, if there is a Go compiler. `program`: the result of `built_go`."""

    program: Path
    name: str = "franz-go"
    variants: Mapping[str, Settings] = field(
        default_factory=lambda: {DEFAULTS: {}, RECOMMENDED: {"DialTimeout": "5000", "RequestTimeoutOverhead": "5000"}}
    )

    @property
    def title(self) -> str:
        """Library and version."""
        for line in (_GO_SOURCE / "go.mod").read_text(encoding="utf-8").splitlines():
            name, _, release = line.removeprefix("require ").strip().partition(" ")
            if name == "github.com/twmb/franz-go":
                return f"Go, franz-go {release.removeprefix('v')}"
        raise DrkitError("go.mod doesn't name franz-go")

    def command(self, told: Told) -> list[str]:
        """The command line of its application."""
        return [str(self.program), *_spec(told)]


def _spec(told: Told) -> list[str]:
    spec = {"bootstrap": told.bootstrap, "topic": told.topic, "name": told.name, "settings": dict(told.settings)}
    return ["read" if told.reads else "write", json.dumps(spec)]


_GO_SOURCE = Path(__file__).parent / "go"


def built_go(folder: Path) -> Go:
    """The application on franz-go, compiled.

    Raises:
        DrkitError: Go is not installed, or its modules can't be fetched.
    """
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise DrkitError("no Go compiler is installed")
    program = folder / "franz-go"
    try:
        built = subprocess.run(
            [go, "build", "-o", str(program), "."],
            cwd=_GO_SOURCE,
            capture_output=True,
            text=True,
            timeout=_GO_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DrkitError(f"the application on franz-go was not built within {_GO_SECONDS:g} s") from None
    if built.returncode != 0:
        raise DrkitError(f"the application on franz-go was not built: {built.stderr.strip()[-500:]}")
    return Go(program)


_JAVA_QUICK: Settings = {
    "reconnect.backoff.max.ms": 1000,
    "socket.connection.setup.timeout.ms": 5000,
    "socket.connection.setup.timeout.max.ms": 5000,
    "request.timeout.ms": 10000,
    "metadata.recovery.strategy": "rebootstrap",
    _JVM + "sun.net.inetaddr.ttl": 5,
}


def kinds(toolchain: Toolchain) -> list[Kind]:
    """The kinds that every machine can measure; franz-go comes from `built_go`."""
    return [
        Java("java-3.9", toolchain, "clients-3.9", {DEFAULTS: {}, RECOMMENDED: _JAVA_QUICK}),
        Java(
            "java-4",
            toolchain,
            "mirrormaker",
            {
                DEFAULTS: {},
                NO_REBOOTSTRAP: {"metadata.recovery.strategy": "none"},
                RECOMMENDED: {**_JAVA_QUICK, "metadata.recovery.rebootstrap.trigger.ms": 10000},
            },
        ),
        Python(
            "librdkafka",
            "confluent-kafka",
            {
                DEFAULTS: {},
                NO_REBOOTSTRAP: {"metadata.recovery.strategy": "none"},
                RECOMMENDED: {
                    "metadata.recovery.strategy": "rebootstrap",
                    "metadata.recovery.rebootstrap.trigger.ms": 10000,
                    "reconnect.backoff.max.ms": 1000,
                    "socket.connection.setup.timeout.ms": 5000,
                    "socket.timeout.ms": 10000,
                },
            },
        ),
        Python(
            "kafka-python",
            "kafka-python",
            {DEFAULTS: {}, RECOMMENDED: {"reconnect_backoff_max_ms": 1000, "request_timeout_ms": 11000}},
        ),
        Python(
            "aiokafka",
            "aiokafka",
            {DEFAULTS: {}, RECOMMENDED: {"request_timeout_ms": 10000, "metadata_max_age_ms": 10000}},
        ),
    ]

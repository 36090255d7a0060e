"""The kinds of client, and one client of a run: two processes, a reader and a writer, and their output.

The Java applications are Kafka's own VerifiableProducer and VerifiableConsumer, from the jars of each release: they
need no compiler, and print each record with its time. Those of Python are in `apps.py`, that of Go in `go/`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from bench.processes import ROOT, Running, end
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError

# --- kinds ---------------------------------------------------------------------------------------------------------

DEFAULTS = "defaults"
NO_REBOOTSTRAP = "no rebootstrap"
RECOMMENDED = "recommended"

_GO_SOURCE = Path(__file__).parent / "go"
_GO_SECONDS = 900.0
_JAVA_RECORDS_A_SECOND = "10"
_JVM = "jvm:"
"""The prefix of settings of the JVM."""

Settings = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Spec:
    """What an application is started with.

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


def parse_event(line: str) -> Event | None:
    """The record in a line that one of our applications printed; None: it is not about a record."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return Event(found["at"] / 1000, "read" in found, found["read" if "read" in found else "written"])


def parse_java_event(line: str) -> Event | None:
    """The record in a line that one of Kafka's verifiable tools printed; None: it is not about a record."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    reads = {"record_data": True, "producer_send_success": False}.get(found.get("name"))
    return None if reads is None else Event(found["timestamp"] / 1000, reads, found["value"])


@dataclass(frozen=True, slots=True)
class Kind:
    """A client library. `title`: library and version; `variants`: sets of settings by name; `command`: the command line
    of its application; `event`: parses a line of its output.
    """

    name: str
    title: str
    variants: Mapping[str, Settings]
    command: Callable[[Spec], list[str]]
    event: Callable[[str], Event | None] = parse_event


def java(name: str, toolchain: Toolchain, jars: str, variants: Mapping[str, Settings]) -> Kind:
    """The kafka-clients of one release. `jars`: the set with its tools."""
    jar = next(path for path in toolchain.jars(jars) if path.name.startswith("kafka-clients-"))

    def command(spec: Spec) -> list[str]:
        role = "consumer" if spec.reads else "producer"
        own = {key: value for key, value in spec.settings.items() if not key.startswith(_JVM)}
        # the producer's tool sets retries to 0, which is not the library's default
        own = own if spec.reads else {"retries": 2147483647, **own}
        file = spec.folder / f"{spec.name}-{role}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in own.items()), encoding="utf-8")
        jvm = [f"-D{key.removeprefix(_JVM)}={value}" for key, value in spec.settings.items() if key.startswith(_JVM)]
        run = [str(toolchain.java), "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm]
        run += ["-cp", toolchain.classpath(jars), f"org.apache.kafka.tools.Verifiable{role.title()}"]
        run += ["--bootstrap-server", spec.bootstrap, "--topic", spec.topic, f"--{role}.config", str(file)]
        if spec.reads:
            return [*run, "--group-id", spec.name, "--verbose", "--enable-autocommit", "--reset-policy", "earliest"]
        return [*run, "--throughput", _JAVA_RECORDS_A_SECOND, "--value-prefix", str(spec.number)]

    return Kind(name, f"Java, {jar.stem}", variants, command, parse_java_event)


def python(name: str, package: str, variants: Mapping[str, Settings]) -> Kind:
    """A client library of Python. `name`: also its application's; `package`: the installed distribution."""
    run = [sys.executable, "-m", "bench.clients.apps", name]
    return Kind(name, f"{package} {version(package)}", variants, lambda spec: [*run, *_arguments(spec)])


def go(program: Path) -> Kind:
    """The client franz-go. `program`: the result of `built_go`."""
    found = re.search(r"github\.com/twmb/franz-go v(\S+)", (_GO_SOURCE / "go.mod").read_text(encoding="utf-8"))
    if found is None:
        raise DrkitError("go.mod doesn't name franz-go")
    variants = {DEFAULTS: {}, RECOMMENDED: {"DialTimeout": "5000", "RequestTimeoutOverhead": "5000"}}
    return Kind("franz-go", f"Go, franz-go {found[1]}", variants, lambda spec: [str(program), *_arguments(spec)])


def _arguments(spec: Spec) -> list[str]:
    given = {"bootstrap": spec.bootstrap, "topic": spec.topic, "name": spec.name, "settings": dict(spec.settings)}
    return ["read" if spec.reads else "write", json.dumps(given)]


def built_go(folder: Path) -> Path:
    """The application on franz-go, compiled.

    Raises:
        DrkitError: Go is not installed, or its modules can't be fetched.
    """
    compiler = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if compiler is None:
        raise DrkitError("no Go compiler is installed")
    program = folder / "franz-go"
    command = [compiler, "build", "-o", str(program), "."]
    try:
        subprocess.run(command, cwd=_GO_SOURCE, capture_output=True, text=True, timeout=_GO_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        raise DrkitError(f"the application on franz-go was not built within {_GO_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        raise DrkitError(f"the application on franz-go was not built: {error.stderr.strip()[-500:]}") from None
    return program


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
        java("java-3.9", toolchain, "clients-3.9", {DEFAULTS: {}, RECOMMENDED: _JAVA_QUICK}),
        java(
            "java-4",
            toolchain,
            "mirrormaker",
            {
                DEFAULTS: {},
                NO_REBOOTSTRAP: {"metadata.recovery.strategy": "none"},
                RECOMMENDED: {**_JAVA_QUICK, "metadata.recovery.rebootstrap.trigger.ms": 10000},
            },
        ),
        python(
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
        python(
            "kafka-python",
            "kafka-python",
            {DEFAULTS: {}, RECOMMENDED: {"reconnect_backoff_max_ms": 1000, "request_timeout_ms": 11000}},
        ),
        python(
            "aiokafka",
            "aiokafka",
            {DEFAULTS: {}, RECOMMENDED: {"request_timeout_ms": 10000, "metadata_max_age_ms": 10000}},
        ),
    ]


# --- one client of a run -------------------------------------------------------------------------------------------

TOPIC = "clients"
STOP_SECONDS = 3.0
"""The time that a supervisor gives a process to end by itself."""


@dataclass
class Process:
    """One role, with one application process after the other. All append to `log`."""

    kind: Kind
    spec: Spec
    values: Counter[str] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    _MOST_STARTS: ClassVar[int] = 100
    _running: Running | None = None
    _starts: int = 0
    _log: Path = Path()
    _read_bytes: int = 0

    def start(self, bootstrap: str) -> None:
        """Start it on these servers, once the previous one has ended."""
        self.stop()
        self.read_output()
        self._starts += 1
        role = "read" if self.spec.reads else "write"
        self._log = self.spec.folder / f"{self.spec.name}-{role}-{self._starts}.log"
        self._read_bytes = 0
        spec = replace(self.spec, bootstrap=bootstrap)
        if not spec.reads:  # each value is written once: otherwise nobody could see what a group has read
            number = self._MOST_STARTS * spec.number + self._starts
            spec = replace(spec, name=f"{spec.name}.{self._starts}", number=number)
        self._running = Running.launch(self.kind.command(spec), self._log, ROOT)

    def terminate(self) -> None:
        """SIGTERM."""
        if self._running is not None and not self._running.ended:
            self._running.process.terminate()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._running is None or self._running.ended

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self._running is not None:
            end([self._running.process], STOP_SECONDS)

    def read_output(self) -> None:
        """Read its new output."""
        if not self._starts:
            return
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            event = self.kind.event(line)
            if event is not None:
                self.events.append(event)
                self.values[event.value] += 1

    def first(self, chosen: Callable[[Event], bool]) -> float | None:
        """The time of the first such event."""
        return next((event.at for event in self.events if chosen(event)), None)

    def last_lines(self) -> str:
        """The end of its output."""
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-3:])[-400:] if self._starts else ""


@dataclass
class Client:
    """Reader and writer of one kind with one set of settings. `finds_by`: as in `results.Waited`.

    `restart_on`: the servers on which both are started again once they have ended, or at `kill_at`.
    """

    kind: Kind
    settings: str
    finds_by: str
    restarted: bool
    reader: Process
    writer: Process
    restart_on: str | None = None
    kill_at: float = 0.0

    @property
    def both(self) -> tuple[Process, Process]:
        """Its processes."""
        return self.reader, self.writer


def client(kind: Kind, settings: str, finds_by: str, number: int, folder: Path, *, restarted: bool) -> Client:
    """A client that isn't started yet. `number`: unique in the run."""
    name = f"{kind.name}-{number}"
    chosen = kind.variants[settings]
    reader = Process(kind, Spec(True, "", TOPIC, name, number, chosen, folder))
    writer = Process(kind, Spec(False, "", TOPIC, name, number, chosen, folder))
    return Client(kind, settings, finds_by, restarted, reader, writer)

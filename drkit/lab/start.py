"""Starts nodes and waits until each really answers; a failure or interruption leaves nothing behind.

A port that accepts connections isn't enough. A broker gets hand-written bytes: a Metadata request to exactly this
broker. A client would ask any broker of the cluster, count fenced ones too, and log every refused connection.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import psutil

from drkit.lab import cassandra_node, kafka_node, process
from drkit.lab.kafka_node import formatted_bootstrap
from drkit.lab.layout import LabDir, Layout, Node
from drkit.lab.ports import answers, holder, is_free
from drkit.lab.process import Interrupts, kill
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError, Refused

# --- whether a node answers ----------------------------------------------------------------------------------------

_TIMEOUT_SECONDS = 3
_METADATA_REQUEST = (3, 1)  # key and version; version 1 with an empty list asks for no topic
_MOST_BYTES = 1 << 20
_FIRST_USER = ("cassandra", "cassandra")
"""Cassandra's initial user and password, if it requires authentication at all."""


def probe(node: Node) -> Callable[[Node], frozenset[int] | None]:
    """The probe for a node's kind; it returns the ids of the serving nodes that it knows, or None: no answer."""
    return brokers_seen if node.kind == "kafka" else cql_answers


def brokers_seen(node: Node) -> frozenset[int] | None:
    """The ids of the brokers in this broker's metadata: the serving ones, without fenced ones."""
    client = b"drkit-lab"
    body = struct.pack(">hhih", *_METADATA_REQUEST, 1, len(client)) + client + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", node.port), timeout=_TIMEOUT_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                return _broker_ids(stream.read(size)) if 0 < size <= _MOST_BYTES else None
    except (OSError, struct.error):
        return None  # refused, too slow, or closed while responding: it doesn't answer


def _broker_ids(answer: bytes) -> frozenset[int]:
    """Parse a Metadata response of version 1: correlation id, then brokers as (id, host, port, rack)."""
    (count,) = struct.unpack_from(">i", answer, 4)
    at, found = 8, set()
    for _ in range(count):
        identity, host = struct.unpack_from(">ih", answer, at)
        at += 6 + host + 4
        (rack,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack)
        found.add(identity)
    return frozenset(found)


def cql_answers(node: Node) -> frozenset[int] | None:
    """The node's own id once it answers a CQL query."""
    if not answers(node.port):
        return None
    from cassandra.auth import PlainTextAuthProvider  # noqa: PLC0415 - as below
    from cassandra.cluster import (  # noqa: PLC0415 - 0.2 s that nobody needs who has no such node
        EXEC_PROFILE_DEFAULT,
        Cluster,
        ExecutionProfile,
        NoHostAvailable,
    )
    from cassandra.policies import WhiteListRoundRobinPolicy  # noqa: PLC0415 - as above

    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy(["127.0.0.1"]), request_timeout=_TIMEOUT_SECONDS
    )
    driver = logging.getLogger("cassandra")
    before = driver.level
    driver.setLevel(logging.CRITICAL)  # that a node isn't up yet is expected here
    cluster = Cluster(
        ["127.0.0.1"],
        port=node.port,
        auth_provider=PlainTextAuthProvider(*_FIRST_USER),
        connect_timeout=_TIMEOUT_SECONDS,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
        protocol_version=5,
    )
    try:
        session = cluster.connect()
        session.execute("SELECT release_version FROM system.local")
    except (NoHostAvailable, OSError):
        return None
    finally:
        cluster.shutdown()
        driver.setLevel(before)
    return frozenset({node.node_id})


# --- starting ------------------------------------------------------------------------------------------------------

_POLL_SECONDS = 0.05
_PROBE_SECONDS = 0.1
_LOG_LINES = 30

Expected = Mapping[Node, frozenset[int]]
"""The nodes that must answer, with the node ids that each must list then."""


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts nodes. `say` is called with a readable line about each step."""

    folder: LabDir
    layout: Layout
    toolchain: Toolchain
    interrupts: Interrupts
    say: Callable[[str], None]

    def start(self, nodes: Sequence[Node], expected: Expected, timeout_seconds: float) -> None:
        """Start these nodes concurrently; returns when every node of `expected` answers as required.

        Raises:
            Refused: a port is taken, or there is too little memory; nothing was started.
            DrkitError: a node ended or didn't answer in time; the nodes started here were killed.
        """
        self._refuse_taken_ports(nodes)
        refuse_too_little_memory(sum(_memory(node) for node in nodes))
        releases = dict.fromkeys(self.layout.jar_set(node) for node in nodes if node.kind == "kafka")
        bootstraps = {name: formatted_bootstrap(self.toolchain, self.interrupts, name) for name in releases}
        for node in nodes:
            self._prepare(node, bootstraps.get(self.layout.jar_set(node), b""))
        running = process.marked(self.folder.path)
        started: dict[str, psutil.Process] = {}
        stop = threading.Event()
        pool = ThreadPoolExecutor(max_workers=max(1, len(expected)))
        try:
            for node in nodes:
                self.interrupts.check()
                child = process.spawn(self._command(node), self.folder.log_dir(node.name) / "console.log")
                started[node.name] = child
                process.note(self.folder.process_file(node.name), child)
            running |= started
            deadline = time.monotonic() + timeout_seconds
            self._await(
                {
                    pool.submit(self._until_ready, node, ids, running.get(node.name), deadline, stop)
                    for node, ids in expected.items()
                }
            )
        except BaseException:
            self.interrupts.clean_up()
            stop.set()
            kill(started.values())
            raise
        finally:
            stop.set()
            pool.shutdown()

    def _await(self, waiting: set[Future[None]]) -> None:
        while waiting:
            self.interrupts.wait(_POLL_SECONDS)
            done, waiting = wait(waiting, timeout=0, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()

    def _prepare(self, node: Node, bootstrap: bytes) -> None:
        folder = self.folder.node(node.name)
        if node.kind == "cassandra":
            cassandra_node.prepare(node, folder, self.layout.store_config)
        else:
            kafka_node.prepare(node, folder, bootstrap, self.layout)

    def _command(self, node: Node) -> list[str]:
        if node.kind == "cassandra":
            return cassandra_node.command(self.toolchain, node, self.folder.path, self.folder.node(node.name))
        return kafka_node.command(self.toolchain, node, self.folder.path, self.folder.node(node.name), self.layout)

    def _refuse_taken_ports(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            for port in node.ports:
                if not is_free(port):
                    raise Refused(
                        f"the port {port} of {node.name} is taken by {holder(port)}",
                        meaning="A lab never changes its ports, so that its drkit.toml stays valid",
                        remedy="Stop that process; or create the lab again, on other ports: "
                        f"`drkit lab down --dir {self.folder.path}`, then `up`",
                    )

    def _until_ready(
        self,
        node: Node,
        expected: frozenset[int],
        running: psutil.Process | None,
        deadline: float,
        stop: threading.Event,
    ) -> None:
        ask = probe(node)
        began = time.monotonic()
        while not stop.is_set():
            seen = ask(node)
            if seen is not None and seen >= expected:
                self.say(f"{node.name} answers after {time.monotonic() - began:.1f} s")
                return
            ended = "" if running is None else process.ending(running)
            if ended is not None:
                how = f" ({ended})" if ended else ""
                raise DrkitError(
                    f"{node.name} ended while it was starting{how}",
                    meaning="\n".join([*self._held(node), self._last_words(node)]),
                    remedy="Correct the cause that its log names, and run the command again",
                )
            if time.monotonic() > deadline:
                raise DrkitError(
                    f"{node.name} runs but did not answer in time{_absent(seen, expected)}",
                    meaning=self._last_words(node),
                    remedy="If the machine is busy, allow more time with --timeout",
                )
            stop.wait(_PROBE_SECONDS)

    def _held(self, node: Node) -> list[str]:
        """What of a node that ended another process holds: a sentence each, for an error message."""
        ports = [f"its port {port} is taken by {holder(port)}" for port in node.ports if not is_free(port)]
        lock = kafka_node.lock_file(self.folder.node(node.name))  # Cassandra has none
        locker = process.lock_holder(lock)
        return [*ports, *([f"{lock} is locked by {locker}"] if locker else [])]

    def _last_words(self, node: Node) -> str:
        """The end of a node's logs, for an error message."""
        folder = self.folder.log_dir(node.name)
        ends = {name: last_lines(folder / name, _LOG_LINES) for name in ("console.log", "server.log")}
        parts = [f"the end of its {name}:\n" + "\n".join(lines) for name, lines in ends.items() if lines]
        return "\n".join(parts) or "it wrote no log"


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log file, at most `count`; empty if it can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16_384))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def _absent(seen: frozenset[int] | None, expected: frozenset[int]) -> str:
    """What an answer lacks; a cluster without a majority of its nodes serves nothing."""
    if not seen:
        return " (a cluster answers only with more than half of its nodes running)" if expected else ""
    return f": it lists the nodes {sorted(seen)}, but {sorted(expected)} are expected"


def _memory(node: Node) -> int:
    return cassandra_node.MEMORY_MIB if node.kind == "cassandra" else kafka_node.MEMORY_MIB


_CGROUP = Path("/sys/fs/cgroup")


def refuse_too_little_memory(need_mib: int) -> None:
    """Raise Refused if less than `need_mib` MiB are available to this machine or this container."""
    available = available_mib()
    if available < need_mib:
        raise Refused(
            f"the nodes to start need about {need_mib:,} MiB of memory, and {available:,} MiB are available",
            meaning="The machine would swap, or kill them",
            remedy="Stop another program, or use less: fewer --brokers, or --store sqlite",
        )


def available_mib() -> int:
    """The memory available without swapping, in MiB: the machine's, or the control group's if lower."""
    machine = psutil.virtual_memory().available
    group = _left_in_control_group()
    return int(machine if group is None else min(machine, group)) >> 20


def _left_in_control_group() -> int | None:
    """The bytes that the control group (v2) may still use; None: no limit."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max": there is none
        return max(0, limit - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return None

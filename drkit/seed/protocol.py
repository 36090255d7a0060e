"""The protocol between driver and tasks: JSON objects over a connection that both authenticate with a key.

    task ── work ──▶ driver      the ranges to copy
    task ── heartbeat ──▶ driver      progress, halted partitions; the response renews the right to produce
    task ── rows ──▶ driver      mapping rows; the answer comes when they are durable, and names partitions that
                                 aren't the task's any more
    task ── done ──▶ driver      the last heartbeat of a task

Nothing here holds a secret: the clusters' configuration comes through Spark.

The driver's side is a listener and a thread for each connection. A client must prove that it knows the run's key before
its messages are read; `handle` decides everything.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from drkit.mirror.engine.interface import Incident, IncidentKind, Notice, PartitionStart
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition

HEARTBEAT_SECONDS = 0.25
VALID_SECONDS = 1.5
"""How long a heartbeat's response lets a task produce: less than the margin of the driver's own note."""

_CONNECT_SECONDS = 20.0
_LINE_SECONDS = 15
_LARGEST = 64 << 20


class DriverConnection:
    """A task's connection to the driver. Shared by threads; one request at a time.

    Args:
        host, port: the driver's address.
        key: the key with which both sides authenticate.

    Raises:
        Unreachable: no answer, or not from the driver.
    """

    def __init__(self, host: str, port: int, key: bytes) -> None:
        try:
            there = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
            there.settimeout(None)
            tune(there)
            self._connection = Connection(there.detach())
            answer_challenge(self._connection, key)
            deliver_challenge(self._connection, key)
        except (OSError, EOFError, AuthenticationError) as error:
            raise Unreachable(
                f"a Spark task on {socket.gethostname()} can't reach drkit's driver at {host}:{port}: {error}",
                remedy="Executors must reach the driver: give --spark-conf spark.driver.host=ADDRESS, and "
                "spark.drkit.seed.port=PORT where only some ports are open",
            ) from None
        self._lock = threading.Lock()

    def ask(self, what: str, **said: Any) -> dict[str, Any]:
        """Send the driver a request, and wait for its response.

        Raises:
            OSError, EOFError: the driver is gone.
        """
        with self._lock:
            send(self._connection, {"ask": what, **said})
            return receive(self._connection)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def tune(line: socket.socket) -> None:
    """Send at once, and detect within about `_LINE_SECONDS` that the other side is gone, even on an idle connection.

    Otherwise a connection that was cut silently (by a firewall, by a power loss) would block for many minutes.
    """
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": _LINE_SECONDS * 1_000}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)


def send(connection: Connection, document: Mapping[str, Any]) -> None:
    """One document."""
    connection.send_bytes(json.dumps(document, separators=(",", ":")).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """The next document. Raises OSError or EOFError if the other side is gone, ValueError if it isn't a document."""
    found = json.loads(connection.recv_bytes(_LARGEST))
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - bad content, as any other
    return found


# -- values ----------------------------------------------------------------------------------------


def start_document(start: PartitionStart, generation: int, until: int) -> dict[str, Any]:
    """A partition's work: its start, and the source offset to reach."""
    return asdict(start) | {
        "tp": [start.tp.topic, start.tp.partition],
        "generation": generation,
        "until": until,
        "looked_at": None,  # by the clock of this machine
    }


def start_from(document: Mapping[str, Any]) -> tuple[PartitionStart, int, int]:
    """The start, its generation, its end."""
    fields = dict(document)
    generation, until = int(fields.pop("generation")), int(fields.pop("until"))
    return PartitionStart(**fields | {"tp": TopicPartition(*fields["tp"])}), generation, until


def rows_document(rows: Sequence[OffsetMapping]) -> list[list[Any]]:
    """Mapping rows."""
    return [[row.topic, row.partition, row.epoch, row.source_offset, row.target_offset] for row in rows]


def rows_from(document: Sequence[Sequence[Any]]) -> list[OffsetMapping]:
    """The rows of `rows_document`."""
    return [OffsetMapping(*row) for row in document]


def incident_document(incident: Incident) -> list[Any]:
    """Why a partition is halted."""
    tp = incident.tp
    return [tp.topic, tp.partition, incident.kind.value, incident.reason, incident.remedy, incident.gap]


def incident_from(document: Sequence[Any]) -> Incident:
    """The incident of `incident_document`."""
    topic, partition, kind, reason, remedy, gap = document
    tp = TopicPartition(topic, partition)
    return Incident(tp, IncidentKind(kind), reason, remedy, None if gap is None else (gap[0], gap[1]))


def notice_document(notice: Notice) -> list[Any]:
    """A notice for the operator."""
    return [notice.tp.topic, notice.tp.partition, notice.kind, notice.reason, notice.remedy]


def notice_from(document: Sequence[Any]) -> Notice:
    """The notice of `notice_document`."""
    topic, partition, kind, reason, remedy = document
    return Notice(TopicPartition(topic, partition), kind, reason, remedy)


def error_document(error: DrkitError) -> dict[str, str]:
    """Drkit's own error, as failures of Spark's tasks carry it (`drkit.audit.spark.failures`)."""
    return {"type": type(error).__name__, "what": error.what, "meaning": error.meaning, "remedy": error.remedy}


log = logging.getLogger(__name__)

_ACCEPT_SECONDS = 0.2
_SILENT_SECONDS = 10.0
"""A task that is silent for so long counts as lost."""

Handle = Callable[[dict[str, Any]], dict[str, Any]]


class DriverServer:
    """Listens until closed.

    Args:
        host: the address to listen at.
        port: 0: any that is free.
        key: the key of the run.
        handle: answers one request; called on the connection's thread.
        gone: called with the id of a task whose heartbeat connection has ended.

    Raises:
        DrkitError: can't listen at the address.
    """

    def __init__(self, host: str, port: int, key: bytes, handle: Handle, gone: Callable[[str], None]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=256)
        except OSError as error:
            raise DrkitError(
                f"the seed's driver can't listen at {host}:{port}: {error.strerror or error}",
                remedy="Give --spark-conf spark.driver.bindAddress=ADDRESS of this machine, or another "
                "spark.drkit.seed.port",
            ) from None
        self._listener.settimeout(_ACCEPT_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._key = key
        self._handle = handle
        self._gone = gone
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="drkit-seed-accept", daemon=True)
        self._accepting.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop accepting; wait shortly for running requests, then close the connections."""
        self._closed.set()
        self._accepting.join(timeout_seconds)
        self._listener.close()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                there, address = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            there.settimeout(None)
            tune(there)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(
                target=self._serve, args=(Connection(there.detach()), address[0]), name="drkit-seed-task", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection, address: str) -> None:
        beating: str | None = None
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            while self._asked(connection, patient=beating is None):
                said = receive(connection)
                if said["ask"] == "work":
                    beating = said["task"]
                answer = self._handle(said)
                if answer.get("over") and said["ask"] == "work":
                    beating = None  # another attempt of the task is in charge
                send(connection, answer)
        except AuthenticationError:
            log.warning("a client at %s connected to the seed's driver without its key", address)
        except (OSError, EOFError, ValueError, KeyError) as error:
            log.debug("a connection of the seed has ended: %s", error)
        finally:
            with suppress(OSError):
                connection.close()
            if beating is not None:
                self._gone(beating)

    def _asked(self, connection: Connection, *, patient: bool) -> bool:
        """Whether the other side has sent something; false after the end, or if it was silent for too long."""
        waited = 0.0
        while not connection.poll(_ACCEPT_SECONDS):
            waited += _ACCEPT_SECONDS
            if self._closed.is_set() or (waited > _SILENT_SECONDS and not patient):
                return False
        return True

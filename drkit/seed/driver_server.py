"""The driver's server for tasks: a listener, a thread for each connection.

A client must prove that it knows the run's key before its messages are read. `handle` decides everything.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from drkit.model.errors import DrkitError
from drkit.seed.protocol import receive, send, tune

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

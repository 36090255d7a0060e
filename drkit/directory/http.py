"""Small JSON requests over HTTP, each within one deadline, with drkit's own errors.

Without proxies and redirects to other hosts.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from drkit.model.clock import Deadline, bounded
from drkit.model.errors import ConfigError, DrkitError, Unreachable

_SHOWN = 200
_ERRORS = 500
_LEAST_SECONDS = 0.001  # 0 would be a socket that never waits
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Status and body of a response."""

    status: int
    body: bytes

    def json(self, where: str) -> Any:
        """The body as JSON.

        Raises:
            DrkitError: it isn't.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise DrkitError(
                f"{where} answered {self.text!r}, which is not JSON", remedy="Check that the address is the right one"
            ) from None

    @property
    def text(self) -> str:
        """The beginning of the body."""
        return self.body[:_SHOWN].decode(errors="replace").strip()


class _Request(NamedTuple):
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server by host and port; `name` is for messages.

    `ca_file`: the trusted CAs (None: the machine's own), with `tls`.
    """

    name: str
    host: str
    port: int
    tls: bool
    timeout_seconds: float
    ca_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> HttpResponse:
        """One request on a connection of its own.

        `deadline` (None: `timeout_seconds` from now) bounds all of it, including the DNS lookup, even if the server
        responds slowly.

        Raises:
            Unreachable: no response in time, or a server error (5xx).
            ConfigError: `ca_file` can't be read.
        """
        sent = _Request(method, path, body, {**self.headers, **(headers or {})})
        answer = self._exchange(sent, lambda response: HttpResponse(response.status, response.read()), deadline)
        if answer.status >= _ERRORS:
            raise Unreachable(
                f"{self.name} answered {answer.status}: {answer.text}", remedy="See that server's own log"
            )
        return answer

    def post(self, path: str, body: bytes) -> int:
        """Post JSON to a foreign server; returns the status of its response, and reads nothing else of it.

        Its body is neither read nor repeated: it may hold the token of the path.

        Raises:
            Unreachable: no status in time.
            ConfigError: `ca_file` can't be read.
        """
        sent = _Request("POST", path, body, {**self.headers, "Content-Type": "application/json"})
        return self._exchange(sent, lambda response: response.status, None)

    def _exchange(self, sent: _Request, read: Callable[[http.client.HTTPResponse], T], deadline: Deadline | None) -> T:
        deadline = deadline or Deadline.after(self.timeout_seconds)
        bound = deadline.left
        connection = self._connection(max(bound, _LEAST_SECONDS))
        over = threading.Event()

        def work() -> T:
            try:
                connection.connect()
                if over.is_set():  # it was reported as failed already
                    raise TimeoutError
                connection.request(sent.method, sent.path, sent.body, sent.headers)
                with connection.getresponse() as response:
                    return read(response)
            finally:
                connection.close()

        remedy = f"Check that {self.host}:{self.port} can be reached"
        try:
            return bounded(deadline, work, "http")
        except TimeoutError:
            over.set()
            held: socket.socket | None = connection.sock
            if held is not None:
                with suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
            raise Unreachable(f"{self.name} does not answer: not within {round(bound, 1):g} s", remedy=remedy) from None
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise Unreachable(f"{self.name} does not answer: {why}", remedy=remedy) from None
        except (http.client.HTTPException, ValueError) as error:  # these quote the response, or the path
            raise Unreachable(f"{self.name} does not answer in HTTP: {type(error).__name__}", remedy=remedy) from None

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except OSError as error:
            raise ConfigError(
                f"ca_file {self.ca_file} of {self.name} can't be used: {error}", remedy="Name a PEM file"
            ) from error
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)


def refused(name: str, answer: HttpResponse, remedy: str) -> DrkitError:
    """The error for an unexpected response."""
    return DrkitError(f"{name} answered {answer.status}: {answer.text}", remedy=remedy)

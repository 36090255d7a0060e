"""Small JSON requests over HTTP, bounded, with errors in drkit's words. No proxy, no redirect to another host."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkit.model.errors import ConfigError, DrkitError, Unreachable

_SHOWN = 200
_ERRORS = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of an answer."""

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


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server by host and port; `name` is for messages.

    `ca_file`: whom to trust (None: the machine's own), with `tls`.
    """

    name: str
    host: str
    port: int
    tls: bool
    timeout_seconds: float
    ca_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own.

        Raises:
            Unreachable: no answer in time, or the server has a trouble of its own (5xx).
            ConfigError: `ca_file` can't be read.
        """
        connection = self._connection()
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            response = connection.getresponse()
            answer = Answer(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"{self.name} does not answer: {error or type(error).__name__}",
                remedy=f"Check that {self.host}:{self.port} can be reached",
            ) from error
        finally:
            connection.close()
        if answer.status >= _ERRORS:
            raise Unreachable(
                f"{self.name} answered {answer.status}: {answer.text}", remedy="Look at that server's own log"
            )
        return answer

    def post(self, path: str, body: bytes, content_type: str) -> int:
        """Post to a server of somebody else's, whose answer is nobody's business but its status, which is returned.

        `timeout_seconds` bounds all of it, looking up the name included, however slowly the server goes on. Nothing
        that it says is read behind its headers, or repeated: it may hold the token of the path.

        Raises:
            Unreachable: no status in time.
            ConfigError: `ca_file` can't be read.
        """
        connection = self._connection()
        status: Future[int] = Future()
        over = threading.Event()

        def work() -> None:
            try:
                connection.connect()
                if not over.is_set():  # else it is reported as not told already
                    connection.request("POST", path, body, {**self.headers, "Content-Type": content_type})
                    with connection.getresponse() as response:
                        status.set_result(response.status)
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                status.set_exception(error)
            finally:
                connection.close()

        threading.Thread(target=work, name="post", daemon=True).start()
        remedy = f"Check that {self.host}:{self.port} can be reached"
        try:
            return status.result(self.timeout_seconds)
        except TimeoutError:
            over.set()
            held: socket.socket | None = connection.sock
            if held is not None:
                with suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)  # ends what the thread waits for
            raise Unreachable(
                f"{self.name} does not answer: not within {self.timeout_seconds:g} s", remedy=remedy
            ) from None
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise Unreachable(f"{self.name} does not answer: {why}", remedy=remedy) from None
        except (http.client.HTTPException, ValueError) as error:  # these quote the answer, or the path
            raise Unreachable(f"{self.name} does not answer in HTTP: {type(error).__name__}", remedy=remedy) from None

    def _connection(self) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_seconds)
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except OSError as error:
            raise ConfigError(
                f"ca_file {self.ca_file} of {self.name} can't be used: {error}", remedy="Name a PEM file"
            ) from error
        return http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout_seconds, context=context)


def refused(name: str, answer: Answer, remedy: str) -> DrkitError:
    """The error for an answer that isn't what was hoped for."""
    return DrkitError(f"{name} answered {answer.status}: {answer.text}", remedy=remedy)

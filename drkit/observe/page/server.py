"""The server of `drkit serve`: uvicorn on a thread, on an address that is bound before anything else begins."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from drkit.model.errors import ConfigError, DrkitError

_STOP_SECONDS = 5
_CONNECTIONS = 512
"""The most concurrent requests; further ones get 503."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """TLS of the server: its own certificate and key (PEM), and the CA of its clients' certificates (None: clients need
    none).
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to host:port (0: a free one).

    Raises:
        ConfigError: the address can't be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--listen: {host}:{port} can't be bound: {error}", remedy="Give another address with --listen HOST:PORT"
        ) from error
    return bound


class PageServer:
    """Serves an application until it is stopped.

    Args:
        application: the ASGI application.
        listening: the bound socket; closed by `stop`.
        certificates: for TLS; None: plain HTTP.

    Raises:
        ConfigError: the certificates can't be used.
    """

    def __init__(self, application: ASGIApp, listening: socket.socket, certificates: Certificates | None) -> None:
        self._listening = listening
        self._encrypted = certificates is not None
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=None if certificates is None else str(certificates.certificate),
            ssl_keyfile=None if certificates is None else str(certificates.key),
            ssl_ca_certs=None
            if certificates is None or certificates.client_ca is None
            else str(certificates.client_ca),
            ssl_cert_reqs=ssl.CERT_REQUIRED if certificates is not None and certificates.client_ca else ssl.CERT_NONE,
        )
        try:
            config.load()
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                f"serve.certificate, serve.key or serve.client_ca can't be used: {error}",
                remedy="Give PEM files that belong together and that this user can read",
            ) from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="serve", daemon=True)
        self._ended = threading.Event()

    @property
    def url(self) -> str:
        """Its URL, without a trailing slash."""
        host, port = self._listening.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self._encrypted else 'http'}://{name}:{port}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def check(self) -> None:
        """Check that it still serves.

        Raises:
            DrkitError: its thread ended by itself.
        """
        if self._ended.is_set():
            raise DrkitError("the server of the page ended by itself", remedy="Start `drkit serve` again")

    def stop(self) -> None:
        """Take no more requests; running ones have some seconds."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS + 5)
        self._listening.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._ended.set()

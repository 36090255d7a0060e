"""The server of `drkit mirror --metrics-port`: `/metrics`, `/livez` and `/readyz`, of the process itself."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector

from drkit.model.errors import ConfigError
from drkit.observe.metrics.worker_health import WorkerHealth
from drkit.observe.metrics.worker_metrics import LiveCollector

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_STATUS = {200: "200 OK", 404: "404 Not Found", 405: "405 Method Not Allowed", 503: "503 Service Unavailable"}


def serve_live(collector: LiveCollector, health: WorkerHealth, host: str, port: int) -> int:
    """Serve at http://host:port until the process ends; returns the port (0: a free one).

    Raises:
        ConfigError: the address can't be bound.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server = make_server(host, port, make_application(registry, health), _server_for(host, port), _Silent)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--metrics-port: {host}:{port} can't be bound: {error}",
            remedy="Give another --metrics-port, or another --metrics-host",
        ) from error
    threading.Thread(target=server.serve_forever, name="drkit-metrics", daemon=True).start()
    return int(server.server_port)


def make_application(registry: CollectorRegistry, health: WorkerHealth) -> WSGIApplication:
    """The WSGI application: GET and HEAD of the three addresses."""

    def answer(path: str) -> tuple[int, str, bytes]:
        if path in {"/", "/metrics"}:
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        if path in {"/livez", "/readyz"}:
            good, document = health.live() if path == "/livez" else health.ready()
            return 200 if good else 503, "application/json", json.dumps(document).encode() + b"\n"
        return 404, "text/plain; charset=utf-8", b"try /metrics, /livez or /readyz\n"

    def application(environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            code, kind, body = 405, "text/plain; charset=utf-8", b"only GET and HEAD are answered\n"
        else:
            code, kind, body = answer(environ["PATH_INFO"])
        start(
            _STATUS[code], [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return application


def _server_for(host: str, port: int) -> type[WSGIServer]:
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = family

        def server_bind(self) -> None:
            """Bind without a lookup of the host's name, which may take seconds."""
            super(WSGIServer, self).server_bind()
            self.server_name = host
            self.setup_environ()

    return Server


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
        """Log nothing: probes come every few seconds."""

"""`drkit serve`: the status page, its JSON and Prometheus metrics over HTTP, read-only.

One look at the clusters serves every request of the next second, so that scrapes and open pages
don't multiply the load on them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from drkit.model.errors import ConfigError, DrkitError
from drkit.observe.audit_history import AuditCollector, AuditOfLink
from drkit.observe.metrics.link_metrics import StatusCollector
from drkit.observe.page.status_page import render_page
from drkit.observe.status import LinkStatus

CACHE_SECONDS = 1.0


class SnapshotCache:
    """The newest snapshot, looked up at most once in `CACHE_SECONDS`."""

    def __init__(self, look: Callable[[], Sequence[LinkStatus]]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._made_at = float("-inf")
        self._statuses: Sequence[LinkStatus] | None = None
        self._error: DrkitError | None = None

    def get(self) -> tuple[Sequence[LinkStatus] | None, DrkitError | None]:
        """The snapshot, or None and the reason."""
        with self._lock:
            if time.monotonic() - self._made_at >= CACHE_SECONDS:
                try:
                    self._statuses, self._error = self._look(), None
                except DrkitError as error:
                    self._statuses, self._error = None, error
                self._made_at = time.monotonic()
            return self._statuses, self._error


def make_server(
    host: str,
    port: int,
    look: Callable[[], Sequence[LinkStatus]],
    to_json: Callable[[Sequence[LinkStatus] | None, DrkitError | None], str],
    audits: Callable[[], Sequence[AuditOfLink]] = tuple,
) -> ThreadingHTTPServer:
    """A server bound to host:port (0: a free one), not yet serving.

    Args:
        host: the address.
        port: its port.
        look: makes the snapshot.
        to_json: writes it, or the reason why there is none.
        audits: the last audit of each link.

    Raises:
        ConfigError: the address can't be bound.
    """
    snapshots = SnapshotCache(look)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(lambda: snapshots.get()[0]))
    registry.register(AuditCollector(audits))

    class Handler(BaseHTTPRequestHandler):
        server_version = "drkit"
        sys_version = ""

        def do_GET(self) -> None:
            """`/`, `/status.json`, `/metrics`, `/healthz`."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))
                return
            statuses, error = snapshots.get()
            said = None if error is None else str(error)
            code = HTTPStatus.OK if statuses is not None else HTTPStatus.SERVICE_UNAVAILABLE
            if path == "/":
                self._answer(code, "text/html; charset=utf-8", render_page(statuses or (), said).encode())
            elif path == "/status.json":
                self._answer(code, "application/json", to_json(statuses, error).encode())
            elif path == "/healthz":
                self._answer(code, "text/plain; charset=utf-8", (said or "ok").encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"try /, /status.json or /metrics")

        def _answer(self, code: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
            """Requests aren't logged: a scrape every few seconds says nothing."""

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--listen: {host}:{port} can't be bound: {error}", remedy="Give another address with --listen HOST:PORT"
        ) from error

"""The web application of `drkit serve`: the page, its data, its stream of events, JSON and metrics for programs.

uvicorn serves it on a thread, on an address that is bound before anything else begins.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from drkit.model.errors import ConfigError, DrkitError, error_body
from drkit.observe.audit_history import AuditOfLink
from drkit.observe.drill_history import DrillKind
from drkit.observe.history import SPANS
from drkit.observe.link_status import LinkStatus
from drkit.observe.metrics.status_metrics import DrillCollector, LastAuditCollector, StatusCollector
from drkit.observe.page.access import AUTHORISED, Access, Guard, log_in
from drkit.observe.page.board import TABLES, Board, history_document

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


STATIC = Path(__file__).with_name("static")
MAX_STREAMS = 64
_EVENT_SECONDS, _LOOK_SECONDS = 5.0, 0.5
_LONGEST_NAME = 300

StatusJson = Callable[[Sequence[LinkStatus] | None, DrkitError | None], str]
"""Writes the status, or the reason why there is none, like `drkit status --output json`."""


def make_application(board: Board, access: Access, status_json: StatusJson) -> Starlette:
    """The application of a started board.

    Args:
        board: what is shown.
        access: who may read it.
        status_json: the document of `/status.json`.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(lambda: board.snapshot()[0]))
    registry.register(LastAuditCollector(lambda: _audits(board)))
    registry.register(DrillCollector(lambda: _rehearsed(board)))
    streams = _Streams(board)

    def status(_: Request) -> Response:
        statuses, error = board.snapshot()
        code = 503 if statuses is None else 200
        return Response(status_json(statuses, error), code, media_type="application/json")

    def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def health(request: Request) -> Response:
        statuses, error = board.snapshot()
        said = "ok" if error is None else str(error) if request.scope.get(AUTHORISED) else "there is no status"
        return PlainTextResponse(said, 503 if statuses is None else 200)

    def alive(_: Request) -> Response:
        return PlainTextResponse("ok" if board.looks() else "nothing was polled", 200 if board.looks() else 503)

    def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def login(_: Request) -> Response:
        return RedirectResponse("./", 303) if access.token is None else FileResponse(STATIC / "login.html")

    async def token(request: Request) -> Response:
        return RedirectResponse("./", 303) if access.token is None else await log_in(request, access)

    def run(name: str) -> dict[str, Any] | None:
        return board.sources.run(name)  # of now: `reconfigure` gives others

    def drill(name: str) -> dict[str, Any] | None:
        return board.sources.drill(name)

    routes = [
        Route("/", page),
        Route("/login", login, methods=["GET"]),
        Route("/login", token, methods=["POST"]),
        Route("/events", streams.answer),
        Route("/api/summary", lambda _: _json(board.summary())),
        Route("/api/history", partial(_history, board)),
        Route("/api/runs/{name}", partial(_one, run, "run", "`drkit runs` lists them")),
        Route("/api/drills/{name}", partial(_one, drill, "drill", "`drkit drill history` lists them")),
        *(Route(f"/api/{name}", partial(_table, board, name)) for name in TABLES),
        Route("/status.json", status),
        Route("/metrics", metrics),
        Route("/healthz", health),
        Route("/readyz", health),
        Route("/livez", alive),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={404: _nothing_there, 405: _only_reads},
    )


class _Streams:
    """`/events`: the summary at every change, and every few seconds."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._open = 0

    async def answer(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._open >= MAX_STREAMS:
            error = DrkitError(f"{MAX_STREAMS} pages are open already", remedy="Close some, or wait")
            return JSONResponse({"error": error_body(error)}, 503, {"Retry-After": "30"})
        return StreamingResponse(self._events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self) -> AsyncIterator[str]:
        self._open += 1
        try:
            said, version = float("-inf"), None
            yield "retry: 3000\n\n"
            while not self._board.stopping.is_set():
                newest = self._board.version()
                if newest != version or time.monotonic() - said >= _EVENT_SECONDS:
                    body = _text(await run_in_threadpool(self._board.summary))
                    said, version = time.monotonic(), newest
                    yield f"event: summary\ndata: {body}\n\n"
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._open -= 1


def _table(board: Board, name: str, request: Request) -> Response:
    return _answer(lambda: board.table(name, dict(request.query_params)))


def _history(board: Board, request: Request) -> Response:
    link, span = request.query_params.get("link", ""), request.query_params.get("span", "1h")

    def document() -> dict[str, Any]:
        if span not in SPANS:
            raise ConfigError(f"span={span[:20]!r} is not understood", remedy=f"Give one of {', '.join(SPANS)}")
        try:
            return history_document(board, link, span)
        except KeyError:
            raise ConfigError(f"link={link[:80]!r} is not a link that is served", remedy="See /api/summary") from None

    return _answer(document)


def _one(find: Callable[[str], dict[str, Any] | None], what: str, where: str, request: Request) -> Response:
    name = request.path_params["name"]
    try:
        found = find(name) if len(name) <= _LONGEST_NAME else None
    except DrkitError as error:
        return _refused(error, 503)
    if found is None:
        return _refused(DrkitError(f"there is no {what} {name[:80]!r}", remedy=where), 404)
    return _json(found)


def _answer(make: Callable[[], dict[str, Any]]) -> Response:
    """A document, or an error: 400 for a wrong request, 503 if there is no result now."""
    try:
        return _json(make())
    except ConfigError as error:
        return _refused(error, 400)
    except DrkitError as error:
        return _refused(error, 503)


def _refused(error: DrkitError, code: int) -> Response:
    return JSONResponse({"error": error_body(error)}, code)


def _json(document: dict[str, Any]) -> Response:
    return Response(_text(document), media_type="application/json")


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=True, separators=(",", ":"), default=str)


def _audits(board: Board) -> Sequence[AuditOfLink]:
    look = board.earlier.first(0.0)
    return () if look is None or look.value is None else look.value.audits


def _rehearsed(board: Board) -> Sequence[DrillKind]:
    look = board.earlier.first(0.0)
    return () if look is None or look.value is None else look.value.rehearsed


async def _nothing_there(request: Request, _: Exception) -> Response:
    del request
    return PlainTextResponse("try /, /status.json or /metrics\n", 404)


async def _only_reads(request: Request, error: Exception) -> Response:
    del request
    return PlainTextResponse("this server only answers GET and HEAD\n", 405, getattr(error, "headers", None))

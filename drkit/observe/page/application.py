"""The routes of `drkit serve`: the page, its data, its stream of events, JSON and metrics for programs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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

from drkit.model.errors import ConfigError, DrkitError, error_body
from drkit.observe.audit_history import AuditOfLink, LastAuditCollector
from drkit.observe.drill_history import DrillKind
from drkit.observe.history import SPANS
from drkit.observe.metrics.drill_metrics import DrillCollector
from drkit.observe.metrics.link_metrics import StatusCollector
from drkit.observe.page.access import AUTHORISED, Access, Guard, log_in
from drkit.observe.page.board import TABLES, Board, history_document
from drkit.observe.status import LinkStatus

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

    routes = [
        Route("/", page),
        Route("/login", login, methods=["GET"]),
        Route("/login", token, methods=["POST"]),
        Route("/events", streams.answer),
        Route("/api/summary", lambda _: _json(board.summary())),
        Route("/api/history", partial(_history, board)),
        Route("/api/runs/{name}", partial(_one, board.sources.run, "run", "`drkit runs` lists them")),
        Route("/api/drills/{name}", partial(_one, board.sources.drill, "drill", "`drkit drill history` lists them")),
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

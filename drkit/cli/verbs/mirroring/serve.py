"""`drkit serve`: the status page, JSON, Prometheus metrics."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.cli.output import to_json
from drkit.cli.process.hangup import hangups
from drkit.cli.wiring.awaited_store import once_it_answers
from drkit.cli.wiring.context import (
    Invocation,
    LinksOption,
    TimeoutOption,
    links_like,
    listen_address,
    set_client_logs,
    verb,
)
from drkit.config.reload import FIXED_SERVE, LiveConfig
from drkit.model.errors import ConfigError, DrkitError, StoreMissing, Unreachable, error_body
from drkit.model.process import SignalEvent

if TYPE_CHECKING:
    from drkit.config import Config
    from drkit.config.schema.config import ServeConfig
    from drkit.observe.link_status import LinkStatus
    from drkit.observe.page.application import Certificates
    from drkit.observe.page.board import Board, Sources
    from drkit.store.api import Store

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("serve")(serve)


@verb(service=True)
def serve(
    run: Invocation,
    listen: Annotated[
        str | None,
        typer.Option("--listen", help="Address to listen on (default: serve.listen).", metavar="HOST:PORT"),
    ] = None,
    link: LinksOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Serve the status page, its JSON and Prometheus metrics; read-only.

    On loopback anybody on this machine may read it; elsewhere readers need the token that `serve` names in drkit.toml,
    or a certificate. While the store is away the page says so, and waits for it. SIGHUP makes it reload its
    configuration.
    """
    from drkit.observe.history import StatusHistory
    from drkit.observe.link_status import status_document
    from drkit.observe.page.access import checked
    from drkit.observe.page.application import PageServer, bind, make_application
    from drkit.observe.page.board import Board

    set_client_logs(verbose=run.verbose)
    settings = run.config.serve
    host, port = listen_address(settings.listen if listen is None else listen, "--listen")
    certificates, token = _certificates(settings), _token(settings)
    asked = certificates is not None and certificates.client_ca is not None
    access = checked(host, token, encrypted=certificates is not None, certificates=asked)
    links, shown = run.links_like(link), _Shown(run, link, timeout)
    shown.open_once()
    listening = bind(host, port)

    def as_json(statuses: Sequence[LinkStatus] | None, error: DrkitError | None) -> str:
        seen = board.earlier.newest
        drills = None if seen is None or seen.value is None else seen.value.rehearsed
        return to_json({"error": error_body(error)} if error is not None else status_document(statuses or (), drills))

    try:
        history = StatusHistory(shown.store, [each.id for each in links])
        board = Board(shown.sources(), history, run.config.objectives)
        server = PageServer(make_application(board, access, as_json), listening, certificates)
    except BaseException:
        listening.close()
        raise

    def take(config: Config) -> None:
        shown.show(board, config)

    stop, ending = SignalEvent(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if token is not None and certificates is None:
        run.writer.log.print("[bold]![/] The token is sent unencrypted: set serve.certificate, serve.key")
    with hangups(stop) as hangup_signals:
        board.start()
        server.start()
        waiting = threading.Thread(target=shown.wait, args=(board, ending), name="page-store", daemon=True)
        if shown.store is None:
            waiting.start()
        hangup_signals.handle_with(LiveConfig(run.config, "serve", FIXED_SERVE, take).reload)
        url = server.url
        run.writer.emit(
            {"url": url},
            lambda console: console.print(f"{url}/  {url}/status.json  {url}/metrics", soft_wrap=True),
        )
        while not stop.wait(_CHECK_SECONDS):
            server.check()
            shown.check(board)
    ending.set()
    board.stop()
    server.stop()


class _Shown:
    """What the page shows: what the store and the clusters tell, or, while the store is away, why it is nothing.

    `config`: the current one. `store` None: it has not answered yet.
    """

    def __init__(self, run: Invocation, patterns: Sequence[str] | None, timeout_seconds: float | None) -> None:
        self.config = run.config
        self.store: Store | None = None
        self._run, self._patterns, self._timeout_seconds = run, patterns, timeout_seconds
        self._away: DrkitError | None = None
        self._failed: Exception | None = None
        self._showing = threading.Lock()

    def open_once(self) -> None:
        """Open the store, unless it is away.

        Raises:
            DrkitError: it is missing, or another one than this drkit can use.
        """
        try:
            self._read()
        except Unreachable as error:
            self._wait_for(error)
            log.warning("waiting for the store: %s", error)

    def sources(self) -> Sources:
        """Where the page's parts come from now."""
        from drkit.cli.wiring.page_sources import page_sources, sources_without_store

        links = links_like(self.config, self._patterns)
        if self.store is None:
            return sources_without_store(self.config, links, self._why_nothing)
        return page_sources(self.config, self.store, links, self._timeout_seconds)

    def wait(self, board: Board, stop: threading.Event) -> None:
        """Show what is known from when the store answers on."""
        try:
            store = once_it_answers(self._read, stop, self._wait_for)
            if store is not None:
                board.history.begin(store)
                self.show(board)
        except Exception as error:  # noqa: BLE001 - `check` raises it, on the main thread
            self._failed = error

    def show(self, board: Board, config: Config | None = None) -> None:
        """Show what there is now, by another configuration if one is given."""
        with self._showing:  # a reload and the store's return: the later one must know of the earlier one
            if config is not None:
                self.config = config
            board.reconfigure(self.sources(), self.config.objectives)

    def check(self, board: Board) -> None:
        """Raise what the store answered, where it can't be used: at its return, or since it was removed or replaced,
        when only another process opens what is there now."""
        if self._failed is not None:
            raise self._failed
        newest = board.status.newest
        if newest is not None and isinstance(newest.error, StoreMissing):
            error = StoreMissing(newest.error.what, [link.target for link in self.config.links])
            error.remedy = f"Where another store was put there: start `drkit serve` again. {error.remedy}"
            raise error

    def _read(self) -> Store:
        self.store = store = self._run.store(recorded=False)
        return store

    def _wait_for(self, error: DrkitError) -> None:
        self._away = error

    def _why_nothing(self) -> DrkitError:
        if self._away is None:
            return Unreachable("the store has not answered yet")
        return Unreachable(
            f"the store is away, so nothing is known: {self._away.what}",
            meaning=self._away.meaning,
            remedy=self._away.remedy or "The page waits for it, and shows what is known once it answers",
        )


def _certificates(settings: ServeConfig) -> Certificates | None:
    from drkit.observe.page.application import Certificates

    if settings.certificate is None or settings.key is None:
        return None
    return Certificates(settings.certificate, settings.key, settings.client_ca)


def _token(settings: ServeConfig) -> str | None:
    try:
        return settings.plain_token
    except ValueError as error:
        raise ConfigError(f"serve.token: {error}", remedy="Set it, or take serve.token out") from None

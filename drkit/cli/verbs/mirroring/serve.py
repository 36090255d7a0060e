"""`drkit serve`: the status page, JSON, Prometheus metrics."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.cli.output import to_json
from drkit.cli.process.hangup import hangups
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
from drkit.model.errors import ConfigError, DrkitError, error_body
from drkit.model.process import SignalEvent

if TYPE_CHECKING:
    from drkit.config import Config
    from drkit.config.schema.config import ServeConfig
    from drkit.observe.link_status import LinkStatus
    from drkit.observe.page.application import Certificates

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
    or a certificate. SIGHUP makes it reload its configuration.
    """
    from drkit.cli.wiring.page_sources import page_sources
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
    links, store = run.links_like(link), run.store(recorded=False)
    listening = bind(host, port)

    def as_json(statuses: Sequence[LinkStatus] | None, error: DrkitError | None) -> str:
        seen = board.earlier.newest
        drills = None if seen is None or seen.value is None else seen.value.rehearsed
        return to_json({"error": error_body(error)} if error is not None else status_document(statuses or (), drills))

    try:
        sources = page_sources(run.config, store, links, timeout)
        board = Board(sources, StatusHistory(store, [each.id for each in links]), run.config.objectives)
        server = PageServer(make_application(board, access, as_json), listening, certificates)
    except BaseException:
        listening.close()
        raise

    def take(config: Config) -> None:
        changed = links_like(config, link)
        board.reconfigure(page_sources(config, store, changed, timeout), config.objectives)

    stop = SignalEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if token is not None and certificates is None:
        run.writer.log.print("[bold]![/] The token is sent unencrypted: set serve.certificate, serve.key")
    with hangups(stop) as hangup_signals:
        board.start()
        server.start()
        hangup_signals.handle_with(LiveConfig(run.config, "serve", FIXED_SERVE, take).reload)
        url = server.url
        run.writer.emit(
            {"url": url},
            lambda console: console.print(f"{url}/  {url}/status.json  {url}/metrics", soft_wrap=True),
        )
        while not stop.wait(_CHECK_SECONDS):
            server.check()
    board.stop()
    server.stop()


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

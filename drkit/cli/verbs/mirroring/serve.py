"""`drkit serve`: status page, JSON, Prometheus metrics."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.cli.wiring.context import (
    ConfigOption,
    LinkOption,
    OutputOption,
    TimeoutOption,
    VerboseOption,
    command,
    listen_address,
)
from drkit.cli.wiring.output import OutputMode, to_json
from drkit.model.errors import DrkitError, error_body

if TYPE_CHECKING:
    from drkit.observe.status import LinkStatus


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("serve")(serve)


def serve(
    listen: Annotated[
        str, typer.Option("--listen", help="Address to listen on.", metavar="HOST:PORT")
    ] = "127.0.0.1:9404",
    link: LinkOption = None,
    timeout: TimeoutOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Serve the status page, its JSON and Prometheus metrics; read-only, without authentication."""
    from drkit.observe.audit_history import last_audits
    from drkit.observe.page.server import make_server
    from drkit.observe.status import link_statuses
    from drkit.observe.status_document import status_document

    with command(config, output, verbose) as run:
        host, port = listen_address(listen, "--listen")
        store, links = run.store(), run.links(link)

        def look() -> Sequence[LinkStatus]:
            return link_statuses(run.config, store, links, timeout_seconds=timeout)

        def as_json(statuses: Sequence[LinkStatus] | None, error: DrkitError | None) -> str:
            return to_json({"error": error_body(error)} if error is not None else status_document(statuses or ()))

        server = make_server(host, port, look, as_json, lambda: last_audits(store, [str(each.id) for each in links]))
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        threading.Thread(target=server.serve_forever, name="serve", daemon=True).start()
        url = f"http://{host}:{server.server_address[1]}"
        run.writer.emit({"url": url}, lambda console: console.print(f"{url}/  {url}/status.json  {url}/metrics"))
        stop.wait()
        server.shutdown()
        server.server_close()

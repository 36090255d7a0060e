"""`drkit mirror`: the mirror runtime of one link, or of all of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from drkit.cli.output import LogFormat, OutputMode, OutputWriter
from drkit.cli.process.hangup import Hangups, hangups
from drkit.cli.process.interrupts import stop_on_signals
from drkit.cli.process.worker_processes import WorkerProcesses, end_with_parent, wait_for, watchdog_seconds
from drkit.cli.wiring.awaited_store import WAIT_SECONDS, once_it_answers
from drkit.cli.wiring.context import (
    Invocation,
    LinksOption,
    bounded,
    set_client_logs,
    verb,
)
from drkit.config.reload import FIXED, LiveConfig
from drkit.kafka.client.process_tuning import serve_the_data_path
from drkit.mirror.runtime.events import DoneEvent, MirrorEvent, ProgressEvent
from drkit.model.errors import ConfigError, DrkitError, ExitCode, Unreachable, error_body
from drkit.model.process import working_on
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted
from drkit.observe import formatting
from drkit.observe.metrics.worker_health import ENDED, WAITING, WorkerHealth

if TYPE_CHECKING:
    from drkit.config import Config
    from drkit.mirror.runtime.mirror_runtime import MirrorReport
    from drkit.observe.metrics.worker_metrics import LiveCollector

log = logging.getLogger(__name__)

_LINE_SECONDS = 10.0
_SHOWN = 12
_STYLE = {"mirroring": "bold green", "degraded": "bold red", "paused": "bold yellow", "waiting": "bold yellow"}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("mirror")(mirror)


@verb(lines=True, service=True)
def mirror(
    run: Invocation,
    link: LinksOption = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop once all that the source holds now is mirrored and recorded."),
    ] = False,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=64, help="Share the partitions among N processes on this machine.")
    ] = 1,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            metavar="N",
            help="Serve this process's Prometheus metrics at http://127.0.0.1:N/metrics (0: a free port); probes at "
            "/livez and /readyz.",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option("--metrics-host", metavar="HOST", help="Address of --metrics-port (no authentication)."),
    ] = "127.0.0.1",
    watchdog: Annotated[
        float | None,
        typer.Option(
            "--watchdog",
            callback=bounded,
            min=0,
            metavar="SECONDS",
            help="Exit with code 1 when a partition that could continue has not moved for so long; 0: never "
            "(default: 300, with --until-caught-up never).",
        ),
    ] = None,
    supervised_by: Annotated[int | None, typer.Option("--supervised-by", hidden=True)] = None,
) -> None:
    """Mirror records, topics and group positions; exact after any stop. SIGTERM stops it normally.

    SIGHUP makes it reload its configuration: changes that are possible while it runs take effect.

    Several of them, here or on other machines, share a link's partitions.
    """
    set_client_logs(verbose=run.verbose)
    if processes > 1:
        if metrics_port is not None:
            raise _one_port_for_many()
        _supervise(run, processes, link, watchdog, until_caught_up=until_caught_up)
        return
    _check(run, link)
    serve_the_data_path()
    health = WorkerHealth()
    health.begin(str(each.id) for each in run.links_like(link))
    listener = _Listener(run.writer, health, _serve_metrics(run, health, metrics_host, metrics_port))
    patience = watchdog_seconds(watchdog, until_caught_up=until_caught_up)
    with (
        stop_on_signals(second_ends_process=True) as stop,
        hangups(stop) as hangup_signals,
        listener.showing(),
    ):
        if supervised_by is not None:
            end_with_parent(supervised_by, stop)
        links = _links_to_run(run, link, stop, health, waits=not until_caught_up)
        health.begin(str(each.id) for each in links)
        workers = [_Worker(run, each, listener, stop, patience, until_caught_up=until_caught_up) for each in links]
        for worker in workers:
            worker.start()
        _reload_on(hangup_signals, run, workers, until_caught_up=until_caught_up)
        wait_for(workers, stop, listener.error)
    _end(run, workers, until_caught_up=until_caught_up)


def _check(run: Invocation, link: Sequence[str] | None) -> None:
    """What can't be run is said before anything is waited for, and before a store is made."""
    from drkit.kafka.config.client_config import aiokafka_config, confluent_config, kafka_python_config

    for alias in {alias for each in run.links_like(link) for alias in (each.id.source, each.id.target)}:
        for dialect in (confluent_config, kafka_python_config, aiokafka_config):
            dialect(run.config.clusters[alias])


def _links_to_run(
    run: Invocation, link: Sequence[str] | None, stop: threading.Event, health: WorkerHealth, *, waits: bool
) -> list[Link]:
    """The links in the direction in which they flow now; a service waits for its store."""
    from drkit.mirror.control import link_to_run

    def read() -> list[Link]:
        return [link_to_run(run.store(create=True), each) for each in run.links_like(link)]

    def tell(error: Unreachable) -> None:
        for each in run.links_like(link):
            health.tell(str(each.id), WAITING, error.what)

    return once_it_answers(read, stop, tell) or [] if waits else read()


def _reload_on(hangup_signals: Hangups, run: Invocation, workers: list[_Worker], *, until_caught_up: bool) -> None:
    """Answer SIGHUP: the links whose configuration changed begin again with it."""

    def take(config: Config) -> None:
        for worker in workers:
            worker.take(config)

    def refuse() -> None:
        log.warning("the configuration is not reloaded: a run --until-caught-up keeps the one with which it started")

    hangup_signals.handle_with(refuse if until_caught_up else LiveConfig(run.config, "mirror", FIXED, take).reload)


def _one_port_for_many() -> ConfigError:
    return ConfigError(
        "--metrics-port works for one process, but --processes starts several",
        remedy="Use `drkit serve`, which has all workers' metrics; or start the workers separately, each with a port",
    )


def _serve_metrics(run: Invocation, health: WorkerHealth, host: str, port: int | None) -> LiveCollector | None:
    """Begin to serve metrics, where that is asked for."""
    from drkit.observe.metrics.worker_metrics import LiveCollector
    from drkit.observe.metrics.worker_server import serve_live

    if port is None:
        return None
    collector = LiveCollector()
    bound = serve_live(collector, health, host, port)
    run.writer.log.print(Text(f"metrics: http://{host}:{bound}/metrics"))
    return collector


def _supervise(
    run: Invocation, processes: int, link: Sequence[str] | None, watchdog: float | None, *, until_caught_up: bool
) -> None:
    """Run so many children; their configuration is checked first, once."""
    _check(run, link)
    run.store(create=True)  # created or brought up to date by one process
    arguments = ["--output", run.writer.mode.value]
    if run.config_path is not None:
        arguments += ["--config", str(run.config_path)]
    for each in link or ():
        arguments += ["--link", each]
    if until_caught_up:
        arguments.append("--until-caught-up")
    if watchdog is not None:
        arguments += ["--watchdog", str(watchdog)]
    if run.verbose:
        arguments.append("--verbose")
    arguments += ["--log-format", run.writer.log_format.value]
    with stop_on_signals(second_ends_process=True) as stop, hangups(stop) as hangup_signals:
        children = WorkerProcesses(processes, arguments, run.writer, until_done=until_caught_up)
        hangup_signals.handle_with(children.reload)
        code = children.run(stop)
    if code is not ExitCode.OK:
        run.exit(code)


class _Worker(threading.Thread):
    """One link's runtime on a thread of its own; the main thread stays free for signals."""

    def __init__(
        self,
        run: Invocation,
        link: Link,
        listener: _Listener,
        stop: threading.Event,
        watchdog_seconds: float | None,
        *,
        until_caught_up: bool,
    ) -> None:
        from drkit.mirror.runtime.mirror_runtime import MirrorRuntime

        super().__init__(name=f"drkit-mirror-{link.id}", daemon=True)
        self.link = link
        self.report: MirrorReport | None = None
        self.error: Exception | None = None
        self._runtime = MirrorRuntime(run.config, link, run.store(), watchdog_seconds=watchdog_seconds)
        self._listener = listener
        self._stop_event = stop
        self._until_caught_up = until_caught_up

    @property
    def stuck(self) -> DrkitError | None:
        """Why the watchdog ends it; None: it does not."""
        return self._runtime.stuck

    def take(self, config: Config) -> None:
        """Continue with the link as this configuration has it, in the direction in which it flows."""
        wanted = self.link.id.reversed() if self.link.inverse else self.link.id
        found = next(link for each in config.links if (link := each.link()).id == wanted)
        link = found.reversed() if self.link.inverse else found
        if link != self.link:
            self.link = link
            self._runtime.reconfigure(config, link)

    def run(self) -> None:
        """Run until the end; an error is said at once, the other links continue. A service waits for its store."""
        with working_on(self.link.id):
            self._work()

    def _work(self) -> None:
        try:
            while True:
                try:
                    self.report = self._runtime.run(self._until_caught_up, self._stop_event, self._listener.tell)
                except Unreachable as error:
                    if self._until_caught_up:
                        raise
                    self._listener.health.tell(str(self.link.id), WAITING, error.what)
                    log.warning("%s can't begin: %s", self.link.id, error)
                    if self._stop_event.wait(WAIT_SECONDS):
                        return
                else:
                    return
        except DrkitError as error:
            self.error = error
            self._listener.error(self.link.id, error)
        except Exception as error:  # noqa: BLE001 - raised again on the main thread
            self.error = error


def _end(run: Invocation, workers: list[_Worker], *, until_caught_up: bool) -> None:
    """Turn how the links ended into the exit code."""
    for worker in workers:
        if worker.error is not None:
            if isinstance(worker.error, DrkitError):
                run.exit(worker.error.exit_code)  # it was said when it happened
            raise worker.error
    reports = [worker.report for worker in workers if worker.report is not None]
    for report in reports:
        ids = report.link.id
        if report.gone:
            gone = f"{ids}: {ids.source} no longer has {and_more(report.gone)}, which {ids.target} has from it"
            run.writer.log.print(Text(f"{gone}: see `drkit status`"))
        elif report.empty:
            run.writer.log.print(Text(f"{ids}: {ids.source} shows no topic that the link's `topics` cover"))
        if report.held_back:
            run.writer.log.print(
                Text(
                    f"{report.link.id}: {counted(report.held_back, 'offset')} of {report.link.id.source} lie behind an "
                    "open transaction: nobody can read them before it ends, and they aren't mirrored yet"
                )
            )
    if until_caught_up and any(report.halted or report.missing or not report.caught_up for report in reports):
        for report in reports:
            with working_on(report.link.id):
                _print_end(run, report)
        run.exit(ExitCode.FAILED)


def _print_end(run: Invocation, report: MirrorReport) -> None:
    for problem in report.halted:
        run.writer.log.print(Text(f"{report.link.id} {problem.place} is halted: {problem.reason}. {problem.remedy}"))
    for problem in report.missing:
        run.writer.log.print(Text(f"{report.link.id}: {problem.reason}. {problem.remedy}"))
    if not report.caught_up:
        run.writer.log.print(Text(f"{report.link.id}: stopped before it had caught up"))


class _Listener:
    """Writes what the runtimes tell: one JSON object a line, or a live picture (lines where there is no terminal)."""

    def __init__(self, writer: OutputWriter, health: WorkerHealth, metrics: LiveCollector | None = None) -> None:
        self._writer = writer
        self.health = health
        self._metrics = metrics
        self._lock = threading.Lock()
        self._last: dict[LinkId, ProgressEvent] = {}
        self._said: dict[LinkId, float] = {}
        self._live: Live | None = None

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the picture while the mirror runs."""
        if self._writer.mode is OutputMode.JSON or not self._writer.log.is_terminal:
            yield
            return
        with Live(console=self._writer.log, auto_refresh=False, transient=True) as self._live:
            yield

    def tell(self, event: MirrorEvent) -> None:
        """Take an event of any link."""
        from drkit.observe.metrics.worker_metrics import LiveLink

        if self._metrics is not None and isinstance(event, ProgressEvent):
            self._metrics.update(LiveLink(str(event.link), event.numbers(), event.on_source))
        if isinstance(event, ProgressEvent):
            self.health.tell(str(event.link), event.state, event.reason)
        with self._lock:
            if self._writer.mode is OutputMode.JSON:
                self._writer.line_if_read(event.document())
            elif isinstance(event, ProgressEvent):
                self._last[event.link] = event
                if self._live is not None:
                    self._live.update(Group(*(_picture(each) for each in self._last.values())), refresh=True)
                elif event.at.timestamp() - self._said.get(event.link, 0.0) >= _LINE_SECONDS:
                    self._said[event.link] = event.at.timestamp()
                    self._progress(event)
            elif isinstance(event, DoneEvent):
                with working_on(event.link):
                    self._writer.log.print(
                        Text(f"{event.link}: ended in order, {counted(event.records, 'record')} mirrored")
                    )

    def _progress(self, event: ProgressEvent) -> None:
        """A line now and then, where there is no live picture."""
        if self._writer.log_format is LogFormat.TEXT:
            self._writer.log.print(_headline(event), soft_wrap=True)
            return
        numbers = {
            "state": event.state,
            "reason": event.reason,
            "records": event.records,
            "records_per_second": event.records_per_second,
            "lag_records": event.lag_records,
            "lag_seconds": event.lag_seconds,
            "gone": list(event.gone),
        }
        log.info("%s is %s, %s", event.link, event.state, event.lag_in_words(), extra={"numbers": numbers})

    def error(self, link: LinkId, error: DrkitError) -> None:
        """Say how a link's runtime ended."""
        self.health.tell(str(link), ENDED, error.what)
        with self._lock, working_on(link):
            if self._writer.mode is OutputMode.JSON:
                self._writer.line_if_read({"type": "error", "link": str(link), "error": error_body(error)})
            replace(self._writer, mode=OutputMode.HUMAN).error(error)


def _headline(event: ProgressEvent) -> Text:
    line = Text.assemble((str(event.link), "bold"), "  ", (event.state, _STYLE.get(event.state, "bold")))
    line.append(f"  {event.records:,} records, {event.records_per_second:,.0f}/s, ")
    line.append(event.lag_in_words())
    if event.latency is not None:
        line.append(f"\n  end to end: {formatting.latency(event.latency)}", "dim")
    if event.reason:
        line.append(f"\n  {event.reason}", "yellow")
    return line


def _picture(event: ProgressEvent) -> RenderableType:
    worst = sorted((w for w in event.on_source if w.lag_records), key=lambda watermark: -watermark.lag_records)
    lines = [
        Text(f"  {w.tp}  {w.source_through:,} of {w.source_end:,}, {w.lag_records:,} behind", "dim")
        for w in worst[:_SHOWN]
    ]
    return Group(_headline(event), *lines)

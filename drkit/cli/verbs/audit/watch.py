"""`drkit audit watch`: runs beside the mirror and alerts within a minute after a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer
from rich.console import Console
from rich.text import Text

from drkit.cli.process.hangup import hangups
from drkit.cli.process.interrupts import stop_on_signals
from drkit.cli.wiring.alert_notifier import AlertNotifier
from drkit.cli.wiring.context import (
    Invocation,
    LinkOption,
    bounded,
    listen_address,
    verb,
)
from drkit.cli.wiring.selection import TopicsOption, topic_choices
from drkit.cli.wiring.spark_options import (
    MasterOption,
    MemoryOption,
    SparkConfOption,
    flowing_links,
    require_spark,
    spark_runtime,
)
from drkit.model.audit.audit_result import TopicChoice
from drkit.model.audit.continuous_audit import KINDS, AuditProgress
from drkit.model.errors import ConfigError, ExitCode
from drkit.model.topology import Link, LinkId

if TYPE_CHECKING:
    from drkit.audit.spark.session import SparkRuntime

_ENDS = {"clean": ExitCode.OK, "deviated": ExitCode.DEVIATION, "unknown": ExitCode.UNKNOWN}
_NOT_RELOADED = (
    "the configuration is not reloaded: Spark's tasks and the checkpoint keep the one with which they started. Stop "
    "this audit (SIGTERM) and start it again: it continues after the last range that it compared"
)


@dataclass(frozen=True, slots=True)
class ContinuousOptions:
    """The verb's own options."""

    interval: float
    checkpoint: Path | None
    metrics: str | None
    from_now: bool


def register_watch(app: typer.Typer) -> None:
    """Add `audit watch`."""
    app.command("watch")(watch)


@verb()
def watch(
    run: Invocation,
    topic: TopicsOption = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, callback=bounded, metavar="SECONDS", help="How often to check.")
    ] = 10.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Where progress is kept (default: the state directory)."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics.")
    ] = None,
    from_now: Annotated[bool, typer.Option("--from-now", help="Leave out records mirrored before the start.")] = False,
    master: MasterOption = "local[*]",
    driver_memory: MemoryOption = "1g",
    spark_conf: SparkConfOption = None,
    link: LinkOption = None,
) -> None:
    """Run beside the mirror until SIGTERM or Ctrl-C: compare records soon after they are mirrored, alert on a loss.

    SIGHUP changes nothing: it keeps the configuration with which it started, and says so.
    """
    require_spark("`drkit audit watch`")
    links = flowing_links(run, link)
    how = ContinuousOptions(interval, checkpoint, metrics, from_now)
    run_continuous(run, links, topic_choices(topic), how, spark_runtime(master, driver_memory, spark_conf))


def run_continuous(
    run: Invocation,
    links: Sequence[Link],
    choices: Sequence[TopicChoice],
    options: ContinuousOptions,
    runtime: SparkRuntime,
) -> None:
    """Carry the verb out until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: not one link, or an address that can't be bound.
    """
    from drkit.observe.alert_hooks import AlertHooks
    from drkit.observe.metrics.audit_metrics import audit_metrics

    if len(links) != 1:
        raise ConfigError(
            f"`drkit audit watch` works for one link, but {len(links)} are configured",
            remedy="Name one with --link source->target",
        )
    link, store = links[0], run.store()
    checkpoint = options.checkpoint or platformdirs.user_state_path("drkit") / "continuous" / _folder(link.id)
    host, port = listen_address(options.metrics, "--metrics") if options.metrics is not None else ("", 0)
    from drkit.audit.continuous.continuous_audit import ContinuousAudit, ContinuousRequest

    request = ContinuousRequest(
        link=link,
        checkpoint=checkpoint.expanduser().resolve(),
        store_url=run.config.store.plain_url,
        interval_seconds=options.interval,
        wanted=tuple(choice.text for choice in choices),
        from_now=options.from_now,
    )
    notifier = AlertNotifier(run, store, link, AlertHooks.of(run.config.hooks))
    audit = ContinuousAudit(request, store, run.config, runtime, notifier.report, notifier.say, notifier.start)
    notifier.say(f"reconciles what is mirrored every {options.interval:g} s; progress is kept in {request.checkpoint}")
    with stop_on_signals() as stop, hangups(stop) as hangup_signals:
        hangup_signals.handle_with(partial(notifier.say, _NOT_RELOADED))
        if options.metrics is None:
            progress = audit.run(stop)
        else:
            with audit_metrics(host, port, link.id, lambda: (audit.progress, audit.works)) as bound:
                notifier.say(f"metrics at http://{host}:{bound}/metrics")
                progress = audit.run(stop)
    notifier.finish(progress)
    run.writer.emit(continuous_document(progress, request.checkpoint), lambda console: _print(console, progress))
    code = _ENDS[progress.verdict]
    if code is not ExitCode.OK:
        run.exit(code)


def _folder(link: LinkId) -> str:
    return str(link).replace("->", "-to-")


def continuous_document(progress: AuditProgress, checkpoint: Path) -> dict[str, Any]:
    """The document at the end (docs/schemas/audit-continuous.schema.json)."""
    source, target = progress.link.split("->")
    kinds = ("source_records", "target_records", "matched", *KINDS)
    return {
        "verdict": progress.verdict,
        "source": source,
        "target": target,
        "run": progress.run,
        "started_at": progress.started_at,
        "reconciled_at": progress.reconciled_at,
        "ranges": progress.ranges,
        "deviating_ranges": progress.alerts,
        "unknown_ranges": progress.unknown,
        "waiting": progress.waiting,
        "latency_seconds": progress.latency_seconds,
        "totals": {name: getattr(progress.counts, name) for name in kinds} | {"gone": progress.gone},
        "topics": [
            {"topic": topic} | {name: getattr(counts, name) for name in kinds}
            for topic, counts in sorted(progress.topics.items())
        ],
        "through": dict(sorted(progress.through.items())),
        "checkpoint": str(checkpoint),
    }


def _print(console: Console, progress: AuditProgress) -> None:
    counts = progress.counts
    line = Text.assemble(
        (f"{progress.link}  ", "bold"),
        (progress.verdict, "bold green" if progress.verdict == "clean" else "bold red"),
        f"  {counts.source_records:,} records in {progress.ranges:,} ranges, {progress.alerts:,} deviate, "
        f"{progress.unknown:,} unknown",
    )
    console.print(line)
    if progress.waiting is not None:
        console.print(Text(f"What was mirrored since is not compared, as it waited: {progress.waiting}"))
    console.print(Text(f"run {progress.run}", "dim"))

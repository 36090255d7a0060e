"""`drkit lab load`: real data, and groups that read it, onto a cluster of the lab."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from drkit.cli.verbs.lab.lab import DirOption
from drkit.cli.wiring.context import Invocation, bounded, verb
from drkit.model.errors import ConfigError, ExitCode, Unreachable
from drkit.model.process import SignalEvent, handled

if TYPE_CHECKING:
    from drkit.config.schema.config import ClusterConfig
    from drkit.lab.datasets.events import Dataset
    from drkit.lab.datasets.report import GroupReport, LoadProgress, LoadReport
    from drkit.lab.datasets.workload import LoadOptions, LoadResult


class DatasetName(StrEnum):
    """The data sets."""

    FLIGHTS = "flights"
    ORDERS = "orders"


class Timestamps(StrEnum):
    """The timestamps of loaded records."""

    MOVED = "moved"
    LIVE = "live"


def register_load(lab: typer.Typer) -> None:
    """Add `load` to `drkit lab`."""
    lab.command("load")(load_command)


@verb()
def load_command(
    run: Invocation,
    dataset: Annotated[DatasetName, typer.Argument(metavar="DATASET", help="flights or orders.")],
    dir: DirOption = None,  # noqa: A002 - the option's name
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster's alias.", metavar="C")] = "primary",
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            callback=bounded,
            help="Records per second, all topics together (default: unlimited).",
            metavar="N",
        ),
    ] = None,
    transactional: Annotated[
        bool, typer.Option("--transactional", help="In transactions; some are aborted and written again.")
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", help="Write each event N times, for volume.", metavar="N")] = 1,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Only the first N events (a flight, an order with its items).", metavar="N"),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only this topic of the data set (may be repeated).", metavar="T"),
    ] = None,
    timestamps: Annotated[
        Timestamps,
        typer.Option(
            "--timestamps", help="moved: the last event is now; live: each record gets the time at which it is written."
        ),
    ] = Timestamps.MOVED,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="Determines the orders and which transactions are aborted (default: 13).", metavar="N"
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", help="How many orders (default: 50,000).", metavar="N")
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups/--no-groups", help="Let three consumer groups read and commit meanwhile.")
    ] = True,
    delivery_timeout: Annotated[
        float,
        typer.Option("--delivery-timeout", callback=bounded, help="Seconds for the cluster to acknowledge a record."),
    ] = 30.0,
) -> None:
    """Write real data to a cluster of the lab while consumer groups read and commit it.

    flights: the flights that left New York City in 2013, and the hourly weather. orders: orders and
    their line items, generated from a seed. The groups DATASET-live, DATASET-lagging and
    DATASET-ahead leave committed positions behind.
    """
    from drkit.config.schema.config import ClusterConfig
    from drkit.lab import Lab
    from drkit.lab.datasets import DEFAULT_SEED, open_dataset
    from drkit.lab.datasets.events import TimestampMode
    from drkit.lab.datasets.report import LoadOutcome
    from drkit.lab.datasets.workload import LoadOptions

    seed = DEFAULT_SEED if seed is None else seed
    try:
        options = LoadOptions(
            rate=rate, transactional=transactional, seed=seed, delivery_timeout_seconds=delivery_timeout
        )
        data = open_dataset(
            dataset.value,
            seed=seed,
            count=count,
            limit=limit,
            repeat=repeat,
            timestamps=TimestampMode(timestamps),
            topics=topic or None,
        )
    except ValueError as error:
        raise ConfigError(str(error), remedy="See `drkit lab load --help`") from None
    # the lab's own address only: this verb must not write made-up records elsewhere
    target = ClusterConfig(bootstrap_servers=Lab.open(dir).bootstrap(cluster))
    try:
        result = _load(run, data, cluster, target, options, groups=groups)
    except Unreachable as error:
        raise Unreachable(
            error.what,
            meaning=error.meaning,
            remedy=f"`drkit lab status` shows which node is down or paused; "
            f"then `drkit lab restart {cluster}` or `drkit lab resume {cluster}`",
        ) from error
    run.writer.emit(document(cluster, result), lambda console: _human(console, cluster, result))
    if result.report.outcome is not LoadOutcome.COMPLETE:
        _explain(run, cluster, result.report)
        run.exit(ExitCode.FAILED)


def _load(
    run: Invocation, data: Dataset, alias: str, target: ClusterConfig, options: LoadOptions, *, groups: bool
) -> LoadResult:
    from drkit.kafka.admin.cluster_admin import ClusterAdmin
    from drkit.kafka.config.client_config import confluent_config
    from drkit.lab.datasets.workload import load

    log = run.writer.log
    bar = ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f} records/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=log,
        transient=True,
        disable=not log.is_terminal,
    )
    with _stop_signals(log) as signals, ClusterAdmin(alias, target) as admin, bar:
        task = bar.add_task("reading the data", total=None, rate=0.0)

        def show(progress: LoadProgress) -> None:
            if progress.seconds > 0:
                doing = f"loading {data.name}" if progress.events_sent < progress.events else "waiting for the groups"
                bar.update(
                    task, description=doing, total=progress.events, completed=progress.events_sent, rate=progress.rate
                )

        return load(
            data,
            confluent_config(target),
            admin,
            options,
            groups=groups,
            stop=signals.stop.is_set,
            give_up=signals.give_up.is_set,
            on_progress=show,
            on_remark=run.say,
        )


@dataclass(frozen=True, slots=True)
class _Signals:
    """Ctrl-C: the first stops the load at the next event, the second stops all waiting."""

    stop: threading.Event
    give_up: threading.Event


@contextmanager
def _stop_signals(log: Console) -> Iterator[_Signals]:
    """SIGINT and SIGTERM set events rather than raise: what was sent is to be counted, whenever they come."""
    signals = _Signals(SignalEvent(), SignalEvent())

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if signals.stop.is_set():
            signals.give_up.set()
            return
        signals.stop.set()
        log.print("stopping: waiting for what was sent (Ctrl-C again: wait for nothing)")

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    with handled(on_signal, signal.SIGINT, signal.SIGTERM):
        yield signals


def document(cluster: str, result: LoadResult) -> dict[str, Any]:
    """The JSON of `drkit lab load` (docs/schemas/lab-load.schema.json)."""
    report = result.report
    transactions = report.transactions
    return {
        "load": report.load,
        "dataset": report.dataset,
        "cluster": cluster,
        "outcome": report.outcome.value,
        "reason": report.reason,
        "started_at": report.started_at,
        "seconds": round(report.seconds, 3),
        "events": report.events,
        "events_sent": report.events_sent,
        "acknowledged": report.acknowledged,
        "aborted": report.aborted,
        "unacknowledged": report.unacknowledged,
        "transactions": None
        if transactions is None
        else {
            "committed": transactions.committed,
            "aborted": transactions.aborted,
            "unknown": transactions.unknown,
        },
        "topics": [
            {
                "topic": topic.topic,
                "sent": topic.sent,
                "acknowledged": topic.acknowledged,
                "aborted": topic.aborted,
                "unacknowledged": topic.unacknowledged,
                "partitions": [
                    {
                        "partition": part.partition,
                        "acknowledged": part.acknowledged,
                        "aborted": part.aborted,
                        "end_offset": part.end_offset,
                    }
                    for part in topic.partitions
                ],
            }
            for topic in report.topics
        ],
        "errors": report.errors,
        "groups": [_group_document(group) for group in result.groups],
        "remarks": list(result.remarks),
    }


def _group_document(group: GroupReport) -> dict[str, Any]:
    return {
        "group": group.group,
        "behaviour": group.behaviour.value,
        "read": group.read,
        "problem": group.problem,
        "committed": [
            {"topic": tp.topic, "partition": tp.partition, "offset": offset}
            for tp, offset in sorted(group.committed.items())
        ],
    }


def _human(console: Console, cluster: str, result: LoadResult) -> None:
    report = result.report
    rate = report.acknowledged / report.seconds if report.seconds > 0 else 0.0
    console.print(
        f"{report.dataset} on {cluster}: {report.events_sent:,} of {report.events:,} events, "
        f"{report.acknowledged:,} records acknowledged in {report.seconds:.1f} s ({rate:,.0f} a second)",
        soft_wrap=True,
    )
    if report.transactions is not None:
        ended = report.transactions
        unknown = f", {ended.unknown:,} unknown" if ended.unknown else ""
        console.print(f"transactions: {ended.committed:,} committed, {ended.aborted:,} aborted{unknown}")
    console.print(_topic_table(report))
    if result.groups:
        console.print(_group_table(result.groups))


def _topic_table(report: LoadReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("topic")
    for title in ("acknowledged", "aborted", "unacknowledged"):
        table.add_column(title, justify="right")
    for topic in report.topics:
        table.add_row(topic.topic, f"{topic.acknowledged:,}", f"{topic.aborted:,}", f"{topic.unacknowledged:,}")
    return table


def _group_table(groups: Sequence[GroupReport]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("group")
    for title in ("read", "committed, sum of offsets"):
        table.add_column(title, justify="right")
    for group in groups:
        table.add_row(group.group, f"{group.read:,}", f"{sum(group.committed.values()):,}")
    return table


def _explain(run: Invocation, cluster: str, report: LoadReport) -> None:
    """Say on stderr why the load isn't complete; the result itself is on stdout already."""
    log = run.writer.log
    log.print(f"[bold red]error:[/] the load ended early: {escape(report.reason or '')}", soft_wrap=True)
    log.print(
        f"  [dim]means:[/] {report.acknowledged:,} records are on {cluster}; "
        f"{report.unacknowledged:,} were sent without an answer and may or may not be",
        soft_wrap=True,
    )
    log.print(
        "  [bold]do:[/] check `drkit lab status`; loading again appends the data from its beginning", soft_wrap=True
    )

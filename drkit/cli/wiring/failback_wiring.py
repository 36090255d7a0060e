"""Implements the protocols by which failback uses packages that it must not import: mirror, salvage, audit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from drkit.cli.output import OutputWriter
from drkit.cli.wiring.context import Invocation, set_client_logs
from drkit.cli.wiring.spark_options import require_spark, results_folder, spark_properties, spark_runtime
from drkit.failover.context.interfaces import PATIENCE_SECONDS, AuditVerdict, Ports, Salvaged
from drkit.mirror.runtime.events import MirrorEvent, OnEvent, ProgressEvent
from drkit.model.audit.audit_result import AuditRequest, AuditResult, TopicChoice
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context
from drkit.model.topology import Link
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.audit.spark.session import SparkRuntime
    from drkit.mirror.runtime.mirror_runtime import MirrorReport

SalvageOption = Annotated[
    Path | None,
    typer.Option(
        "--salvage-dir",
        metavar="DIR",
        help="Where what only the old primary holds is kept (default: under the user's state directory; of a run that "
        "is resumed: where it began).",
    ),
]


class SeedEngine(StrEnum):
    """What brings the old primary's records back."""

    MIRROR = "mirror"
    SPARK = "spark"


EngineOption = Annotated[
    SeedEngine,
    typer.Option(
        "--engine", help="What re-seeds the old primary: this process, or Spark's tasks, partitions side by side."
    ),
]


def failback_ports(
    run: Invocation,
    salvage_dir: Path | None,
    *,
    master: str,
    driver_memory: str,
    properties: list[str] | None = None,
) -> Ports:
    """The ports, wired to this invocation's configuration and store.

    Raises:
        ConfigError: one of Spark's properties isn't NAME=VALUE, or one that has an option of its own.
    """
    spark_properties(properties or [])
    spark = _Spark(run, master, driver_memory, properties)
    mirror = _Mirror(run)
    return Ports(
        mirror=mirror,
        seeder=_Seeder(mirror, spark),
        salvager=_Salvager(spark),
        auditor=_Auditor(spark),
        salvage_root=salvage_dir,
    )


@dataclass(frozen=True, slots=True)
class _Mirror:
    """Runs the mirror runtime on a thread, so that Ctrl-C lets it drain and save."""

    run: Invocation

    def catch_up(self, link: Link, say: Callable[[str], None], /, *, patience_seconds: float = PATIENCE_SECONDS) -> str:
        """Mirror until caught up."""
        records = self.mirrored(link, say, patience_seconds)
        return f"{counted(records, 'record')} brought over {link.id}"

    def mirrored(self, link: Link, say: Callable[[str], None], patience_seconds: float) -> int:
        """Mirror until caught up; returns how many records that were."""
        from drkit.mirror.runtime.mirror_runtime import MirrorRuntime

        runtime = MirrorRuntime(self.run.config, link, self.run.store(), patience_seconds=patience_seconds)
        return self.run_to_end(link, say, partial(runtime.run, True)).records

    def run_to_end(
        self, link: Link, say: Callable[[str], None], work: Callable[[threading.Event, OnEvent], MirrorReport]
    ) -> MirrorReport:
        """Run a mirror to its end, or until the event is set that it gets."""
        from concurrent.futures import ThreadPoolExecutor

        stop = threading.Event()

        def show(event: MirrorEvent) -> None:
            if isinstance(event, ProgressEvent):
                why = f"; waiting: {event.reason}" if event.reason else ""
                say(f"{link.id}: {counted(event.records, 'record')}, {event.lag_in_words()}{why}")

        set_client_logs(verbose=self.run.verbose)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="drkit-failback-mirror") as pool:
            running = pool.submit(keeping_context(partial(work, stop, show)))
            try:
                report = running.result()
            finally:
                stop.set()
        if report.halted:
            problem = report.halted[0]
            what = f"the mirror of {link.id} is halted on {problem.place}: {problem.reason}"
            raise DrkitError(what, remedy=problem.remedy)
        if not report.caught_up:
            raise DrkitError(f"the mirror of {link.id} was stopped before it had caught up", remedy="Resume the run")
        return report


@dataclass(slots=True)
class _SparkProgress:
    """Says what Spark is at: the step, and how many of its tasks are done."""

    say: Callable[[str], None]
    writer: OutputWriter | None
    at: str = "starting Spark"

    def step(self, text: str) -> None:
        """What is being done now."""
        self.at = text
        self.say(text)
        if self.writer is not None:
            self.writer.remark(Text(text, "dim"))

    def tasks(self, done: int, total: int) -> None:
        """How far that is."""
        self.say(f"{self.at}: {done:,} of {counted(total, 'task')}")


@dataclass(frozen=True, slots=True)
class _Spark:
    """What salvage and audit share. PySpark and its jars load at the first use."""

    run: Invocation
    master: str
    driver_memory: str
    properties: list[str] | None = None

    def runtime(self) -> SparkRuntime:
        """What a session is started from."""
        return spark_runtime(self.master, self.driver_memory, self.properties)

    def progress(self, say: Callable[[str], None]) -> _SparkProgress:
        """Shows where Spark is: in the stage's line; where that was asked for, each step in a line of its own, too."""
        return _SparkProgress(say, self.run.writer if self.run.verbose else None)


@dataclass(frozen=True, slots=True)
class _Seeder:
    """Spark's tasks bring over what the source holds at the start, then the mirror what came meanwhile."""

    mirror: _Mirror
    spark: _Spark

    def catch_up(self, link: Link, say: Callable[[str], None], /, *, patience_seconds: float = PATIENCE_SECONDS) -> str:
        """Seed by Spark, then mirror until caught up."""
        runtime = self.spark.runtime()
        from drkit.seed.run import bulk_seed

        run = self.spark.run
        say(f"{link.id}: starting Spark on {self.spark.master}")

        def seed(stop: threading.Event, on_progress: OnEvent) -> MirrorReport:
            return bulk_seed(run.config, link, run.store(), runtime, stop=stop, on_progress=on_progress)

        seeded = self.mirror.run_to_end(link, say, seed)
        rest = self.mirror.mirrored(link, say, patience_seconds)
        return f"{seeded.records:,} records brought over {link.id} by Spark, then {rest:,} by the mirror"


@dataclass(frozen=True, slots=True)
class _Auditor:
    """The Spark audit."""

    spark: _Spark

    def audit(self, link: Link, say: Callable[[str], None], /) -> AuditVerdict:
        """Audit every topic of the link."""
        runtime = self.spark.runtime()
        from drkit.audit.run import run_audit

        run = self.spark.run
        request = AuditRequest(link=link, out=str(results_folder(now())))
        progress = self.spark.progress(say)
        result = run_audit(request, run.store(), run.config, runtime, progress=progress.step, tasks=progress.tasks)
        return AuditVerdict(result.verdict.value, _counts_line(result), result.findings_path)


@dataclass(frozen=True, slots=True)
class _Salvager:
    """The Spark salvage."""

    spark: _Spark

    def salvage(
        self,
        link: Link,
        topics: Sequence[str],
        positions: Sequence[Mapping[str, Any]],
        out: Path,
        say: Callable[[str], None],
        /,
    ) -> Salvaged:
        """Keep what of these topics only the source holds, and these committed offsets."""
        runtime = self.spark.runtime()
        from drkit.audit.salvage.salvage import salvage

        run = self.spark.run
        request = AuditRequest(link=link, out=str(out), topics=tuple(TopicChoice(topic) for topic in sorted(topics)))
        progress = self.spark.progress(say)
        kept = salvage(
            request,
            run.store(),
            run.config,
            runtime,
            positions=positions,
            progress=progress.step,
            tasks=progress.tasks,
        )
        return Salvaged(kept.path, kept.by_topic, kept.uncommitted, kept.unreadable, kept.incomplete)

    def check(self, path: str, /) -> None:
        """Read it back."""
        require_spark("reading a salvage back")
        from drkit.audit.salvage.salvage_folder import checked_manifest

        checked_manifest(Path(path))


def _counts_line(result: AuditResult) -> str:
    counts = result.counts
    bad = {name: getattr(counts, name) for name in ("lost", "duplicated", "corrupted", "reordered", "foreign")}
    named = ", ".join(f"{count:,} {name}" for name, count in bad.items() if count)
    unseen = f", {counts.unseen:,} not there yet" if counts.unseen else ""
    return f"{counted(counts.source_records, 'record')} compared, {counts.matched:,} matched{unseen}" + (
        f", {named}" if named else ""
    )

"""`drkit audit --continuous`: runs beside the mirror, tells within a minute of a loss."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from rich.console import Console
from rich.text import Text

from drkit.cli.context import Invocation
from drkit.cli.serve import address
from drkit.model.audit import TopicChoice
from drkit.model.clock import now
from drkit.model.continuous import KINDS, Progress, Reconciled
from drkit.model.errors import ConfigError, DrkitError, ExitCode
from drkit.model.journal import JournalEntry, RunSummary
from drkit.model.links import Problem
from drkit.model.topology import Link, LinkId
from drkit.observe.audit_metrics import audit_metrics
from drkit.store.api import Store

if TYPE_CHECKING:
    from drkit.audit.session import SparkRuntime

PROBLEM = "audit_deviation"
"""The kind under which `drkit status` lists a range that deviates."""

_KIND = "audit"
_ENDS = {"clean": ExitCode.OK, "deviated": ExitCode.DEVIATION, "unknown": ExitCode.UNKNOWN}


@dataclass(frozen=True, slots=True)
class ContinuousOptions:
    """The verb's own options."""

    interval: float
    checkpoint: Path | None
    metrics: str | None
    from_now: bool


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
    if len(links) != 1:
        raise ConfigError(
            f"--continuous is of one link, and {len(links)} are configured",
            remedy="Name one with --link source->target",
        )
    link, store = links[0], run.store()
    checkpoint = options.checkpoint or platformdirs.user_state_path("drkit") / "continuous" / _folder(link.id)
    host, port = address(options.metrics, "--metrics") if options.metrics is not None else ("", 0)
    from drkit.audit.continuous import ContinuousAudit, ContinuousRequest  # noqa: PLC0415 - PySpark loads only here

    request = ContinuousRequest(
        link=link,
        checkpoint=checkpoint.expanduser().resolve(),
        store_url=run.config.store.plain_url,
        interval_seconds=options.interval,
        wanted=tuple(choice.text for choice in choices),
        from_now=options.from_now,
    )
    teller = _Teller(run, store, link)
    audit = ContinuousAudit(request, store, run.config, runtime, teller.told, teller.say)
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if options.metrics is None:
            progress = audit.run(stop)
        else:
            with audit_metrics(host, port, lambda: (audit.progress, audit.problem is None)) as bound:
                teller.say(f"metrics at http://{host}:{bound}/metrics")
                progress = audit.run(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    teller.ended(progress)
    run.writer.emit(continuous_document(progress, request.checkpoint), lambda console: _print(console, progress))
    code = _ENDS[progress.verdict]
    if code is not ExitCode.OK:
        run.exit(code)


def refuse_with_continuous(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for options that mean nothing for a continuous audit."""
    for option, value in given.items():
        if value:
            raise ConfigError(
                f"{option} and --continuous exclude each other",
                meaning="A continuous audit is about what the mirror has just mirrored; it writes no findings",
                remedy="Leave it out; --topic chooses topics",
            )


def refuse_without_continuous(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for options of a continuous audit where none is asked for."""
    for option, value in given.items():
        if value:
            raise ConfigError(f"{option} is of a continuous audit", remedy="Add --continuous, or leave it out")


def _folder(link: LinkId) -> str:
    return str(link).replace("->", "-to-")


@dataclass
class _Teller:
    """Tells people, the store and the journal what was found."""

    run: Invocation
    store: Store
    link: Link
    _last: JournalEntry | None = None
    _known: set[tuple[int, str]] = field(default_factory=set)
    _read: bool = False

    def say(self, text: str) -> None:
        """A line on stderr."""
        self.run.writer.log.print(Text(f"audit {self.link.id}: {text}"), soft_wrap=True)

    def told(self, found: Sequence[Reconciled], progress: Progress) -> None:
        """After a batch: what deviates is an alert; the listing is brought up to date."""
        records = sum(each.counts.source_records for each in found)
        wrong = [each for each in found if each.deviates or each.problem is not None]
        if not wrong:
            self.say(f"{records:,} records in {len(found)} ranges are equal, {progress.latency_seconds:.1f} s")
        for each in wrong:
            level = "ALERT" if each.deviates else "unknown"
            self.run.writer.log.print(Text(f"{level} audit {self.link.id}: {each}", "bold red"), soft_wrap=True)
        try:
            self._keep(wrong, progress)
        except DrkitError as error:
            self.say(f"the store did not take it: {error.what}")

    def ended(self, progress: Progress) -> None:
        """The audit stops; its run is listed with what it came to."""
        try:
            self._list(progress, progress.verdict)
        except DrkitError as error:
            self.say(f"`drkit runs` won't list this audit as it ended: {error.what}")

    def _keep(self, wrong: Sequence[Reconciled], progress: Progress) -> None:
        for each in wrong:
            if each.deviates:
                self.store.put_problem(self.link.id, self._problem(each))
            self._journal(progress, each)
        self._list(progress, "running" if progress.verdict == "clean" else progress.verdict)

    def _problem(self, each: Reconciled) -> Problem:
        return Problem(
            kind=PROBLEM,
            topic=each.closed.topic,
            partition=each.closed.partition,
            reason=f"the continuous audit found that the target deviates: {each}",
            remedy=f"drkit audit --link '{self.link.id}' --topic {each.closed.topic} names every record; once it is "
            f"dealt with, drkit link resume '{self.link.id}' clears this",
            halted=False,
            since=now(),
        )

    def _journal(self, progress: Progress, each: Reconciled) -> None:
        """One entry a range, also if its batch is run again."""
        if not self._read:
            entries = self.store.entries(progress.run)
            self._last = entries[-1] if entries else None
            self._known = {_name(json.loads(entry.payload)) for entry in entries}
            self._read = True
        payload = {
            "batch": progress.batch,
            "range": f"{each.closed.topic}:{each.closed.partition}:{each.closed.first}",
            "found": str(each),
            "gone": each.gone,
            "counts": {name: getattr(each.counts, name) for name in KINDS},
            "first": [sample._asdict() for sample in each.first],
        }
        if _name(payload) in self._known:
            return
        event = "deviated" if each.deviates else "unknown"
        entry = JournalEntry.chained(
            self._last, run=progress.run, at=now(), stage=_KIND, event=event, payload=json.dumps(payload)
        )
        if self.store.append_entry(entry):
            self._last = entry
            self._known.add(_name(payload))

    def _list(self, progress: Progress, state: str) -> None:
        counts = progress.counts
        detail = (
            f"{progress.link}: continuous, {counts.source_records:,} records in {progress.ranges:,} ranges, "
            f"{progress.alerts:,} of them deviate"
        )
        began = datetime.fromisoformat(progress.started_at)
        self.store.put_run(RunSummary(progress.run, _KIND, state, began, now(), detail))


def _name(payload: dict[str, Any]) -> tuple[int, str]:
    return int(payload["batch"]), str(payload["range"])


def continuous_document(progress: Progress, checkpoint: Path) -> dict[str, Any]:
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
        "latency_seconds": progress.latency_seconds,
        "totals": {name: getattr(progress.counts, name) for name in kinds} | {"gone": progress.gone},
        "topics": [
            {"topic": topic} | {name: getattr(counts, name) for name in kinds}
            for topic, counts in sorted(progress.topics.items())
        ],
        "through": dict(sorted(progress.through.items())),
        "checkpoint": str(checkpoint),
    }


def _print(console: Console, progress: Progress) -> None:
    counts = progress.counts
    line = Text.assemble(
        (f"{progress.link}  ", "bold"),
        (progress.verdict, "bold green" if progress.verdict == "clean" else "bold red"),
        f"  {counts.source_records:,} records in {progress.ranges:,} ranges, {progress.alerts:,} deviate, "
        f"{progress.unknown:,} unknown",
    )
    console.print(line)
    console.print(Text(f"run {progress.run}", "dim"))

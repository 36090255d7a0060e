"""`python -m bench.audit`: what an audit costs, beside a plain client and beside Spark's `exceptAll`.

The same records on two clusters, clean and with one record in a million damaged, compared in several ways one after the
other on the same brokers. See README.md.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.audit_load import damaged_batches, log_of, write
from bench.audit_start import LIMIT_SECONDS, START, Start, measure_starts
from bench.audit_ways import WAYS, Job, keep_digests, shuffled_bytes
from bench.clusters import Clusters
from bench.load import Shape
from bench.machine import describe
from bench.measure import ProcessTree, cores
from bench.processes import Helper, MeasurementFailed
from drkit.lab.toolchain import ensure
from drkit.model.errors import DrkitError

_HERE = Path(__file__).parent
_ONE_IN = 1_000_000
_QUICK, _FULL = (1_000_000,), (1_000_000, 5_000_000, 50_000_000)
_WARM = log_of(400_000)
"""Large enough for every core's worker to have a task of it."""

_BESIDE = frozenset({"plain", "exceptall"})
"""What drkit is measured against. Damage costs them nothing more, so they see it at the first size only."""

_BESIDE_UP_TO = 20_000_000
"""Records: beyond, each of these would take a quarter of an hour."""

_REPEATED, _REPEATED_UP_TO = 5, 5_000_000
"""Comparisons that take about a second are made so many times, and the median counts: one differs from the next by a
fifth, as much as what is judged."""

_LINEAR = 1.2
_NAMES = {
    "batches": "drkit audit",
    "digest": "drkit audit --from-digests",
    "full": "drkit audit --full",
    "plain": "(a) confluent-kafka + numpy",
    "exceptall": "(b) two DataFrames, exceptAll",
}

_START = "start"
"""As a way: the whole command on a small link."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `cpu`: CPU-seconds of the process and all its children, once warm; `start_cpu`: until then.
    `peak_mib`: of the whole run so far; `shuffled`: bytes, None without Spark."""

    records: int
    way: str
    damaged: bool
    seconds: float
    cpu: float
    start_cpu: float
    peak_mib: float
    shuffled: int | None
    found: int

    @property
    def rate(self) -> float:
        """Records of one side a second and core."""
        return self.records / self.cpu if self.cpu else 0.0


@app.command()
def main(
    full: Annotated[bool, typer.Option("--full", help="1, 5 and 50 million records instead of 1.")] = False,
    records: Annotated[list[int] | None, typer.Option("--records", help="These sizes instead (repeatable).")] = None,
    way: Annotated[list[str] | None, typer.Option("--way", help=f"Only these of {', '.join((_START, *WAYS))}.")] = None,
    memory: Annotated[str, typer.Option("--memory", help="Heap of Spark's JVM.")] = "1g",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.")] = None,
) -> None:
    """Measure, print a table, write audit.json and AUDIT.md."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that children and files go
    sizes = tuple(records) if records else _FULL if full else _QUICK
    folder = out or (_HERE if full and not records and not way else _HERE / "out")
    folder.mkdir(parents=True, exist_ok=True)
    toolchain = ensure("kafka", "mirrormaker", "cassandra", "spark")  # `describe` names them all
    rows: list[Row] = []
    starts: list[Start] = []
    scratch = Path(tempfile.mkdtemp(prefix="drkit-bench-audit-"))
    try:
        with Clusters(scratch, toolchain, _say) as clusters:
            _fill(clusters, "warm", _WARM, scratch, one_in=_WARM.loaded_records)  # what comes after damage is warm, too
            if not way or _START in way:
                starts += _starts(clusters, scratch, memory)
                _write(folder, rows, starts, describe(toolchain), memory)
            for size in sizes if way != [_START] else ():
                log = log_of(size)
                topics = {False: f"clean-{size}", True: f"damaged-{size}"}
                for damaged, topic in topics.items():
                    _say(f"writing {log.loaded_records:,} records to {topic} on both sides")
                    _fill(clusters, topic, log, scratch, one_in=_ONE_IN if damaged else None)
                for each in [name for name in way or WAYS if name != _START]:
                    if each in _BESIDE and size > _BESIDE_UP_TO and not way:
                        continue
                    compared = {False: topics[False]} if each in _BESIDE and size != sizes[0] else topics
                    rows += _measure(clusters, each, compared, log, scratch, memory)
                    _write(folder, rows, starts, describe(toolchain), memory)
                for cluster in (clusters.source, clusters.target):
                    cluster.delete_topics(keep=["warm"])
    except (DrkitError, MeasurementFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print((folder / "AUDIT.md").read_text(encoding="utf-8"))


def _starts(clusters: Clusters, scratch: Path, memory: str) -> list[Start]:
    topics = {False: "start-clean", True: "start-damaged"}
    for damaged, topic in topics.items():
        _fill(clusters, topic, START, scratch, one_in=_ONE_IN if damaged else None)
    folder = Path(tempfile.mkdtemp(prefix="start-", dir=scratch))
    job = Job(clusters.source.address, clusters.target.address, "", "warm", START.partitions, str(folder), memory)
    found = measure_starts(job, topics, len(damaged_batches(START, _ONE_IN)), _say)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _fill(clusters: Clusters, topic: str, log: Shape, scratch: Path, one_in: int | None = None) -> None:
    clusters.source.create_topic(topic, log.partitions)
    clusters.target.create_topic(topic, log.partitions)
    keep_digests(scratch, write(clusters.source.address, topic, log))
    spoil = frozenset[int]() if one_in is None else damaged_batches(log, one_in)
    write(clusters.target.address, topic, log, spoil=spoil)


def _measure(
    clusters: Clusters, way: str, topics: dict[bool, str], log: Shape, scratch: Path, memory: str
) -> Iterator[Row]:
    folder = Path(tempfile.mkdtemp(prefix=f"{way}-", dir=scratch))
    job = Job(clusters.source.address, clusters.target.address, "", "warm", log.partitions, str(folder), memory)
    with Helper.running("audit_child", way, json.dumps(asdict(job)), ready="warm", patience_seconds=60.0) as child:
        tree = ProcessTree(child.process)
        start = before = tree.cpu_seconds()
        shuffled = shuffled_bytes(folder)
        again = _REPEATED if log.loaded_records <= _REPEATED_UP_TO and way not in _BESIDE else 1
        rows: list[Row] = []
        for damaged, topic in [*topics.items()] * again:
            _say(f"{_NAMES[way]}: {topic}")
            answer = child.ask(topic)
            after, so_far = tree.cpu_seconds(), shuffled_bytes(folder)
            expected = len(damaged_batches(log, _ONE_IN)) if damaged else 0
            if answer["found"] != expected:
                raise DrkitError(f"{_NAMES[way]} found {answer['found']} of {expected} in {topic}")
            rows.append(
                Row(
                    records=log.loaded_records,
                    way=way,
                    damaged=damaged,
                    seconds=round(answer["seconds"], 2),
                    cpu=round(after - before, 2),
                    start_cpu=round(start, 2),
                    peak_mib=round(tree.peak_rss_bytes() / 2**20),
                    shuffled=None if so_far is None or shuffled is None else so_far - shuffled,
                    found=answer["found"],
                )
            )
            before, shuffled = after, so_far
    shutil.rmtree(folder, ignore_errors=True)
    for damaged in topics:
        by_cpu = sorted((row for row in rows if row.damaged is damaged), key=lambda row: row.cpu)
        yield by_cpu[len(by_cpu) // 2]


def _write(folder: Path, rows: Sequence[Row], starts: Sequence[Start], machine: dict[str, Any], memory: str) -> None:
    measured = {"machine": machine, "rows": [asdict(row) for row in rows], "starts": [asdict(each) for each in starts]}
    (folder / "audit.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    lines = ["# What an audit costs", "", "Written by `python -m bench.audit`; see [README.md](README.md).", ""]
    where = f"{cores()} cores shared with both brokers, {memory} of heap, {machine['cpu']}"
    lines += [f"{where}; load average before: {machine['load_before']}.", ""]
    titles = ("records a side", "", "damage", "CPU-s", "records/s per core", "s", "peak RSS, MiB", "shuffled, MB")
    lines += [f"| {' | '.join((*titles, 'found', 'CPU until warm'))} |"]
    lines += ["| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        shuffled = "-" if row.shuffled is None else f"{row.shuffled / 1e6:.1f}"
        lines.append(
            f"| {row.records:,} | {_NAMES[row.way]} | {'1 in a million' if row.damaged else 'clean'} | {row.cpu:.1f} | "
            f"{row.rate:,.0f} | {row.seconds:.1f} | {row.peak_mib:,.0f} | {shuffled} | {row.found} "
            f"| {row.start_cpu:.1f} |"
        )
    lines += ["", "| records a side | target | measured | limit | |", "| ---: | --- | ---: | ---: | --- |"]
    lines += _targets(rows) + _start_targets(starts)
    (folder / "AUDIT.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _targets(rows: Sequence[Row]) -> list[str]:
    lines = []
    for size in sorted({row.records for row in rows}):
        cpu = {(row.way, row.damaged): row.cpu for row in rows if row.records == size}
        judged = (
            ("CPU of (b), clean, over drkit audit's", ("exceptall", False), ("batches", False), 5.0, True),
            ("CPU of (a), clean, over drkit audit's", ("plain", False), ("batches", False), 3.0, True),
            ("drkit audit: CPU damaged over clean", ("batches", True), ("batches", False), 1.3, False),
            ("CPU of (b), clean, over drkit audit --full's", ("exceptall", False), ("full", False), 1.0, True),
        )
        for name, above, below, limit, least in judged:
            if above in cpu and cpu.get(below):
                value = cpu[above] / cpu[below]
                met = value >= limit if least else value <= limit
                sign = "≥" if least else "≤"
                lines.append(
                    f"| {size:,} | {name} | {value:.2f} x | {sign} {limit} x | {'met' if met else 'not met'} |"
                )
    return lines + _linear(rows)


def _start_targets(starts: Sequence[Start]) -> list[str]:
    """How long the whole command takes."""
    lines = []
    for each in starts:
        kind, met = "damaged" if each.damaged else "clean", "met" if each.met else "not met"
        name = f"drkit audit, {kind}: seconds from the command to its end"
        value = f"{each.seconds:.1f} s (slowest {each.slowest:.1f})"
        lines.append(f"| {each.records:,} | {name} | {value} | ≤ {LIMIT_SECONDS:.0f} s | {met} |")
    return lines


def _linear(rows: Sequence[Row]) -> list[str]:
    """Whether a record costs as much at the largest size as at the one before, and takes no more memory."""
    lines = []
    sizes = sorted({row.records for row in rows})[-2:]
    if len(sizes) < 2:  # noqa: PLR2004 - one can't be compared
        return []
    for way in ("batches", "full"):
        small, large = (
            {row.records: row for row in rows if row.way == way and not row.damaged}.get(at) for at in sizes
        )
        if small is None or large is None:
            continue
        judged = (
            ("CPU a record, clean, over that at the size before", small.rate / large.rate),
            ("peak RSS over that at the size before", large.peak_mib / small.peak_mib),
        )
        for name, value in judged:
            met = "met" if value <= _LINEAR else "not met"
            lines.append(f"| {large.records:,} | {_NAMES[way]}: {name} | {value:.2f} x | ≤ {_LINEAR} x | {met} |")
    return lines


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app()

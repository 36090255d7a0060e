"""`python -m bench.audit`: measures the cost of an audit, a plain client and Spark's `exceptAll`.

The same records on two clusters, clean and with one record in a million damaged, are compared in several ways, one
after the other on the same brokers. See README.md.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench.audit_load import damaged_batches, log_of, write
from bench.audit_ways import WAYS, Job, keep_digests, record_mirrored, shuffled_bytes
from bench.clusters import Clusters
from bench.load import Shape
from bench.machine import describe
from bench.mirrors import STORE, drkit_toml
from bench.processes import CONFIG, MIB, Helper, MeasurementFailed, ProcessTree, cores, drkit, run, say
from bench.report import Column, Grid, figure, markdown, number, table
from bench.targets import Judgement
from drkit.lab.toolchain import Toolchain, ensure
from drkit.model.errors import DrkitError, ExitCode
from drkit.store import open_store

_HERE = Path(__file__).parent
_ONE_IN = 1_000_000
_QUICK, _FULL = (1_000_000,), (1_000_000, 5_000_000, 50_000_000)
_WARM = log_of(400_000)
"""Large enough for a task on every core."""

_BESIDE = frozenset({"plain", "exceptall"})
"""The ways that drkit is compared with. Damage doesn't cost them more, so they get it only at the first size."""

_BESIDE_UP_TO = 20_000_000
"""Records: with more, each of these would take a quarter of an hour."""

_REPEATED, _REPEATED_UP_TO = 5, 5_000_000
"""How often to repeat whole commands, and comparisons that take about a second; the median counts. Single runs differ
by a fifth, as much as the differences to judge."""

_NAMES = {
    "batches": "drkit audit",
    "digest": "drkit audit --from-digests",
    "full": "drkit audit --full",
    "plain": "(a) confluent-kafka + numpy",
    "exceptall": "(b) two DataFrames, exceptAll",
}
_RATIOS = (
    ("CPU of (b), clean, over drkit audit's", ("exceptall", False), ("batches", False), 5.0, True),
    ("CPU of (a), clean, over drkit audit's", ("plain", False), ("batches", False), 3.0, True),
    ("drkit audit: CPU damaged over clean", ("batches", True), ("batches", False), 1.3, False),
    ("CPU of (b), clean, over drkit audit --full's", ("exceptall", False), ("full", False), 1.0, True),
)
"""Targets at each size: numerator and denominator, the limit, and whether it is a lower bound."""

_LINEAR = 1.2
"""The upper bound of the cost per record, and of memory, at the largest size relative to the size before."""

_START = "start"
"""The way that measures the whole command on a small link."""

_START_LOG = log_of(100_000, partitions=4)
_START_SECONDS = 8.0

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `cpu`: CPU seconds of the process and all its children, once warm; `start_cpu`: until then.
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
        """Records of one side per second and core."""
        return self.records / self.cpu if self.cpu else 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """Commands of one kind. `seconds`: the median from launch to end; `slowest`: the maximum; `found`: the findings."""

    records: int
    damaged: bool
    seconds: float
    slowest: float
    found: int


@app.command()
def main(
    full: Annotated[bool, typer.Option("--full", help="1, 5 and 50 million records instead of 1.")] = False,
    records: Annotated[list[int] | None, typer.Option("--records", help="These sizes instead (repeatable).")] = None,
    way: Annotated[list[str] | None, typer.Option("--way", help=f"Only these of {', '.join((_START, *WAYS))}.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.")] = None,
) -> None:
    """Measure, print a table, write audit.json and AUDIT.md."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that children and files go
    sizes = tuple(records) if records else _FULL if full else _QUICK
    folder = out or (_HERE if full and not records and not way else _HERE / "out")
    folder.mkdir(parents=True, exist_ok=True)
    toolchain = ensure("kafka", "mirrormaker", "cassandra", "spark")  # `describe` names them all
    try:
        with tempfile.TemporaryDirectory(prefix="drkit-bench-audit-", ignore_cleanup_errors=True) as scratch:
            _Audits(folder, Path(scratch), describe(toolchain)).measure(toolchain, sizes, way or [_START, *WAYS], way)
    except (DrkitError, MeasurementFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    print((folder / "AUDIT.md").read_text(encoding="utf-8"))


@dataclass(slots=True)
class _Audits:
    """The measurements on one pair of clusters, written to `folder` after each. `machine`: before the run."""

    folder: Path
    scratch: Path
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    def measure(
        self, toolchain: Toolchain, sizes: Sequence[int], ways: Sequence[str], asked: Sequence[str] | None
    ) -> None:
        """Measure everything. `asked`: the ways named by the user, which are measured at every size."""
        with Clusters(self.scratch, toolchain, say) as clusters:
            _fill(
                clusters, "warm", _WARM, self.scratch, one_in=_WARM.loaded_records
            )  # after damage, the next one is warm, too
            if _START in ways:
                self.starts = _starts(clusters, self.scratch)
                self.write()
            compared = [way for way in ways if way != _START]
            for size in sizes if compared else ():
                log, topics = log_of(size), {False: f"clean-{size}", True: f"damaged-{size}"}
                for damaged, topic in topics.items():
                    say(f"writing {log.loaded_records:,} records to {topic} on both sides")
                    _fill(clusters, topic, log, self.scratch, one_in=_ONE_IN if damaged else None)
                for way in compared:
                    if way in _BESIDE and size > _BESIDE_UP_TO and not asked:
                        continue
                    chosen = {False: topics[False]} if way in _BESIDE and size != sizes[0] else topics
                    self.rows += _compare(clusters, way, chosen, log, self.scratch)
                    self.write()
                for cluster in (clusters.source, clusters.target):
                    cluster.delete_topics(keep=["warm"])

    def write(self) -> None:
        """Write the results so far."""
        measured = {
            "machine": self.machine,
            "rows": list(map(asdict, self.rows)),
            "starts": list(map(asdict, self.starts)),
        }
        (self.folder / "audit.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        (self.folder / "AUDIT.md").write_text(render(self.machine, self.rows, self.starts), encoding="utf-8")


def _fill(clusters: Clusters, topic: str, log: Shape, scratch: Path, one_in: int | None = None) -> None:
    clusters.source.create_topic(topic, log.partitions)
    clusters.target.create_topic(topic, log.partitions)
    keep_digests(scratch, write(clusters.source.address, topic, log))
    damaged = frozenset[int]() if one_in is None else damaged_batches(log, one_in)
    write(clusters.target.address, topic, log, damaged=damaged)


def _job(clusters: Clusters, log: Shape, folder: Path) -> Job:
    folder.mkdir()
    return Job(clusters.source.address, clusters.target.address, "warm", log.partitions, str(folder))


def _compare(clusters: Clusters, way: str, topics: dict[bool, str], log: Shape, scratch: Path) -> Iterator[Row]:
    """One way, in its own process: the median by CPU for each topic."""
    folder = scratch / f"{way}-{log.records}"
    job = json.dumps(asdict(_job(clusters, log, folder)))
    rows: list[Row] = []
    with Helper.running("audit_ways", way, job, ready="warm", patience_seconds=60.0) as child:
        tree = ProcessTree(child.process)
        start = before = tree.cpu_seconds()
        shuffled = shuffled_bytes(folder)
        again = _REPEATED if log.loaded_records <= _REPEATED_UP_TO and way not in _BESIDE else 1
        for damaged, topic in [*topics.items()] * again:
            say(f"{_NAMES[way]}: {topic}")
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
                    peak_mib=round(tree.peak_rss_bytes() / MIB),
                    shuffled=None if so_far is None or shuffled is None else so_far - shuffled,
                    found=answer["found"],
                )
            )
            before, shuffled = after, so_far
    shutil.rmtree(folder, ignore_errors=True)
    for damaged in topics:
        by_cpu = sorted((row for row in rows if row.damaged is damaged), key=lambda row: row.cpu)
        yield by_cpu[len(by_cpu) // 2]


def _starts(clusters: Clusters, scratch: Path) -> list[Start]:
    """`drkit audit` as a command, from its launch to its end, for each topic in turn; an unmeasured run of each brings
    the files into the page cache.
    """
    folder, topics = scratch / _START, {False: "start-clean", True: "start-damaged"}
    expected = {False: 0, True: len(damaged_batches(_START_LOG, _ONE_IN))}
    job = _job(clusters, _START_LOG, folder)
    with closing(open_store(f"sqlite:///{folder / STORE}")) as store:
        for damaged, topic in topics.items():
            _fill(clusters, topic, _START_LOG, scratch, one_in=_ONE_IN if damaged else None)
            record_mirrored(store, job, topic)
    link = (f'source = "{clusters.source.alias}"\ntarget = "{clusters.target.alias}"\ntopics = [".*"]',)
    (folder / CONFIG).write_text(drkit_toml([clusters.source, clusters.target], [link]), encoding="utf-8")
    taken: dict[bool, list[float]] = {damaged: [] for damaged in topics}
    for turn in range(_REPEATED + 1):
        for damaged, topic in topics.items():
            say(f"drkit audit, the whole command: {topic}")
            command = drkit(folder, "audit", "--topic", topic, "--out", str(folder / "out"), "--output", "json")
            ended = run(command, folder, (ExitCode.OK, ExitCode.DEVIATION))
            shutil.rmtree(folder / "out", ignore_errors=True)
            document = json.loads(ended.stdout)
            found, read = document["findings_total"], document["totals"]["source_records"]
            if (found, read) != (expected[damaged], _START_LOG.loaded_records):
                raise DrkitError(f"drkit audit found {found} in {read} records of {topic}")
            if turn:
                taken[damaged].append(ended.seconds)
    shutil.rmtree(folder, ignore_errors=True)
    return [
        Start(_START_LOG.loaded_records, damaged, round(median(each), 2), round(max(each), 2), expected[damaged])
        for damaged, each in taken.items()
    ]


# --- the report ---------------------------------------------------------------------------------


def render(machine: dict[str, Any], rows: Sequence[Row], starts: Sequence[Start]) -> str:
    """AUDIT.md."""
    columns: list[Column] = [
        ("records a side", figure("records")),
        ("", lambda row: _NAMES[row.way]),
        ("damage", lambda row: "1 in a million" if row.damaged else "clean"),
        ("CPU-s", figure("cpu", 1)),
        ("records/s per core", figure("rate")),
        ("s", figure("seconds", 1)),
        ("peak RSS, MiB", figure("peak_mib")),
        ("shuffled, MB", lambda row: number(None if row.shuffled is None else row.shuffled / 1e6, 1)),
        ("found", figure("found")),
        ("CPU until warm", figure("start_cpu", 1)),
    ]
    costs = table("", 0, columns, rows)
    costs = Grid("", costs.columns, costs.rows, 0, ("", "damage"))
    judged = tuple(_target(*each) for each in (*_ratios(rows), *_linear(rows), *_start_targets(starts)))
    targets = Grid("", ("records a side", "target", "measured", "limit", ""), judged, 0, ("target", ""))
    where = f"{cores()} cores shared with both brokers, 1g of heap, {machine['cpu']}"
    return (
        "# What an audit costs\n\nWritten by `python -m bench.audit`; see [README.md](README.md).\n\n"
        f"{where}; load average before: {machine['load_before']}.\n\n{markdown(costs)}\n{markdown(targets)}"
    )


_Target = tuple[int, Judgement]
"""One row of the targets: the number of records, and the judgement."""


def _target(records: int, each: Judgement) -> tuple[str, ...]:
    sign, limit = "≥" if each.at_least else "≤", f"{each.limit:.0f}" if each.unit == "s" else f"{each.limit}"
    measured = f"{each.measured:.1f} s {each.note}" if each.unit == "s" else f"{each.measured:.2f} x"
    return f"{records:,}", each.target, measured, f"{sign} {limit} {each.unit}", each.verdict


def _ratios(rows: Sequence[Row]) -> Iterator[_Target]:
    for size in sorted({row.records for row in rows}):
        cpu = {(row.way, row.damaged): row.cpu for row in rows if row.records == size}
        for name, above, below, limit, least in _RATIOS:
            if above in cpu and cpu.get(below):
                yield size, Judgement(name, cpu[above] / cpu[below], limit, "x", least)


def _linear(rows: Sequence[Row]) -> Iterator[_Target]:
    """Whether cost per record and memory at the largest size are about those at the size before."""
    sizes = sorted({row.records for row in rows})[-2:]
    for way in ("batches", "full"):
        clean = {row.records: row for row in rows if row.way == way and not row.damaged}
        found = [clean[size] for size in sizes if size in clean]
        if len(found) == 2:  # noqa: PLR2004 - one can't be compared
            small, large = found
            cpu, memory = small.rate / large.rate, large.peak_mib / small.peak_mib
            name = f"{_NAMES[way]}: {{}} over that at the size before".format
            yield large.records, Judgement(name("CPU a record, clean,"), cpu, _LINEAR, "x")
            yield large.records, Judgement(name("peak RSS"), memory, _LINEAR, "x")


def _start_targets(starts: Sequence[Start]) -> Iterator[_Target]:
    """The duration of the whole command."""
    for each in starts:
        name = f"drkit audit, {'damaged' if each.damaged else 'clean'}: seconds from the command to its end"
        note = f"(slowest {each.slowest:.1f})"
        yield each.records, Judgement(name, each.seconds, _START_SECONDS, "s", note=note)


if __name__ == "__main__":
    app()

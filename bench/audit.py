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
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench.audit_ways import WAYS, Job, keep_digests, record_mirrored, shuffled_bytes
from bench.clusters import Clusters
from bench.mirrors import STORE, drkit_toml
from bench.processes import CONFIG, MIB, Helper, MeasurementFailed, ProcessTree, drkit, run, say
from bench.report import Row, machine, markdown, met, number, table
from bench.wire import IN_FLIGHT, Connection, Shape, batch_variants
from drkit.files import write_atomically
from drkit.kafka.protocol.record_batch import HEADER_BYTES, Batch, header, parse, placed_digest
from drkit.kafka.protocol.records import RawRecord, build, read
from drkit.lab.toolchain import ensure
from drkit.mirror.engine.range_digests import RangeDigests
from drkit.model.digests import RangeDigest
from drkit.model.errors import DrkitError, ExitCode
from drkit.model.topology import TopicPartition
from drkit.store import open_store

# --- two equal logs, one of them damaged on request ----------------------------------------------------------------

_BEGAN = 1_780_000_000_000
_VARIANTS = 40


def log_of(records: int, partitions: int = 8) -> Shape:
    """A log for audits: 150-byte records, lz4, 1,000 per batch."""
    return Shape(records, 150, "lz4", 1_000, partitions)


def damaged_batches(log: Shape, one_in: int) -> frozenset[int]:
    """The batches that get one corrupted record each, evenly spaced, for one corrupted record in `one_in`."""
    count = max(1, log.loaded_records // one_in)
    return frozenset(log.batches * (2 * number + 1) // (2 * count) for number in range(count))


def write(address: str, topic: str, log: Shape, *, damaged: Collection[int] = ()) -> list[RangeDigest]:
    """Write a log to an existing topic, round robin over its partitions; every batch has its own timestamp.

    Returns the digests that a mirror keeps if it forwards each record to the same offset.

    Args:
        address: host:port of the one broker.
        topic: an existing one, with `log.partitions` partitions.
        log: the log to write.
        damaged: numbers of batches in which the middle record gets another value.
    """
    made = batch_variants(
        record_bytes=log.record_bytes, codec=log.codec, records_a_batch=log.records_a_batch, variants=_VARIANTS
    )
    variants = cycle([next(iter(parse(memoryview(turn)))) for turn in made])
    ended: deque[RangeDigest] = deque()
    ranges = [RangeDigests(TopicPartition(topic, partition), 0, ended) for partition in range(log.partitions)]

    def requests() -> Iterator[dict[int, bytes]]:
        for turn in range(log.batches):
            batch = _stamped(next(variants), _BEGAN + turn * 1_000, damaged=turn in damaged)
            at = turn // log.partitions * log.records_a_batch
            folded = placed_digest(at, batch[:HEADER_BYTES], batch[HEADER_BYTES:])
            (kept,) = parse(memoryview(batch))
            ranges[turn % log.partitions].take(at, at, log.records_a_batch, len(batch), folded, kept.crc)
            yield {turn % log.partitions: batch}

    with Connection(address) as connection:
        connection.produce(topic, requests(), IN_FLIGHT)
    return [*ended, *(row for turn in ranges if (row := turn.opened()) is not None)]


def _stamped(batch: Batch, stamp: int, *, damaged: bool) -> bytes:
    """A batch whose records have the timestamp `stamp`, with one of them damaged."""
    payload: bytes | memoryview = batch.records
    if damaged:
        records = [RawRecord(each.offset, batch.base_timestamp, bytes(each.body)) for each in read(batch)]
        middle = len(records) // 2
        body = bytearray(records[middle].body)
        body[len(body) // 2] ^= 1
        records[middle] = records[middle]._replace(body=bytes(body))
        payload = build(records, batch.codec).payload
    head = header(
        attributes=batch.attributes,
        count=batch.records_count,
        base_timestamp=stamp,
        max_timestamp=stamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=payload,
    )
    return head + bytes(payload)


# --- the measurement -----------------------------------------------------------------------------------------------

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
_TARGETS = (
    ("CPU of (b), clean, over drkit audit's", ("exceptall", False), ("batches", False), "≥", 5.0),
    ("CPU of (a), clean, over drkit audit's", ("plain", False), ("batches", False), "≥", 3.0),
    ("drkit audit: CPU damaged over clean", ("batches", True), ("batches", False), "≤", 1.3),
    ("CPU of (b), clean, over drkit audit --full's", ("exceptall", False), ("full", False), "≥", 1.0),
)
"""Targets at each size: way and damage of numerator and denominator, and the limit."""

_LINEAR = 1.2
"""The upper bound of the cost per record, and of memory, at the largest size relative to the size before."""

_START = "start"
"""The way that measures the whole command on a small link."""

_START_LOG = log_of(100_000, partitions=4)
_START_SECONDS = 8.0

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


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
    toolchain = ensure("kafka", "mirrormaker", "cassandra", "spark")  # `machine` names them all
    try:
        with tempfile.TemporaryDirectory(prefix="drkit-bench-audit-", ignore_cleanup_errors=True) as scratch:
            _Audits(folder, Path(scratch), machine(toolchain)).measure(sizes, way or [_START, *WAYS], way)
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
    starts: list[Row] = field(default_factory=list)

    def measure(self, sizes: Sequence[int], ways: Sequence[str], asked: Sequence[str] | None) -> None:
        """Measure everything. `asked`: the ways named by the user, which are measured at every size."""
        with Clusters(self.scratch, say) as clusters:
            _fill(
                clusters, "warm", _WARM, self.scratch, one_in=_WARM.loaded_records
            )  # damaged: the next one is warm, too
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
                    both = {False: topics[False]} if way in _BESIDE and size != sizes[0] else topics
                    self.rows += _compare(clusters, way, both, log, self.scratch)
                    self.write()
                for cluster in (clusters.source, clusters.target):
                    cluster.delete_topics(keep=["warm"])

    def write(self) -> None:
        """Write the results so far."""
        measured = {"machine": self.machine, "rows": self.rows, "starts": self.starts}
        write_atomically(self.folder / "audit.json", json.dumps(measured, indent=1) + "\n")
        write_atomically(self.folder / "AUDIT.md", render(self.machine, self.rows, self.starts))


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
                {
                    "records": log.loaded_records,
                    "way": way,
                    "damaged": damaged,
                    "seconds": round(answer["seconds"], 2),
                    "cpu": round(after - before, 2),
                    "start_cpu": round(start, 2),
                    "peak_mib": round(tree.peak_rss_bytes() / MIB),
                    "shuffled": None if so_far is None or shuffled is None else so_far - shuffled,
                    "found": answer["found"],
                }
            )
            before, shuffled = after, so_far
    shutil.rmtree(folder, ignore_errors=True)
    for damaged in topics:
        by_cpu = sorted((row for row in rows if row["damaged"] is damaged), key=lambda row: float(row["cpu"]))
        yield by_cpu[len(by_cpu) // 2]


def _starts(clusters: Clusters, scratch: Path) -> list[Row]:
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
        {
            "records": _START_LOG.loaded_records,
            "damaged": damaged,
            "seconds": round(median(each), 2),
            "slowest": round(max(each), 2),
            "found": expected[damaged],
        }
        for damaged, each in taken.items()
    ]


# --- the report ---------------------------------------------------------------------------------


def render(machine: dict[str, Any], rows: Sequence[Row], starts: Sequence[Row]) -> str:
    """AUDIT.md."""
    costs = [
        row
        | {"way": _NAMES[row["way"]], "damage": "1 in a million" if row["damaged"] else "clean", "rate": _rate(row)}
        | {"shuffled_mb": None if row["shuffled"] is None else row["shuffled"] / 1e6}
        for row in rows
    ]
    columns = "way damage records cpu rate seconds peak_mib shuffled_mb found start_cpu"
    judged = [
        (what, number(size), f"{measured:.2f}", f"{sign} {limit}", "met" if met(measured, sign, limit) else "not met")
        for what, size, measured, sign, limit in _judged(rows, starts)
    ]
    where = f"{machine['cores']} cores shared with both brokers, 1g of heap, {machine['cpu']}"
    return (
        "# What an audit costs\n\nWritten by `python -m bench.audit`; see [README.md](README.md).\n\n"
        f"{where}; load average before: {machine['load_before']}.\n\n{table(costs, columns, 2)}\n"
        + markdown(("target", "records a side", "measured", "limit", "verdict"), judged)
    )


def _rate(row: Row) -> float:
    """Records of one side per second and core."""
    return float(row["records"] / row["cpu"]) if row["cpu"] else 0.0


def _judged(rows: Sequence[Row], starts: Sequence[Row]) -> Iterator[tuple[str, int, float, str, float]]:
    """What, records a side, measured, and the limit: for each size, for the two largest, for the whole command."""
    sizes = sorted({row["records"] for row in rows})
    for size in sizes:
        cpu = {(row["way"], row["damaged"]): row["cpu"] for row in rows if row["records"] == size}
        for name, above, below, sign, limit in _TARGETS:
            if above in cpu and cpu.get(below):
                yield name, size, cpu[above] / cpu[below], sign, limit
    for way in ("batches", "full"):
        clean = {row["records"]: row for row in rows if row["way"] == way and not row["damaged"]}
        if len(sizes) > 1 and set(sizes[-2:]) <= clean.keys():
            small, large = (clean[size] for size in sizes[-2:])
            yield (
                f"{_NAMES[way]}: CPU a record, clean, over that at the size before",
                sizes[-1],
                _rate(small) / _rate(large),
                "≤",
                _LINEAR,
            )
            yield (
                f"{_NAMES[way]}: peak RSS over that at the size before",
                sizes[-1],
                large["peak_mib"] / small["peak_mib"],
                "≤",
                _LINEAR,
            )
    for each in starts:
        kind = "damaged" if each["damaged"] else "clean"
        name = f"drkit audit, {kind}: seconds from the command to its end (slowest {each['slowest']:.1f})"
        yield name, each["records"], each["seconds"], "≤", _START_SECONDS


if __name__ == "__main__":
    app()

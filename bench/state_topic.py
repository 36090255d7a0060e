"""What the copy of a link's state costs the mirror, `python -m bench.state_topic`: many mapping rows, with and without.

Each record of the source stands behind a transaction marker, so with `offsets = "translate"` each needs a mapping row:
more rows than any real topic makes. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from bench.clusters import ROOT, Clusters, spawn
from bench.peers.base import Job
from bench.peers.drkit import CONFIG, render
from bench.progress import Screen
from drkit.cli.main import main as drkit
from drkit.lab.toolchain import ensure
from drkit.mirror.runtime import mirror_runtime
from drkit.model.topology import LinkId
from drkit.state_topic.records import state_topic_prefix
from drkit.store import open_store
from drkit.store.api import Store

_TOPIC = "bench-rows"
_WAYS = ("with", "without")
_WITHOUT = "--without-copy"


class Run(NamedTuple):
    """Seconds from launch to end, and CPU-seconds, of a mirror; how many rows it wrote."""

    seconds: float
    cpu_seconds: float
    rows: int


class NoCopy:
    """In the place of `StateRecording`: the store alone."""

    def __init__(self, _config: object, store: Store, *_: object) -> None:
        self.store = store

    def close(self) -> None:
        """Nothing to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    options = _options(arguments)
    screen = Screen()
    runs: dict[str, list[tuple[Run, Run]]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory(prefix="drkit-state-", dir=options.work) as folder:
        clusters = Clusters(Path(folder), ensure("kafka"), screen.say)
        with clusters:
            clusters.source.create_topic(_TOPIC, options.partitions)
            screen.say(f"writing {options.transactions:,} transactions")
            _load(clusters.source.address, options.partitions, options.transactions)
            for repeat in range(options.repeat):
                for way in _WAYS if repeat % 2 == 0 else _WAYS[::-1]:
                    screen.say(f"{repeat + 1} of {options.repeat}: {way} the copy")
                    runs[way].append(_measured(clusters, Path(folder), way, options.offsets))
    _print(runs)
    return 0


def _load(address: str, partitions: int, transactions: int) -> None:
    """One record and one marker for each partition and transaction."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(transactions):
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(_TOPIC, str(number).zfill(100).encode(), partition=partition)
        producer.commit_transaction(30)


def _measured(clusters: Clusters, work: Path, way: str, offsets: str) -> tuple[Run, Run]:
    """A mirror of all of it onto an empty target, and one that finds nothing to do: what the start alone costs."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        job = Job(folder, clusters.source, clusters.target, _TOPIC, "none")
        (folder / CONFIG).write_text(render(job, lines=(f'offsets = "{offsets}"',)), encoding="utf-8")
        try:
            return _mirror(folder, way), _mirror(folder, way)
        finally:
            _clean(clusters)


def _mirror(folder: Path, way: str) -> Run:
    words = ["mirror", "--until-caught-up", "--config", str(folder / CONFIG)]
    start = ["-m", "drkit"] if way == "with" else ["-m", "bench.state_topic", _WITHOUT]
    before, began = os.times(), time.monotonic()
    child = spawn([sys.executable, *start, *words], folder / "mirror.log", cwd=ROOT)
    code = child.wait()
    seconds, after = time.monotonic() - began, os.times()
    if code != 0:
        raise RuntimeError((folder / "mirror.log").read_text(errors="replace")[-2000:])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    store = open_store(f"sqlite:///{folder}/drkit.db", create=False)
    try:
        link = LinkId("primary", "dr")
        rows = sum(len(store.mappings(link, tp, mark.epoch)) for tp, mark in store.watermarks(link).items())
    finally:
        store.close()
    return Run(seconds, cpu, rows)


def _clean(clusters: Clusters) -> None:
    """Delete what a mirror made on the target, the copy too."""
    clusters.target.delete_topics()
    prefix = state_topic_prefix(LinkId("primary", "dr"))
    with clusters.target.admin() as admin:
        admin.delete_topics([name for name in admin.topics() if name.startswith(prefix)])


def _print(runs: dict[str, list[tuple[Run, Run]]]) -> None:
    rows = {run.rows for each in runs.values() for run, _ in each}
    print(f"{', '.join(f'{count:,}' for count in sorted(rows))} mapping rows; medians, the start taken off\n")
    print("| copy | s | CPU-s | start: s | start: CPU-s |\n| --- | ---: | ---: | ---: | ---: |")
    net: dict[str, tuple[float, float]] = {}
    for way, each in runs.items():
        seconds = statistics.median(run.seconds - start.seconds for run, start in each)
        cpu = statistics.median(run.cpu_seconds - start.cpu_seconds for run, start in each)
        starts = [statistics.median(values) for values in zip(*(start[:2] for _, start in each), strict=True)]
        net[way] = (seconds, cpu)
        print(f"| {way} | {seconds:.2f} | {cpu:.2f} | {starts[0]:.2f} | {starts[1]:.2f} |")
    ratios = [one / other for one, other in zip(net["with"], net["without"], strict=True)]
    print(f"\nWith the copy, in parts of without: {ratios[0]:.2f} of the time, {ratios[1]:.2f} of the CPU")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.state_topic", description=__doc__)
    parser.add_argument("--transactions", type=int, default=3_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--offsets", choices=("translate", "preserve"), default="translate")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--work", type=Path, help="where to put files while it runs")
    return parser.parse_args(arguments)


def _without_copy(words: Sequence[str]) -> None:
    """Be `drkit` without the copy."""
    mirror_runtime.StateRecording = NoCopy  # type: ignore[misc, assignment]
    sys.argv = ["drkit", *words]
    drkit()


if __name__ == "__main__":
    if sys.argv[1:2] == [_WITHOUT]:
        _without_copy(sys.argv[2:])
    else:
        raise SystemExit(main())

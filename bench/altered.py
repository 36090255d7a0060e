"""Links that alter records, `python -m bench.altered`: a backlog through a filter, a transform, provenance, all.

The same backlog goes through a link that alters nothing first, for comparison. Prints a table in Markdown, and JSON to
`--out`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.backlog import Backlog
from bench.cases import BacklogCase
from bench.clusters import Clusters
from bench.peers.drkit import Drkit
from bench.progress import Screen
from bench.results import BacklogRun
from drkit.lab.toolchain import ensure
from drkit.model.record import Record

_RULES = "bench.altered"
_FILTER = f'filter = "{_RULES}:keeps"'
_TRANSFORM = f'transform = "{_RULES}:marks_up"'
_PROVENANCE = "provenance = true"
LINKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("unaltered", ()),
    ("filter", (_FILTER,)),
    ("transform", (_TRANSFORM,)),
    ("provenance", (_PROVENANCE,)),
    ("all three", (_FILTER, _TRANSFORM, _PROVENANCE)),
)


def keeps(record: Record) -> bool:
    """Looks at every record and keeps it: what is left out costs nothing afterwards."""
    return not (record.key or b"").startswith(b"test-")


def marks_up(record: Record) -> Record:
    """Another value and one more header for every record."""
    return record.replace(value=(record.value or b"").upper(), headers=(*record.headers, ("by", b"bench")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    options = _options(arguments)
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    case = BacklogCase("altered", options.batch, options.size, "lz4", options.partitions, 0, 0)
    screen = Screen()
    rows: list[tuple[str, BacklogRun]] = []
    with tempfile.TemporaryDirectory(prefix="drkit-altered-", dir=options.work) as folder:
        clusters = Clusters(Path(folder), ensure("kafka"), screen.say)
        with clusters:
            backlog = Backlog(clusters, Path(folder), screen)
            backlog.load(case, options.records)
            for repeat in range(options.repeat):
                for name, lines in LINKS:
                    if options.only and name not in options.only:
                        continue
                    run = backlog.run(case, options.records, Drkit("drkit", f"drkit, {name}", lines=lines), repeat)
                    rows.append((name, run))
    print(f"{case.description}, {options.records:,} records\n")
    print("| link | records/s | CPU-s per million | peak MiB | complete |\n| --- | ---: | ---: | ---: | --- |")
    for name, run in rows:
        rate = "-" if run.records_per_second is None else f"{run.records_per_second:,.0f}"
        cpu = "-" if run.cpu_seconds_per_million is None else f"{run.cpu_seconds_per_million:.2f}"
        print(f"| {name} | {rate} | {cpu} | {run.peak_rss_mib} | {'yes' if run.complete else 'no'} |")
    if options.out:
        options.out.write_text(json.dumps([{"link": name, **asdict(run)} for name, run in rows], indent=1))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.altered", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record")
    parser.add_argument("--batch", type=int, default=150, help="records a batch of the source")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[name for name, _ in LINKS], help="measure this one (again)")
    parser.add_argument("--work", type=Path, help="where to put files while it runs")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())

"""The results of a run, and their tables as Markdown. A row is what one measurement found, as JSON.

Rows that differ only in `repeat` are shown as one: the median of each figure. What isn't known is null, and a dash.
"""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from drkit.lab.toolchain import Toolchain

Row = dict[str, Any]
Results = dict[str, Any]
"""`machine`, `extent` (full or quick), `failures`, and a list of rows for each kind of measurement."""

TIMES = "×"  # noqa: RUF001 - the sign of a multiple
DRKIT, OTHER, BARE, DIRECT = "drkit", "mirrormaker", "bare", "direct"
"""Names of mirrors in rows; `direct`: no mirror, the source itself is read."""

TITLES = {DRKIT: "drkit", OTHER: "MirrorMaker 2", BARE: "a bare forwarder", DIRECT: "the source, directly"}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The percentile `share` (0 to 1) of an ascending sequence (nearest rank).

    Raises:
        ValueError: nothing was measured.
    """
    if not ordered:
        raise ValueError("a percentile of nothing")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def medians(rows: Iterable[Row]) -> list[Row]:
    """One row for all that differ only in figures and `repeat`: the median of each figure that is known."""
    grouped: dict[object, list[Row]] = {}
    for row in rows:
        key = tuple(value for value in row.values() if isinstance(value, str)) if "repeat" in row else id(row)
        grouped.setdefault(key, []).append(row)
    return [{name: _median([each[name] for each in group]) for name in group[0]} for group in grouped.values()]


def _median(values: list[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float)]
    return statistics.median(numbers) if numbers else values[0]


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table of texts, whose first `left` columns are left-aligned."""
    rule = ["---" if number < left else "---:" for number in range(len(columns))]
    lines = ([cell.replace("|", "\\|") for cell in cells] for cells in (columns, rule, *rows))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def number(value: Any) -> str:
    """A readable figure, with three significant digits if it isn't a whole number; texts stay as they are."""
    if value is None:
        return "-"
    if isinstance(value, str | int):
        return value if isinstance(value, str) else f"{value:,}"
    digits = next((count for limit, count in ((100, 0), (10, 1), (1, 2)) if abs(value) >= limit), 3)
    return f"{value:,.{digits}f}"


def table(rows: Sequence[Row], columns: str, left: int = 1) -> str:
    """The rows as they are. `columns`: their keys, which are the titles, too."""
    keys = columns.split()
    return markdown(
        [key.replace("_", " ") for key in keys], ([number(row.get(key)) for key in keys] for row in rows), left
    )


# --- the report of `python -m bench` --------------------------------------------------------------------------

TABLES = {
    "backlog": (
        "Backlog, from the first to the last record on the target",
        """case mirror records_per_second mb_per_second cpu_seconds_per_million speed saved mirrored_records
        launch_seconds launch_cpu_seconds peak_rss_mib rss_first_half_mib rss_second_half_mib mapping_bytes""",
    ),
    "live": (
        "Live, end to end; what is read is the target of",
        "case mirror records_per_second p50_ms p99_ms max_ms cpu_share peak_rss_mib",
    ),
    "translate": (
        "Translated positions, records",
        "mirror kind commits answered exact reread_sum reread_max skipped_sum skipped_max",
    ),
    "lookup": ("Mapping lookups (Cassandra)", "rows lookups p50_ms p99_ms load_seconds"),
    "moves": ("Moving groups to a moment", "tool groups partitions seconds cpu_seconds"),
    "sites": (
        "A site's failover, all sources dead, by stage (of the slowest link)",
        """way links groups partitions seconds rto_seconds cpu_seconds
        fence drain translate commit switch verify close""",
    ),
    "large_links": (
        "A large link; seconds of commands beside it at rest",
        """partitions topics created first moving again_first again_moving idle_share peak_rss_mib
        status doctor plan page""",
    ),
    "outages": (
        "A backlog after an outage: a producer's latencies on the target, alone and beside it",
        "policy partitions records alone_p50_ms alone_p99_ms p50_ms p99_ms max_ms seconds records_per_second",
    ),
}
"""By kind: title and columns. README.md says what each is."""

_CLASSES = {"large": ("1,000 a batch", 5, 15), "middling": ("150 a batch", 2.5, 8), "single": ("1 a batch", 4, 8)}
"""By case: the least speed in MirrorMaker 2's, and the least share of its CPU saved."""

_Judged = tuple[str, float | None, str, float]
"""A target: what, measured, `≥` or `≤`, and the limit."""


def targets(results: Results) -> list[_Judged]:
    """Every target with its measurement; None: it was not measured."""

    def of(kind: str, key: str, **where: object) -> float | None:
        rows = [row for row in shown(results, kind) if all(row[name] == value for name, value in where.items())]
        found: float | None = rows[0].get(key) if rows else None
        return found

    def compared(kind: str, key: str, one: str, other: str, by: str = "peer", **where: object) -> float | None:
        above, below = of(kind, key, **{by: one}, **where), of(kind, key, **{by: other}, **where)
        return above / below if above is not None and below else None

    judged: list[_Judged] = []
    for case, (name, faster, cheaper) in _CLASSES.items():
        judged.append((f"{name}: records/s of MirrorMaker 2's", of("backlog", "speed", case=case), "≥", faster))
        judged.append((f"{name}: its CPU per record of drkit's", of("backlog", "saved", case=case), "≥", cheaper))
    started = [of("backlog", "launch_seconds", case=case, peer=DRKIT) for case in _CLASSES]
    slowest = max((each for each in started if each is not None), default=None)
    judged.append(("from launch to the first record, the slowest of these cases, s", slowest, "≤", 1.5))
    for case, key, limit in (("live", "p99_ms", 0.5), ("live-1kb-1p", "p50_ms", 1.0)):
        name = f"{case}: {key.partition('_')[0]}"
        judged.append((f"{name} of MirrorMaker 2's", compared("live", key, DRKIT, OTHER, case=case), "≤", limit))
        p99 = compared("live", "p99_ms", DRKIT, BARE, case=case)
        judged.append((f"{case}: p99 of a bare forwarder's", p99, "≤", 1.6))
        cpu = compared("live", "cpu_share", DRKIT, OTHER, case=case)
        judged.append((f"{case}: CPU of MirrorMaker 2's", cpu, "≤", 0.25))
    wide = [of("backlog", "peak_rss_mib", case=case, peer=DRKIT) for case in ("large-100p", "middling-100p")]
    most = max((each for each in wide if each is not None), default=None)
    judged.append(("memory with 100 partitions, more than one record a batch, MiB", most, "≤", 200))
    early, late = (of("backlog", f"rss_{half}_half_mib", case="large", peer=DRKIT) for half in ("first", "second"))
    growth = late / early if early and late else None
    judged.append(("memory, second half of the longest backlog against the first", growth, "≤", 1.1))
    positions = [row["commits"] - row["exact"] for row in results.get("translate", ()) if row["peer"] == DRKIT]
    judged.append(("translated positions that aren't exact", sum(positions) if positions else None, "≤", 0))
    mapping, records = (of("backlog", key, case="large", peer=DRKIT) for key in ("mapping_bytes", "mirrored_records"))
    each_million = None if mapping is None or not records else mapping / records * 1e6
    judged.append(("mapping rows of a topic without holes, bytes per million records", each_million, "≤", 1024))
    lookups = sorted(results.get("lookup", ()), key=lambda row: int(row["rows"]))
    for key in ("p50_ms", "p99_ms"):
        factor = lookups[-1][key] / lookups[0][key] if len(lookups) > 1 else None
        judged.append((f"lookup {key.partition('_')[0]} with the most rows against the fewest", factor, "≤", 1.5))
    moved = compared("moves", "seconds", "kafka-consumer-groups", DRKIT, by="tool")
    judged.append(("moving all groups: time of Kafka's own tool of drkit's", moved, "≥", 4))
    judged += [
        (f"10,000 partitions: {title}", of("large_links", key), "≤", limit)
        for title, key, limit in (
            ("launch to the first record, s", "first", 5),
            ("launch to all moving, s", "moving", 15),
            ("launched again, to the first record, s", "again_first", 5),
            ("launched again, to all moving, s", "again_moving", 15),
            ("at rest, of a core", "idle_share", 0.05),
            ("memory, MiB", "peak_rss_mib", 200),
            *((f"{command}, s", command, 3) for command in ("status", "doctor", "plan", "page")),
        )
    ]
    for case, limit in (("site-30", 3), ("site", 5), ("site-5000", 30)):
        for way in ("killed", "frozen", "silent"):
            runs = [row["seconds"] for row in results.get("sites", ()) if (row["case"], row["way"]) == (case, way)]
            name = f"{case} whose sources are {way}: launch to end of its failover, the slowest, s"
            judged.append((name, max(runs, default=None), "≤", limit))
    felt = [row for row in results.get("outages", ()) if row["policy"] == "adaptive"]
    worst = max((row["p99_ms"] for row in felt), default=None)
    judged.append(("a producer on the target while a backlog is copied: p99, ms", worst, "≤", 10))
    worst = max((row["p99_ms"] / row["alone_p99_ms"] for row in felt), default=None)
    judged.append(("the same, of its p99 undisturbed", worst, "≤", 2))
    return judged


def shown(results: Results, kind: str) -> list[Row]:
    """The rows of a kind as its table shows them."""
    rows = medians(results.get(kind, ()))
    cases, peers = list(dict.fromkeys(row.get("case") for row in rows)), [DIRECT, BARE, DRKIT, OTHER, None]
    rows.sort(key=lambda row: (cases.index(row.get("case")), peers.index(row.get("peer"))))
    for row in rows if kind == "backlog" else ():
        other = next((each for each in rows if (each["case"], each["peer"]) == (row["case"], OTHER)), None)
        if row["peer"] == DRKIT and other and row["records_per_second"] and other["records_per_second"]:
            row["speed"] = row["records_per_second"] / other["records_per_second"]
            row["saved"] = other["cpu_seconds_per_million"] / row["cpu_seconds_per_million"]
    if kind == "sites":  # each run counts: the slowest of them is judged
        rows = [{**row, **row["stages"]} for row in results.get(kind, ())]
    return rows


def render(results: Results, cases: dict[str, str]) -> str:
    """RESULTS.md. `cases`: what each is, by name."""
    parts = [
        f"# drkit and MirrorMaker 2, side by side: a {results['extent']} run\n",
        "Written by `python -m bench`; what each figure means, and what it doesn't, is in [README.md](README.md).\n",
        "## The machine\n\n" + markdown(("", ""), [(key, str(each)) for key, each in results["machine"].items()], 2),
        "Both brokers, the mirror, the loader and the readers share these cores.\n",
        "## Targets\n\n" + markdown(("target", "measured", "limit", "verdict"), map(_judged, targets(results))),
    ]
    for kind, (title, columns) in TABLES.items():
        rows = [row | {"mirror": TITLES.get(row.get("peer", ""))} | _case(row, cases) for row in shown(results, kind)]
        if rows:
            parts.append(f"## {title}\n\n{table(rows, columns, 2 if 'mirror' in columns else 1)}")
    if results["failures"]:
        parts.append("## Not measured\n\n" + "".join(f"- {each.splitlines()[0]}\n" for each in results["failures"]))
    return "\n".join(parts)


def _case(row: Row, cases: dict[str, str]) -> Row:
    name = str(row.get("case"))
    return {"case": f"{name}: {cases[name]}" if name in cases else name}


def _judged(judged: _Judged) -> tuple[str, ...]:
    what, measured, sign, limit = judged
    if measured is None:
        return what, "-", f"{sign} {limit:g}", "not measured"
    verdict = "met" if met(measured, sign, limit) else "not met"
    return what, number(measured), f"{sign} {limit:g}", verdict


def met(measured: float, sign: str, limit: float) -> bool:
    """Whether a target is met. `sign`: `≥` or `≤`."""
    return measured >= limit if sign == "≥" else measured <= limit


# --- the machine --------------------------------------------------------------------------------------------------


def machine(toolchain: Toolchain) -> dict[str, str | int | float]:
    """The machine and the versions of a run, without the machine's name. The toolchain has Kafka and Cassandra."""
    said = subprocess.run([str(toolchain.java), "-version"], capture_output=True, text=True, check=True).stderr
    java = re.search(r'"([^"]+)"', said)
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "java": java[1] if java else said.splitlines()[0],
        "kafka": _jar_version(toolchain, "kafka", "kafka_2.13"),
        "cassandra": _jar_version(toolchain, "cassandra", "cassandra-all"),
        "drkit": version("drkit"),
        "aiokafka": version("aiokafka"),
        "confluent_kafka": version("confluent-kafka"),
        "load_before": round(psutil.getloadavg()[0], 2),
    }


def _jar_version(toolchain: Toolchain, name: str, artifact: str) -> str:
    jar = next(path for path in toolchain.jars(name) if path.name.startswith(f"{artifact}-"))
    return jar.stem.removeprefix(f"{artifact}-")

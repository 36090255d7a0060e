"""The targets, and whether the measurements meet them. Pure.

A target without a measurement is `not measured`, never met. A measurement on less than the target specifies (such as a
quick run's backlog) is judged nevertheless, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bench.cases import BACKLOG, FULL, LIVE, LONGEST, LOOKUP_BASE_ROWS, SITE_WAYS, SITES, TIMES, BacklogCase
from bench.mirrors import BARE, DIRECT, DRKIT, OTHER
from bench.results import Results
from bench.stats import median, ratio

Verdict = Literal["met", "not met", "not measured"]
MOVE_OTHER = "kafka-consumer-groups"
TIMED_COMMANDS = ("status", "doctor", "plan", "page")
_LARGE_LINK_PARTITIONS = 10_000

SPEED = {1000: (5.0, 15.0), 150: (2.5, 8.0), 1: (4.0, 8.0)}
"""By records per batch: the least factor of MirrorMaker 2's records/s, and the least divisor of its CPU."""

_BACKLOG_RECORDS = 10_000_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """A target. `at_least`: whether `limit` is a lower bound (else an upper one). `measured` None: not measured."""

    target: str
    measured: float | None
    limit: float
    unit: str
    at_least: bool = False
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether it is met."""
        if self.measured is None:
            return "not measured"
        met = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return "met" if met else "not met"


def judge(results: Results) -> list[Judgement]:
    """Every target, in the order of the table."""
    groups = (_backlogs, _live, _memory, _positions, _lookups, _moves, _large_links, _sites, _outages)
    return [each for group in groups for each in group(results)]


def rate_ratio(results: Results, case: str) -> float | None:
    """The ratio of drkit's records/s to MirrorMaker 2's."""
    return _of(results, "backlog", "records_per_second", DRKIT, OTHER, case)


def cpu_ratio(results: Results, case: str) -> float | None:
    """The ratio of MirrorMaker 2's CPU per record to drkit's."""
    return _of(results, "backlog", "cpu_seconds_per_million", OTHER, DRKIT, case)


def mapping_bytes_per_million(results: Results) -> float | None:
    """Bytes of mapping rows per million records, on the longest backlog (a topic without holes)."""
    records = _longest(results, "mirrored_records")
    return ratio(_longest(results, "mapping_bytes"), None if records is None else records / 1e6)


# --- the groups of targets ----------------------------------------------------------------------


def _backlogs(results: Results) -> Iterator[Judgement]:
    named = [case for case in BACKLOG if case.named]
    for case in named:
        batch, note = f"{case.records_a_batch:,} a batch", _backlog_note(results, case)
        faster, cheaper = SPEED[case.records_a_batch]
        speed, cpu = rate_ratio(results, case.name), cpu_ratio(results, case.name)
        yield Judgement(f"{batch}: records/s of MirrorMaker 2's", speed, faster, TIMES, True, note)
        yield Judgement(f"{batch}: its CPU per record of drkit's", cpu, cheaper, TIMES, True, note)
    launch = "from launch to the first record, the slowest of the named cases"
    yield Judgement(launch, _highest(results, "launch_seconds", named), 1.5, "s")


def _live(results: Results) -> Iterator[Judgement]:
    def times(measure: str, one: str, other: str, case: str) -> float | None:
        return _of(results, "live", measure, one, other, case)

    steady, alone = LIVE
    name = f"live at {steady.records_per_second:,}/s"
    least = times("p99_ms", DIRECT, OTHER, steady.name)
    note = "" if least is None else f"of a reader of the source itself: {least:.2f} {TIMES}"
    p99 = times("p99_ms", DRKIT, OTHER, steady.name)
    yield Judgement(f"{name}: p99 of MirrorMaker 2's", p99, 0.5, TIMES, note=note)
    yield Judgement(f"{name}: p99 of a bare forwarder's", times("p99_ms", DRKIT, BARE, steady.name), 1.6, TIMES)
    yield Judgement(f"{name}: CPU of MirrorMaker 2's", times("cpu_share", DRKIT, OTHER, steady.name), 0.25, TIMES)
    name = f"live on 1 partition, {alone.records_per_second:,}/s"  # every record waits for the previous one
    yield Judgement(f"{name}: p50 of MirrorMaker 2's", times("p50_ms", DRKIT, OTHER, alone.name), 1, TIMES)
    yield Judgement(f"{name}: p99 of a bare forwarder's", times("p99_ms", DRKIT, BARE, alone.name), 1.6, TIMES)
    yield Judgement(f"{name}: CPU of MirrorMaker 2's", times("cpu_share", DRKIT, OTHER, alone.name), 0.25, TIMES)


def _memory(results: Results) -> Iterator[Judgement]:
    """Memory is judged without backlogs of single records, which also load Numba and LLVM."""
    wide = [case for case in BACKLOG if case.partitions == 100]  # noqa: PLR2004 - the target's number
    batched = _highest(results, "peak_rss_mib", [case for case in wide if case.records_a_batch > 1])
    compiled = _highest(results, "peak_rss_mib", [case for case in wide if case.records_a_batch == 1])
    note = "" if compiled is None else f"with one record a batch, and Numba loaded for it: {compiled:.0f} MiB"
    yield Judgement("memory with 100 partitions", batched, 200, "MiB", note=note)
    growth = ratio(_longest(results, "rss_second_half_mib"), _longest(results, "rss_first_half_mib"))
    name = "memory, second half of the longest backlog against the first"
    yield Judgement(name, growth, 1.1, TIMES, note=_backlog_note(results, LONGEST))


def _positions(results: Results) -> Iterator[Judgement]:
    runs = results.rows("translate", peer=DRKIT)
    inexact = sum(run.commits - run.exact for run in runs) if runs else None
    commits = sum(run.commits for run in runs)
    few = f"; the target speaks of {FULL.commits:,}" if commits < FULL.commits else ""
    note = f"of {commits:,} commits{few}" if commits else ""
    yield Judgement("translated positions that aren't exact", inexact, 0, "", note=note)
    name = "mapping rows of a topic without holes, bytes per million records"
    yield Judgement(name, mapping_bytes_per_million(results), 1024, "B", note=_backlog_note(results, LONGEST))


def _lookups(results: Results) -> Iterator[Judgement]:
    by_rows = {run.rows: run for run in results.lookup}
    small, large = by_rows.get(LOOKUP_BASE_ROWS), by_rows.get(max(by_rows, default=0))
    both = small is not None and large is not None and small is not large
    few = both and large is not None and large.rows < FULL.lookup_rows
    note = f"{large.rows:,} rows; the target speaks of {FULL.lookup_rows:,}" if large and few else ""
    for name in ("p50", "p99"):
        growth = ratio(getattr(large, f"{name}_ms"), getattr(small, f"{name}_ms")) if both else None
        target = f"lookup {name} at {FULL.lookup_rows:,} rows against {LOOKUP_BASE_ROWS:,}"
        yield Judgement(target, growth, 1.5, TIMES, note=note)


def _moves(results: Results) -> Iterator[Judgement]:
    speed = ratio(*(results.typical("moves", "seconds", tool=tool) for tool in (MOVE_OTHER, DRKIT)))
    run = next(iter(results.moves), None)
    note = _few_groups(run.groups, run.partitions, FULL.move_groups, FULL.move_partitions) if run else ""
    yield Judgement("moving all groups: time of Kafka's own tool of drkit's", speed, 4, TIMES, True, note)


def _large_links(results: Results) -> Iterator[Judgement]:
    runs, name = results.large_links, f"{_LARGE_LINK_PARTITIONS:,} partitions"
    few = f"{runs[0].partitions:,} partitions" if runs and runs[0].partitions < _LARGE_LINK_PARTITIONS else ""
    created = f"a bare client made as many in {results.typical('large_links', 'created'):.1f} s" if runs else ""
    for title, measure, limit, unit in (
        ("launch to the first record", "first", 5.0, "s"),
        ("launch to all moving", "moving", 15.0, "s"),
        ("launched again, to the first record", "again_first", 5.0, "s"),
        ("launched again, to all moving", "again_moving", 15.0, "s"),
        ("a mirror at rest, of a core", "idle_share", 0.05, ""),
        ("memory", "peak_rss_mib", 200.0, "MiB"),
    ):
        note = _joined(few, created if measure == "moving" else "")
        yield Judgement(f"{name}: {title}", results.typical("large_links", measure), limit, unit, note=note)
    for command in TIMED_COMMANDS:
        seconds = median(run.commands[command] for run in runs)
        yield Judgement(f"{name}: {command}", seconds, 3, "s", note=few)


def _sites(results: Results) -> Iterator[Judgement]:
    for case in SITES:
        for way in SITE_WAYS:
            runs = results.rows("sites", case=case.name, way=way)
            name = f"a site of {case.description} whose sources are {way}: launch to end of its failover"
            few = _few_groups(runs[0].groups, runs[0].partitions, case.groups, case.partitions) if runs else ""
            note = _joined(f"the slowest of {len(runs)}", few) if runs else ""
            slowest = max((run.seconds for run in runs), default=None)
            yield Judgement(name, slowest, case.limit_seconds, "s", note=note)


def _outages(results: Results) -> Iterator[Judgement]:
    runs, wanted = results.rows("outages", policy="adaptive"), FULL.outage_partitions
    few = bool(runs) and runs[0].partitions < wanted
    fewer = f"{runs[0].partitions:,} partitions; the target speaks of {wanted:,}" if few else ""
    note = _joined(f"the worst of {len(runs)}", fewer) if runs else ""
    name = "a producer on the target while a backlog is copied: p99"
    yield Judgement(name, max((run.p99_ms for run in runs), default=None), 10, "ms", note=note)
    growth = max((run.p99_ms / run.alone_p99_ms for run in runs), default=None)
    yield Judgement(f"{name} of its undisturbed", growth, 2, TIMES, note=note)


# --- figures and notes --------------------------------------------------------------------------


def _of(results: Results, kind: str, measure: str, one: str, other: str, case: str) -> float | None:
    """The ratio of one mirror's figure to another's."""
    return ratio(*(results.typical(kind, measure, case=case, peer=peer) for peer in (one, other)))


def _longest(results: Results, measure: str) -> float | None:
    return results.typical("backlog", measure, case=LONGEST.name, peer=DRKIT)


def _highest(results: Results, measure: str, cases: list[BacklogCase]) -> float | None:
    """The highest of drkit's medians over these cases."""
    values = [results.typical("backlog", measure, case=case.name, peer=DRKIT) for case in cases]
    return max((value for value in values if value is not None), default=None)


def _backlog_note(results: Results, case: BacklogCase) -> str:
    runs = results.rows("backlog", case=case.name)
    records = next((run.records for run in runs if run.peer == DRKIT), None)
    if records is None:
        return ""
    few = f"{records:,} records; the target speaks of {_BACKLOG_RECORDS:,}" if records < _BACKLOG_RECORDS else ""
    return _joined(few, "" if all(run.complete for run in runs) else "time ran out in a run")


def _few_groups(groups: int, partitions: int, wanted_groups: int, wanted_partitions: int) -> str:
    what = f"{groups:,} groups of {partitions} partitions; the target speaks of {wanted_groups:,} of"
    return f"{what} {wanted_partitions}" if groups < wanted_groups else ""


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))

"""The issue's targets, and whether the measurements meet them. Pure.

A target whose measurement is missing is `not measured`, never met. One that was measured on less than the
target speaks of (a quick run's backlog, say) is judged all the same, and its note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.cases import (
    BACKLOG,
    FULL,
    LIVE,
    LONGEST,
    LOOKUP_BASE_ROWS,
    SITE_WAYS,
    SITES,
    BacklogCase,
    LiveCase,
)
from bench.live import DIRECT
from bench.peers.bare import BARE
from bench.results import Results
from bench.stats import TIMES, median, ratio

Verdict = Literal["met", "not met", "not measured"]
DRKIT, OTHER = "drkit", "mirrormaker"
MOVE_OTHER = "kafka-consumer-groups"

SPEED = {1000: (5.0, 15.0), 150: (2.5, 8.0), 1: (4.0, 8.0)}
"""By records a batch: at least so many times MirrorMaker 2's records/s, at most one so-manieth of its CPU."""

BACKLOG_RECORDS = 10_000_000
LAUNCH_SECONDS = 1.5
LIVE_P99_OF_OTHER = 0.5
LIVE_P99_OF_BARE = 1.6
LIVE_CPU_OF_OTHER = 0.25
MEMORY_MIB = {100: 200.0}
"""By partitions, of mirrors that meet no backlog of small batches: with one, Numba and LLVM are loaded, too."""
FLAT_GROWTH = 1.1  # highest memory of the second half of a long backlog against the first half's
MAPPING_BYTES_PER_MILLION = 1024.0
LOOKUP_GROWTH = 1.5
MOVE_SPEED = 4.0
OUTAGE_P99_MS = 10.0
OUTAGE_P99_OF_ALONE = 2.0
FIRST_SECONDS = 5.0
MOVING_SECONDS = 15.0
IDLE_SHARE = 0.05
LARGE_LINK_MIB = 200.0
LOOK_SECONDS = 3.0
LOOKS = ("status", "doctor", "plan", "page")
LARGE_LINK_PARTITIONS = 10_000


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
    """Every target of the issue, in its order."""
    return [
        *_speed(results),
        *_launch(results),
        *_live(results),
        *_memory(results),
        *_translate(results),
        *_mapping(results),
        *_lookup(results),
        *_move(results),
        *_large_link(results),
        *_site(results),
        *_outage(results),
    ]


def rate_ratio(results: Results, case: str) -> float | None:
    """How many times MirrorMaker 2's records/s drkit's are."""
    return ratio(*(results.typical(case, peer, "records_per_second") for peer in (DRKIT, OTHER)))


def cpu_ratio(results: Results, case: str) -> float | None:
    """How many times drkit's CPU per record MirrorMaker 2's is."""
    return ratio(*(results.typical(case, peer, "cpu_seconds_per_million") for peer in (OTHER, DRKIT)))


def _speed(results: Results) -> Iterator[Judgement]:
    for case in BACKLOG:
        if case.named:
            faster, cheaper = SPEED[case.records_a_batch]
            batch = f"{case.records_a_batch:,} a batch"
            note = _backlog_note(results, case)
            yield Judgement(
                f"{batch}: records/s of MirrorMaker 2's", rate_ratio(results, case.name), faster, TIMES, True, note
            )
            yield Judgement(
                f"{batch}: its CPU per record of drkit's", cpu_ratio(results, case.name), cheaper, TIMES, True, note
            )


def _backlog_note(results: Results, case: BacklogCase) -> str:
    runs = results.runs_of(case.name, DRKIT)
    if not runs:
        return ""
    few = f"{runs[0].records:,} records; the target speaks of {BACKLOG_RECORDS:,}"
    unfinished = any(not run.complete for peer in (DRKIT, OTHER) for run in results.runs_of(case.name, peer))
    parts = [few if runs[0].records < BACKLOG_RECORDS else "", "time ran out in a run" if unfinished else ""]
    return "; ".join(part for part in parts if part)


def _launch(results: Results) -> Iterator[Judgement]:
    named = [case.name for case in BACKLOG if case.named]
    seconds = [results.typical(name, DRKIT, "launch_seconds") for name in named]
    known = [each for each in seconds if each is not None]
    yield Judgement(
        "from launch to the first record, the slowest of the named cases",
        max(known) if known else None,
        LAUNCH_SECONDS,
        "s",
    )


def _live(results: Results) -> Iterator[Judgement]:
    case: LiveCase = next(each for each in LIVE if each.named)
    ours, others, bare, direct = (
        results.typical_live(case.name, peer, "p99_ms") for peer in (DRKIT, OTHER, BARE, DIRECT)
    )
    share = ratio(
        results.typical_live(case.name, DRKIT, "cpu_share"), results.typical_live(case.name, OTHER, "cpu_share")
    )
    least = ratio(direct, others)
    note = "" if least is None else f"of a reader of the source itself: {least:.2f} {TIMES}"
    rate = f"live at {case.records_per_second:,}/s"
    yield Judgement(f"{rate}: p99 of MirrorMaker 2's", ratio(ours, others), LIVE_P99_OF_OTHER, TIMES, note=note)
    yield Judgement(f"{rate}: p99 of a bare forwarder's", ratio(ours, bare), LIVE_P99_OF_BARE, TIMES)
    yield Judgement(f"{rate}: CPU of MirrorMaker 2's", share, LIVE_CPU_OF_OTHER, TIMES)
    yield from _live_alone(results)


def _live_alone(results: Results) -> Iterator[Judgement]:
    """The stream of one partition: every record waits for the one before it."""
    case = next(each for each in LIVE if each.partitions == 1)

    def parts(other: str, measure: str) -> float | None:
        return ratio(*(results.typical_live(case.name, peer, measure) for peer in (DRKIT, other)))

    what = f"live on 1 partition, {case.records_per_second:,}/s"
    yield Judgement(f"{what}: p50 of MirrorMaker 2's", parts(OTHER, "p50_ms"), 1.0, TIMES)
    yield Judgement(f"{what}: p99 of a bare forwarder's", parts(BARE, "p99_ms"), LIVE_P99_OF_BARE, TIMES)
    yield Judgement(f"{what}: CPU of MirrorMaker 2's", parts(OTHER, "cpu_share"), LIVE_CPU_OF_OTHER, TIMES)


def _memory(results: Results) -> Iterator[Judgement]:
    for partitions, limit in MEMORY_MIB.items():
        cases = [case for case in BACKLOG if case.partitions == partitions]
        small = [case for case in cases if case.records_a_batch == 1]
        known = _peaks(results, [case for case in cases if case not in small])
        compiled = _peaks(results, small)
        note = f"with one record a batch, and Numba loaded for it: {max(compiled):.0f} MiB" if compiled else ""
        yield Judgement(
            f"memory with {partitions:,} partitions", max(known) if known else None, limit, "MiB", note=note
        )
    growth = ratio(
        results.typical(LONGEST.name, DRKIT, "rss_second_half_mib"),
        results.typical(LONGEST.name, DRKIT, "rss_first_half_mib"),
    )
    yield Judgement(
        "memory, second half of the longest backlog against the first",
        growth,
        FLAT_GROWTH,
        TIMES,
        note=_backlog_note(results, LONGEST),
    )


def _peaks(results: Results, cases: Sequence[BacklogCase]) -> list[float]:
    peaks = [results.typical(case.name, DRKIT, "peak_rss_mib") for case in cases]
    return [peak for peak in peaks if peak is not None]


def _translate(results: Results) -> Iterator[Judgement]:
    runs = [run for run in results.translate if run.peer == DRKIT]
    commits = sum(run.commits for run in runs)
    wrong = commits - sum(run.exact for run in runs)
    few = commits < FULL.commits
    note = f"of {commits:,} commits{f'; the target speaks of {FULL.commits:,}' if few else ''}" if runs else ""
    yield Judgement("translated positions that aren't exact", wrong if runs else None, 0, "", note=note)


def mapping_bytes_per_million(results: Results) -> float | None:
    """Bytes of mapping rows per million records, on the longest backlog (a topic without holes)."""
    size = results.typical(LONGEST.name, DRKIT, "mapping_bytes")
    records = results.typical(LONGEST.name, DRKIT, "mirrored_records")
    return ratio(size, None if records is None else records / 1e6)


def _mapping(results: Results) -> Iterator[Judgement]:
    yield Judgement(
        "mapping rows of a topic without holes, bytes per million records",
        mapping_bytes_per_million(results),
        MAPPING_BYTES_PER_MILLION,
        "B",
        note=_backlog_note(results, LONGEST),
    )


def _lookup(results: Results) -> Iterator[Judgement]:
    runs = {run.rows: run for run in results.lookup}
    small, large = runs.get(LOOKUP_BASE_ROWS), runs.get(max(runs, default=0))
    if small is None or large is None or large is small:
        large = small = None
    note = ""
    if large is not None and large.rows < FULL.lookup_rows:
        note = f"{large.rows:,} rows; the target speaks of {FULL.lookup_rows:,}"
    for name, measure in (("p50", "p50_ms"), ("p99", "p99_ms")):
        growth = ratio(getattr(large, measure, None), getattr(small, measure, None))
        rows = f"{large.rows:,}" if large else f"{FULL.lookup_rows:,}"
        yield Judgement(
            f"lookup {name} at {rows} rows against {LOOKUP_BASE_ROWS:,}", growth, LOOKUP_GROWTH, TIMES, note=note
        )


def _move(results: Results) -> Iterator[Judgement]:
    faster = ratio(*(results.typical_move(tool, "seconds") for tool in (MOVE_OTHER, DRKIT)))
    note = ""
    if results.moves and results.moves[0].groups < FULL.move_groups:
        few, full = results.moves[0], FULL
        note = (
            f"{few.groups:,} groups of {few.partitions} partitions; the target speaks of {full.move_groups:,} of "
            f"{full.move_partitions}"
        )
    yield Judgement("moving all groups: time of Kafka's own tool of drkit's", faster, MOVE_SPEED, TIMES, True, note)


def _large_link(results: Results) -> Iterator[Judgement]:
    runs = results.large_links
    many = f"{LARGE_LINK_PARTITIONS:,} partitions"
    few = runs and runs[0].partitions < LARGE_LINK_PARTITIONS
    note = f"{runs[0].partitions:,} partitions" if few else ""
    floor = ""
    if runs:
        floor = f"a bare client made as many in {median(run.created for run in runs):.1f} s"
    for target, values, limit, unit, more in (
        ("launch to the first record", [run.first for run in runs], FIRST_SECONDS, "s", ""),
        ("launch to all moving", [run.moving for run in runs], MOVING_SECONDS, "s", floor),
        ("launched again, to the first record", [run.again_first for run in runs], FIRST_SECONDS, "s", ""),
        ("launched again, to all moving", [run.again_moving for run in runs], MOVING_SECONDS, "s", ""),
        ("a mirror at rest, of a core", [run.idle_share for run in runs], IDLE_SHARE, "", ""),
        ("memory", [run.peak_rss_mib for run in runs], LARGE_LINK_MIB, "MiB", ""),
        *((name, [run.commands[name] for run in runs], LOOK_SECONDS, "s", "") for name in LOOKS),
    ):
        yield Judgement(f"{many}: {target}", median(values), limit, unit, note="; ".join(filter(None, (note, more))))


def _site(results: Results) -> Iterator[Judgement]:
    for case in SITES:
        for way in SITE_WAYS:
            runs = results.sites_of(case.name, way)
            note = f"the slowest of {len(runs)}" if runs else ""
            if runs and runs[0].groups < case.groups:
                note += (
                    f"; {runs[0].groups:,} groups of {runs[0].partitions} partitions; the target speaks of "
                    f"{case.groups:,} of {case.partitions}"
                )
            slowest = max((run.seconds for run in runs), default=None)
            target = f"a site of {case.description} whose sources are {way}: launch to end of its failover"
            yield Judgement(target, slowest, case.limit_seconds, "s", note=note)


def _outage(results: Results) -> Iterator[Judgement]:
    runs = results.outages_of("adaptive")
    note = f"the worst of {len(runs)}" if runs else ""
    if runs and runs[0].partitions < FULL.outage_partitions:
        note += f"; {runs[0].partitions:,} partitions; the target speaks of {FULL.outage_partitions:,}"
    slowest = max((run.p99_ms for run in runs), default=None)
    worse = max((run.p99_ms / run.alone_p99_ms for run in runs), default=None)
    what = "a producer on the target while a backlog is copied: p99"
    yield Judgement(what, slowest, OUTAGE_P99_MS, "ms", note=note)
    yield Judgement(f"{what} of its undisturbed", worse, OUTAGE_P99_OF_ALONE, TIMES, note=note)

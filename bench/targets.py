"""The targets, and whether the measurements meet them. Pure.

A target without a measurement is `not measured`, never met. A measurement on less than the target specifies (such as a
quick run's backlog) is judged nevertheless, with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bench.cases import BACKLOG, FULL, LIVE, LONGEST, LOOKUP_BASE_ROWS, SITE_WAYS, SITES, TIMES, BacklogCase, SiteCase
from bench.mirrors import BARE, DIRECT, DRKIT, OTHER
from bench.results import LookupRun, Results
from bench.stats import median, ratio

Verdict = Literal["met", "not met", "not measured"]
Measure = Callable[[Results], float | None]
Note = Callable[[Results], str]
MOVE_OTHER = "kafka-consumer-groups"
LOOKS = ("status", "doctor", "plan", "page")
LARGE_LINK_PARTITIONS = 10_000

SPEED = {1000: (5.0, 15.0), 150: (2.5, 8.0), 1: (4.0, 8.0)}
"""By records per batch: the least factor of MirrorMaker 2's records/s, and the least divisor of its CPU."""

_BACKLOG_RECORDS = 10_000_000
_NAMED = tuple(case for case in BACKLOG if case.named)
_SMALL = tuple(case for case in BACKLOG if case.partitions == 100 and case.records_a_batch == 1)  # noqa: PLR2004
_BATCHED = tuple(case for case in BACKLOG if case.partitions == 100 and case.records_a_batch > 1)  # noqa: PLR2004
"""The cases that judge memory, without backlogs of small batches: these also load Numba and LLVM."""


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


@dataclass(frozen=True, slots=True)
class Target:
    """A `Judgement` before its measurement."""

    name: str
    limit: float
    unit: str
    measure: Measure
    note: Note = lambda _: ""
    at_least: bool = False


def judge(results: Results) -> list[Judgement]:
    """Every target, in the order of the table."""
    return [
        Judgement(each.name, each.measure(results), each.limit, each.unit, each.at_least, each.note(results))
        for each in TARGETS
    ]


# --- measures -----------------------------------------------------------------------------------


def rate_ratio(results: Results, case: str) -> float | None:
    """The ratio of drkit's records/s to MirrorMaker 2's."""
    return _of("backlog", "records_per_second", DRKIT, OTHER, case)(results)


def cpu_ratio(results: Results, case: str) -> float | None:
    """The ratio of MirrorMaker 2's CPU per record to drkit's."""
    return _of("backlog", "cpu_seconds_per_million", OTHER, DRKIT, case)(results)


def mapping_bytes_per_million(results: Results) -> float | None:
    """Bytes of mapping rows per million records, on the longest backlog (a topic without holes)."""
    size, records = (_longest(results, measure) for measure in ("mapping_bytes", "mirrored_records"))
    return ratio(size, None if records is None else records / 1e6)


def _of(kind: str, measure: str, one: str, other: str, case: str) -> Measure:
    """The ratio of one mirror's figure to another's."""
    return lambda results: ratio(*(results.typical(kind, measure, case=case, peer=peer) for peer in (one, other)))


def _longest(results: Results, measure: str) -> float | None:
    return results.typical("backlog", measure, case=LONGEST.name, peer=DRKIT)


def _highest(measure: str, cases: tuple[BacklogCase, ...]) -> Measure:
    """The highest of drkit's medians over these cases."""

    def highest(results: Results) -> float | None:
        values = [results.typical("backlog", measure, case=case.name, peer=DRKIT) for case in cases]
        return max((value for value in values if value is not None), default=None)

    return highest


def _inexact(results: Results) -> float | None:
    runs = results.rows("translate", peer=DRKIT)
    return sum(run.commits - run.exact for run in runs) if runs else None


def _lookups(results: Results) -> tuple[LookupRun | None, LookupRun | None]:
    """The base size and the largest, if both were measured."""
    by_rows = {run.rows: run for run in results.lookup}
    small, large = by_rows.get(LOOKUP_BASE_ROWS), by_rows.get(max(by_rows, default=0))
    return (None, None) if small is large else (small, large)


def _lookup_growth(results: Results, measure: str) -> float | None:
    small, large = _lookups(results)
    return ratio(getattr(large, measure, None), getattr(small, measure, None))


def _move_speed(results: Results) -> float | None:
    return ratio(*(results.typical("moves", "seconds", tool=tool) for tool in (MOVE_OTHER, DRKIT)))


def _large_link(measure: str) -> Measure:
    return lambda results: results.typical("large_links", measure)


def _command(name: str) -> Measure:
    return lambda results: median(run.commands[name] for run in results.large_links)


def _site(case: SiteCase, way: str) -> Measure:
    return lambda results: max((run.seconds for run in results.rows("sites", case=case.name, way=way)), default=None)


def _outage(results: Results, *, of_alone: bool) -> float | None:
    runs = results.rows("outages", policy="adaptive")
    return max((run.p99_ms / (run.alone_p99_ms if of_alone else 1) for run in runs), default=None)


# --- notes --------------------------------------------------------------------------------------


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _backlog_note(results: Results, case: BacklogCase) -> str:
    ours = results.rows("backlog", case=case.name, peer=DRKIT)
    if not ours:
        return ""
    few = f"{ours[0].records:,} records; the target speaks of {_BACKLOG_RECORDS:,}"
    unfinished = not all(run.complete for run in results.rows("backlog", case=case.name))
    return _joined(few if ours[0].records < _BACKLOG_RECORDS else "", "time ran out in a run" if unfinished else "")


_longest_note: Note = partial(_backlog_note, case=LONGEST)


def _live_note(results: Results) -> str:
    least = _of("live", "p99_ms", DIRECT, OTHER, LIVE[0].name)(results)
    return "" if least is None else f"of a reader of the source itself: {least:.2f} {TIMES}"


def _memory_note(results: Results) -> str:
    compiled = _highest("peak_rss_mib", _SMALL)(results)
    return "" if compiled is None else f"with one record a batch, and Numba loaded for it: {compiled:.0f} MiB"


def _translate_note(results: Results) -> str:
    commits = sum(run.commits for run in results.rows("translate", peer=DRKIT))
    few = f"; the target speaks of {FULL.commits:,}" if commits < FULL.commits else ""
    return f"of {commits:,} commits{few}" if commits else ""


def _lookup_note(results: Results) -> str:
    _, large = _lookups(results)
    few = large is not None and large.rows < FULL.lookup_rows
    return f"{large.rows:,} rows; the target speaks of {FULL.lookup_rows:,}" if large and few else ""


def _fewer_groups(groups: int, partitions: int, wanted_groups: int, wanted_partitions: int) -> str:
    what = f"{groups:,} groups of {partitions} partitions; the target speaks of {wanted_groups:,} of"
    return f"{what} {wanted_partitions}" if groups < wanted_groups else ""


def _move_note(results: Results) -> str:
    first = next(iter(results.moves), None)
    return _fewer_groups(first.groups, first.partitions, FULL.move_groups, FULL.move_partitions) if first else ""


def _large_link_note(results: Results, *, floor: bool = False) -> str:
    if not results.large_links:
        return ""
    few = results.large_links[0].partitions
    made = f"a bare client made as many in {results.typical('large_links', 'created'):.1f} s"
    return _joined(f"{few:,} partitions" if few < LARGE_LINK_PARTITIONS else "", made if floor else "")


def _site_note(results: Results, case: SiteCase, way: str) -> str:
    runs = results.rows("sites", case=case.name, way=way)
    if not runs:
        return ""
    fewer = _fewer_groups(runs[0].groups, runs[0].partitions, case.groups, case.partitions)
    return _joined(f"the slowest of {len(runs)}", fewer)


def _outage_note(results: Results) -> str:
    runs = results.rows("outages", policy="adaptive")
    if not runs:
        return ""
    few = f"{runs[0].partitions:,} partitions; the target speaks of {FULL.outage_partitions:,}"
    return _joined(f"the worst of {len(runs)}", few if runs[0].partitions < FULL.outage_partitions else "")


# --- the table ----------------------------------------------------------------------------------

_LIVE = f"live at {LIVE[0].records_per_second:,}/s"
_LIVE_ALONE = f"live on 1 partition, {LIVE[1].records_per_second:,}/s"
"""The case in which every record waits for the previous one."""

_MANY = f"{LARGE_LINK_PARTITIONS:,} partitions"
_LOOKUP = "lookup {} at {:,} rows against {:,}".format
_PRODUCER = "a producer on the target while a backlog is copied: p99"

TARGETS = (
    *(
        target
        for case in _NAMED
        for batch in (f"{case.records_a_batch:,} a batch",)
        for faster, cheaper in (SPEED[case.records_a_batch],)
        for note in (partial(_backlog_note, case=case),)
        for target in (
            Target(
                f"{batch}: records/s of MirrorMaker 2's", faster, TIMES, partial(rate_ratio, case=case.name), note, True
            ),
            Target(
                f"{batch}: its CPU per record of drkit's",
                cheaper,
                TIMES,
                partial(cpu_ratio, case=case.name),
                note,
                True,
            ),
        )
    ),
    Target(
        "from launch to the first record, the slowest of the named cases", 1.5, "s", _highest("launch_seconds", _NAMED)
    ),
    Target(f"{_LIVE}: p99 of MirrorMaker 2's", 0.5, TIMES, _of("live", "p99_ms", DRKIT, OTHER, "live"), _live_note),
    Target(f"{_LIVE}: p99 of a bare forwarder's", 1.6, TIMES, _of("live", "p99_ms", DRKIT, BARE, "live")),
    Target(f"{_LIVE}: CPU of MirrorMaker 2's", 0.25, TIMES, _of("live", "cpu_share", DRKIT, OTHER, "live")),
    Target(f"{_LIVE_ALONE}: p50 of MirrorMaker 2's", 1, TIMES, _of("live", "p50_ms", DRKIT, OTHER, LIVE[1].name)),
    Target(f"{_LIVE_ALONE}: p99 of a bare forwarder's", 1.6, TIMES, _of("live", "p99_ms", DRKIT, BARE, LIVE[1].name)),
    Target(f"{_LIVE_ALONE}: CPU of MirrorMaker 2's", 0.25, TIMES, _of("live", "cpu_share", DRKIT, OTHER, LIVE[1].name)),
    Target("memory with 100 partitions", 200, "MiB", _highest("peak_rss_mib", _BATCHED), _memory_note),
    Target(
        "memory, second half of the longest backlog against the first",
        *(1.1, TIMES),
        lambda results: ratio(_longest(results, "rss_second_half_mib"), _longest(results, "rss_first_half_mib")),
        _longest_note,
    ),
    Target("translated positions that aren't exact", 0, "", _inexact, _translate_note),
    Target(
        "mapping rows of a topic without holes, bytes per million records",
        *(1024, "B"),
        mapping_bytes_per_million,
        _longest_note,
    ),
    *(
        Target(
            _LOOKUP(name, FULL.lookup_rows, LOOKUP_BASE_ROWS),
            *(1.5, TIMES),
            partial(_lookup_growth, measure=f"{name}_ms"),
            _lookup_note,
        )
        for name in ("p50", "p99")
    ),
    Target("moving all groups: time of Kafka's own tool of drkit's", 4, TIMES, _move_speed, _move_note, True),
    Target(f"{_MANY}: launch to the first record", 5, "s", _large_link("first"), _large_link_note),
    Target(f"{_MANY}: launch to all moving", 15, "s", _large_link("moving"), partial(_large_link_note, floor=True)),
    Target(f"{_MANY}: launched again, to the first record", 5, "s", _large_link("again_first"), _large_link_note),
    Target(f"{_MANY}: launched again, to all moving", 15, "s", _large_link("again_moving"), _large_link_note),
    Target(f"{_MANY}: a mirror at rest, of a core", 0.05, "", _large_link("idle_share"), _large_link_note),
    Target(f"{_MANY}: memory", 200, "MiB", _large_link("peak_rss_mib"), _large_link_note),
    *(Target(f"{_MANY}: {name}", 3, "s", _command(name), _large_link_note) for name in LOOKS),
    *(
        Target(
            f"a site of {case.description} whose sources are {way}: launch to end of its failover",
            *(case.limit_seconds, "s"),
            _site(case, way),
            partial(_site_note, case=case, way=way),
        )
        for case in SITES
        for way in SITE_WAYS
    ),
    Target(_PRODUCER, 10, "ms", partial(_outage, of_alone=False), _outage_note),
    Target(f"{_PRODUCER} of its undisturbed", 2, TIMES, partial(_outage, of_alone=True), _outage_note),
)

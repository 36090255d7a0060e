"""How long a run will take, roughly: from what a machine with two idle cores did."""

from __future__ import annotations

from collections.abc import Iterable

from bench.cases import BACKLOG, LIVE, LOOKUP, MANY_PARTITIONS, MOVE, TRANSLATE, BacklogCase, Extent

_LOADED_A_SECOND = {1: 45_000, 10: 300_000}  # by records a batch; larger ones:
_LOADED_A_SECOND_LARGE = 1_500_000
_DRKIT_A_SECOND = 400_000
_OTHER_A_SECOND = 160_000
_BIG_RECORD_BYTES = 500
_BIG_RECORD_SHARE = 4  # 1 KB records go so many times slower
_START_AND_CLEAN_SECONDS = 18.0  # of both mirrors together
_CLUSTERS_AND_WARM_UP_SECONDS = 50.0
_MANY_PARTITIONS_SECONDS = 120.0
_TRANSLATE_SECONDS = 100.0
_MOVE_SECONDS = 15.0  # and for each 1,000 positions and repeat:
_MOVE_SECONDS_A_THOUSAND = 0.5
_CASSANDRA_SECONDS = 45.0
_ROWS_A_SECOND = 40_000
_LOOKUP_SECONDS = 0.002


def seconds(steps: Iterable[str], extent: Extent, records: int | None, repeat: int) -> float:
    """For these steps. `records`: as asked for instead of the cases' own."""
    total = _CLUSTERS_AND_WARM_UP_SECONDS
    chosen = set(steps)
    for case in BACKLOG:
        if case.name in chosen:
            total += _backlog(case, records_of(case, extent, records), repeat)
    live = 4 * (extent.live_warm_seconds + extent.live_seconds) + _START_AND_CLEAN_SECONDS
    total += extent.live_runs(repeat) * live * sum(case.name in chosen for case in LIVE)
    if TRANSLATE in chosen:
        total += _TRANSLATE_SECONDS
    if MOVE in chosen:
        positions = extent.move_groups * extent.move_partitions
        total += _MOVE_SECONDS + repeat * _MOVE_SECONDS_A_THOUSAND * positions / 1000
    if LOOKUP in chosen:
        total += _CASSANDRA_SECONDS + extent.lookup_rows / _ROWS_A_SECOND + 2 * extent.lookups * _LOOKUP_SECONDS
    if MANY_PARTITIONS.name in chosen:
        total += _MANY_PARTITIONS_SECONDS
    return total


def records_of(case: BacklogCase, extent: Extent, records: int | None) -> int:
    """How many records a case gets in this run."""
    if records is not None:
        return records
    return case.records if extent.name == "full" else case.quick_records


def _backlog(case: BacklogCase, records: int, repeat: int) -> float:
    slower = _BIG_RECORD_SHARE if case.record_bytes > _BIG_RECORD_BYTES else 1
    load = records / _LOADED_A_SECOND.get(case.records_a_batch, _LOADED_A_SECOND_LARGE)
    mirrors = records / _DRKIT_A_SECOND + records / _OTHER_A_SECOND
    return slower * load + repeat * (slower * mirrors + _START_AND_CLEAN_SECONDS)

"""The table that Spark looks zones up in: every offset finds exactly the zone it lies in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.compare.offset_zones import zones
from drkit.audit.compare.record_frames import zone_table
from drkit.model.offsets import OffsetMapping


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 400)), min_size=1, max_size=30), st.integers(0, 300))
def test_every_offset_finds_its_zone_and_no_other(steps: list[tuple[int, int]], low: int):
    source = target = 0
    rows = []
    for up, across in steps:
        source, target = source + up, target + across
        rows.append(OffsetMapping("t", 0, 0, source, target))
    cut = zones(rows)
    high = max(source + 50, low + 1)

    table, shifts = zone_table({3: cut}, {3: (low, high)})

    found = table.to_pylist()
    for offset in range(low, high, 7):
        hits = [row for row in found if row["bucket"] == offset >> shifts[3] and row["first"] <= offset < row["until"]]
        assert len(hits) == 1
        zone = next(each for each in cut if each.first <= offset < each.until)
        assert (hits[0]["delta"], hits[0]["valid_from"], hits[0]["valid_until"]) == (
            zone.delta,
            zone.valid_from,
            zone.valid_until,
        )
    assert len(found) <= 3 * len(cut) + 2


def test_a_partition_without_offsets_has_no_rows():
    table, _ = zone_table({0: zones([OffsetMapping("t", 0, 0, 0, 0)])}, {0: (0, 0)})

    assert table.num_rows == 0

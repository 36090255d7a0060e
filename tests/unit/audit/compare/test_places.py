"""Places from mapping rows: distinct, in the order of offsets, and each within its own row's reach."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.compare.offset_zones import FOREVER, Zone, first_place, nominal, place, source_of, zones
from drkit.model.offsets import OffsetMapping


def row(source: int, target: int) -> OffsetMapping:
    return OffsetMapping("t", 0, 0, source, target)


@st.composite
def mirrored(draw):
    """A source with holes and what a mirror makes of it: rows, and the place of every record."""
    source, target = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    rows: list[OffsetMapping] = []
    places: dict[int, int] = {}
    for hole, skipped, records in draw(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=8)
    ):
        source += hole
        target += skipped
        if not rows or rows[-1].delta != target - source:
            rows.append(row(source, target))
        for _ in range(records):
            places[source] = target
            source += 1
            target += 1
    return rows, places


@settings(deadline=None)  # a busy machine is no failure
@given(mirrored())
def test_every_mirrored_record_has_its_place(made: tuple[list[OffsetMapping], dict[int, int]]):
    rows, places = made
    cut = zones(rows)

    assert {source: place(cut, source) for source in places} == places
    assert {target: source_of(cut, target) for target in places.values()} == {t: s for s, t in places.items()}


@settings(deadline=None)  # a busy machine is no failure
@given(mirrored(), st.integers(0, 60))
def test_zones_leave_no_gap_and_places_never_fall(made: tuple[list[OffsetMapping], dict[int, int]], offset: int):
    cut = zones(made[0])

    assert cut[0].first == 0
    assert cut[-1].until == FOREVER
    assert [zone.until for zone in cut[:-1]] == [zone.first for zone in cut[1:]]
    assert place(cut, offset) <= place(cut, offset + 1)


@settings(deadline=None)  # a busy machine is no failure
@given(mirrored(), st.integers(0, 60))
def test_the_first_place_parts_records_below_an_offset_from_those_at_or_above_it(
    made: tuple[list[OffsetMapping], dict[int, int]], offset: int
):
    rows, places = made
    border = first_place(zones(rows), offset)

    assert {source for source, target in places.items() if target >= border} == {s for s in places if s >= offset}


@settings(deadline=None)  # a busy machine is no failure
@given(mirrored())
def test_no_two_offsets_share_a_place(made: tuple[list[OffsetMapping], dict[int, int]]):
    cut = zones(made[0])
    claimed = [place(cut, offset) for offset in range(80) if any(z.valid_from <= offset < z.valid_until for z in cut)]

    assert len(claimed) == len(set(claimed))


def test_an_offset_in_a_hole_has_the_place_below():
    cut = zones([row(100, 100), row(200, 190)])

    assert place(cut, 189) == 189
    assert place(cut, 195) == 189
    assert place(cut, 200) == 190
    assert source_of(cut, 190) == 200


def test_a_row_that_was_overtaken_has_no_places():
    # The mirror saw a hole grow: two rows for one target offset, of which the last is true.
    cut = zones([row(0, 0), row(10, 8), row(12, 8)])

    assert source_of(cut, 8) == 12
    assert place(cut, 11) == 7


def test_what_lies_before_the_first_row_has_no_place():
    cut = zones([row(50, 0)])

    assert place(cut, 49) == -1
    assert source_of(cut, 0) == 50


@pytest.mark.parametrize(("source_start", "target_start"), [(0, 0), (1000, 0), (0, 1000)])
def test_without_rows_the_logs_are_laid_side_by_side(source_start: int, target_start: int):
    cut = nominal(source_start, target_start)

    assert cut == (Zone(0, FOREVER, target_start - source_start, 0, FOREVER),)
    assert place(cut, source_start + 5) == target_start + 5

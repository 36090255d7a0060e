"""What a group's view adds up to: what isn't known is never taken for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.audit.compare.offset_zones import zones
from drkit.audit.group_view import Events, _counted, _Log
from drkit.cli.views.audit_report import render_group_report, summary_line
from drkit.model.audit.group_audit import (
    After,
    CountBasis,
    GroupAudit,
    GroupCounts,
    GroupMove,
    GroupPartition,
    GroupPositions,
    GroupVerdict,
    GroupWitness,
    Reason,
    SourceEvidence,
)
from drkit.model.clock import now
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId

NOTHING = GroupCounts(position=0, lost=0, unreadable=0, unmirrored=0, corrupted=0, reread=0, duplicated=0, retired=0)
BY_MAPPING = GroupCounts(position=0, reread=3, unmirrored_at_least=0)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, GroupVerdict.CLEAN),
        ({"reread": 9}, GroupVerdict.CLEAN),
        ({"position": 1}, GroupVerdict.DEVIATED),
        ({"lost": 1}, GroupVerdict.DEVIATED),
        ({"unmirrored": 1}, GroupVerdict.DEVIATED),
        ({"corrupted": 1}, GroupVerdict.DEVIATED),
        ({"duplicated": 1}, GroupVerdict.DEVIATED),
        ({"retired": 1}, GroupVerdict.UNKNOWN),
        ({"reread": None}, GroupVerdict.UNKNOWN),
        ({"lost": None, "position": 2}, GroupVerdict.DEVIATED),
        ({"unmirrored": None, "unmirrored_at_least": 4}, GroupVerdict.DEVIATED),
        ({"unmirrored": None, "unmirrored_at_least": 0}, GroupVerdict.UNKNOWN),
    ],
)
def test_reading_again_is_no_deviation_and_what_is_not_known_is_not_clean(changed, verdict):
    assert replace(NOTHING, **changed).verdict is verdict


@pytest.mark.parametrize("mapped", [True, False])
def test_what_is_at_no_known_place_is_not_missed_but_unknown(mapped):
    place = GroupPositions("t", "t", 0, 3, None, None, 3, None, None)
    places = zones([OffsetMapping("t", 0, 0, 0, 0)]) if mapped else ()
    unseen = Events({Reason.UNMIRRORED: 5}, first=[(Reason.UNMIRRORED, 3, None)])

    class Nothing:
        def read(self, *_: object) -> list[object]:
            return []

    found, witnesses = _counted(_Log(place, places, 0, 8), unseen, Nothing(), compared=True)

    assert (found.counts.unmirrored, found.counts.missed, len(witnesses)) == ((5, 5, 1) if mapped else (None, None, 0))
    assert found.counts.verdict is (GroupVerdict.DEVIATED if mapped else GroupVerdict.UNKNOWN)


def test_a_sum_with_an_unknown_part_is_unknown_and_says_what_it_is_at_least():
    known = replace(NOTHING, unmirrored=5, lost=2, reread=1)
    unknown = replace(BY_MAPPING, unmirrored_at_least=7)

    both = GroupCounts.sum([known, unknown])

    assert (both.position, both.reread, both.twice) == (0, 4, None)
    assert (both.lost, both.unmirrored, both.missed) == (None, None, None)
    assert both.unmirrored_at_least == 12
    assert GroupCounts.sum([known, known]) == replace(known, unmirrored=10, lost=4, reread=2)
    assert GroupCounts.sum([known, known]).missed == 14


def test_people_are_told_what_is_known_at_least_and_a_page_shows_no_markup_of_records():
    counts = (replace(NOTHING, unmirrored=5, reread=2), replace(BY_MAPPING, unmirrored_at_least=7), GroupCounts())
    places = [
        GroupPositions("<t>", "<t>", number, 5, SourceEvidence.SOURCE, now(), 3, After.FAILOVER, 3)
        for number in range(len(counts))
    ]
    move = GroupMove(LinkId("a", "b"), "billing", "run-1", now(), tuple(places))
    parts = tuple(GroupPartition(place, each, ()) for place, each in zip(places, counts, strict=True))
    shown = GroupWitness(Reason.LOST, "<t>", 0, 4, None, 1, b"<b>", b"<script>")
    result = GroupAudit(move, CountBasis.RECORDS, parts, (shown,), now(), 1.0)

    assert summary_line(result) == "missed at least 12, sees at least 5 twice"
    assert (result.verdict, result.missed_at_least, result.twice_at_least) == (GroupVerdict.DEVIATED, 12, 5)
    page = render_group_report(result)
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<td>&lt;t&gt;:2</td>" in page

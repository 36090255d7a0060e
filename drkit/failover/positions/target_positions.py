"""Reads the records at groups' positions: when positions are chosen, and again when they are committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import PlacesSeen
from drkit.failover.positions.position_checks import (
    Match,
    PositionCheck,
    compare,
    count,
    difference,
    places_of,
    position_checks,
)
from drkit.failover.positions.positions import PlannedPosition
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.model.errors import DrkitError

LOOK_SECONDS = 10.0
"""The time limit; positions not read by then are reported as unknown."""


@dataclass(frozen=True, slots=True)
class PositionComparison:
    """The result of a second read. `wrong`: a sentence for each position with another record than before."""

    seen: PlacesSeen
    wrong: tuple[str, ...]


def read_checks(
    estate: ClusterContext, alias: str, positions: Iterable[PlannedPosition], known: Sequence[PositionCheck] = ()
) -> tuple[PositionCheck, ...]:
    """Read the record at each distinct position, in order; `known` ones aren't read again.

    A position that can't be read says why.
    """
    places = places_of(positions)
    kept = {standing.place: standing.peeked for standing in known if standing.reason is None}
    found = {place: kept[place] for place in places if place in kept}
    left = [place for place in places if place not in kept]
    found.update(_peek(estate, alias, left))
    return position_checks(found)


def compare_checks(
    estate: ClusterContext,
    alias: str,
    places: Iterable[LogPosition],
    before: Sequence[PositionCheck],
) -> PositionComparison:
    """Compare the records at these positions with the earlier ones."""
    known = {standing.place: standing.peeked for standing in before}
    now = _peek(estate, alias, places)
    nothing = ProbedRecord(reason="it was not read before")
    matches = {place: compare(known.get(place, nothing), here, removable=False) for place, here in now.items()}
    odd = [place for place, match in matches.items() if match is Match.DIFFERENT]
    for place in _cleaned(estate, alias, odd, known, now):
        matches[place] = compare(known[place], now[place], removable=True)
    wrong = [difference(place, known[place], now[place]) for place in sorted(odd) if matches[place] is Match.DIFFERENT]
    return PositionComparison(count(matches.values()), tuple(wrong))


def _peek(estate: ClusterContext, alias: str, places: Iterable[LogPosition]) -> dict[LogPosition, ProbedRecord]:
    """The records; if a cluster refuses or fails, every position is unknown, with the reason."""
    wanted = list(places)
    if not wanted:
        return {}
    try:
        return estate.admin(alias).probe_records(wanted, seconds=LOOK_SECONDS)
    except DrkitError as error:
        return dict.fromkeys(wanted, ProbedRecord(reason=str(error)))


def _cleaned(
    estate: ClusterContext,
    alias: str,
    odd: Sequence[LogPosition],
    known: dict[LogPosition, ProbedRecord],
    now: dict[LogPosition, ProbedRecord],
) -> list[LogPosition]:
    """Those of the changed positions whose records the topic's own cleanup may have removed in between."""
    removed = [place for place in odd if _moved_on(known[place], now[place])]
    if not removed:
        return []
    admin = estate.admin(alias)
    compacted = admin.compacted({place.tp.topic for place in removed})
    starts = admin.start_offsets({place.tp for place in removed}, partial=True)
    return [
        place
        for place in removed
        if place.tp.topic in compacted or starts.get(place.tp, 0) > (known[place].offset or 0)
    ]


def _moved_on(before: ProbedRecord, now: ProbedRecord) -> bool:
    return now.reason is None and before.offset is not None and (now.offset is None or now.offset > before.offset)

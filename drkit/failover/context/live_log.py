"""Which offsets of the old primary's log the live cluster's log still holds. Pure.

A plan counts with it without reading records. Deletion relies on the salvage, which reads both logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from drkit.mapping.mapping_rows import source_at
from drkit.model.offsets import LastBatch, OffsetMapping, Watermark

MISSING = "is missing"
RECREATED = "was recreated"
STARTS_LATER = "starts later than what was mirrored"
ENDS_EARLIER = "ends earlier than what was mirrored"
BELOW = " below"
"""The end of the places in `Lacking.missing` at which the beginning of a log is missing."""


@dataclass(frozen=True, slots=True)
class LiveLog:
    """A topic of the live cluster as observed: its id (None: missing), starts and ends by partition."""

    topic_id: str | None = None
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def holds_all_of(self, earlier: LiveLog) -> bool:
        """Whether, since then, the log lost nothing at its start or end, and its topic was not replaced."""
        return self.topic_id == earlier.topic_id and all(
            self.starts.get(number, start + 1) <= start and self.ends.get(number, -1) >= earlier.ends.get(number, 0)
            for number, start in earlier.starts.items()
        )


class HeldLog(NamedTuple):
    """What the cluster that groups move to held of a log: from its start (behind filler, which is removed) to its end,
    with its last batch (None: it could not be read)."""

    begin: int
    end: int
    last: LastBatch | None = None


@dataclass(frozen=True, slots=True)
class TopicKept:
    """What a salvage kept of a topic of the old primary, and the state when it began to read.

    `path`: its folder. `ends`: the old primary's high watermarks; `live`: the live cluster's log; `offsets`: a digest
    of the committed offsets on the topic there; `tails`: one of the last records of its log, and those of the live log
    by partition; `live_batches`: the live log's last batches by partition, where they could be read.
    """

    path: str
    records: int
    ends: dict[int, int]
    live: LiveLog
    offsets: str
    tails: str
    live_batches: dict[int, LastBatch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lacking:
    """What of a topic, by its name on the old primary, the live cluster lacks, as it is named to an operator.

    `why`: what happened. `missing`: how much, by place; what isn't there is in `why`.
    """

    topic: str
    why: str
    missing: dict[str, int] = field(default_factory=dict)

    def behind_its_beginning(self) -> Lacking:
        """The same without how much is missing at the beginnings of logs."""
        return replace(self, missing={place: n for place, n in self.missing.items() if not place.endswith(BELOW)})

    def is_within(self, accepted: Iterable[Lacking]) -> bool:
        """Whether one of these covers it: the same has happened, and nowhere more is missing."""
        return any(
            (each.topic, each.why) == (self.topic, self.why)
            and all(count <= each.missing.get(place, -1) for place, count in self.missing.items())
            for each in accepted
        )


class OnlyHere(NamedTuple):
    """How many offsets of a partition the live log can't hold; `gap`: why, None where they were never mirrored.

    `below`: the offset below which the live log lacks what was mirrored, `above`: how many mirrored offsets at its end;
    0: none.
    """

    offsets: int
    gap: str | None
    below: int = 0
    above: int = 0


def only_here(
    log: tuple[int, int], mark: Watermark | None, rows: Sequence[OffsetMapping], live: tuple[int, int] | None
) -> OnlyHere:
    """How many of the offsets `log` ([start, end)) the live cluster's log `live` can't hold.

    Args:
        log: the old primary's.
        mark: of the configured link, or None.
        rows: its mapping rows, ascending.
        live: the live cluster's; None: it is missing, or belongs to another topic.
    """
    start, end = log
    if live is None or mark is None or not rows:
        return OnlyHere(end - start, None)
    low, through = source_at(rows, live[0]), mark.source_through
    high = min(through, source_at(rows, live[1])) if live[1] < mark.target_end else through
    cut = live[0] > rows[0].target_offset  # else it begins with the first record that was mirrored
    later, earlier = cut and start < min(low, end) and start < through, high < min(through, end)
    return OnlyHere(
        (end - start) - max(0, min(end, high) - max(start, low)),
        STARTS_LATER if later else ENDS_EARLIER if earlier else None,
        below=min(low, through) if later else 0,
        above=through - high if earlier else 0,
    )


def lost_since(kept: LiveLog, mark: Watermark | None, rows: Sequence[OffsetMapping], number: int) -> int:
    """How many offsets of a live partition existed when its topic was scrubbed, and were not brought back.

    Args:
        kept: the live log then.
        mark: of the way back, or None.
        rows: its mapping rows, ascending.
        number: the partition.
    """
    start, end = kept.starts.get(number, 0), kept.ends.get(number, 0)
    if mark is None or not rows:
        return end - start
    return (end - start) - max(0, min(end, mark.source_through) - max(start, rows[0].source_offset))


class GoneSince(NamedTuple):
    """Offsets of a live partition that are gone without having been brought back: `below` what was brought back first,
    or `above` where the log was cut; `deleted`: those of `below` that the log no longer has."""

    below: int
    above: int
    deleted: int


def gone_since(kept: LiveLog, log: LiveLog, rows: Sequence[OffsetMapping], number: int, cut: int | None) -> GoneSince:
    """How many offsets of a partition of the same topic existed when it was kept, and are gone unread.

    Args:
        kept: the live log then.
        log: now.
        rows: of the way back, ascending; without any, nothing was brought back.
        number: the partition.
        cut: the offset from which the log doesn't hold what it held at its end; None: it does.
    """
    was, start = kept.starts[number], log.starts.get(number, 0)
    first = rows[0].source_offset if rows else max(start, was)
    above = 0 if cut is None else max(0, kept.ends[number] - max(cut, first))
    return GoneSince(max(0, first - was), above, max(0, min(first, start) - was))


def gap_of(found: Mapping[int, OnlyHere]) -> str | None:
    """Why a topic's live log lacks mirrored records, or None."""
    return next((each.gap for _, each in sorted(found.items()) if each.gap is not None), None)

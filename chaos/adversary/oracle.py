"""The oracle: checks a partition at a quiet point, given the records that an independent reader sees. Pure.

It shares no code with the mirror. A finding is a sentence; no finding means that all of this holds:

    every record of the source is on the target, or the partition is halted with a problem
    each is there once and in order, except for copies at target offsets that a problem names
    records that the source lost are on the target only from where a problem says that both sides differ
    nothing else is there, and nothing vanishes from there that nobody removed
    every position reported as exact is exact; no position skips a record, or lies beyond the target's end
    no more is missing than the lag says, and a link reported as mirroring has no problem
    records removed from the target are named by a problem with their offsets, and counted
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from chaos.soak.clusters import Content, Record

# --- the journal: the records written to the source, and their fate ------------------------------------------------

PURGED, DEAD = "purged", "dead"
"""Why the source no longer holds a record: removed on purpose, or lost."""


@dataclass(slots=True)
class Written:
    """A sent record. `due`: its digest on the target, None if the link filters it out; `offset`: the source's."""

    partition: int
    due: bytes | None
    aborted: bool = False
    gone: str | None = None
    offset: int | None = None


@dataclass(slots=True)
class Journal:
    """Records by their digests on the source; `of_due` finds them by their digests on the target. `arrived`: those
    that the target held at a quiet point, since an operator last accepted a topic as a new one."""

    records: dict[bytes, Written] = field(default_factory=dict)
    of_due: dict[bytes, Written] = field(default_factory=dict)
    arrived: set[bytes] = field(default_factory=set)

    def write(self, digest: bytes, written: Written) -> None:
        """Note a record before it is sent. Contents are unique, and so are digests."""
        self.records[digest] = written
        if written.due is not None:
            self.of_due[written.due] = written

    def look(self, partition: int, source: Iterable[Record], cause: str) -> None:
        """Set the records that the source holds now; earlier ones that are missing are gone for this cause."""
        there = {record.digest for record in source}
        for digest, written in self.records.items():
            if written.partition != partition:
                continue
            if digest in there:
                written.gone = None
            elif written.gone is None and not written.aborted:
                written.gone = cause


# --- the judgement -------------------------------------------------------------------------------------------------

NO_ALARM = frozenset({"offsets_differ", "records_given_up"})
"""Problems with which a link may be reported as mirroring."""

_COPIES = re.compile(r"target offsets (\d+) to (\d+) hold records that are there a second time later")
"""The words of `records_misplaced` about the target offsets of copies, for each of the losses that it reports."""

NAME_MISSING = frozenset({"records_returned", "target_purged"})
"""Problems that name records which the source holds and the target lacks."""

_SHOWN = 3
_POSITIONS = 6

Translate = Callable[[int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One partition at a quiet point.

    `history`: target offsets below it belong to a former incarnation that an operator gave up. `before`: the target's
    records at the last quiet point; None if some were removed since. `given_up`: records that were removed from it and
    reported, before an operator accepted that. `excused`: records named by a problem before an operator cleared it.
    `paused`: by the operator, so that nothing more of it is fetched.
    """

    partition: int
    source: Content
    target: Content
    claims: dict[str, Any] | None
    problems: Sequence[dict[str, Any]]
    translate: Translate
    history: int = 0
    before: Sequence[bytes] | None = None
    given_up: frozenset[bytes] = frozenset()
    excused: frozenset[bytes] = frozenset()
    paused: bool = False

    @property
    def halted(self) -> bool:
        """Whether it is halted with a problem that names it."""
        return any(problem["halted"] for problem in self.problems)

    def told_missing(self, offset: int) -> bool:
        """Whether a problem names this source offset as missing on the target."""
        return any(
            problem["kind"] in NAME_MISSING and problem["unsure_from"] <= offset < problem["unsure_until"]
            for problem in self.problems
        )

    def told_dead(self, offset: int | None) -> bool:
        """Whether a problem says that the source no longer holds what was mirrored of this source offset. One that
        halts the partition and names no place does so from the end of what counts as mirrored."""
        through = (self.claims or {}).get("mirrored_through") or 0
        return any(
            problem["kind"] == "topic_recreated"
            or (offset is not None and _begin(problem, through) <= offset < _end(problem))
            for problem in self.problems
            if problem["halted"]
        )

    def told_copies(self, offsets: Iterable[int]) -> bool:
        """Whether a problem says of each of these target offsets that its record is there a second time later."""
        named = [
            (int(begin), int(last))
            for problem in self.problems
            if problem["kind"] == "records_misplaced"
            for begin, last in _COPIES.findall(problem["reason"])
        ]
        return all(any(begin <= offset <= last for begin, last in named) for offset in offsets)

    @property
    def blamed(self) -> bool:
        """Whether a problem blames a foreign writer, which there never is."""
        return any(problem["kind"] == "foreign_writer" for problem in self.problems)

    @property
    def disowned(self) -> bool:
        """Whether a problem says that others' records are among the filler, which there never are."""
        return any(problem["kind"] == "alignment_refused" for problem in self.problems)


def _begin(problem: dict[str, Any], otherwise: int) -> int:
    first = problem["unsure_from"]
    return otherwise if first is None else int(first)


def _end(problem: dict[str, Any]) -> float:
    end = problem["unsure_until"]
    return inf if end is None else int(end)


def findings(seen: Seen, journal: Journal) -> list[str]:
    """The findings about a partition."""
    return [f"partition {seen.partition}: {what}" for what in _all(seen, journal)]


def missing(seen: Seen, journal: Journal) -> frozenset[bytes]:
    """The source's records that are due and missing on the target."""
    due = {record.offset: journal.records[record.digest].due for record in seen.source.records}
    wanted = [(offset, each) for offset, each in due.items() if each is not None]
    return frozenset(each for offset in _missing(seen, wanted) if (each := due[offset]) is not None)


def accepted(seen: Seen) -> list[str]:
    """Judge a topic that was accepted as a new one, of which nothing was mirrored yet."""
    held, lag = seen.source.end - seen.source.start, seen.claims and seen.claims["lag_records"]
    found = []
    if held and lag is not None and lag < held:
        found.append(f"partition {seen.partition}: status says lag {lag}, but nothing of {held} offsets is mirrored")
    if held and seen.translate(seen.source.start)["translation"] == "exact":
        found.append(f"partition {seen.partition}: source position {seen.source.start} is called exact")
    return found


def while_held(seen: Seen, journal: Journal) -> list[str]:
    """The findings about the status of a partition that nobody mirrors now: a lag that is too low, a position that is
    reported as exact and isn't."""
    due = [(record.offset, journal.records[record.digest].due) for record in seen.source.records]
    wanted = [(offset, each) for offset, each in due if each is not None]
    seen = replace(seen, paused=True)
    lacks = len(_missing(seen, wanted))
    lag = None if seen.claims is None else seen.claims["lag_records"]
    found = [f"lag {lag}, but {lacks} records are missing"] if lag is not None and lag < lacks else []
    return [f"partition {seen.partition}: {what}" for what in (*found, *_positions(seen, wanted))]


def _all(seen: Seen, journal: Journal) -> Iterator[str]:
    due = [(record.offset, journal.records[record.digest].due) for record in seen.source.records]
    wanted = [(offset, each) for offset, each in due if each is not None]
    present = [record for record in seen.target.records if record.offset >= seen.history]
    there = {record.digest for record in seen.target.records}
    missing = _missing(seen, wanted)
    unsaid = [offset for offset in missing if not seen.told_missing(offset)]
    if unsaid and not seen.halted:
        yield f"{len(unsaid)} records of the source are missing on the target, from {_some(unsaid)}"
    yield from _copies(seen, journal, [each for _, each in wanted], present)
    if seen.before is not None:
        gone = [each for each in seen.before if each not in there]
        if gone:
            yield f"{len(gone)} records vanished from the target, which nobody removed"
    yield from _claims(seen, missing)
    yield from _positions(seen, wanted, missing)


def _copies(seen: Seen, journal: Journal, wanted: Sequence[bytes], present: Sequence[Record]) -> Iterator[str]:
    """The target's records: each once, in order, none dead, none foreign."""
    at = _places(present)
    strange = [record.offset for record in present if record.digest not in journal.of_due]
    aborted = [offset for each, offsets in at.items() if _is(journal, each, aborted=True) for offset in offsets]
    if strange and (not seen.halted or seen.disowned):
        yield f"{len(strange)} records on the target are none of the source's, at {_some(strange)}"
    if aborted:
        yield f"{len(aborted)} aborted records are on the target, at {_some(aborted)}"
    dead = [
        offset
        for each, offsets in at.items()
        if _is(journal, each, gone=DEAD) and not seen.told_dead(journal.of_due[each].offset)
        for offset in offsets
    ]
    doubled = [
        offsets[:_SHOWN]
        for each, offsets in at.items()
        if len(offsets) > 1 and each not in seen.excused and not seen.told_copies(offsets[:-1])
    ]
    if dead:
        yield f"{len(dead)} records that the source lost are on the target and no problem says so, at {_some(dead)}"
    if doubled:
        blamed = ", blamed on a foreign writer, though nobody else writes there" if seen.blamed else ""
        yield f"{len(doubled)} records are on the target more than once, at {doubled[:_SHOWN]}{blamed}"
    newest = [at[each][-1] for each in wanted if each in at and not seen.told_copies(at[each][-1:])]
    if newest != sorted(newest):
        yield "records are out of order on the target"


def to_excuse(seen: Seen) -> set[bytes]:
    """Records that are doubled on the target without a finding, because a problem reports them."""
    at = _places(seen.target.records)
    return {each for each, offsets in at.items() if len(offsets) > 1 and seen.told_copies(offsets[:-1])}


def _missing(seen: Seen, wanted: Sequence[tuple[int, bytes]]) -> list[int]:
    """The source offsets of records that are due and not on the target, except for those that were given up."""
    arrived = {record.digest for record in seen.target.records if record.offset >= seen.history} | seen.given_up
    return [offset for offset, each in wanted if each not in arrived]


def to_give_up(seen: Seen, journal: Journal) -> set[bytes]:
    """Records that are missing on the target without a finding; clearing the problem that names them accepts that."""
    due = {record.offset: journal.records[record.digest].due for record in seen.source.records}
    wanted = [(offset, each) for offset, each in due.items() if each is not None]
    return {each for offset in _missing(seen, wanted) if seen.told_missing(offset) and (each := due[offset])}


def _places(records: Sequence[Record]) -> dict[bytes, list[int]]:
    at: dict[bytes, list[int]] = {}
    for record in records:
        at.setdefault(record.digest, []).append(record.offset)
    return at


def _is(journal: Journal, due: bytes, *, aborted: bool = False, gone: str | None = None) -> bool:
    written = journal.of_due.get(due)
    return written is not None and (written.aborted if aborted else written.gone == gone)


def _claims(seen: Seen, missing: Sequence[int]) -> Iterator[str]:
    """The findings about `drkit status`."""
    said = seen.claims
    if said is None:
        if not seen.problems:
            yield "status doesn't name the partition"
        return
    lag, through = said["lag_records"], said["mirrored_through"]
    if lag is not None and lag < len(missing):
        yield f"status says lag {lag}, but {len(missing)} records are missing on the target, from {_some(missing)}"
    if through is not None and missing and missing[0] < through:
        yield f"status says mirrored through {through}, but the record at {missing[0]} is missing on the target"
    if said["source_end"] != seen.source.end:
        yield f"status says that the source ends at {said['source_end']}, it ends at {seen.source.end}"
    if said["target_end"] != seen.target.end and not seen.halted:
        yield f"status says that the target ends at {said['target_end']}, it ends at {seen.target.end}"


def _positions(seen: Seen, wanted: Sequence[tuple[int, bytes]], missing: Sequence[int] = ()) -> Iterator[str]:
    for position in sorted({*positions(seen.source), *missing[:1], *missing[len(missing) // 2 :][:1]}):
        said = seen.translate(position)
        if said["target_offset"] is not None:
            exact = said["translation"] == "exact"
            yield from _position(seen, wanted, position, said["target_offset"], exact=exact)


def _position(
    seen: Seen, wanted: Sequence[tuple[int, bytes]], position: int, answer: int, *, exact: bool
) -> Iterator[str]:
    """The findings about a source position's target position."""
    first_at: dict[bytes, int] = {}
    for record in seen.target.records:
        if record.offset >= seen.history:
            first_at.setdefault(record.digest, record.offset)
    following = _following(seen, [offset for offset, _ in wanted], position)
    if answer > seen.target.end:
        yield f"source position {position} goes to {answer}, the target ends at {seen.target.end}"
    if exact:
        due = wanted[following] if following < len(wanted) else None
        next_at = bisect_left(seen.target.records, answer, key=lambda record: record.offset)
        found = seen.target.records[next_at] if next_at < len(seen.target.records) else None
        still = seen.halted or seen.paused
        unmirrored = still and found is None and all(each not in first_at for _, each in wanted[following:])
        # At the end of a halted partition the next record is still to come, as in any log that is read to its end.
        if (found.digest if found else None) != (due[1] if due else None) and not unmirrored:
            yield (
                f"source position {position} is called exact at {answer}, where the next record is "
                f"{'none' if found is None else f'that at {found.offset}'}, and due is "
                f"{'none' if due is None else f'that of source {due[0]}, at {first_at.get(due[1])}'}"
            )
    else:
        place = next((first_at[each] for _, each in wanted[following:] if each in first_at), answer)
        if answer > place:
            yield f"source position {position} goes to {answer}, which skips the record at {place}"


def failed_over(seen: Seen, journal: Journal, committed: int, moved: tuple[int, int, bool] | None) -> list[str]:
    """The findings after the source died and its link was failed over: whatever a problem says, consumers read on.

    Args:
        seen: the partition; `source` as it was last, `paused`.
        journal: the records.
        committed: where a group stood on the source, last.
        moved: the source offset that was translated, where the group stands on the target, whether that is called
            exact; None: it wasn't moved.
    """
    due = [(record.offset, journal.records[record.digest].due) for record in seen.source.records]
    wanted = [(offset, each) for offset, each in due if each is not None]
    strange = [each.offset for each in seen.target.records if each.digest not in journal.of_due]
    found = []
    if strange and (not seen.halted or seen.disowned):
        found.append(f"{len(strange)} records that consumers read are none of the source's, at {_some(strange)}")
    if moved is not None:
        position, answer, exact = moved
        if answer < seen.target.start and committed >= seen.source.start:
            found.append(f"the group stands at {answer}, but the log begins at {seen.target.start}")
        found += _position(seen, wanted, position, answer, exact=exact)
        found += _position(seen, wanted, committed, answer, exact=False)
    return [f"partition {seen.partition}, failed over: {what}" for what in found]


def _following(seen: Seen, offsets: Sequence[int], position: int) -> int:
    """The index of the record, of those at these source offsets, that is due next at a position."""
    following = bisect_left(offsets, position)
    if following < len(offsets) and offsets[following] > position:  # the link leaves out the record there
        while following < len(offsets) and seen.told_missing(offsets[following]):
            following += 1  # those positions have answers of their own
    return following


def deviation(seen: Seen, journal: Journal) -> str | None:
    """Why an audit may not report this partition as clean; None: nothing deviates.

    Records of a former incarnation are no deviation, nor are those that a halted partition hasn't mirrored: they lie
    beyond what counts as mirrored and behind every record that is there, and never arrived.
    """
    present = [record for record in seen.target.records if record.offset >= seen.history]
    at = _places(present)
    due = [(record.offset, journal.records[record.digest].due) for record in seen.source.records]
    wanted = [(offset, each) for offset, each in due if each is not None]
    through = (seen.claims or {}).get("mirrored_through") or 0
    reached = max([through, *(offset + 1 for offset, each in wanted if each in at)])
    lost = [
        offset
        for offset, each in wanted
        if each not in at and (not seen.halted or offset < reached or each in journal.arrived)
    ]
    if lost:
        return f"{len(lost)} records are missing on the target, from {_some(lost)}"
    dead = [offset for each, offsets in at.items() if _is(journal, each, gone=DEAD) for offset in offsets]
    if dead:
        return f"{len(dead)} records that the source lost are on the target, at {_some(dead)}"
    doubled = [offsets[:_SHOWN] for offsets in at.values() if len(offsets) > 1]
    if doubled:
        return f"{len(doubled)} records are on the target more than once, at {doubled[:_SHOWN]}"
    first = [at[each][0] for _, each in wanted if each in at]
    return "records are out of order on the target" if first != sorted(first) else None


def positions(source: Content) -> list[int]:
    """Some positions that a group may have committed: the first, the last, the end, and some in between."""
    offsets = [record.offset for record in source.records]
    if not offsets:
        return [source.end]
    chosen = {offsets[0], offsets[-1], offsets[-1] + 1, source.end}
    chosen.update(offsets[:: max(1, len(offsets) // _POSITIONS)])
    return sorted(chosen)


def _some(offsets: Sequence[int]) -> str:
    shown = ", ".join(str(offset) for offset in offsets[:_SHOWN])
    return shown if len(offsets) <= _SHOWN else f"{shown} … {offsets[-1]}"

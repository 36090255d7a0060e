"""Where a source offset is on the target. Pure. `tests/unit/mapping` checks the invariants below against a
model that keeps every record.

A row (s -> t) says: from source offset s and target offset t on, records are in step until the next row. A row
is written only where they fall out of step. `o` is a record, `-` a hole (a transaction marker, an aborted or
compacted record):

    row      A                    B                    C
    source  10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26  27 = source_through
             o  o  o  o  -  -  -  o  o  o  o  o  o  -  o  o  o
             |  |  |  |           |  |  |  |  |  |     |  |  |
    target   4  5  6  7           8  9 10 11 12 13 ~~ 16 17 18  19 = target_end

    A = 10 -> 4 (delta -6)      B = 17 -> 8 (delta -9)      C = 24 -> 16 (delta -8)
    target offsets 14 and 15 (~~) hold markers of the target's own

Committed source offset c (the next record to read), f the newest row at or below c, n the row after f:

    c = 12   f = A           12 - 6 = 6                          exact
    c = 15   f = A, n = B    min(15 - 6, 8) = 8                  exact; 9 would skip the record 17 at 8
    c = 23   f = B, n = C    min(23 - 9, 16) = 14                exact; 14 and 15 hold no record, 16 is next

Invariants, for every c and whatever the rows, holes, crashes and retention on either side:

    N1  No skip: a mirrored record at or above c that the target still has is never below the answer.
    N2  Exact means exact: the first record a consumer reads at the answer is the first mirrored
        record at or above c; nothing is read again.
    N3  Monotone: a later commit never gets an earlier answer.
    N4  Bounded: target_start <= answer, and answer <= target_end unless retention emptied the target.
    N5  No guess: where rows or watermark can't answer, the answer is unavailable and says why.
    N6  Stable: a row written ahead of the log, or written twice, doesn't change which record is read
        first for a commit at or below the watermark.

Why the answer is always limited by `target_end`: for a c at or below `source_through`, every known mirrored
record, below c or above it, lies below `target_end`; a row written ahead may name an offset that was never
written.

Recorded problems limit the answer, because rows alone can't show that the logs differ:

| problem | positions | the answer becomes |
|---|---|---|
| `topic_recreated`, `target_recreated` | all of the topic | unavailable: the rows are of another topic |
| `records_unmapped` | all of the partition | unavailable: whose records the target holds isn't known |
| `source_truncated`, `foreign_writer` | from where both sides hold other records | conservative: that place |
| `store_recovered` | above what the copy of the state proves | conservative: where that ends |
| `store_older` | above the store's watermark | likewise |
| `rows_unproven` | all of the partition | conservative, as below |
| any other that names source offsets (`records_misplaced`) | those | conservative, same offset |

So a position is never exact while a recorded problem contradicts it, and a problem never moves it forward.

Where a store may have lost rows (`RowDoubts`), those that are left and the watermark are true, but `c + delta` of the
row in force may be past the record (a lost row told of a hole). Target offsets never fall as source offsets grow, so
what is at or above the row in force on the source is so on the target: the answer is that row's place, or the
watermark's at or above `source_through`, or the log's start below the first row. It is conservative, and N1 holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from drkit.mapping.mapping_rows import Ranges, around, ordered
from drkit.model.link_state import PARTED, RECORDS_UNMAPPED, RECREATED, ROWS_MISSING, ROWS_UNPROVEN, Problem
from drkit.model.offsets import Certainty, OffsetMapping, Translation, Watermark
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more


@dataclass(frozen=True, slots=True)
class RowDoubts:
    """Why it isn't known whether a store has all mapping rows. `everywhere`: of all partitions, None where nothing
    stands against them; `single`: of some, by `topic:partition`."""

    everywhere: str | None = None
    single: dict[str, str] = field(default_factory=dict)

    def of(self, tp: TopicPartition) -> str | None:
        """Why it isn't known of this partition (by its source's name); None: it is."""
        return self.single.get(str(tp), self.everywhere)

    def with_later(self, later: RowDoubts) -> RowDoubts:
        """These and later ones: what was in doubt once may since have been written over what told so."""
        return RowDoubts(later.everywhere or self.everywhere, {**self.single, **later.single})

    def sentences(self) -> list[str]:
        """What they are, a sentence each."""
        by_reason: dict[str, list[str]] = {}
        for tp, why in self.single.items():
            by_reason.setdefault(why, []).append(tp)
        found = [] if self.everywhere is None else [self.everywhere]
        return found + [f"{and_more(tps)}: {why}" for why, tps in by_reason.items()]


NO_ROW_DOUBTS = RowDoubts()


def doubts_on_record(problems: Iterable[Problem]) -> RowDoubts:
    """Those that problems of a link say: once the rows were written to its copy, no comparison tells any more."""
    unproven = (each for each in problems if each.kind == ROWS_UNPROVEN and each.partition is not None)
    return RowDoubts(single={each.place: each.reason for each in unproven})


def translate(
    source_offset: int,
    *,
    floor: OffsetMapping | None,
    following: OffsetMapping | None,
    watermark: Watermark | None,
    first: OffsetMapping | None,
    former: Ranges = (),
) -> Translation:
    """Translate a committed source offset (the next record to read).

    Args:
        source_offset: c, as the group committed it.
        floor: the newest row at or below c; None where there is none.
        following: the first row above c; None where there is none.
        watermark: what is known to be on the target, read *before* the rows; None where nothing is.
        first: the first row of the partition and epoch; None where there is no row at all.
        former: the source offsets of which the target may hold what was mirrored in the topic's former epochs
            (`drkit.mapping.mapping_rows.former_ranges`).

    Raises:
        ValueError: the rows contradict the arguments' definitions (a bug of the caller).
    """
    if watermark is None or first is None:
        return unavailable(source_offset, "the mirror has recorded nothing for this partition yet")
    _check_arguments(source_offset, floor, following, first)
    found = _inconsistency(floor, following, watermark, first)
    if found:
        return unavailable(source_offset, found)
    if source_offset > watermark.source_through:
        return _ahead(source_offset, first, watermark, former)
    if floor is None:
        return _before_first(source_offset, first, watermark, former)
    answer = min(source_offset + floor.delta, watermark.target_end)
    if following is not None:
        answer = min(answer, following.target_offset)
    if _aligns(first, watermark) or answer < watermark.target_start:
        why = _being_aligned(first, watermark) if _aligns(first, watermark) else _retained(answer, watermark)
        return _conservative(source_offset, max(answer, watermark.target_start), why)
    return Translation(source_offset, Certainty.EXACT, answer)


def translate_by_rows(
    source_offset: int,
    rows: Sequence[OffsetMapping],
    watermark: Watermark | None,
    former: Ranges = (),
    in_doubt: str | None = None,
) -> Translation:
    """Like `translate`, from all rows of the partition and epoch, ascending by source offset, read after
    `watermark`.

    `in_doubt`: why it isn't known whether these are all (`doubt_of_rows`); None: it is. The watermark is then the
    stored one, moved by no rows but lowered to the target's log end, and the rows are those up to there.
    """
    floor, following = around(rows, source_offset)
    answer = translate(
        source_offset,
        floor=floor,
        following=following,
        watermark=watermark,
        first=rows[0] if rows else None,
        former=former,
    )
    if in_doubt is None or answer.target_offset is None or watermark is None:
        return answer
    return _by_rows_in_doubt(answer, floor, watermark, in_doubt)


def _by_rows_in_doubt(answer: Translation, floor: OffsetMapping | None, watermark: Watermark, why: str) -> Translation:
    """The earliest place that any missing rows allow, so nothing is skipped."""
    ahead = answer.source_offset > watermark.source_through
    if answer.source_offset >= watermark.source_through:
        place, where = watermark.target_end, "what is mirrored ends"
    elif floor is None:
        place, where = watermark.target_start, "the target's log begins"
    else:
        place, where = floor.target_offset, f"the mapping row of source offset {floor.source_offset} begins"
    place = max(place, watermark.target_start)
    reason = f"{why}; nothing is skipped from target offset {place} on, where {where}"
    if ahead:
        reason = f"{answer.reason}; {reason}"
    return _conservative(answer.source_offset, place, reason, reread=None)


def unavailable(source_offset: int, reason: str) -> Translation:
    """An answer without a position; what is read again or skipped isn't known either."""
    return Translation(source_offset, Certainty.UNAVAILABLE, None, reason, reread=None, skipped=None)


def left_unread(source_offset: int, until: int | None, former: Ranges) -> bool:
    """Whether the target may hold records of former epochs that a group at `source_offset` hasn't read, below the
    source offset `until` (None: any)."""
    return any(end > source_offset and (until is None or begin < until) for begin, end in former)


def _ahead(source_offset: int, first: OffsetMapping, watermark: Watermark, former: Ranges) -> Translation:
    through = watermark.source_through
    if left_unread(source_offset, None, former):
        why = (
            f"since the topic was accepted as a new one it is mirrored up to source offset {through:,} only: what the "
            f"target holds from before, below {first.target_offset:,}, may have records that the group hasn't read"
        )
        return unavailable(source_offset, why)
    ahead = source_offset - through
    reason = (
        f"the commit is {ahead:,} offset{_s(ahead)} ahead of what is mirrored (source offset {through:,}): "
        "the group read records there that are not on the target"
    )
    # everything below target_end comes from below source_through, so the group has read it
    return _conservative(source_offset, max(watermark.target_end, watermark.target_start), reason)


def _before_first(source_offset: int, first: OffsetMapping, watermark: Watermark, former: Ranges) -> Translation:
    if left_unread(source_offset, first.source_offset, former):
        why = (
            f"since the topic was accepted as a new one it is mirrored from source offset {first.source_offset:,} on "
            f"only: what the target holds from before, below {first.target_offset:,}, may have records that the group "
            "hasn't read"
        )
        return unavailable(source_offset, why)
    missing = first.source_offset - source_offset
    reason = (
        f"below the first mirrored offset {first.source_offset}: "
        f"the {missing} offset{_s(missing)} before it {'were' if missing != 1 else 'was'} never mirrored"
    )
    answer = min(first.target_offset, watermark.target_end)
    if _aligns(first, watermark):
        reason = f"{reason}; {_being_aligned(first, watermark)}"
    elif answer < watermark.target_start:
        reason = f"{reason}; {_retained(answer, watermark)}"
    return _conservative(source_offset, max(answer, watermark.target_start), reason)


def _aligns(first: OffsetMapping, watermark: Watermark) -> bool:
    """Whether the target is being filled up to the offset of the first record."""
    return watermark.source_through == first.source_offset and watermark.target_end < first.target_offset


def _being_aligned(first: OffsetMapping, watermark: Watermark) -> str:
    return (
        f"the target is still being aligned: it ends at {watermark.target_end}, and its records begin at "
        f"{first.target_offset}; offsets below that hold only filler"
    )


def _retained(answer: int, watermark: Watermark) -> str:
    return (
        f"target offset {answer} is below the target's log start {watermark.target_start}; retention or DeleteRecords "
        "removed the records before that"
    )


def _conservative(source_offset: int, target_offset: int, reason: str, *, reread: int | None = 0) -> Translation:
    return Translation(source_offset, Certainty.CONSERVATIVE, target_offset, reason, reread=reread)


def _inconsistency(
    floor: OffsetMapping | None, following: OffsetMapping | None, watermark: Watermark, first: OffsetMapping
) -> str | None:
    if first.tp != watermark.tp or first.epoch != watermark.epoch:
        return (
            f"the watermark is of {watermark.tp} epoch {watermark.epoch}, "
            f"the mapping rows of {first.tp} epoch {first.epoch}"
        )
    conflicting = ordered(first, floor, following)
    if conflicting:
        return conflicting
    for row in (floor, following):
        # a record below source_through is on the target, so its row can't point beyond target_end
        if (
            row is not None
            and row.source_offset < watermark.source_through
            and row.target_offset > watermark.target_end
        ):
            return (
                f"the mapping row source {row.source_offset} -> target {row.target_offset} of {row.tp} lies beyond "
                f"the watermark (source {watermark.source_through}, target {watermark.target_end})"
            )
    return None


def _check_arguments(
    source_offset: int, floor: OffsetMapping | None, following: OffsetMapping | None, first: OffsetMapping
) -> None:
    if floor is not None and floor.source_offset > source_offset:
        raise ValueError(f"floor row {floor.source_offset} is above {source_offset}")
    if following is not None and following.source_offset <= source_offset:
        raise ValueError(f"following row {following.source_offset} is not above {source_offset}")
    if floor is None and first.source_offset <= source_offset:
        raise ValueError(f"there is a row at or below {source_offset}, so floor can't be None")


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def heed(
    answer: Translation, problems: Iterable[Problem], tp: TopicPartition, again: Callable[[int], Translation]
) -> Translation:
    """Limit an answer by the problems of its partition.

    Args:
        answer: by the mapping rows.
        problems: of the link.
        tp: the partition.
        again: translates another source offset of it by the rows.
    """
    for problem in problems:
        if not problem.concerns(tp):
            continue
        if answer.target_offset is None and problem.kind != RECORDS_UNMAPPED:
            continue
        if problem.kind in RECREATED | {RECORDS_UNMAPPED}:
            return unavailable(answer.source_offset, problem.reason)
        if problem.doubts(answer.source_offset):
            answer = _doubted(answer, problem, again)
    return answer


def doubted(answer: Translation, why: str | None) -> Translation:
    """The answer, not exact where something stands against the partition as a whole (None: nothing does)."""
    if why is None or answer.certainty is not Certainty.EXACT:
        return answer
    return replace(answer, certainty=Certainty.CONSERVATIVE, reason=why, reread=None)


def doubt_of_rows(why: str | None, watermark: Watermark | None, rows: Sequence[OffsetMapping]) -> str | None:
    """Why it isn't known whether these are all rows of a partition, with its stored watermark; None where it is, or
    where no row is needed but the first: all offsets are the same on both sides."""
    if why is None or watermark is None:
        return why
    equal = watermark.target_end == watermark.source_through and not any(row.delta for row in rows)
    return None if equal else why


def why_set_back(source: str, further: int) -> str:
    """Why a position behind an offset at which the group was captured before isn't exact."""
    return (
        f"the group had committed {further} before, and {source} may have been set back to an older copy of its disks: "
        "what it has read up to there is read again"
    )


def doubted_if_set_back(answer: Translation, source: str, further: int | None) -> Translation:
    """The answer for a captured position; `further`: where it was captured before, if the source may have been set back
    (`behind_captured`)."""
    return doubted(answer, None if further is None else why_set_back(source, further))


def _doubted(answer: Translation, problem: Problem, again: Callable[[int], Translation]) -> Translation:
    reason = problem.reason if answer.reason is None else f"{answer.reason}; {problem.reason}"
    if problem.kind in ROWS_MISSING and problem.unsure_from is not None:
        known = again(problem.unsure_from).target_offset
        lowest = min(each for each in (known, answer.target_offset) if each is not None)
        return replace(
            answer, certainty=Certainty.CONSERVATIVE, target_offset=lowest, reason=problem.reason, reread=None
        )
    doubted = replace(answer, certainty=Certainty.CONSERVATIVE, reason=reason)
    if problem.kind not in PARTED or problem.unsure_from is None:
        return doubted
    parting = again(problem.unsure_from).target_offset
    if parting is None or answer.target_offset is None or parting >= answer.target_offset:
        return doubted
    # the group may have read either side's records above that place: what it hasn't read of the target's begins there
    return replace(doubted, target_offset=parting, reread=None)

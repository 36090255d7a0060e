"""The checkers: one pure function per anomaly, over the clients' history (after jepsen's checker for Kafka).

Each yields the anomalies it finds, with their offsets as witnesses. `judge` makes the outcome of them: a check that
couldn't be made is `unknown`, never passed, and a missing part of the history never causes an anomaly by itself
(`forged_by`).

Of a link that a failback brought back, what was found on the source is judged as well (`WAY_BACK`): clients work there.

A group may read records twice around a failover: it was promised at-least-once. `verdict.py` counts these. They are
anomalies only beyond what the failover stated (`reread_beyond_plan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from drkit.drill.judge.history import Attempt, ClientHistory, HistoryPart, Landed, Poll, RecordId
from drkit.model.totals import total

WITNESSES = 10
"""How many anomalies a result lists; it counts all."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly. `partition` and `offset` are on `cluster`; `offset` is None if there is none."""

    cluster: str
    partition: int
    offset: int | None
    record: RecordId | None
    text: str


class CannotCheck(Exception):
    """The history lacks what the check needs; the message says why."""


Check = Callable[[ClientHistory], Iterator[Anomaly]]


def lost(history: ClientHistory) -> Iterator[Anomaly]:
    """Acknowledged, missing on the target, and not in the tail that an RPO may excuse.

    The tail of a partition is what the source acknowledged above the last of its records on the target: the mirror had
    not reached it. No RPO excuses a record missing below that, or one that the target itself acknowledged.
    """
    on_target = history.landed_records()
    through: dict[tuple[int, bool], int] = {}
    for attempt in history.acked(history.source):
        if attempt.record in on_target:
            log = (attempt.partition, history.after_return(attempt))
            through[log] = max(through.get(log, -1), _offset(attempt))
    for attempt in history.acked(history.source):
        highest = through.get((attempt.partition, history.after_return(attempt)), -1)
        if attempt.record not in on_target and _offset(attempt) < highest:
            yield Anomaly(
                history.source,
                attempt.partition,
                attempt.offset,
                attempt.record,
                f"acknowledged by {history.source} and missing on {history.target}, "
                f"which has records of that partition up to source offset {highest}",
            )
    for attempt in history.acked(history.target):
        if attempt.record not in on_target:
            yield Anomaly(
                history.target,
                attempt.partition,
                attempt.offset,
                attempt.record,
                f"acknowledged by {history.target} and not there any more",
            )


def lost_on_way_back(history: ClientHistory) -> Iterator[Anomaly]:
    """Missing on the cluster that was brought back: nothing excuses it, the way back copies all."""
    out = history.way_back()
    for attempt in out.missing_on_source() if out is not None else ():
        yield Anomaly(
            attempt.cluster,
            attempt.partition,
            attempt.offset,
            attempt.record,
            f"acknowledged by {attempt.cluster} and missing on {history.target}, "
            f"which was brought back from {history.source}",
        )


def duplicated(history: ClientHistory) -> Iterator[Anomaly]:
    """The same record at more than one offset of the target."""
    first: dict[RecordId, Landed] = {}
    for one in _landed(history):
        if one.record is None:
            continue
        before = first.setdefault(one.record, one)
        if before is not one:
            yield Anomaly(
                history.target,
                one.partition,
                one.offset,
                one.record,
                f"a further copy of the record at {before.partition}@{before.offset}",
            )


def corrupted(history: ClientHistory) -> Iterator[Anomaly]:
    """On the target, with another key, value, header or timestamp than was sent."""
    sent = {attempt.record: attempt.digest for attempt in history.attempts}
    for one in _landed(history):
        if one.record in sent and one.digest != sent[one.record]:
            yield Anomaly(
                history.target,
                one.partition,
                one.offset,
                one.record,
                "its bytes or its timestamp are not what was sent",
            )


def reordered(history: ClientHistory) -> Iterator[Anomaly]:
    """Out of order on the target, among the records of its key or compared with the source's partition.

    A further copy of a record is `duplicated` and doesn't count here.
    """
    yield from _reordered(
        history, {a.record: (history.after_return(a), _offset(a)) for a in history.acked(history.source)}
    )


def reordered_on_way_back(history: ClientHistory) -> Iterator[Anomaly]:
    """The same on the cluster that was brought back: its partitions have the order of the other cluster's."""
    on_source: dict[RecordId, tuple[bool, int]] = {}
    for one in history.returned.landed if history.returned is not None else ():
        if one.record is not None and one.offset < on_source.get(one.record, (False, one.offset + 1))[1]:
            on_source[one.record] = (False, one.offset)
    yield from _reordered(history, on_source)


def _reordered(history: ClientHistory, source_offset: dict[RecordId, tuple[bool, int]]) -> Iterator[Anomaly]:
    """`source_offset`: by record, in which of the source's logs it is (the one after a failback), and its offset."""
    for rows in history.landed_by_partition().values():
        seen: set[RecordId] = set()
        last_of_key: dict[str, int] = {}
        highest = (False, -1)
        for one in rows:
            if one.record is None or one.record in seen:
                continue
            seen.add(one.record)
            key, seq = one.record
            offset = source_offset.get(one.record)
            if seq < last_of_key.get(key, -1):
                yield Anomaly(
                    history.target,
                    one.partition,
                    one.offset,
                    one.record,
                    f"comes after {key}#{last_of_key[key]} of the same key",
                )
            elif offset is not None and offset < highest:
                yield Anomaly(
                    history.target,
                    one.partition,
                    one.offset,
                    one.record,
                    f"offset {offset[1]} on {history.source} comes after offset {highest[1]} of the same partition",
                )
            last_of_key[key] = max(seq, last_of_key.get(key, -1))
            highest = max(highest, (False, -1) if offset is None else offset)


def nonmonotonic_poll(history: ClientHistory) -> Iterator[Anomaly]:
    """Within one assignment, the group got an offset at or below an earlier one."""
    last: dict[tuple[str, int, str, int], int] = {}
    for poll in history.polls:
        place = (poll.session, poll.assignment, poll.cluster, poll.partition)
        before = last.get(place, -1)
        if poll.offset <= before:
            yield Anomaly(
                poll.cluster,
                poll.partition,
                poll.offset,
                poll.record,
                f"polled by {poll.session} after offset {before}",
            )
        last[place] = max(before, poll.offset)


def skipped_by_group(history: ClientHistory) -> Iterator[Anomaly]:
    """The group's position on the target is past a record that it never read on either side."""
    yield from _skipped(history, since=-math.inf)


def skipped_after_way_back(history: ClientHistory) -> Iterator[Anomaly]:
    """The same on the cluster that was brought back, by the positions since: earlier ones are of a log that is gone."""
    yield from _skipped(history, since=-math.inf if history.returned is None else history.returned.at)


def _skipped(history: ClientHistory, since: float) -> Iterator[Anomaly]:
    position: dict[int, int] = {}
    for partition, after in (
        *((p.partition, p.offset + 1) for p in history.polls if p.cluster == history.target and p.at >= since),
        *((p.partition, p.offset) for p in history.positions if p.cluster == history.target and p.at >= since),
    ):
        position[partition] = max(position.get(partition, 0), after)
    if not position:
        raise CannotCheck(f"the group has no position on {history.target}: it never read there")
    read = {poll.record for poll in history.polls}
    for one in _landed(history):
        if one.record is not None and one.record not in read and one.offset < position.get(one.partition, 0):
            yield Anomaly(
                history.target,
                one.partition,
                one.offset,
                one.record,
                f"never read, and the group's position is {position[one.partition]}",
            )


def foreign(history: ClientHistory) -> Iterator[Anomaly]:
    """On the target, and sent by nobody."""
    sent = {attempt.record for attempt in history.attempts}
    for one in _landed(history):
        if one.record is None or one.record not in sent:
            yield Anomaly(history.target, one.partition, one.offset, one.record, "no producer of this drill sent it")


def both_sides_written(history: ClientHistory) -> Iterator[Anomaly]:
    """Acknowledged by the source between two acknowledgements of the target: both accepted writes at the same time."""
    on_target = [_acked_at(attempt) for attempt in history.acked(history.target)]
    first, last = min(on_target, default=0.0), max(on_target, default=0.0)
    for attempt in history.acked(history.source):
        if first < _acked_at(attempt) < last:
            yield Anomaly(
                history.source,
                attempt.partition,
                attempt.offset,
                attempt.record,
                f"acknowledged by {history.source} while {history.target} acknowledged others",
            )


def position_moved_back(history: ClientHistory) -> Iterator[Anomaly]:
    """A position of the group that is lower than one that the cluster had confirmed before."""
    highest: dict[tuple[str, int], int] = {}
    for one in sorted(history.positions, key=lambda each: each.at):
        before = highest.get((one.cluster, one.partition), 0)
        if one.offset < before:
            yield Anomaly(one.cluster, one.partition, one.offset, None, f"lower than the earlier position {before}")
        highest[one.cluster, one.partition] = max(before, one.offset)


def reread_beyond_plan(history: ClientHistory) -> Iterator[Anomaly]:
    """After the failover the group was given an offset before its stated position, or more records again than stated.

    A record counts as read again if the source had confirmed a position of the group beyond it when the failover ended:
    of records that the group had read without committing them nobody else knew.
    """
    stated = {one.partition: one for one in history.stated}
    if not stated:
        raise CannotCheck("no failover stated a position of the group")
    known = _known_as_read(history, max(one.at for one in history.stated))
    seen: set[tuple[int, int]] = set()
    again: dict[int, int] = {}
    found = False
    for poll in _polls_after_failover(history):
        place, position = (poll.partition, poll.offset), stated[poll.partition]
        if place in seen:
            continue
        seen.add(place)
        if poll.offset < position.offset:
            text = f"read after the failover, which stated the position {position.offset}"
        elif poll.record in known:
            again[poll.partition] = count = again.get(poll.partition, 0) + 1
            if position.reread_at_most is None or count <= position.reread_at_most:
                continue
            text = f"read again, and the failover stated at most {position.reread_at_most} such records"
        else:
            continue
        found = True
        yield Anomaly(history.target, poll.partition, poll.offset, poll.record, text)
    unbounded = sorted(partition for partition in again if stated[partition].reread_at_most is None)
    if unbounded and not found:
        raise CannotCheck(f"the failover stated no bound of what is read again in partition {unbounded[0]}")


def loss_beyond_plan(history: ClientHistory) -> Iterator[Anomaly]:
    """More is lost of what the source acknowledged before the failover began than the failover stated."""
    stated = history.stated_loss
    if stated is None:
        raise CannotCheck("no failover stated a loss that can be compared")
    if stated.lower_bound:
        raise CannotCheck(f"the failover stated only that at least {stated.records} records are lost")
    on_target = history.landed_records()
    missing = [attempt for attempt in _promised_before_failover(history) if attempt.record not in on_target]
    for attempt in missing[stated.records :]:
        text = f"missing on {history.target}, and the failover stated that {stated.records} records are lost"
        yield Anomaly(history.source, attempt.partition, attempt.offset, attempt.record, text)


def _promised_before_failover(history: ClientHistory) -> list[Attempt]:
    """What the source had acknowledged when the failover began that stated a loss."""
    since = -math.inf if history.stated_loss is None else history.stated_loss.at
    return [attempt for attempt in history.acked(history.source) if _acked_at(attempt) <= since]


def _known_as_read(history: ClientHistory, until: float) -> frozenset[RecordId | None]:
    """The records of the source below a position of the group that the source had confirmed by then."""
    through: dict[int, int] = {}
    for one in history.positions:
        if one.cluster == history.source and one.at <= until:
            through[one.partition] = max(one.offset, through.get(one.partition, 0))
    polls = (poll for poll in history.polls if poll.cluster == history.source and poll.record is not None)
    return frozenset(poll.record for poll in polls if poll.offset < through.get(poll.partition, 0))


def _polls_after_failover(history: ClientHistory) -> Iterator[Poll]:
    """What the group was given on the target, on partitions of which the failover stated a position."""
    since = {one.partition: one.at for one in history.stated}
    for poll in history.polls:
        if poll.cluster == history.target and poll.at >= since.get(poll.partition, math.inf):
            yield poll


def stable_offset_stuck(history: ClientHistory) -> Iterator[Anomaly]:
    """The target's last stable offset stays below the end of the log, although no transaction is open any more.

    The marker of a transaction is missing there. A reader of committed records never gets beyond that offset.
    """
    for one in history.ends:
        if one.stable < one.end:
            text = f"the last stable offset stays here, and the log ends at {one.end}: a marker is missing"
            yield Anomaly(history.target, one.partition, one.stable, None, text)


def aborted_read(history: ClientHistory) -> Iterator[Anomaly]:
    """The group was given a record of a transaction that was aborted, on either side."""
    aborted = history.aborted_records()
    for poll in history.polls:
        if poll.record in aborted:
            yield Anomaly(
                poll.cluster, poll.partition, poll.offset, poll.record, "read by the group; its transaction was aborted"
            )


def dirty_commit(history: ClientHistory) -> Iterator[Anomaly]:
    """A reader of committed records finds a record on the target whose transaction was aborted."""
    aborted = history.aborted_records()
    for one in _landed(history):
        if one.record in aborted:
            text = f"committed on {history.target}; its transaction was aborted"
            yield Anomaly(history.target, one.partition, one.offset, one.record, text)


def torn_transaction(history: ClientHistory) -> Iterator[Anomaly]:
    """Of a committed transaction some records are on the target, and others are not; one anomaly for each transaction.

    The tail is included: a mirror copies partitions independently, so an unplanned failover may tear the last ones.
    """
    on_target = history.landed_records()
    for name, attempts in history.committed_transactions().items():
        missing = [attempt for attempt in attempts if attempt.record not in on_target]
        if missing and len(missing) < len(attempts):
            first = missing[0]
            text = f"of transaction {name} {history.target} lacks {len(missing)} of {len(attempts)} records"
            yield Anomaly(first.cluster, first.partition, first.offset, first.record, text)


def _landed(history: ClientHistory) -> Iterator[Landed]:
    for rows in history.landed_by_partition().values():
        yield from rows


def _offset(attempt: Attempt) -> int:
    if attempt.offset is None:
        raise ValueError(f"{attempt.record} is acknowledged without an offset")
    return attempt.offset


def _acked_at(attempt: Attempt) -> float:
    if attempt.acked_at is None:
        raise ValueError(f"{attempt.record} is acknowledged at no time")
    return attempt.acked_at


def _one_side_acknowledged(history: ClientHistory) -> str | None:
    for cluster in (history.source, history.target):
        if not any(history.acked(cluster)):
            return f"{cluster} acknowledged nothing"
    return None


def _no_position(history: ClientHistory) -> str | None:
    return None if history.positions else "no position of the group was confirmed"


def _nothing_acknowledged(history: ClientHistory) -> str | None:
    return None if any(history.acked(history.source)) else f"{history.source} acknowledged nothing"


def _nothing_acknowledged_before_failover(history: ClientHistory) -> str | None:
    return None if _promised_before_failover(history) else f"{history.source} acknowledged nothing before the failover"


def _nothing_landed(history: ClientHistory) -> str | None:
    return None if history.landed else f"nothing is on {history.target}"


def _no_aborted_transaction_read(history: ClientHistory) -> str | None:
    return _no_aborted_transaction(history) or _nothing_read(history)


def _no_aborted_transaction_landed(history: ClientHistory) -> str | None:
    return _no_aborted_transaction(history) or _nothing_landed(history)


def _no_committed_transaction(history: ClientHistory) -> str | None:
    return None if history.committed_transactions() else "no transaction was committed"


def _no_aborted_transaction(history: ClientHistory) -> str | None:
    return None if history.aborted_records() else "no transaction was aborted"


def _no_ends_of_transactions(history: ClientHistory) -> str | None:
    if all(attempt.transaction is None for attempt in history.attempts):
        return "nothing was written in a transaction"
    return None if history.ends else f"no end of a partition of {history.target} is known"


def _nothing_read_after_failover(history: ClientHistory) -> str | None:
    read = next(_polls_after_failover(history), None)
    return None if read is not None else f"the group read nothing on {history.target} after the failover"


def _nothing_read(history: ClientHistory) -> str | None:
    return None if history.polls else "the group read nothing"


@dataclass(frozen=True, slots=True)
class Checker:
    """A check with the parts of the history that it needs.

    A missing part of `forged_by` could cause false anomalies: then the check is unknown. Any other missing part can
    only hide anomalies: those that are found are real.

    `subject` says why there was nothing to check; None: there was. A check without anything to check has not passed.
    """

    find: Check
    needs: frozenset[HistoryPart]
    subject: Callable[[ClientHistory], str | None]
    forged_by: frozenset[HistoryPart] = frozenset()


_ATTEMPTS, _POLLS, _LANDED, _ENDS = (
    frozenset({part}) for part in (HistoryPart.ATTEMPTS, HistoryPart.POLLS, HistoryPart.LANDED, HistoryPart.ENDS)
)

CHECKERS: Final[dict[str, Checker]] = {
    "lost": Checker(lost, _ATTEMPTS | _LANDED, _nothing_acknowledged, forged_by=_LANDED),
    "duplicated": Checker(duplicated, _LANDED, _nothing_landed),
    "corrupted": Checker(corrupted, _ATTEMPTS | _LANDED, _nothing_landed),
    "reordered": Checker(reordered, _ATTEMPTS | _LANDED, _nothing_landed, forged_by=_LANDED),
    "nonmonotonic_poll": Checker(nonmonotonic_poll, _POLLS, _nothing_read),
    "skipped_by_group": Checker(skipped_by_group, _POLLS | _LANDED, _nothing_landed, forged_by=_POLLS),
    "both_sides_written": Checker(both_sides_written, _ATTEMPTS, _one_side_acknowledged),
    "position_moved_back": Checker(position_moved_back, _POLLS, _no_position),
    "reread_beyond_plan": Checker(reread_beyond_plan, _POLLS, _nothing_read_after_failover),
    "loss_beyond_plan": Checker(
        loss_beyond_plan, _ATTEMPTS | _LANDED, _nothing_acknowledged_before_failover, forged_by=_LANDED
    ),
    "foreign": Checker(foreign, _ATTEMPTS | _LANDED, _nothing_landed, forged_by=_ATTEMPTS),
    "aborted_read": Checker(aborted_read, _ATTEMPTS | _POLLS, _no_aborted_transaction_read),
    "torn_transaction": Checker(torn_transaction, _ATTEMPTS | _LANDED, _no_committed_transaction, forged_by=_LANDED),
    "dirty_commit": Checker(dirty_commit, _ATTEMPTS | _LANDED, _no_aborted_transaction_landed),
    "stable_offset_stuck": Checker(stable_offset_stuck, _ENDS, _no_ends_of_transactions),
}

WAY_BACK: Final[dict[str, Checker]] = {
    name: CHECKERS[name] for name in ("duplicated", "corrupted", "foreign", "dirty_commit", "stable_offset_stuck")
} | {
    "lost": replace(CHECKERS["lost"], find=lost_on_way_back, subject=_nothing_landed),
    "reordered": replace(CHECKERS["reordered"], find=reordered_on_way_back),
    "skipped_by_group": replace(CHECKERS["skipped_by_group"], find=skipped_after_way_back),
}
"""The checks that are also made of what was found on a source that was brought back (`ClientHistory.way_back`)."""


@dataclass(frozen=True, slots=True)
class AnomalyCheck:
    """A check's outcome: `held` is True, False, or None if it couldn't be made (`reason` says why)."""

    held: bool | None
    anomalies: int | None
    reason: str | None
    witnesses: tuple[Anomaly, ...] = ()


def judge(name: str, history: ClientHistory) -> AnomalyCheck:
    """Make one check, of the target, and of the source if clients belong there again; both must hold.

    Raises:
        KeyError: there is no check of that name.
    """
    made, way_back = [_judge(CHECKERS[name], history)], history.way_back()
    if way_back is not None and name in WAY_BACK:
        made.append(_judge(WAY_BACK[name], way_back))
    failed = [each for each in made if each.held is False]
    if failed:
        witnesses = tuple(one for each in failed for one in each.witnesses)[:WITNESSES]
        return AnomalyCheck(False, total(each.anomalies for each in failed), None, witnesses)
    return next((each for each in made if each.held is None), made[0])


def _judge(checker: Checker, history: ClientHistory) -> AnomalyCheck:
    missing = sorted(checker.needs & history.incomplete.keys())
    reasons = "; ".join(history.incomplete[part] for part in missing)
    if checker.forged_by & history.incomplete.keys():
        return AnomalyCheck(None, None, reasons)
    if not any((history.attempts, history.polls, history.landed)):
        return AnomalyCheck(None, None, "nothing was sent and nothing was read")
    try:
        found = list(checker.find(history))
    except CannotCheck as error:
        return AnomalyCheck(None, None, str(error))
    if found:
        return AnomalyCheck(False, len(found), None, tuple(found[:WITNESSES]))
    if missing:
        return AnomalyCheck(None, None, reasons)
    vacuous = checker.subject(history)
    return AnomalyCheck(None, None, vacuous) if vacuous else AnomalyCheck(True, 0, None)

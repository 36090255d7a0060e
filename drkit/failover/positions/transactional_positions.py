"""Where a group that commits in transactions continues: after the last one whose output reached the target. Pure.

The mirror copies only committed records, partition by partition. When the source is gone, the target has the output of
some transactions, not that of others, and part of one or two. Of a group's transactions on an input partition, in
commit order, all up to some point have reached the target completely:

    transactions   1    2    3    4    5
    on the target  all  all  part no   no     continues after 2; 3 is processed again, part of its output is duplicated
                   all  all  no   no   no     continues after 2, exactly
                   all  no   all  no   no     continues after 1; 3 is processed again: its output partition was ahead

Never later, or output would be missing. Unknown facts (the mirror read a transaction's output but not its commit; it
was still behind when the watch began) make the number unknown, never smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from drkit.model.clock import iso
from drkit.model.groups import GroupTransaction, TransactionHistory
from drkit.model.offsets import GroupPosition
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted

Through = Mapping[TopicPartition, int | None]
"""By partition of the link, the source offset up to which (exclusive) the target has everything; None: unknown."""

_STALE = timedelta(seconds=15)
"""A watch that is this much older than the group's capture has stopped."""


@dataclass(frozen=True, slots=True)
class TransactionalPlace:
    """Where a group continues on one input partition.

    Args:
        offset, metadata: what to commit (source offset).
        again: how many transactions with output on the target are processed again, or None.
        reached: the source offset that the group had reached by the last of those.
        reason: None if the position is exact.
    """

    offset: int
    metadata: str
    again: int | None
    reached: int | None
    reason: str | None


def place_by_transactions(
    history: TransactionHistory, captured: GroupPosition, through: Through
) -> TransactionalPlace | None:
    """A group's position; None if it isn't known to commit on this partition in transactions.

    Args:
        history: what the mirror has seen.
        captured: the group's last captured offset on the partition.
        through: the mirrored offset of every partition.
    """
    key = (captured.group, captured.tp)
    concerned = [each for each in history.transactions if each.offsets is None or key in each.offsets]
    known = [each.offsets[key] for each in concerned if each.offsets is not None]
    if not known or captured.group in history.made_anew:
        return _by_no_transaction(history, captured)
    unknown = _unknown(history, captured, through)
    if unknown is not None:
        return _as_captured(captured, unknown)
    upto = next((n for n, each in enumerate(concerned) if _reach(each, through) is not _ALL), len(concerned))
    done, rest = concerned[:upto], concerned[upto:]
    last = next((each.offsets[key] for each in reversed(done) if each.offsets is not None), None)
    if last is None:
        return _as_captured(captured, "which of them reached the target")
    offset, metadata = last
    again, doubts = _again(done, rest, through)
    ahead = [str(out) for out, read in history.read.items() if (through.get(out) or 0) > read]
    if ahead:
        doubts.append(f"{ahead[0]} was mirrored further than its transactions are known")
    undecided = [str(out) for out, first in history.undecided.items() if (through.get(out) or 0) > first]
    if undecided:
        doubts.append(f"{undecided[0]} was mirrored into a transaction whose end is not known")
    if captured.offset > max(position for position, _ in known):
        doubts.append(f"it had committed {captured.offset} since, by transactions that are not known")
    there = [each.offsets[key][0] for each in rest if each.offsets and _reach(each, through) is not _NONE]
    reached = max(there, default=None)
    if doubts:
        return TransactionalPlace(
            offset, metadata, None, reached, f"transactions are processed again, how many is not known: {doubts[0]}"
        )
    if again:
        are = "is" if again == 1 else "are"
        return TransactionalPlace(
            offset,
            metadata,
            again,
            reached,
            f"{counted(again, 'transaction')} {are} processed again: only part of what was written in order is on the "
            "target, so output of theirs is there twice",
        )
    return TransactionalPlace(offset, metadata, 0, None, None)


def place_unwatched(captured: GroupPosition) -> TransactionalPlace:
    """The position of a group that may commit in transactions that the mirror has not read yet."""
    why = (
        "may commit in transactions, which the mirror had not followed (yet, or for want of READ on "
        "__consumer_offsets and __transaction_state): how much of their output is on the target "
    )
    return TransactionalPlace(captured.offset, captured.metadata, None, None, why + "is not known")


def _by_no_transaction(history: TransactionHistory, captured: GroupPosition) -> TransactionalPlace | None:
    """Of a group whose transactions say nothing of the partition; None if none of it are known."""
    if (topic := history.made_anew.get(captured.group)) is not None:
        return _as_captured(captured, f"since {topic} was made anew, how much of their output is on the target")
    written = history.elsewhere.get(captured.group)
    return None if written is None else _as_captured(captured, _elsewhere(written))


def _as_captured(captured: GroupPosition, unknown: str) -> TransactionalPlace:
    reason = f"commits in transactions, and {unknown} is not known"
    return TransactionalPlace(captured.offset, captured.metadata, None, None, reason)


def _elsewhere(topics: Collection[str]) -> str:
    return f"how much of what they wrote is on the target (to {and_more(sorted(topics))}, none of this link's topics)"


_ALL, _PART, _NONE, _UNKNOWN = "all", "part", "none", "unknown"


def _reach(transaction: GroupTransaction, through: Through) -> str:
    """How much of a transaction's output is on the target."""
    if transaction.outputs is None:
        return _UNKNOWN
    reaches = set()
    for tp, (first, last) in transaction.outputs.items():
        mark = through.get(tp)
        if mark is None:
            return _UNKNOWN
        reaches.add(_ALL if mark > last else _NONE if mark <= first else _PART)
    return _ALL if not reaches else reaches.pop() if len(reaches) == 1 else _PART


def _again(
    done: Sequence[GroupTransaction], rest: Sequence[GroupTransaction], through: Through
) -> tuple[int, list[str]]:
    """How many transactions after the position have output on the target, and why the number is uncertain."""
    doubts = []
    if done and done[-1].offsets is None:
        doubts.append("what the last one committed could not be read")
    again = 0
    for each in rest:
        reach = _reach(each, through)
        if reach is _UNKNOWN:
            doubts.append("how far the output of one goes is not known")
        elif reach is not _NONE and each.outputs:
            again += 1
    return again, doubts


def _unknown(history: TransactionHistory, captured: GroupPosition, through: Through) -> str | None:
    """Why the history says nothing: it began too late, or is too short."""
    for tp, offset in {**history.begun, **history.dropped}.items():
        if (through.get(tp) or 0) < max(offset, history.begun.get(tp, 0)):
            return (
                f"{tp} isn't brought over up to where the mirror began to watch them: how much output of what it has "
                "processed is missing on the target"
            )
    if captured.captured_at - history.seen_at > _STALE:
        return f"the mirror has not seen them since {iso(history.seen_at)}: how much of their output is on the target"
    return None

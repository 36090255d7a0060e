"""What to say of records that wait behind open transactions on a source: nobody can read them yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted

_NOT_TOLD = (
    "its coordinator doesn't say when it began (drkit's principal needs DESCRIBE on the transactional id, and READ on "
    "the topic and on __transaction_state)"
)


def behind_open_transactions(offsets: int) -> str:
    """Why what these offsets hold may be no loss."""
    stand = "stands" if offsets == 1 else "stand"
    return (
        f"{counted(offsets, 'offset')} of them {stand} behind open transactions on the source: what these abort is no "
        "loss"
    )


def undated(tps: Iterable[TopicPartition]) -> str:
    """Why it isn't known since when records of these partitions wait (`WaitingRecords.since`)."""
    return (
        f"since when records of {_named(tps)} wait behind a transaction isn't known: it was open when a mirror looked "
        f"there for the first time, and {_NOT_TOLD}"
    )


def may_be_younger(tps: Iterable[TopicPartition]) -> str:
    """Why records of these partitions may wait for less long than is said (`WaitingRecords.at_most`)."""
    return (
        f"the age of what waits in {_named(tps)} is the most that it can be, the time since the last look before a "
        f"transaction was open there: no mirror looked when it began, and {_NOT_TOLD}"
    )


def _named(tps: Iterable[TopicPartition]) -> str:
    return and_more([str(tp) for tp in sorted(tps)])

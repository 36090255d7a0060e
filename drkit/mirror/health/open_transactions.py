"""Names transactions that stay open on the source: nothing behind one can be read, so nothing of it is mirrored.

A coordinator ends a transaction once its producer's time-out has passed. One that is open for longer is told, with what
its coordinator says of it. Where no coordinator has it any more it hangs (KIP-664): its markers were lost, or its
coordinator forgot it, and nobody ends it. That is known once it is open for longer than brokers let any be
(`transaction.max.timeout.ms`); only such a one may be aborted by hand. The mirror has caught up then with all that it
can read, so no lag shows it.

How long one is open is known from the answers to fetches (`StableEnd`), so nothing is asked of the source while none
is open for long. Whether it still is, is asked before it is told: nothing may have been read since the last answer.

When one began that was open before the mirror was, only its coordinator knows (`began`): records behind it wait since
then at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import CoordinatedTransaction, OpenTransaction, TransactionAdmin
from drkit.mirror.engine.interface import StableEnd
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.link_state import TRANSACTION_OPEN, Problem
from drkit.model.topology import LinkId, TopicPartition

HANGS_SECONDS = 960.0
"""Nothing is asked about one that is open for less: the longest that brokers let one be, by default, and spare time."""
SPARE_SECONDS = 60.0
"""A broker looks for transactions to end every 10 seconds; the marker may take a while."""
_AGAIN_SECONDS = 60.0


class _Judged(NamedTuple):
    """A transaction: whose it is, for how long it may be open, and what to do about one that is open for longer."""

    whose: str
    seconds: float
    remedy: str


class OpenTransactions:
    """See the module docstring. Used by one thread.

    Args:
        link: the link.
        source: the source.
        transactions: tells who has a transaction open there.
        problems: where those are told.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: LinkId,
        source: ClusterAdmin,
        transactions: TransactionAdmin,
        problems: Problems,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._source = source
        self._transactions = transactions
        self._problems = problems
        self._clock = clock
        self._asked: dict[TopicPartition, tuple[int, float]] = {}
        """By the last stable offset: until when it needn't be asked about again."""
        self._undated: dict[TopicPartition, tuple[int, float]] = {}
        """By the last stable offset: until when it needn't be asked again when the transaction that is open there
        began."""
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        """By the last stable offset: since when it stands there. An engine that begins a partition again, as it does
        wherever a broker was away, begins to count anew."""

    def close(self) -> None:
        """Close the connection."""
        self._transactions.close()

    def check(self, ends: Mapping[TopicPartition, StableEnd], mine: Collection[TopicPartition]) -> None:
        """Tell of transactions that hang, and settle what is over.

        Args:
            ends: the source's last stable offsets, of this worker's partitions of which an answer said it.
            mine: this worker's partitions.

        Raises:
            Unreachable: the source or the store doesn't answer.
        """
        for tp in self._problems.with_kind(TRANSACTION_OPEN):
            end = ends.get(tp) if tp in mine else None
            if end is not None and (end.open_since is None or not self._is_told(tp, end.offset)):
                self._problems.settle(tp.topic, kinds=frozenset({TRANSACTION_OPEN}), partition=tp.partition)
        at = self._clock()
        self._note(ends, mine)
        self._asked = {
            tp: (offset, until)
            for tp, (offset, until) in self._asked.items()
            if tp in self._since and self._since[tp][0] == offset
        }
        due = {tp: (offset, at - since) for tp, (offset, since) in self._since.items() if at - since >= HANGS_SECONDS}
        new = self._still_open(
            {tp: each[0] for tp, each in due.items() if tp not in self._asked or at >= self._asked[tp][1]}
        )
        for tp, judged in self._judge({tp: due[tp][0] for tp in new}).items():
            offset, seconds = due[tp]
            if seconds >= judged.seconds:
                self._tell(tp, offset, timedelta(seconds=seconds), judged)
            self._asked[tp] = offset, at + (_AGAIN_SECONDS if seconds >= judged.seconds else judged.seconds - seconds)

    def began(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, datetime]]:
        """When the transactions began that hold back the last stable offsets of these partitions, with these offsets.
        Those of which nobody says it now are left out, and asked about again after a while."""
        at = self._clock()
        self._undated = {tp: known for tp, known in self._undated.items() if offsets.get(tp) == known[0]}
        due = {tp: offset for tp, offset in offsets.items() if tp not in self._undated or at >= self._undated[tp][1]}
        if not due:
            return {}
        self._undated |= {tp: (offset, at + _AGAIN_SECONDS) for tp, offset in due.items()}
        try:
            found = self._transactions.first_open(due)
            known = self._transactions.coordinated({each.producer_id for each in found.values()})
        except DrkitError:  # it doesn't answer, or drkit may not see it
            return {}
        return {
            tp: (due[tp], theirs.began)
            for tp, its in found.items()
            if its.first_offset == due[tp]
            if (theirs := _of_coordinator(its, tp, known)) is not None and theirs.began is not None
        }

    def _note(self, ends: Mapping[TopicPartition, StableEnd], mine: Collection[TopicPartition]) -> None:
        """Note since when transactions are open. Of a partition of which no answer says anything yet, what was known
        stays: whether it still is so, is asked before it is told."""
        for tp, end in ends.items():
            offset, since = self._since.pop(tp, (None, math.inf))
            if end.open_since is not None:
                self._since[tp] = end.offset, min(end.open_since, since if offset == end.offset else math.inf)
        self._since = {tp: known for tp, known in self._since.items() if tp in mine}

    def _is_told(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the stored problem, whichever worker's, is about the transaction that is open at this offset."""
        told = self._problems.find(TRANSACTION_OPEN, tp)
        return told is not None and _at(tp, offset) in told.reason

    def _still_open(self, offsets: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those partitions whose last stable offset is this one now, below their high watermark."""
        if not offsets:
            return []
        ends = self._source.end_offsets(offsets, committed=True, partial=True)
        beyond = self._source.end_offsets(offsets, committed=False, partial=True)
        return [tp for tp, offset in offsets.items() if ends.get(tp) == offset < beyond.get(tp, offset)]

    def _judge(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, _Judged]:
        """What their leaders and coordinators say of the transactions that are open there."""
        if not offsets:
            return {}
        found: Mapping[TopicPartition, OpenTransaction] = {}
        known: list[CoordinatedTransaction] | None = None
        try:
            found = self._transactions.first_open(offsets)
            known = self._transactions.coordinated({each.producer_id for each in found.values()})
        except DrkitError:  # it doesn't answer, or drkit may not see it
            known = None
        longest = self._longest()
        judged = {}
        for tp, offset in offsets.items():
            its = found.get(tp)
            theirs = None if its is None else _of_coordinator(its, tp, known or ())
            if its is not None and theirs is not None:
                judged[tp] = self._coordinated(its, theirs)
            else:
                judged[tp] = self._nobodys(tp, offset, its, longest, asked=its is not None and known is not None)
        return judged

    def _longest(self) -> float | None:
        """How long brokers let a transaction be open; None: they don't show it."""
        try:
            return self._source.longest_transaction().total_seconds()
        except DrkitError:
            return None

    def _coordinated(self, its: OpenTransaction, theirs: CoordinatedTransaction) -> _Judged:
        """Its coordinator has it: an abort in one partition would contradict what it writes to the others."""
        name = theirs.producer.name
        if theirs.producer.deciding:
            remedy = (
                f"Its coordinator has decided it ({theirs.producer.state}) and could not write the marker here yet: "
                f"see that the brokers of {self._link.source} reach each other (`kafka-transactions.sh describe "
                f"--transactional-id {name}` names the coordinator). Don't abort it by hand: what it has committed "
                "would be lost"
            )
        else:
            remedy = (
                f"Start its application again: a producer that begins with transactional id {name} ends it in all "
                "partitions. Don't abort it by hand: its coordinator still has it, and may commit it"
            )
        return _Judged(_named(its, name), max(HANGS_SECONDS, theirs.timeout_seconds + SPARE_SECONDS), remedy)

    def _nobodys(
        self, tp: TopicPartition, offset: int, its: OpenTransaction | None, longest: float | None, *, asked: bool
    ) -> _Judged:
        """No coordinator is known to have it. `asked`: they have said so; `longest`: for how long one may be open."""
        whose = "" if its is None else _named(its)
        source = self._link.source
        if longest is None or not asked:
            unknown = (
                f"Whether its coordinator has it isn't known: no answer from those of {source}, or drkit's principal "
                "may not DESCRIBE transactional ids and READ __transaction_state there"
                if not asked
                else f"How long brokers let a transaction be open isn't known: drkit's principal may not read "
                f"transaction.max.timeout.ms (grant DESCRIBE_CONFIGS on the cluster {source})"
            )
            bound = HANGS_SECONDS if longest is None else longest + SPARE_SECONDS
            return _Judged(
                whose, max(HANGS_SECONDS, bound), f"Have its application end it. {unknown}, so it may be alive"
            )
        first = offset if its is None else its.first_offset
        where = f"--topic {tp.topic} --partition {tp.partition}"
        remedy = (
            f"Have its application end it. If `kafka-transactions.sh find-hanging {where} --max-transaction-timeout "
            f"{math.ceil(longest / 60)}` names it, nobody will: `kafka-transactions.sh abort {where} --start-offset "
            f"{first}` on {source} (both with --bootstrap-server, and --command-config where the cluster asks for a "
            "log-in, of a user who may DESCRIBE all transactional ids: one that isn't shown looks like one that hangs)"
        )
        return _Judged(whose, max(HANGS_SECONDS, longest + SPARE_SECONDS), remedy)

    def _tell(self, tp: TopicPartition, offset: int, lasts: timedelta, judged: _Judged) -> None:
        self._problems.report(
            Problem(
                TRANSACTION_OPEN,
                tp.topic,
                tp.partition,
                f"a transaction{judged.whose} has been open at {_at(tp, offset)}for more than "
                f"{judged.seconds / 60:.0f} minutes: what stands behind that offset can't be read, so nothing of it is "
                f"on {self._link.target}",
                judged.remedy,
                halted=False,
                since=now() - lasts,
            )
        )


def _of_coordinator(
    its: OpenTransaction, tp: TopicPartition, known: Iterable[CoordinatedTransaction]
) -> CoordinatedTransaction | None:
    """What its coordinator says of a transaction that is open in a partition; None: none is known to have it."""
    return next((c for c in known if c.producer.producer_id == its.producer_id and tp in c.partitions), None)


def _at(tp: TopicPartition, offset: int) -> str:
    """Where it is open, as a problem says it."""
    return f"source offset {offset} of {tp} "


def _named(its: OpenTransaction, name: str = "") -> str:
    called = f", transactional id {name}" if name else ""
    return f" (producer id {its.producer_id}, epoch {its.producer_epoch}{called})"

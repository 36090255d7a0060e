"""Names transactions that stay open on the source: nothing behind one can be read, so nothing of it is mirrored.

A broker ends a transaction once its producer's time-out has passed (`transaction.max.timeout.ms` at the latest, 15
minutes by default). One that is open for longer hangs (KIP-664): its markers were lost, or its coordinator forgot it,
and nobody ends it. The mirror has caught up then with all that it can read, so no lag shows it.

How long one is open is known from the answers to fetches (`StableEnd`), so nothing is asked of the source while none
is open for long. Whether it still is, is asked before it is told: nothing may have been read since the last answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import OpenTransaction, TransactionAdmin
from drkit.mirror.engine.interface import StableEnd
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.link_state import TRANSACTION_OPEN, Problem
from drkit.model.topology import LinkId, TopicPartition

HANGS_SECONDS = 960.0
"""A broker looks for transactions to end every 10 seconds; the marker may take a while."""


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
        self._told: dict[TopicPartition, int] = {}

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
            if end is not None and (end.open_since is None or end.offset != self._told.get(tp, end.offset)):
                self._problems.settle(tp.topic, kinds=frozenset({TRANSACTION_OPEN}), partition=tp.partition)
                self._told.pop(tp, None)
        at = self._clock()
        due = {
            tp: (end.offset, at - end.open_since)
            for tp, end in ends.items()
            if tp in mine and end.open_since is not None and at - end.open_since >= HANGS_SECONDS
        }
        new = self._still_open({tp: offset for tp, (offset, _) in due.items() if self._told.get(tp) != offset})
        whose = self._whose(new)
        for tp in new:
            offset, seconds = due[tp]
            self._tell(tp, offset, timedelta(seconds=seconds), whose.get(tp))
            self._told[tp] = offset

    def _still_open(self, offsets: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those partitions whose last stable offset is this one now, below their high watermark."""
        if not offsets:
            return []
        ends = self._source.end_offsets(offsets, committed=True, partial=True)
        beyond = self._source.end_offsets(offsets, committed=False, partial=True)
        return [tp for tp, offset in offsets.items() if ends.get(tp) == offset < beyond.get(tp, offset)]

    def _whose(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, tuple[OpenTransaction, str]]:
        """What their leaders say of these transactions, and their transactional id, if a coordinator knows it."""
        try:
            found = self._transactions.first_open(tps) if tps else {}
        except DrkitError:
            return {}
        try:
            known = self._transactions.transactional_ids({each.producer_id for each in found.values()}) if found else []
        except DrkitError:  # drkit may not see it, say
            known = []
        names = {each.producer_id: each.name for each in known}
        return {tp: (each, names.get(each.producer_id, "")) for tp, each in found.items()}

    def _tell(
        self, tp: TopicPartition, offset: int, lasts: timedelta, whose: tuple[OpenTransaction, str] | None
    ) -> None:
        by, first = "", offset
        if whose is not None:
            transaction, name = whose
            first = transaction.first_offset
            called = f", transactional id {name}" if name else ""
            by = f" (producer id {transaction.producer_id}, epoch {transaction.producer_epoch}{called})"
        self._problems.report(
            Problem(
                TRANSACTION_OPEN,
                tp.topic,
                tp.partition,
                f"a transaction{by} has been open at source offset {offset} of {tp} for more than "
                f"{HANGS_SECONDS / 60:.0f} minutes: what stands behind that offset can't be read, so nothing of it is "
                f"on {self._link.target}",
                f"Have its application end it. One that nobody ends: `kafka-transactions.sh abort --topic {tp.topic} "
                f"--partition {tp.partition} --start-offset {first}` on {self._link.source} (with --bootstrap-server, "
                "and --command-config where the cluster asks for a log-in)",
                halted=False,
                since=now() - lasts,
            )
        )

"""What groups committed in transactions, and where the output of each transaction stands on the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from drkit.model.topology import TopicPartition

Commits = Mapping[tuple[str, TopicPartition], tuple[int, str]]
"""Offset and metadata by group and input partition."""


@dataclass(frozen=True, slots=True)
class GroupTransaction:
    """One commit of group offsets, in the order of the coordinator's log: a transaction's, or a plain one.

    Args:
        number: its place in the order, within one watch.
        offsets: what it committed; None: not known (the watch began within it).
        outputs: by partition of the link's topics, the first and the last offset of its records there, or a range
            that surely holds them; empty: a plain commit, or a transaction that wrote nothing there. None: not known.
    """

    number: int
    offsets: Commits | None
    outputs: Mapping[TopicPartition, tuple[int, int]] | None


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """What one watch has seen, up to now or to the source's end.

    Args:
        watch: names the watch; a mirror that starts again begins another one.
        seen_at: when the source last answered the watch, within some seconds.
        begun: where reading began, by output partition: what came before isn't known, one by one.
        read: up to where each output partition was read.
        transactions: the newest ones, in order.
        dropped: by output partition, the end of what older transactions wrote that aren't kept any more.
        undecided: by output partition, where the first records stand of a transaction of which it isn't known
            whether it was committed.
        elsewhere: by group, the topics that its transactions write to, where none of them is one of the link's.
    """

    watch: str
    seen_at: datetime
    begun: Mapping[TopicPartition, int] = field(default_factory=dict)
    read: Mapping[TopicPartition, int] = field(default_factory=dict)
    transactions: tuple[GroupTransaction, ...] = ()
    dropped: Mapping[TopicPartition, int] = field(default_factory=dict)
    undecided: Mapping[TopicPartition, int] = field(default_factory=dict)
    elsewhere: Mapping[str, frozenset[str]] = field(default_factory=dict)

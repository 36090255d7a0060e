"""What groups committed in transactions, and the source offsets of each transaction's output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from drkit.model.link_state import TopicState
from drkit.model.topology import TopicPartition

Commits = Mapping[tuple[str, TopicPartition], tuple[int, str]]
"""Offset and metadata by group and input partition."""


@dataclass(frozen=True, slots=True)
class GroupTransaction:
    """One commit of group offsets, in the order of the coordinator's log: by a transaction, or a plain one.

    Args:
        number: its sequence number within one watch.
        offsets: what it committed; None: unknown (the watch began within it).
        outputs: by partition of the link's topics, the first and last offset of its records there, or a wider range;
            empty: a plain commit, or a transaction that wrote nothing there. None: unknown.
    """

    number: int
    offsets: Commits | None
    outputs: Mapping[TopicPartition, tuple[int, int]] | None


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """What one watch has seen so far, or up to the source's end.

    Args:
        watch: the watch's id; a restarted mirror begins another one.
        seen_at: when the source last answered the watch, within some seconds.
        begun: by output partition, where reading began: single transactions before it are unknown.
        read: by output partition, up to where it was read.
        transactions: the newest ones, in order.
        dropped: by output partition, the end of the output of older transactions that are no longer kept.
        undecided: by output partition, the first record of a transaction that may or may not have been committed.
        elsewhere: by group, the topics that its transactions write to, where none of them is one of the link's.
        topic_ids: by name, the source's topics that all these offsets belong to, not others of the same name.
        made_anew: by group, a topic that its transactions read or wrote and that was made anew since: what they
            committed and where their output ended isn't known in the new one.
    """

    watch: str
    seen_at: datetime
    begun: Mapping[TopicPartition, int] = field(default_factory=dict)
    read: Mapping[TopicPartition, int] = field(default_factory=dict)
    transactions: tuple[GroupTransaction, ...] = ()
    dropped: Mapping[TopicPartition, int] = field(default_factory=dict)
    undecided: Mapping[TopicPartition, int] = field(default_factory=dict)
    elsewhere: Mapping[str, frozenset[str]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    made_anew: Mapping[str, str] = field(default_factory=dict)

    def of_topics(self, mirrored: Mapping[str, TopicState]) -> TransactionHistory:
        """What of it holds for the topics that are mirrored now: without offsets in others of the same names."""
        former = {name for name, topic_id in self.topic_ids.items() if not _is_topic(mirrored.get(name), topic_id)}
        if not former:
            return self
        made_anew: dict[str, str] = {}
        transactions = []
        for each in self.transactions:
            its = former.intersection(tp.topic for tp in (*(each.outputs or ()), *(tp for _, tp in each.offsets or ())))
            if its:
                made_anew.update((group, min(its)) for group, _ in each.offsets or ())
            transactions.append(replace(each, outputs=None) if its else each)

        def kept(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            return {tp: offset for tp, offset in offsets.items() if tp.topic not in former}

        return replace(
            self,
            transactions=tuple(transactions),
            begun=kept(self.begun),
            read=kept(self.read),
            dropped=kept(self.dropped),
            undecided=kept(self.undecided),
            made_anew=made_anew,
        )


def _is_topic(state: TopicState | None, topic_id: str) -> bool:
    return state is None or state.is_topic(topic_id)

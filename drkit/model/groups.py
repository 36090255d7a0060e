"""What consumer groups have committed: over time, in transactions; and groups whose positions aren't offsets.

A state holds what one (group, topic) had committed on all partitions together. The exact time of a commit between two
looks is unknown, so a state says when it was first seen and until when the one before it was still seen:

    looks      |     |     |     |     |     |
    commits    A        B                       (B fell between the 2nd and the 3rd look)
    states     A(at 1)     B(at 3, before=1, held_until=2)

Between 1 and 2 the group was surely at A; between 2 and 3 it was at A or already at B.

Groups that drkit can't move have no committed offsets, above all share groups (KIP-932): share consumers acknowledge
single records; for each partition the brokers keep the offset below which all are done (the share-partition start
offset) and the state of the records above it. No request moves that state to another cluster. An operator can only set
the start offset there, by time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from drkit.model.link_state import TopicState
from drkit.model.topology import TopicPartition


class GroupCommit(NamedTuple):
    """A group's committed offset on a partition."""

    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a group had committed on one topic, first seen at `at`; without positions the group was gone.

    Args:
        before: when the previous state was first seen; None: unknown (the first state, or the mirror had not been
            looking).
        held_until: the last look at which the previous state was still seen; None where `before` is None.
        expires_at: the store may forget it from then on.
        topic_id: the source's topic that these are positions in, not another one of the same name; empty: unknown.
    """

    group: str
    topic: str
    at: datetime
    positions: tuple[GroupCommit, ...]
    before: datetime | None
    held_until: datetime | None
    expires_at: datetime
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class StatesAround:
    """The states of one (group, topic) around a moment: the newest at or before it, and the next after it."""

    group: str
    topic: str
    then: GroupState | None
    following: GroupState | None


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


SHARE = "share"


@dataclass(frozen=True, slots=True)
class UnmovableGroup:
    """One such group as last seen on the source.

    Args:
        type: as the coordinator lists it: ``share``, or a type unknown to this version of drkit.
        starts: for a share group, by partition (source topic), the offset below which all records are done, or None.
    """

    group: str
    type: str
    starts: Mapping[TopicPartition, int | None]
    captured_at: datetime

    def why(self, target: str, tp: TopicPartition | None = None) -> str:
        """Why it has no position on the target, and what an operator can do there (`tp`: the partition, by target
        topic)."""
        if self.type != SHARE:
            return (
                f"a group of type {self.type}, which this drkit doesn't know: its position isn't captured; set it "
                f"on {target} with the tool for that type before its members start"
            )
        topic = "TOPIC" if tp is None else f"{tp.topic}:{tp.partition}"
        return (
            "a share group (KIP-932): it keeps no committed offset, and the state of its records can't be moved. "
            f"Before its consumers start on {target}: kafka-share-groups.sh --bootstrap-server SERVERS-OF-{target} "
            f"--group {self.group} --topic {topic} --reset-offsets --to-earliest (or --to-datetime TIME: before the "
            "first record that is not done) --execute; else its share.auto.offset.reset decides (latest, unless set)"
        )

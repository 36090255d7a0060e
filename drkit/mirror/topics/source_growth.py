"""Shows that a source wasn't set back since a topic (or an ACL) was seen on it, so that it was deleted there.

A cluster that is restored from an older copy of its disks, or formatted, keeps its id and lacks the topics made since
then, as if somebody had deleted them: what the target has of them may be all that is left. But it lacks everything else
that was written since then, too. So a batch that another topic took between two looks that both found the missing
topic, and that the source still holds (`LogBatch`: its offsets and checksum), shows a deletion. Nothing else does: not
a topic that rested since then, nor a batch that the mirror reached then and that had been written earlier. ACLs are
lost likewise, and their deletion is shown likewise.

What is deleted is deleted in the log of the controllers, and that can be set back alone, while every topic's log is
whole. But a broker never forgets what it has applied of that log: it refuses to cut its copy below what was committed
(KIP-630, `KafkaMetadataLog`), and learns of a log that was set back only by starting anew. So a deletion also takes a
broker that runs since before the batch came, and lacks the topic now: drkit's connection to it is the same
(`ClusterAdmin.sessions`). A broker that restarts, or a connection that breaks, only takes evidence away; and whatever
clocks say, a process or machine that stood still meanwhile believes nothing that it shouldn't.

Beside that the controllers' log must be, when the batch was noted, in the same leader epoch as now, and not further: a
broker could have loaded a snapshot of another log. A cluster that doesn't tell where that log ends (ZooKeeper, or no
DESCRIBE on the cluster) shows no deletion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.admin.cluster_description import MetadataEnd
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.mirror.round_robin import Turns
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition, is_canary

_NOTED_A_LOOK = 4
_NOTED = 512
_BLIND = (
    "; {} does not tell where the log of its controllers ends (drkit's principal needs DESCRIBE on the cluster; Kafka "
    "with ZooKeeper never tells), so drkit believes no deletion there by itself"
)
_COMPARED = 8
"""Of how many partitions batches are compared for a missing topic: retention or the cleaner may have removed some."""


@dataclass(slots=True)
class _Seen:
    """The first and the last look that found a topic or an ACL."""

    first: int
    last: int


class _Growth(NamedTuple):
    """A batch that a partition took after one look had asked for its end, and before another one had; `epoch`: that
    of the controllers' log by then; `sessions`: the first look's connections to brokers."""

    after: int
    before: int
    tp: TopicPartition
    batch: LogBatch
    epoch: int
    sessions: Mapping[int, int]


class _End(NamedTuple):
    """Where a partition ended at a look, and that look's connections to brokers."""

    look: int
    offset: int
    sessions: Mapping[int, int]


class SourceGrowth:
    """What a source took, look by look. Not thread-safe.

    Args:
        source: the cluster.
    """

    def __init__(self, source: ClusterAdmin) -> None:
        self._source = source
        self._look = 0
        self._topics: dict[str, _Seen] = {}
        self._rules: dict[str, _Seen] = {}
        self._ends: dict[TopicPartition, _End] = {}
        self._grown: deque[_Growth] = deque(maxlen=_NOTED)
        self._metadata = MetadataEnd(-1, -1)
        self.blind = ""
        """Why no deletion is shown at all: what to add to a message; empty where one may be."""
        self._turns = Turns()

    def saw(self, topics: Mapping[str, TopicInfo], known: Collection[str]) -> None:
        """A look found these topics; `known`: the ids of those to remember though it didn't."""
        self._look += 1
        ids = {info.topic_id for info in topics.values()}
        self._topics = _found(self._topics, ids, known, self._look)
        there = [TopicPartition(info.name, number) for info in topics.values() for number in range(info.partitions)]
        try:
            self._note(there)
        except DrkitError:
            return  # this look shows nothing

    def saw_rules(self, keys: Collection[str], known: Collection[str]) -> None:
        """The keys of the source's ACLs, read after the look's topics; `known`: those to remember though they are gone.

        They are as if seen at the start of the next look: a batch that this one saw may have come before them.
        """
        self._rules = _found(self._rules, keys, known, self._look + 1)

    def _note(self, there: Collection[TopicPartition]) -> None:
        metadata = self._metadata_end()
        if metadata is None:
            return
        sessions = self._source.sessions()  # after the topics were listed
        before = {tp: self._ends[tp] for tp in there if tp in self._ends}
        ends = self._source.log_ends(self._turns.take(there), partial=True, recent_leaders=True)
        self._ends = {**before, **{tp: _End(self._look, end, sessions) for tp, end in ends.items()}}
        grown = [tp for tp, end in ends.items() if tp in before and end > before[tp].offset]
        grown = sorted(grown, key=lambda tp: not is_canary(tp.topic))[:_NOTED_A_LOOK]
        batches = self._source.batches_at({tp: ends[tp] - 1 for tp in grown}) if grown else {}
        for tp, batch in batches.items():
            former = before[tp]
            if batch is not None and batch.base_offset >= former.offset:
                self._grown.append(_Growth(former.look, self._look, tp, batch, metadata.epoch, former.sessions))

    def _metadata_end(self) -> MetadataEnd | None:
        """Where the log of the controllers ends now. One that was further before shows nothing of what was noted until
        then, whichever epoch it gets to.

        Raises:
            Unreachable: the source doesn't answer.
        """
        found = self._source.metadata_end()
        self.blind = _BLIND.format(self._source.alias) if found is None else ""
        if found is not None:
            before = self._metadata
            if found.epoch < before.epoch or found.high_watermark < before.high_watermark:
                self._grown.clear()
            self._metadata = found
        return found

    def shows_deletion(self, topic_ids: Mapping[str, str], listed: Mapping[str, TopicInfo]) -> set[str]:
        """Those of these missing topics (names with their ids), or ACLs (their keys), that were deleted: the source
        still is the cluster that had them.

        Args:
            topic_ids: what is missing, as every broker has said since.
            listed: the topics that the source has now.

        Raises:
            Unreachable: the source doesn't answer.
        """
        if self._metadata_end() is None:
            return set()
        sessions = self._source.sessions()
        growth = {topic: self._while_there(topic_id, listed, sessions) for topic, topic_id in topic_ids.items()}
        asked = {(each.tp, each.batch.last_offset) for found in growth.values() for each in found}
        held: dict[tuple[TopicPartition, int], LogBatch | None] = {}
        while asked:  # one offset of each partition at a time
            some = dict(asked)
            held |= {(tp, some[tp]): batch for tp, batch in self._source.batches_at(some).items()}
            asked -= set(some.items())
        return {topic for topic, found in growth.items() if _holds(held, found)}

    def _while_there(
        self, topic_id: str, listed: Mapping[str, TopicInfo], sessions: Mapping[int, int]
    ) -> list[_Growth]:
        """The last batches that others took while this topic, or this ACL, was there, one of each partition, and
        before which a broker was connected as it is now."""
        seen = self._topics.get(topic_id) or self._rules.get(topic_id)
        if seen is None:
            return []
        last: dict[TopicPartition, _Growth] = {}
        for each in self._grown:
            if (
                each.epoch == self._metadata.epoch
                and each.tp.topic in listed
                and seen.first <= each.after
                and each.before < seen.last
                and not each.sessions.items().isdisjoint(sessions.items())
            ):
                last[each.tp] = each
        return sorted(last.values(), key=lambda each: each.before)[-_COMPARED:]


def _found(before: Mapping[str, _Seen], now: Collection[str], known: Collection[str], look: int) -> dict[str, _Seen]:
    found = {each: seen for each, seen in before.items() if each in now or each in known}
    for each in now:
        found.setdefault(each, _Seen(look, look)).last = look
    return found


def _holds(held: Mapping[tuple[TopicPartition, int], LogBatch | None], growth: Collection[_Growth]) -> bool:
    """Whether a source holds one of these batches, and no other batch in the place of one."""
    there = [(held.get((each.tp, each.batch.last_offset)), each.batch) for each in growth]
    same = [_is(found, batch) for found, batch in there if found is not None]
    return bool(same) and all(same)


def _is(found: LogBatch, batch: LogBatch) -> bool:
    return (found.last_offset, found.crc) == (batch.last_offset, batch.crc)

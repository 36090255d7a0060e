"""Routes each partition to the brokers that read and write it: a fetcher per source broker, a sender per target broker.

Leaders come from the clusters' metadata. Partitions of a topic are routed again when its metadata changes; those
without a reader or writer at every tick.
Where a backlog is copied below full speed, partitions that are behind have a fetcher of their own.
"""

from __future__ import annotations

import asyncio

from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Admit, Fetcher
from drkit.mirror.engine.interface import IncidentKind
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.mirror.engine.sender import Sender

_LEADERLESS_SECONDS = 3.0


class LeaderRouting:
    """See the module docstring. Used on the engine's event loop.

    Args:
        flow: state shared within the engine.
        admit: takes the read batches.
        rack: this worker's rack.
    """

    def __init__(self, flow: EngineState, admit: Admit, *, rack: str) -> None:
        self._flow = flow
        self._admit = admit
        self._rack = rack
        self._fetchers: dict[tuple[int, bool], Fetcher] = {}
        self._limited = False
        self._senders: dict[int, Sender] = {}
        self._unplaced: dict[BatchPartition, None] = {}

    def add(self, partition: BatchPartition) -> None:
        """Start reading and writing a partition, as soon as its leaders are known."""
        self._unplaced[partition] = None

    def remove(self, partition: BatchPartition) -> None:
        """Stop reading and writing it."""
        self._unplaced.pop(partition, None)
        if partition.reader is not None:
            partition.reader.remove(partition.tp)
            partition.read_by(None)
        if partition.writer is not None:
            partition.writer.withdraw(partition)
            partition.written_by(None)

    def tick(self) -> None:
        """Follow leaders, detect unresponsive brokers, send what waited for the right to produce."""
        self._place_anew()
        for partition in list(self._unplaced):
            if partition.active:
                self._place(partition)
            else:
                del self._unplaced[partition]
        for sender in self._senders.values():
            stuck = sender.stuck
            sender.tick()
            if sender.stuck != stuck:
                self._set_aside()
        for fetcher in self._fetchers.values():
            if fetcher.failure is not None:
                raise fetcher.failure

    def _place_anew(self) -> None:
        """Route partitions whose leaders may have changed, and those that another fetcher should read."""
        ours, theirs = self._flow.source.take_changed(), self._flow.target.take_changed()
        if ours or theirs:
            for partition in self._flow.partitions.values():
                if partition.tp.topic in ours or partition.target_topic in theirs:
                    self._unplaced[partition] = None
        if self._limited != self._flow.catch_up.limits:
            self._limited = not self._limited
            self._flow.moving.update(each for each in self._flow.partitions.values() if each.behind)
        self._unplaced.update(dict.fromkeys(self._flow.moving))
        self._flow.moving.clear()

    async def learn(self) -> None:
        """Look up the leaders of new topics, then route their partitions at once."""
        flow = self._flow
        topics = {tp.topic for tp in flow.partitions}
        names = {partition.target_topic for partition in flow.partitions.values()}
        asked = [each for each in (flow.source.track(topics), flow.target.track(names)) if each is not None]
        if asked:
            await asyncio.wait([asyncio.ensure_future(each) for each in asked], timeout=_LEADERLESS_SECONDS)
        self.tick()

    def backlog_nodes(self) -> set[int]:
        """The target's brokers to which a backlog is being copied."""
        if any(fetcher.backlog and fetcher.reads for fetcher in self._fetchers.values()):
            return set(self._senders)
        return set()

    def close(self) -> None:
        """Stop all reading and writing; the outcome of requests in flight stays unknown."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        for sender in self._senders.values():
            sender.close()

    def _place(self, partition: BatchPartition) -> None:
        """Route a partition to its current leaders."""
        fetcher = self._place_reader(partition)
        sender = self._place_writer(partition)
        if fetcher is None:
            self._flow.source.refresh()
        if sender is None:
            self._drop_leaderless(partition)
            return
        partition.led()
        if fetcher is not None:
            self._unplaced.pop(partition, None)

    def _place_reader(self, partition: BatchPartition) -> Fetcher | None:
        leader = self._flow.source.leader(*partition.tp) if partition.preferred is None else partition.preferred
        backlog = partition.behind and self._flow.catch_up.limits
        fetcher = None if leader is None else self._fetchers.get((leader, backlog))
        if leader is not None and fetcher is None:
            fetcher = Fetcher(self._flow, leader, self._admit, rack=self._rack, backlog=backlog)
            self._fetchers[leader, backlog] = fetcher
        before = partition.reader
        if fetcher is not None and isinstance(before, Fetcher) and fetcher is not before:
            soon_read = partition.fetchable or partition.asleep
            if soon_read and not fetcher.can_take_over_from(before):
                self._flow.moving.add(partition)  # at the next tick
                return before
        if fetcher is not before:
            if before is not None:
                before.remove(partition.tp)
            partition.read_by(fetcher)
            if fetcher is not None:
                fetcher.add(partition)
        return fetcher

    def _place_writer(self, partition: BatchPartition) -> Sender | None:
        leader = self._flow.target.leader(partition.target_topic, partition.tp.partition)
        sender = None if leader is None else self._senders.get(leader)
        if leader is not None and sender is None:
            sender = self._senders[leader] = Sender(self._flow, leader)
        if sender is not partition.writer:
            if partition.writer is not None:
                partition.writer.withdraw(partition)
                partition.written_by(None)
            if partition.outstanding:
                return None  # the former leader's answers come first: a marker has no sequence number
            partition.written_by(sender)
            if sender is not None:
                sender.offer(partition)
                sender.pump()
        return sender

    def _drop_leaderless(self, partition: BatchPartition) -> None:
        """Limit how long memory is held for a partition without a leader, or whose former leader still owes answers."""
        self._flow.target.refresh()
        if partition.leaderless() > _LEADERLESS_SECONDS and partition.queue:
            what = "the former leader of" if partition.outstanding else "no broker leads"
            then = "on the target doesn't answer" if partition.outstanding else "on the target"
            reason = f"{what} {partition.target_topic}:{partition.tp.partition} {then}"
            self._flow.halt_partition(partition, IncidentKind.UNCERTAIN, reason)

    def _set_aside(self) -> None:
        """Count batches for unresponsive brokers apart, and don't read their partitions."""
        aside = 0
        for partition in self._flow.partitions.values():
            if partition.writer is None:
                continue
            stuck = partition.writer.stuck
            if stuck:
                aside += partition.pending_bytes
            if partition.put_aside(stuck):
                self._flow.memory.copy_out(partition.queue)  # batches set aside count by themselves
        self._flow.aside = aside
        if self._flow.room > 0:
            self._flow.room_made.set()

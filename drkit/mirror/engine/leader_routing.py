"""Which broker each partition is read from and written to: a fetcher per source broker, a sender per target broker.

Leaders come from the clusters' metadata; partitions of a topic are looked at again when something else was heard of it,
and those that have no reader or writer yet at every tick.
Where a backlog is copied slower than it could be, partitions that are behind have a fetcher of their own.
"""

from __future__ import annotations

import asyncio

from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Admit, Fetcher
from drkit.mirror.engine.interface import IncidentKind
from drkit.mirror.engine.partition_queue import BatchPartition
from drkit.mirror.engine.sender import Sender

_LEADERLESS_SECONDS = 3.0


class LeaderRouting:
    """See the module docstring. Used on the engine's event loop.

    Args:
        flow: what the engine shares.
        admit: takes what was read.
        rack: of this worker.
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
        """Have a partition read and written, as soon as its leaders are known."""
        self._unplaced[partition] = None

    def remove(self, partition: BatchPartition) -> None:
        """Read and write it no longer."""
        self._unplaced.pop(partition, None)
        if partition.reader is not None:
            partition.reader.remove(partition.tp)
            partition.read_by(None)
        if partition.writer is not None:
            partition.writer.withdraw(partition)
            partition.written_by(None)

    def tick(self) -> None:
        """Follow leaders, notice brokers that don't answer, send what waited for the right to."""
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
        """Partitions whose leaders may be others now, and those that another fetcher is to read."""
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
        """Look up the leaders of new topics, then have their partitions read and written at once."""
        flow = self._flow
        topics = {tp.topic for tp in flow.partitions}
        names = {partition.target_topic for partition in flow.partitions.values()}
        asked = [each for each in (flow.source.track(topics), flow.target.track(names)) if each is not None]
        if asked:
            await asyncio.wait([asyncio.ensure_future(each) for each in asked], timeout=_LEADERLESS_SECONDS)
        self.tick()

    def backlog_nodes(self) -> set[int]:
        """The target's brokers to which a backlog is being copied now."""
        if any(fetcher.backlog and fetcher.reads for fetcher in self._fetchers.values()):
            return set(self._senders)
        return set()

    def close(self) -> None:
        """Stop all reading and writing; what is under way stays unknown."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        for sender in self._senders.values():
            sender.close()

    def _place(self, partition: BatchPartition) -> None:
        """Have a partition read and written by the brokers that lead it now."""
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
                return None  # what the former leader was sent comes first: a marker has no sequence number
            partition.written_by(sender)
            if sender is not None:
                sender.offer(partition)
                sender.pump()
        return sender

    def _drop_leaderless(self, partition: BatchPartition) -> None:
        """What is queued for a partition that nobody leads, or whose former leader still owes answers, doesn't
        stay in memory for long.
        """
        self._flow.target.refresh()
        if partition.leaderless() > _LEADERLESS_SECONDS and partition.queue:
            what = "the former leader of" if partition.outstanding else "no broker leads"
            then = "on the target doesn't answer" if partition.outstanding else "on the target"
            reason = f"{what} {partition.target_topic}:{partition.tp.partition} {then}"
            self._flow.halt_partition(partition, IncidentKind.UNCERTAIN, reason)

    def _set_aside(self) -> None:
        """Batches that wait for brokers that don't answer are counted apart, and their partitions aren't read."""
        aside = 0
        for partition in self._flow.partitions.values():
            if partition.writer is None:
                continue
            stuck = partition.writer.stuck
            if stuck:
                aside += partition.pending_bytes
            if partition.put_aside(stuck):
                self._flow.memory.copy_out(partition.queue)  # what waits apart is counted by itself
        self._flow.aside = aside
        if self._flow.room > 0:
            self._flow.room_made.set()

"""Watches both sides' logs while no request of the data path would notice what happens to them: a lost tail, and what
others write to the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.source_divergence import compare_source, earlier_divergence, halted_partitions
from drkit.lag.divergence_check import further_down
from drkit.lag.unmirrored_tail import LinkSides
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionProgress, PartitionStart
from drkit.mirror.health.problems import Problems
from drkit.mirror.round_robin import Turns
from drkit.model.clock import now
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store

_COMPARED_A_LOOK = 16
"""Of how many halted partitions records are read at each look."""


class TargetEnds:
    """Watches the target's log ends while nothing is written: only the next append would notice a lost tail, or records
    of another client.

    An append is conditional on the log's end (`drkit.mirror.engine.sender`), so only partitions that rest are asked
    for: those whose position is where it was a look ago; of very many only some in each look, in turns. What was
    acknowledged is in the log of whoever leads: an end below it is a loss. An end above it, at two looks between which
    the partition didn't move and had nothing in flight, is somebody else's. Either way the partition is taken up again,
    which finds out what is there (`drkit.mirror.resume.partition_resume`).

    The target of a way back has its own clients' records behind a failback's switch: there only losses count. Where
    others write the target always, its end tells nothing. There no log loses anything without a new leader epoch: then
    the partition is taken up again, which looks for the link's newest record (`drkit.mirror.resume.shared_target`).

    Used by one thread.

    Args:
        link: the link; whether its target has other writers, too.
        target: the cluster.
        at_rest: the engine's (`Engine.at_rest`).
    """

    def __init__(
        self, link: Link, target: ClusterAdmin, at_rest: Callable[[], Mapping[TopicPartition, PartitionProgress]]
    ) -> None:
        self._link = link
        self._target = target
        self._at_rest = at_rest
        self._below_end: dict[TopicPartition, PartitionProgress] = {}
        self._last: dict[TopicPartition, PartitionProgress] = {}
        self._led_since: dict[TopicPartition, int] = {}
        self._turns = Turns()

    def begin(self, starts: Iterable[PartitionStart]) -> None:
        """Partitions were taken up, whose target's logs were looked at in these leaders' times."""
        for start in starts:
            self._led_since[start.tp] = start.target_leader_epoch

    def check(
        self, positions: Mapping[TopicPartition, PartitionProgress], running: Iterable[TopicPartition]
    ) -> list[Incident]:
        """The partitions that lost what was acknowledged, or to which others wrote.

        Args:
            positions: where they are now.
            running: those that are mirrored now.

        Raises:
            Unreachable: the target doesn't answer.
        """
        if self._link.shares_target:
            return self._led_anew([tp for tp in running if tp in positions])
        here = {tp: positions[tp] for tp in running if tp in positions}
        resting = {tp: at for tp, at in here.items() if self._last.get(tp) == at}
        self._last = here
        if not resting:
            return []
        chosen = self._turns.take(resting)
        there = {TopicPartition(self._link.target_topic(tp.topic), tp.partition): tp for tp in chosen}
        ends = self._target.log_ends(there, partial=True, recent_leaders=True)
        found = {tp: ends[target] for target, tp in there.items() if target in ends}
        moved = [tp for tp, end in found.items() if end < resting[tp].target_end]
        if not self._link.inverse:
            moved += self._written_by_others(resting, found)
        return [
            Incident(
                tp,
                IncidentKind.UNCERTAIN,
                f"the target's log ends at {found[tp]}, {resting[tp].target_end} was acknowledged",
            )
            for tp in moved
        ]

    def _written_by_others(
        self, resting: Mapping[TopicPartition, PartitionProgress], ends: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Those whose logs ended above their positions at their last look, too."""
        beyond = {tp for tp, end in ends.items() if end > resting[tp].target_end}
        quiet = self._at_rest() if beyond else {}  # after the ends: what is acknowledged since has moved them
        above = {tp for tp in beyond if quiet.get(tp) == resting[tp]}
        found = [tp for tp in above if self._below_end.get(tp) == resting[tp]]
        before = {tp: at for tp, at in self._below_end.items() if tp not in ends and resting.get(tp) == at}
        self._below_end = before | {tp: resting[tp] for tp in above.difference(found)}
        return found

    def _led_anew(self, running: Iterable[TopicPartition]) -> list[Incident]:
        there = {TopicPartition(self._link.target_topic(tp.topic), tp.partition): tp for tp in running}
        epochs = self._target.leader_epochs(there) if there else {}
        moved = {
            tp: epochs[target] for target, tp in there.items() if epochs.get(target, -1) > self._led_since.get(tp, -1)
        }
        self._led_since.update(moved)
        return [
            Incident(
                tp,
                IncidentKind.UNCERTAIN,
                f"another leader's time (epoch {epoch}) began on the target: what landed before is looked for",
            )
            for tp, epoch in moved.items()
        ]


class SourceTruncationWatch:
    """Compares halted partitions with their source: nobody fetches from them, so no broker reports a truncation.

    A problem names the offset of the divergence as it was seen once. Until it is cleared, the source may lose more; a
    partition that is halted for another reason may lose its source's tail, too. So every few seconds the leaders are
    asked where the mirrored epochs end (`drkit.kafka.admin.logs.source_divergence`): one request to each broker for all
    such partitions. A cluster that is set back as a whole gives out epochs a second time: so below the offset on record
    both sides' records are compared, of some partitions at each look. An offset lower than the one on record replaces
    it, so lag, recovery point and positions follow.

    Used by one thread, of the worker that leads: a halted partition has no worker.

    Args:
        link: the link.
        source: the cluster.
        store: what is on record, of all workers.
        problems: where what is found goes.
        sides: connects to both clusters; None: the target has other writers, so no records are compared.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        store: Store,
        problems: Problems,
        sides: Callable[[], LinkSides] | None = None,
    ) -> None:
        self._link = link
        self._source = source
        self._store = store
        self._problems = problems
        self._sides = sides
        self._turns = Turns(_COMPARED_A_LOOK)

    def check(self) -> None:
        """Compare, and keep what is lower than on record. A source that doesn't answer shows nothing: another look
        follows.

        Raises:
            Unreachable: the store doesn't answer.
        """
        problems = self._store.problems(self._link.id)
        if not any(problem.halted for problem in problems):
            return
        marks = halted_partitions(self._store.watermarks(self._link.id), problems)
        if not marks:
            return
        topics = self._store.topic_states(self._link.id)
        look = compare_source(self._source, marks, topics, committed=self._link.committed)
        for tp, found in look.diverged.items():
            # read again: what an operator cleared meanwhile is not to come back
            problem = earlier_divergence(self._link.id, found, self._store.problems(self._link.id), now())
            if problem is not None:
                self._problems.stand(problem, tp, marks[tp].epoch)
        if self._sides is not None:
            self._look_below({tp: marks[tp] for tp in self._turns.take(look.seen)}, self._sides)

    def _look_below(self, marks: Mapping[TopicPartition, Watermark], sides: Callable[[], LinkSides]) -> None:
        """Compare both sides below the places on record, and keep what is lower."""
        known = self._store.problems(self._link.id)
        deeper, _ = further_down(known, marks, link=self._link.id, store=self._store, sides=sides)
        if not deeper:
            return
        # read again, as above
        left = {(each.kind, each.topic, each.partition): each for each in self._store.problems(self._link.id)}
        for tp, problem in deeper.items():
            there = left.get((problem.kind, problem.topic, problem.partition))
            if there is not None and (problem.differs_from or 0) < (there.differs_from or 0):
                self._problems.stand(problem, tp, marks[tp].epoch)

"""Watches the target's log ends while nothing is written: a log that lost its tail isn't noticed by the next append
before there is one.

An append is conditional on the log's end (`drkit.mirror.engine.sender`), so only partitions that rest are asked for:
those whose position is where it was a look ago; of very many only some in each look, in turns. What was acknowledged is
in the log of whoever leads: an end below it is a loss.

Where others write the target, too, its end tells nothing. There no log loses anything without another leader's time
beginning: then the partition is taken up again, which looks for the link's newest record
(`drkit.mirror.resume.shared_target`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionProgress, PartitionStart
from drkit.mirror.round_robin import Turns
from drkit.model.topology import Link, TopicPartition


class TargetEnds:
    """See the module docstring. Used by one thread.

    Args:
        link: the link; whether its target has other writers, too.
        target: the cluster.
    """

    def __init__(self, link: Link, target: ClusterAdmin) -> None:
        self._link = link
        self._target = target
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
        """The partitions that lost what was acknowledged.

        Args:
            positions: where they are now.
            running: those that are mirrored now.

        Raises:
            Unreachable: the target doesn't answer.
        """
        if self._link.shares_target:
            return self._led_anew([tp for tp in running if tp in positions])
        here = {tp: positions[tp] for tp in running if tp in positions}
        resting = {tp: at for tp, at in here.items() if at.target_end > 0 and self._last.get(tp) == at}
        self._last = here
        if not resting:
            return []
        chosen = self._turns.take(resting)
        there = {TopicPartition(self._link.target_topic(tp.topic), tp.partition): tp for tp in chosen}
        ends = self._target.log_ends(there, partial=True, recent_leaders=True)
        return [
            Incident(
                tp,
                IncidentKind.UNCERTAIN,
                f"the target's log ends at {ends[target]}, {resting[tp].target_end} was acknowledged",
            )
            for target, tp in there.items()
            if target in ends and ends[target] < resting[tp].target_end
        ]

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

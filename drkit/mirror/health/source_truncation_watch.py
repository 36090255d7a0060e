"""Compares halted partitions with their source: nobody fetches from them, so no broker reports a further truncation.

A problem names the offset of the divergence as it was seen once. Until it is cleared, the source may lose more; a
partition that is halted for another reason may lose its source's tail, too. So every few seconds the leaders are asked
where the mirrored epochs end (`drkit.kafka.admin.source_divergence`): one request to each broker for all such
partitions. What is found lower than on record is put there, so lag, recovery point and positions follow.
"""

from __future__ import annotations

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.source_divergence import KIND, compare_source, earlier_divergence, halted_partitions
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.topology import Link
from drkit.store.api import Store


class SourceTruncationWatch:
    """See the module docstring. Used by one thread, of the worker that leads: what stands still is nobody's work.

    Args:
        link: the link.
        source: the cluster.
        store: what is on record, of all workers.
        problems: where what is found goes.
    """

    def __init__(self, link: Link, source: ClusterAdmin, store: Store, problems: Problems) -> None:
        self._link = link
        self._source = source
        self._store = store
        self._problems = problems

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
                self._problems.put_standing(
                    KIND, tp, marks[tp].epoch, problem.reason, problem.remedy, unsure=found.unsure
                )

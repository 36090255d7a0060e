"""From an incident to the next start: settles halted partitions, and finds where the startable ones continue.

All of it runs on the thread `resume`; the data thread starts partitions.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from drkit.mirror.engine.interface import (
    RECORD_REJECTED,
    SOURCE_UNREADABLE,
    TRIED_AGAIN,
    Incident,
    IncidentKind,
    PartitionProgress,
)
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.purge_watch import PurgeWatch
from drkit.mirror.health.returned_records import ReturnedRecords
from drkit.mirror.health.stalls import Stalls
from drkit.mirror.resume.partition_resume import UNSEEN_REMEDY, Resumed, Resumer
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.mirror.workers.rebalance import Rebalance
from drkit.model.errors import DrkitError, Fenced
from drkit.model.link_state import SOURCE_GAP, TopicState
from drkit.model.topology import LinkId, TopicPartition

log = logging.getLogger(__name__)

_FIRST_AT_ONCE, _RESUMED_AT_ONCE = 500, 2_000
"""The first partitions don't wait for the last. Each further portion costs a dozen requests to both clusters, and all
of the link's watermarks and problems."""
_UNSEEN = "its offsets on both sides could not be observed: a broker that leads it doesn't answer"
_ANOTHER = "its topic is not listed on one side, or is another one than was mirrored"
_REFUSED = {IncidentKind.REJECTED: RECORD_REJECTED, IncidentKind.UNREADABLE: SOURCE_UNREADABLE}


_GAP = (
    "The topic isn't compacted, so a broker skips a batch that it can't find behind a damaged length; or the topic was "
    "compacted earlier, and drkit hasn't seen that"
)


class PartitionStarter:
    """See the module docstring.

    Args:
        link: the link.
        rebalance: knows this worker's partitions, and claims them.
        resumer: finds where a partition continues.
        problems, stalls: get the reasons why partitions are halted.
        purges: gets partitions that start.
        positions: the engine's.
        keep_progress: stores positions.
        check_topics: requests a topic sync soon.
        start: starts partitions on the data thread, unless they were taken again after that take.
        halt, unhalt: have the logs of partitions observed that wait for an operator, until they are taken again.
        leave: has no watermark of partitions written any more, before a resume changes the stored ones.
        ending: set when the run ends.
    """

    def __init__(
        self,
        link: LinkId,
        rebalance: Rebalance,
        resumer: Resumer,
        problems: Problems,
        stalls: Stalls,
        purges: PurgeWatch,
        returned: ReturnedRecords,
        *,
        positions: Callable[[], Mapping[TopicPartition, PartitionProgress]],
        keep_progress: Callable[[], None],
        check_topics: Callable[[], None],
        start: Callable[[Sequence[Resumed], int], None],
        halt: Callable[[Mapping[TopicPartition, TopicState]], None],
        unhalt: Callable[[Iterable[TopicPartition]], None],
        leave: Callable[[Iterable[TopicPartition]], None],
        ending: threading.Event,
    ) -> None:
        self._link = link
        self._rebalance = rebalance
        self._assignment = rebalance.assignment
        self._resumer = resumer
        self._problems = problems
        self._stalls = stalls
        self._purges = purges
        self._returned = returned
        self._positions = positions
        self._keep_progress = keep_progress
        self._check_topics = check_topics
        self._start = start
        self._halt, self._unhalt, self._leave = halt, unhalt, leave
        self._halted: dict[TopicPartition, TopicState] = {}
        self._ending = ending
        self._incidents: queue.Queue[Incident] = queue.Queue()
        self._unsettled: list[Incident] = []
        self._doubted: set[TopicPartition] = set()

    def report(self, incident: Incident) -> None:
        """Report a halted partition. May be called from any thread."""
        self._incidents.put(incident)

    def run(self) -> None:
        """Settle reported incidents, then resume and start partitions."""
        while not self._incidents.empty():
            self._unsettled.append(self._incidents.get())
        if self._unsettled:
            self._keep_progress()  # once for all: thousands of partitions may have lost the same broker
        while self._unsettled:
            self._settle(self._unsettled[0])
            self._unsettled.pop(0)
        most = _FIRST_AT_ONCE
        while self._rebalance.worker.valid() and not self._ending.is_set():
            more = self._start_some(most)
            if self._halted:
                self._halt(self._halted)
                self._halted = {}
            if not more:
                return
            most = _RESUMED_AT_ONCE

    def _start_some(self, most: int) -> bool:
        """Start that many waiting partitions; returns whether there may be more."""
        left, take = self._assignment.take(most)
        more = len(left) == most
        try:
            self._unhalt(left)
            claims = self._rebalance.claim(left) if left else {}
            claimed = {tp: ready for tp, ready in left.items() if tp in claims}
            if claimed:
                self._problems.take_over(claimed)
            resumed = []
            if claimed:
                resumed = [
                    replace(each, start=replace(each.start, claim=claims[each.start.tp]))
                    for each in self._resumer.resume(claimed, self._ending, self._doubted, leave=self._leave)
                ]
            for watch in (self._purges, self._returned):
                watch.begin([each.watermark for each in resumed])
            for each in resumed:
                del left[each.start.tp]
                self._doubted.discard(each.start.tp)
            halted = [tp for tp in left if self._problems.awaits_operator(tp)]
            self._assignment.halted(halted)
            self._halted |= {tp: claimed[tp].state for tp in halted if tp in claimed}
            if claimed and not self._ending.is_set():
                self._note_failed([tp for tp in left if tp in claimed])
            if resumed:
                self._rebalance.started([each.start.tp for each in resumed])
                self._start(resumed, take)
        except Fenced as error:
            self._rebalance.fenced(error)
        finally:
            self._assignment.give_back(tp for tp in left if not self._problems.awaits_operator(tp))
        return more

    def _note_failed(self, tps: Sequence[TopicPartition]) -> None:
        """Note partitions that could not be started; they are retried, except those that an operator must decide
        about."""
        if self._resumer.replaced:
            self._check_topics()  # the topic sync decides about them
        for tp in tps:
            if not self._problems.awaits_operator(tp):
                denied = self._resumer.denied.get(tp)
                why = _ANOTHER if tp in self._resumer.replaced else _UNSEEN
                told = (why, UNSEEN_REMEDY) if denied is None else (denied.what, denied.remedy or UNSEEN_REMEDY)
                self._stalls.failed(tp, *told)

    def _settle(self, incident: Incident) -> None:
        tp, ready = incident.tp, self._assignment.partitions().get(incident.tp)
        if incident.kind is IncidentKind.NOT_ALIGNED:
            reason, remedy = incident.reason, incident.remedy
            self._problems.put("alignment_refused", tp.topic, tp.partition, reason, remedy, halted=True)
            self._assignment.halted([tp])
            if ready is not None:
                self._halted[tp] = ready.state
            return
        if incident.gap is not None and ready is not None and self._is_loss(tp, ready, incident.gap):
            self._resumer.note_source_gap(tp, ready.state.epoch, incident.gap)
            self._stalls.refused(
                tp, SOURCE_GAP, f"{incident.reason}. {_GAP}", self._gap_remedy(tp), self._positions().get(tp)
            )
        elif incident.kind in _REFUSED:
            kind, remedy = _REFUSED[incident.kind], incident.remedy or f"Remove the cause. {TRIED_AGAIN}"
            self._stalls.refused(tp, kind, incident.reason, remedy, self._positions().get(tp))
        elif incident.kind in {IncidentKind.SOURCE_AWAY, IncidentKind.GAP}:  # a topic that is compacted now has gaps
            log.info("%s %s: checking both sides again: %s", self._link, tp, incident.reason)
        else:
            log.warning("%s %s: checking both sides again: %s", self._link, tp, incident.reason)
            self._stalls.failed(tp, incident.reason, incident.remedy)
        if incident.kind is IncidentKind.MISPLACED:
            self._doubted.add(tp)
        if incident.kind in {IncidentKind.TOPIC_GONE, IncidentKind.MISPLACED}:
            self._check_topics()
        self._assignment.observe_again(incident)

    def _is_loss(self, tp: TopicPartition, ready: ReadyTopic, gap: tuple[int, int]) -> bool:
        """Whether compaction doesn't explain what the source skips: a topic that is compacted now may have other gaps
        than one that was told before."""
        if self._resumer.told_gap(tp, ready.state.epoch, gap):
            return True
        if ready.compacted:
            return False
        try:
            compacted = self._resumer.is_compacted(tp.topic)  # since the last look at the topics it may have become so
        except DrkitError:
            return False  # it is read again, and found again
        if compacted:
            self._check_topics()
        return not compacted

    def _gap_remedy(self, tp: TopicPartition) -> str:
        return (
            f"If another replica of {tp} has the batch, let it lead (kafka-leader-election). Else `drkit link "
            f"acknowledge '{self._link}' {SOURCE_GAP} --topic {tp.topic}` goes on without these offsets. If the topic "
            f"was compacted once, --compacted goes on without any gap in what {self._link.source} holds of it now. "
            f"{TRIED_AGAIN}"
        )

"""Detects by leader epochs, without guessing, whether a source lost mirrored records. Pure, except for
`compare_source`.

A log that ends below the mirrored offset was visibly truncated. Once it has grown beyond that point again, its end
proves nothing; its history of leader epochs (KIP-101) does. A watermark stores the leader epoch of the last batch
below its `source_through`. An intact source knows that epoch, which ends there or above. If it ends below, a leader
was elected that lacked the records between (an unclean election), and the source now has other records at their
offsets. If the epoch isn't known although the log is long enough, an older log was restored.

    mirrored        0 ─── epoch 3 ─── 80 ─── epoch 3 ─── 100        source_through 100, leader_epoch 3
    source now      0 ─── epoch 3 ─── 80 ─── epoch 4 ─────────── 130        epoch 3 ends at 80: 20 lost
    or              0 ─── epoch 2 ───────────────── 110 ─ epoch 4 ── 130        epoch 3 isn't known: some lost

While a partition is read, the broker itself compares epochs with each Fetch (KIP-595) and returns nothing of a log
that differs; this check runs before reading starts or continues. A leader without any history of epochs (old log
formats) proves nothing: drkit reports no divergence.

A source may be truncated again, further down. So everything that reports how much of a partition is mirrored checks
again (`compare_source`): the mirror for halted partitions (`drkit.mirror.health.truncation_watches`), a status, a
translation and a failover's snapshot themselves. An offset is only ever lowered (`earlier_divergence`): an epoch
history that retention shortened shows less than before, never more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.leader_epochs import EpochEnd, KeptEpochs, kept_offsets
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import RECREATED, SOURCE_TRUNCATED, TOPIC_RECREATED, Problem, TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, LinkId, TopicPartition

KIND = SOURCE_TRUNCATED
"""Kind of the problem; the partition is halted until an operator decides."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A partition whose source lost mirrored records, from `kept` through offset `through` - 1.

    `epoch`: the leader epoch of the last batch mirrored; None if only the log's end shows the loss. `undecided`: the
    source's last stable offset, if below `kept`: the lost tail held the end of a transaction whose records were
    mirrored as committed, and which is open there again; None: none is, or the link also mirrors open transactions.
    `replaced`: the source offset (0: unknown) from which the source holds something else below `kept`, too, or may,
    and why; None: it doesn't (`drkit.lag.divergence_check`), or nobody has looked.
    """

    tp: TopicPartition
    through: int
    target_end: int
    kept: KeptEpochs
    epoch: int | None
    undecided: int | None = None
    replaced: tuple[int, str] | None = None

    def reason(self, link: LinkId) -> str:
        """What happened, for the problem."""
        first, last = self.kept.offset, self.through - 1
        if self.epoch is None:
            why = f"its log ends at {first} there"
        elif self.kept.exact:
            why = f"leader epoch {self.epoch} ends at {first} there, and other records may have replaced them"
        else:
            why = f"its log there doesn't know leader epoch {self.epoch}, in which the last of them was written"
        lost = f"offsets {first} to {last}" if first <= last else f"offsets below {self.through}"
        also = "" if self.kept.exact else ", and maybe earlier ones,"
        opened = (
            ""
            if self.undecided is None
            else f". With them went the end of a transaction: what was mirrored as committed from offset "
            f"{self.undecided} on is open there again, and may yet be aborted"
        )
        more = "" if self.replaced is None else f"; {self.replaced[1]} (a cluster that was set back as a whole?)"
        return f"{self.tp} on {link.source} lost {lost}{also} after they were mirrored: {why}{more}{opened}"

    @property
    def unsure(self) -> tuple[int, None]:
        """The source offsets whose target offset isn't exact (`Problem.unsure_from`)."""
        if not self.kept.exact:
            return (0, None)
        first = self.kept.offset if self.undecided is None else self.undecided
        return (first if self.replaced is None else min(first, self.replaced[0]), None)

    def seen_with(self, stable_end: int) -> Divergence:
        """This, with the source's last stable offset, for a link that mirrors committed records: all mirrored records
        were below it, so if it is lower now, a transaction is open again."""
        return replace(self, undecided=stable_end) if stable_end < self.kept.offset else self

    def remedy(self, link: LinkId) -> str:
        """What to do, for the problem."""
        return (
            f"{remedy_of(link, self.tp.topic)}, behind what {link.target} holds of it "
            f"({self.target_end} offsets of "
            f"partition {self.tp.partition}, which stay); to have exactly the source's records there, delete the topic "
            f"on {link.target} first"
        )


def remedy_of(link: LinkId, topic: str) -> str:
    """What to do if a source lost mirrored records; the caller adds after what the topic is mirrored again."""
    return (
        f"The lost records are on {link.target} only. Find out why {link.source} lost them (an unclean leader "
        f"election, a disk?). To continue with what {link.target} holds: `drkit failover --to {link.target}`. To "
        f"continue with what {link.source} has: `drkit link resume '{link}' --topic {topic} "
        "--accept-recreated` mirrors the whole topic again"
    )


def divergence(mirrored: Watermark, end: EpochEnd | None, log_end: int) -> Divergence | None:
    """Whether a source lost mirrored records.

    Args:
        mirrored: the watermark.
        end: the response of the source's leader for the watermark's leader epoch; None if unknown.
        log_end: the source's high watermark.
    """
    epoch = mirrored.leader_epoch
    if epoch is not None and end is not None and end.end >= 0:
        kept = kept_offsets(mirrored.source_through, epoch, end)
        return None if kept is None else _divergence(mirrored, kept, epoch)
    if log_end < mirrored.source_through:
        return _divergence(mirrored, KeptEpochs(log_end, exact=True), None)
    return None


def _divergence(mirrored: Watermark, kept: KeptEpochs, epoch: int | None) -> Divergence:
    return Divergence(mirrored.tp, mirrored.source_through, mirrored.target_end, kept, epoch)


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """The result of comparing the source's logs with the watermarks.

    `seen`: the partitions that could be compared; `diverged`: those of them that lost mirrored records. `anew`:
    recreated topics, with their new ids. `why`: why the others could not be compared. `unanswered`: mirrored partitions
    whose leader keeps epochs, or may, and did not say where the mirrored one ends.
    """

    seen: frozenset[TopicPartition] = frozenset()
    diverged: Mapping[TopicPartition, Divergence] = field(default_factory=dict)
    anew: Mapping[str, str] = field(default_factory=dict)
    why: str = "no leader answers for it, or its topic there isn't the one that was mirrored"
    unanswered: frozenset[TopicPartition] = frozenset()


def compare_source(
    source: ClusterAdmin,
    marks: Mapping[TopicPartition, Watermark],
    topics: Mapping[str, TopicState],
    *,
    committed: bool,
) -> SourceComparison:
    """Compare the source's current logs with the watermarks.

    Nothing is compared if the cluster doesn't answer, nor for a recreated topic (`SourceComparison.anew`), nor for one
    that isn't of the watermark's epoch. Sends few requests, however many partitions there are.

    Args:
        source: the cluster.
        marks: watermarks, read before.
        topics: the stored states of the topics.
        committed: whether to check, too, which transactions are open again (`Divergence.undecided`): for links that
            mirror committed records.
    """
    try:
        there = source.topics({tp.topic for tp in marks}, denied=set())
        same = {
            tp: mark
            for tp, mark in marks.items()
            if (state := topics.get(tp.topic)) is not None
            and state.epoch == mark.epoch
            and (found := there.get(tp.topic)) is not None
            and found.topic_id == state.source_topic_id
        }
        anew = {
            name: found.topic_id
            for name, found in there.items()
            if (state := topics.get(name)) is not None and found.topic_id != state.source_topic_id
        }
        if not same:
            return SourceComparison(anew=anew)
        ends = source.epoch_ends({tp: mark.leader_epoch for tp, mark in same.items() if mark.leader_epoch is not None})
        silent = [tp for tp, mark in same.items() if mark.leader_epoch is None or (tp in ends and ends[tp].end < 0)]
        log_ends = source.end_offsets(silent, committed=False, partial=True) if silent else {}
        diverged = {
            tp: each
            for tp, mark in same.items()
            if (tp in ends or tp in log_ends)
            and (each := divergence(mark, ends.get(tp), log_ends.get(tp, mark.source_through))) is not None
        }
        stable = source.end_offsets(diverged, committed=True, partial=True) if committed and diverged else {}
    except (Unreachable, AuthenticationError, Refused) as error:
        return SourceComparison(why=str(error))
    diverged |= {tp: diverged[tp].seen_with(end) for tp, end in stable.items()}
    # a log without epochs shows a loss only until it has grown again
    unanswered = frozenset(tp for tp, mark in same.items() if mark.leader_epoch is not None and tp not in ends)
    seen = frozenset(tp for tp in ends if tp not in silent) | diverged.keys()
    return SourceComparison(seen, diverged, anew, unanswered=unanswered)


def halted_partitions(
    marks: Mapping[TopicPartition, Watermark], problems: Iterable[Problem]
) -> dict[TopicPartition, Watermark]:
    """The partitions that a problem halts: nothing is fetched from them, so no broker compares epochs. Without those
    of recreated topics: nothing of them counts as mirrored."""
    halted = [problem for problem in problems if problem.halted]
    whole = {problem.topic for problem in halted if problem.partition is None}
    single = {TopicPartition(problem.topic, problem.partition) for problem in halted if problem.partition is not None}
    anew = {problem.topic for problem in halted if problem.kind in RECREATED}
    return {tp: mark for tp, mark in marks.items() if (tp.topic in whole or tp in single) and tp.topic not in anew}


def earlier_divergence(link: LinkId, found: Divergence, problems: Iterable[Problem], at: datetime) -> Problem | None:
    """The problem of a new divergence; None if the recorded problem already covers it."""
    tp = found.tp
    known = next((p for p in problems if p.kind == KIND and (p.topic, p.partition) == (tp.topic, tp.partition)), None)
    first, end = found.unsure
    if known is not None and known.unsure_from is not None and known.unsure_from <= first:
        return None
    since = at if known is None else known.since
    reason, remedy = found.reason(link), found.remedy(link)
    return Problem(
        KIND, tp.topic, tp.partition, reason, remedy, halted=True, since=since, unsure_from=first, unsure_until=end
    )


@dataclass(frozen=True, slots=True)
class DivergenceProblems:
    """Problems after the comparison with the source. `unseen`: partitions whose source has lost records, and may
    have lost more since, which can't be checked now. `unjudged`: why it isn't known of others whether their source has
    lost any."""

    problems: list[Problem]
    unseen: frozenset[TopicPartition] = frozenset()
    unjudged: Mapping[TopicPartition, str] = field(default_factory=dict)


def with_divergence_now(
    source: Callable[[], ClusterAdmin],
    link: Link,
    marks: Mapping[TopicPartition, Watermark],
    topics: Mapping[str, TopicState],
    problems: Sequence[Problem],
    at: datetime,
    *,
    unwatched: Collection[TopicPartition],
    check: Callable[[Mapping[TopicPartition, Divergence]], Mapping[TopicPartition, Divergence]] = dict,
) -> DivergenceProblems:
    """The recorded problems, with the current point of divergence.

    Args:
        source: connects to the source; called only if there is something to check.
        link: the link.
        marks: its relevant watermarks.
        topics: the stored states of its topics.
        problems: the recorded ones.
        at: now.
        unwatched: partitions that no mirror fetches from, so that it would not see a loss; besides these only halted
            ones are checked.
        check: looks whether the source holds below a divergence what was mirrored (`drkit.lag.divergence_check`).
    """
    wanted = halted_partitions(marks, problems) | {tp: mark for tp, mark in marks.items() if tp in unwatched}
    if not wanted:
        return DivergenceProblems(list(problems))
    try:
        admin = source()
        look = compare_source(admin, wanted, topics, committed=link.committed)
        by_name = bool(look.anew) and not admin.reads_by_topic_id
    except (Unreachable, AuthenticationError) as error:
        look, by_name = SourceComparison(why=str(error)), False
    fresh = [
        each
        for found in check(look.diverged).values()
        if (each := earlier_divergence(link.id, found, problems, at)) is not None
    ]
    known = {problem.topic for problem in problems if problem.kind == TOPIC_RECREATED}
    fresh += [
        topic_recreated(link.id, topics[name], look.anew[name], at, by_name=by_name)
        for name in sorted(look.anew.keys() - known)
    ]
    places = {(problem.topic, problem.partition) for problem in fresh}
    kept = []
    unseen = set()
    for problem in problems:
        tp = None if problem.partition is None else TopicPartition(problem.topic, problem.partition)
        if problem.kind != KIND:
            kept.append(problem)
        elif (problem.topic, problem.partition) in places:
            continue
        elif tp is not None and tp in wanted and tp not in look.seen:
            unseen.add(tp)
            why = f"{problem.reason}; it is unknown whether {link.id.source} has lost more since: {look.why}"
            kept.append(replace(problem, reason=why))
        else:
            kept.append(problem)
    unjudged = {
        tp: f"whether {link.id.source} still holds what was mirrored is not known: the leader of {tp} there, or its "
        f"metadata, says nothing of leader epoch {wanted[tp].leader_epoch}, in which the last of it was written"
        for tp in look.unanswered - unseen
    }
    return DivergenceProblems(kept + fresh, frozenset(unseen), unjudged)


def topic_recreated(link: LinkId, state: TopicState, topic_id: str, at: datetime, *, by_name: bool) -> Problem:
    """The problem that a topic on the source was recreated. `by_name`: its brokers are read by a topic's name, so what
    was read before this was noticed may be the new topic's."""
    before = "; what was read of it before this was noticed may be on the target already, since brokers older than "
    before = f"{before}Kafka 3.1 are read by a topic's name" if by_name else ""
    return Problem(
        TOPIC_RECREATED,
        state.topic,
        None,
        f"{state.topic} on {link.source} is a new topic of the same name (id {topic_id}, mirrored was "
        f"{state.source_topic_id}){before}",
        f"If that is intended: `drkit link resume '{link}' --topic {state.topic} --accept-recreated` mirrors the new "
        "topic from its start, behind what the target holds",
        halted=True,
        since=at,
    )

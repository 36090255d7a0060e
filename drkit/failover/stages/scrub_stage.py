"""The stage that makes the old primary a fresh target: it deletes what was salvaged, or is on the live cluster.

It touches only what the plan names and only if unchanged: the cluster by its id, each topic by the id of its
incarnation. An empty topic with another id was created by an interrupted attempt; one that holds records belongs to
somebody else, and stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from drkit.failover.context.state_machine import Facts, StageOutcome
from drkit.failover.failback.checks import why_not_level
from drkit.failover.failback.failback_snapshot import running_mirror, scrub_topics, take_failback_snapshot
from drkit.failover.fencing.quiescence import differing
from drkit.failover.fencing.write_block import block_writes, let_writes_in
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.stages.late_commits import commits_end, keep_late_commits
from drkit.failover.stages.salvage_stage import (
    CLEANED,
    UNREAD,
    UNREPLICATED,
    WRITTEN,
    check_cluster,
    committed_on,
    ends_now,
    keep,
    refuse_gaps,
    stale,
    topics_at_salvage,
    unreadable_salvages,
)
from drkit.failover.stages.stage import StageContext, StageReport
from drkit.kafka.admin.cluster_admin import TOPIC_EXISTS, ClusterAdmin, NewTopic, TopicInfo
from drkit.kafka.admin.topic_requests import TooLate
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.runs import ACCEPT_UNFENCED
from drkit.model.topics.removing import is_compacted
from drkit.model.topics.standby import ALIGNING, OWN_SETTINGS, UNCOMPACTED, own_note
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more, counted

_ROUNDS = 4
_LOOKS = 20
_ANOTHER_LOOK = (UNREAD, UNREPLICATED)
"""How reasons begin that another salvage doesn't remove."""
_REPLICATION_SECONDS = 60.0
"""How long a round waits for what isn't replicated: twice replica.lag.time.max.ms."""
_AT_ONCE_SECONDS = 0.25
"""How long after the last look topics may be deleted: a look says nothing about a cluster that is set back later."""


@dataclass(slots=True)
class _Deletion:
    """A deletion that may have to wait for another look. `unanswered`: it was asked for, and may still be carried
    out."""

    unanswered: bool = False

    def ask(self, delete: Callable[[], None]) -> None:
        """Delete, and note whether that is answered.

        Raises:
            TooLate: nothing was asked for now; it may have been before.
            Refused: the cluster has answered that it doesn't delete something.
            DrkitError: it doesn't answer.
        """
        before, self.unanswered = self.unanswered, True
        try:
            delete()
        except TooLate as late:
            self.unanswered = before or late.sent_before
            raise
        except Refused:
            self.unanswered = before
            raise
        self.unanswered = before


@dataclass(frozen=True, slots=True)
class Scrub:
    """Delete the covered topics of the old primary and create them again; delete the groups' offsets on them."""

    cluster: str
    cluster_id: str
    live: str
    configured: LinkId
    topics: tuple[ScrubTopic, ...]
    offsets: int
    level: bool = False
    name: str = "scrub"

    def explain(self) -> str:
        """What it will do."""
        if self.level:
            return f"nothing is deleted: all that {self.cluster} holds was mirrored, so it is only brought up to date"
        if not self.topics:
            return f"nothing is deleted: {self.cluster} ({self.cluster_id}) has no topic of the link"
        records = sum(topic.records for topic in self.topics)
        return (
            f"on {self.cluster} ({self.cluster_id}) delete and recreate {counted(len(self.topics), 'topic')} "
            f"({counted(records, 'offset')}) and delete {counted(self.offsets, 'committed offset')}; nothing else"
        )

    def execute(self, context: StageContext) -> StageReport:
        """Check again, delete, create, delete offsets."""
        admin = context.estate.admin(self.cluster)
        check_cluster(context, self.cluster, self.cluster_id)
        worker = running_mirror(context.estate, context.link.reversed())
        if worker is not None:
            raise Refused(f"a mirror is running on {self.configured}, or on its way back: {worker}", remedy="Stop it")
        if self.level:
            return self._spared(context)
        found = admin.topics([topic.topic for topic in self.topics])
        old = tuple(topic for topic in self.topics if _is_old(topic, found))
        _check_new(admin, self.cluster, [info for name, info in found.items() if name not in {t.topic for t in old}])
        facts, carry, unblocked = self._delete_kept(context, old)
        context.lease.check()  # or they belong to another run by now, and may be live
        facts, late = keep_late_commits(
            replace(context, facts=facts, carried=carry), self.cluster, self.live, self.topics
        )
        ids = self._recreate(context, admin)
        let_writes_in(context.estate, self.configured, self.cluster)
        delete_offsets(context, self.cluster, set(ids))
        facts = replace(facts, scrubbed=ids)
        if not ids:
            return StageReport(StageOutcome.OK, f"nothing to delete on {self.cluster}", facts)
        gone = self._unreadable(context, facts, {topic.topic for topic in old})
        return StageReport(
            StageOutcome.OK,
            f"{counted(len(ids), 'topic')} deleted and recreated, "
            f"{counted(self.offsets, 'committed offset')} gone{late}{unblocked}{gone}",
            facts,
        )

    def _recreate(self, context: StageContext, admin: ClusterAdmin) -> dict[str, str]:
        """As `recreate`; topics that clients have made meanwhile are taken for the run's own only if they are alike and
        empty. One that is empty otherwise is deleted first.

        Raises:
            Refused: one holds records, or clients make them faster than they are deleted.
        """
        for _ in range(_ROUNDS):
            found = admin.topics([topic.topic for topic in self.topics])
            _check_new(admin, self.cluster, list(found.values()))
            unlike = [
                replace(topic, topic_id=there.topic_id, partitions=there.partitions)
                for topic in self.topics
                if (there := found.get(topic.topic)) is not None and not _is_alike(topic, there)
            ]
            try:
                if unlike:
                    self._delete_empty(context, admin, unlike)
                return recreate(context, admin, self.topics)
            except TopicMadeMeanwhile:
                continue
        raise Refused(
            f"clients of {self.cluster} make topics anew before the run can, {_ROUNDS} times in a row: "
            f"{and_more([topic.topic for topic in self.topics])}",
            meaning="Its brokers create a topic when a client asks for it (auto.create.topics.enable), with their own "
            "number of partitions; what was deleted is salvaged or on the live cluster",
            remedy=f"Stop the clients of {self.cluster}, then drkit resume {context.run}",
        )

    def _delete_empty(self, context: StageContext, admin: ClusterAdmin, topics: Sequence[ScrubTopic]) -> None:
        """Delete topics that clients have made, while nobody can write to them, right after a look shows them empty."""
        with self._no_writes(context, topics):
            for _ in range(_LOOKS):
                _check_new(admin, self.cluster, list(admin.topics([topic.topic for topic in topics]).values()))
                context.lease.check()
                try:
                    _delete(admin, topics, Deadline.after(_AT_ONCE_SECONDS))
                except TooLate:
                    continue
                return
        raise Refused(
            f"{_LOOKS} times empty topics of {self.cluster} could not be deleted within {_AT_ONCE_SECONDS:g} s of a "
            f"look at them: {and_more([topic.topic for topic in topics])}",
            meaning="Clients have made them, with another number of partitions, where the run recreates its own; what "
            "was deleted is salvaged or on the live cluster",
            remedy=f"See what slows this machine or {self.cluster} down, then drkit resume {context.run}",
        )

    def _unreadable(self, context: StageContext, facts: Facts, checked: set[str]) -> str:
        """A sentence if the salvage of topics that an interrupted attempt deleted can't be read here any more."""
        found = []
        for path in sorted({kept.path for name, kept in facts.kept.items() if name not in checked}):
            try:
                context.required_ports.salvager.check(path)
            except DrkitError as error:
                found.append(error.what)
        return f"; a salvage of topics deleted before can't be read back here: {'; '.join(found)}" if found else ""

    def _spared(self, context: StageContext) -> StageReport:
        """Delete nothing, if the topics are still as planned, and the live cluster still makes up for it."""
        found = context.estate.admin(self.cluster).topics([topic.topic for topic in self.topics])
        planned = {str(TopicPartition(t.topic, number)): end for t in self.topics for number, end in t.ends.items()}
        found_ends = {str(tp): end for tp, end in ends_now(context, self.cluster, self.topics).items()}
        moved = differing(planned, found_ends)
        gone = [topic.topic for topic in self.topics if not _is_old(topic, found)]
        if moved or gone:
            raise Refused(
                f"{self.cluster} is not as planned: {and_more((*gone, *moved))}",
                meaning="It was written since, or topics were recreated: what is there now must be kept first",
                remedy="Stop the writers there, then plan the failback again",
            )
        snapshot = take_failback_snapshot(context.estate, context.link.reversed())
        unlike = why_not_level(snapshot, tuple(scrub_topics(snapshot)))
        if unlike is not None:
            raise Refused(
                f"{self.cluster} can't just be brought up to date any more: {unlike}",
                meaning="It was so when the plan was made; nothing was changed",
                remedy="Plan the failback again",
            )
        return StageReport(
            StageOutcome.SKIPPED,
            f"{self.cluster} holds nothing that isn't elsewhere: nothing is deleted",
            context.facts,
        )

    def _delete_kept(
        self, context: StageContext, old: Sequence[ScrubTopic]
    ) -> tuple[Facts, tuple[PlannedPosition, ...], str]:
        """Check that each topic's salvage can be read back and is still complete, and delete them; else salvage again.

        Reading back a large salvage takes minutes. So both logs and the committed offsets are checked again at the
        end, while nobody can write to the topics any more; and the deletion follows at once, or all is checked again.

        Returns:
            The facts, the carried offsets, and a clause where writes could not be blocked, or the live cluster lacks
            what was accepted.
        """
        facts, why = context.facts, ""
        if not old and not self.topics:
            return facts, context.carried, ""
        if not old:
            facts = replace(facts, deleting=True)  # what an interrupted attempt left undone is done from here on
            context.establish(facts, context.carried)
            return facts, context.carried, ""
        cleaned = set[str]()
        for _ in range(_ROUNDS):
            unreadable = unreadable_salvages(context, facts, [topic.topic for topic in old])
            behind = stale(facts, unreadable, topics_at_salvage(context, self.cluster, self.live, old, facts.kept))
            if not behind:
                lacks = refuse_gaps(context, self.live, old, facts)
                with self._no_writes(context, old) as unblocked:
                    facts, behind = self._deleted_if_kept(context, old, facts)
                if not behind:
                    return facts, context.carried, f"{unblocked}{lacks}"
            context.lease.check()
            self._refuse_cleaned(context, [name for name, why in behind.items() if why == CLEANED and name in cleaned])
            cleaned |= {name for name, why in behind.items() if why == CLEANED}
            again = {name: why for name, why in behind.items() if not why.startswith(_ANOTHER_LOOK)}
            name, why = next(iter((again or behind).items()))
            context = replace(context, facts=facts)
            if not again:
                context.say(f"{name}: {why}; looking again")
                context.wait(partial(self._is_replicated, context, old), _REPLICATION_SECONDS)
                continue
            context.say(f"{name}: {why}; salvaging it again")
            facts, carried, _ = keep(context, self.cluster, self.live, [t for t in old if t.topic in again])
            context = replace(context, facts=facts, carried=carried)
        raise Refused(
            f"{name} can't be kept as it is: {why}, {_ROUNDS} times in a row",
            meaning="Only what was kept may be deleted",
            remedy=f"{self._remedy_for(name, why)}, then drkit resume {context.run}",
        )

    def _remedy_for(self, topic: str, why: str) -> str:
        """What to do about a reason for which a topic isn't deleted."""
        if why.startswith(UNREAD):
            return f"Check that all brokers of {self.cluster} and {self.live} answer, and how busy they are"
        if why.startswith(UNREPLICATED):
            return (
                f"Start the brokers of {self.cluster} that lack them (kafka-topics.sh --describe --topic {topic} shows "
                "them: in Replicas, not in Isr), or give the topic other replicas (kafka-reassign-partitions.sh)"
            )
        return f"Stop what changes it on {self.cluster} or {self.live}"

    def _is_replicated(self, context: StageContext, topics: Sequence[ScrubTopic]) -> bool:
        """Whether consumers can read all that these topics' logs hold."""
        ends = ends_now(context, self.cluster, topics, replicated=False)
        return ends == ends_now(context, self.cluster, topics)

    def _refuse_cleaned(self, context: StageContext, topics: Sequence[str]) -> None:
        """Raise `Refused` where the live cluster's cleaner was faster than a salvage, twice: so it will be again."""
        if not topics:
            return
        names = [topic.live_topic for topic in self.topics if topic.topic in topics]
        raise Refused(
            f"the cleaner of {self.live} removes the last records of {and_more(names)} faster than they are salvaged",
            meaning=f"Whether {self.live} still holds what it held is shown by these; nothing is deleted",
            remedy=f"Raise min.compaction.lag.ms of {and_more(names)} on {self.live} (kafka-configs.sh --alter "
            "--entity-type topics), e.g. to 86400000, until the run is over; or stop what writes there. Then "
            f"drkit resume {context.run}",
        )

    def _commits_kept_from_here(self, context: StageContext, facts: Facts) -> Facts:
        """Journal that topics are about to be deleted, and from where commits are read afterwards, or from where an
        interrupted attempt would have read them."""
        earlier = facts.commits_from or {}
        ends = commits_end(context.estate, self.cluster)
        facts = replace(
            facts,
            commits_from={number: min(end, earlier.get(number, end)) for number, end in ends.items()},
            deleting=True,
        )
        context.establish(facts, context.carried)
        return facts

    def _deleted_if_kept(
        self, context: StageContext, old: Sequence[ScrubTopic], facts: Facts
    ) -> tuple[Facts, dict[str, str]]:
        """As `_deleted_at_once`, with the facts: where nothing was deleted, nor is left unanswered by any attempt, they
        don't say that anything may be."""
        before, deletion = context.facts.deleting, _Deletion()
        facts = self._commits_kept_from_here(context, facts)
        behind: dict[str, str] | None = None
        try:
            behind = self._deleted_at_once(context, old, facts, deletion)
        finally:
            stopped = behind is None or bool(behind)
            if stopped and not deletion.unanswered and self._are_there(context, old):
                # an earlier attempt was killed, or got no answer: what it asked for may be carried out yet
                facts = replace(facts, deleting=before)
                with suppress(DrkitError):  # then a resumed run takes it that something may be deleted
                    context.establish(facts, context.carried)
        return facts, behind

    def _are_there(self, context: StageContext, topics: Sequence[ScrubTopic]) -> bool:
        """Whether all of these topics are seen to be there still, by their ids."""
        try:
            found = context.estate.admin(self.cluster).topics([topic.topic for topic in topics])
        except DrkitError:
            return False
        return all(_is_old(topic, found) for topic in topics)

    def _deleted_at_once(
        self, context: StageContext, old: Sequence[ScrubTopic], facts: Facts, deletion: _Deletion
    ) -> dict[str, str]:
        """Delete the topics if each is as it was salvaged, right after looking; else returns those that aren't.

        If the process stood still between the look and the deletion, it looks again.
        """
        admin, left = context.estate.admin(self.cluster), list(old)
        for _ in range(_LOOKS):
            behind = stale(facts, {}, topics_at_salvage(context, self.cluster, self.live, left, facts.kept))
            if behind:
                return behind
            context.lease.check()
            ends = ends_now(context, self.cluster, left, replicated=False)  # once more: all else took long to read
            kept = {TopicPartition(t.topic, n): end for t in left for n, end in facts.kept[t.topic].ends.items()}
            if ends != kept:
                read = ends_now(context, self.cluster, left)
                return {
                    tp.topic: UNREPLICATED if read.get(tp) == kept.get(tp) else WRITTEN
                    for tp in ends.keys() | kept.keys()
                    if ends.get(tp) != kept.get(tp)
                }
            try:
                deletion.ask(partial(_delete, admin, left, Deadline.after(_AT_ONCE_SECONDS)))
            except TooLate:
                found = admin.topics([topic.topic for topic in left])
                left = [topic for topic in left if _is_old(topic, found)]
            else:
                return {}
        return {left[0].topic: f"{_LOOKS} times it could not be deleted within {_AT_ONCE_SECONDS:g} s of a look at it"}

    @contextmanager
    def _no_writes(self, context: StageContext, topics: Sequence[ScrubTopic]) -> Iterator[str]:
        """Nobody can write to these topics meanwhile, nor afterwards if they were deleted. Gives a clause where the
        cluster doesn't allow that, and that was accepted.

        Raises:
            PartlyDone: the cluster doesn't allow it.
        """
        estate, clause, answered = context.estate, "", False
        try:
            try:
                block_writes(estate, self.configured, self.cluster, {topic.topic: topic.partitions for topic in topics})
                answered = True
            except Refused as error:
                answered = True
                if not context.facts.unfenced_accepted:
                    raise PartlyDone(
                        f"writes to the topics on {self.cluster} can't be blocked until they are deleted: {error.what}",
                        meaning="What clients write there after the last look would be deleted unread, so they stay "
                        "as they are",
                        remedy=f"Remove the cause, then drkit resume {context.run}; or make sure that nobody writes to "
                        f"{self.cluster}, then drkit resume {context.run} {ACCEPT_UNFENCED}",
                    ) from error
                clause = f"; nothing kept clients from writing to them until they were gone: {error.what}"
            yield clause
        finally:
            self._let_in(context, keep_notes=not answered)

    def _let_in(self, context: StageContext, *, keep_notes: bool) -> None:
        if context.lease.lost:
            return  # what is blocked may be another run's by now
        try:
            let_writes_in(context.estate, self.configured, self.cluster, keep_notes=keep_notes)
        except DrkitError as error:
            context.say(f"{error.what}. {error.remedy}; `drkit abandon {context.run}` lets them in, too")


def _delete(admin: ClusterAdmin, topics: Sequence[ScrubTopic], until: Deadline) -> None:
    """Delete exactly these topics, by their ids, and wait until they are gone. Not begun after `until`: `TooLate`.

    Deleting by name would be wrong: if this process was stopped meanwhile and another one finished the run, the name
    belongs to a new topic, which clients write to. No check before the request can rule that out.
    """
    failures = admin.delete_exact({topic.topic: topic.topic_id for topic in topics}, wait=True, until=until)
    if failures:
        name, why = next(iter(failures.items()))
        raise Refused(
            f"topic {name} can't be deleted on cluster {admin.alias}: {why}",
            remedy="Allow topic deletion on that cluster, or delete it by hand",
        )


class TopicMadeMeanwhile(DrkitError):
    """A topic that is to be created is there: somebody else was faster."""


def recreate(context: StageContext, admin: ClusterAdmin, topics: Sequence[ScrubTopic]) -> dict[str, str]:
    """Create the missing ones, configure all as they were; returns their new ids by name.

    The mirror makes compacted ones compacted once they begin where the live cluster's do (`reverse` notes them). Only
    settings that differ from what the cluster gives a new topic are set, so that broker defaults stay
    defaults.
    """
    found = admin.topics([topic.topic for topic in topics])
    missing = [topic for topic in topics if topic.topic not in found]
    context.lease.check()
    failures = admin.create_topics([NewTopic(t.topic, t.partitions, t.replication_factor) for t in missing])
    if TOPIC_EXISTS in failures.values():
        raise TopicMadeMeanwhile(next(name for name, why in failures.items() if why == TOPIC_EXISTS))
    if failures:
        name, why = next(iter(failures.items()))
        raise DrkitError(
            f"topic {name} can't be recreated: {why}", remedy="Remove the cause named; none of its records is lost"
        )
    waiting = [replace(t, config={**t.config, **UNCOMPACTED}) if is_compacted(t.config) else t for t in topics]
    restore_configs(context, admin, waiting)
    return {name: info.topic_id for name, info in admin.topics([topic.topic for topic in topics]).items()}


def restore_configs(context: StageContext, admin: ClusterAdmin, topics: Sequence[ScrubTopic]) -> None:
    """Give topics the effective configuration that they had when the plan was made."""
    effective = admin.topic_configs([topic.topic for topic in topics])
    changes = {}
    for topic in topics:
        have = effective.get(topic.topic, {})
        changes[topic.topic] = {
            name: value for name, value in topic.config.items() if name in have and have[name] != value
        }
    context.lease.check()  # or the topics may be served with other settings by now
    failures = admin.set_many_topic_configs(changes)
    if failures:
        name, why = next(iter(failures.items()))
        raise DrkitError(f"topic {name} can't be configured as it was: {why}", remedy="Remove the cause named")


def to_be_aligned(context: StageContext, back: LinkId, topics: Sequence[ScrubTopic], *, for_good: bool) -> None:
    """Note the compacted ones: the mirror compacts them once they begin where the live cluster's do.

    `for_good`: nothing configures them later, so it also restores settings that `recreate` held back and that its
    link's policy doesn't let follow.
    """
    store = context.estate.store
    held_back = {
        topic.live_topic: own_note(topic.config) for topic in topics if for_good and is_compacted(topic.config)
    }
    compacted = context.estate.admin(back.source).compacted([topic.live_topic for topic in topics])
    context.lease.check()
    for kind, notes in ((OWN_SETTINGS, held_back), (ALIGNING, dict.fromkeys(compacted | held_back.keys(), ""))):
        store.forget_notes(back, kind, sorted(store.notes(back, kind).keys() - notes))
        store.put_notes(back, kind, notes)


def delete_offsets(context: StageContext, alias: str, topics: set[str]) -> None:
    """Delete the groups' committed offsets on these recreated topics, and on nothing else."""
    coordinator = context.estate.groups(alias)
    by_group: dict[str, list[TopicPartition]] = {}
    for found in committed_on(coordinator, topics):
        by_group.setdefault(found.group, []).append(found.tp)
    for group, tps in by_group.items():
        context.lease.check()
        coordinator.delete_offsets(group, tps)


def _is_old(topic: ScrubTopic, found: Mapping[str, TopicInfo]) -> bool:
    return topic.topic in found and found[topic.topic].topic_id == topic.topic_id


def _is_alike(topic: ScrubTopic, found: TopicInfo) -> bool:
    return (found.partitions, found.replication_factor) == (topic.partitions, topic.replication_factor)


def _check_new(admin: ClusterAdmin, alias: str, infos: Sequence[TopicInfo]) -> None:
    """Check that topics of another incarnation were created by an interrupted attempt: they are empty."""
    tps = [TopicPartition(info.name, partition) for info in infos for partition in range(info.partitions)]
    written = {tp: end for tp, end in admin.log_ends(tps).items() if end}
    if written:
        tp, end = next(iter(written.items()))
        raise Refused(
            f"{tp} on {alias} holds {end} offsets, but it is not the topic that the plan saw",
            meaning="Somebody recreated it, and writes there (brokers with auto.create.topics.enable do so for any "
            "client); drkit does not touch it",
            remedy=f"If you need none of it, delete {tp.topic} on {alias} by hand, then drkit resume; else stop "
            "its writers and keep its records first",
        )

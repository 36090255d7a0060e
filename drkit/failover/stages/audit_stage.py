"""The stage that proves, before groups move back, that the old primary is a copy of the live cluster, and that all that
the live cluster held was brought back.

An audit compares what both sides hold: it can't see what the live cluster lost before that was brought back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from drkit.failover.context.live_log import Lacking, gone_since, lost_since
from drkit.failover.context.state_machine import StageOutcome
from drkit.failover.failback.failback_snapshot import live_logs, take_failback_snapshot, without_retention
from drkit.failover.failback.lost_tail import lost_tails
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages.salvage_stage import unreadable_salvages, with_last_records
from drkit.failover.stages.stage import StageContext, StageReport
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.lag.diverged_logs import ComparedLogs, compare_logs
from drkit.model.errors import ExitCode, PartlyDone
from drkit.model.link_state import RETENTION_GAP, Problem
from drkit.model.runs import ACCEPT_SALVAGE_ONLY
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import alignments

_RECORD_SECONDS = 20.0
_CUT = "the end of the log was lost"
TORN = "deleted or recreated"
_PURGED = "no retention is set, and records were deleted"
_UNPROVEN = "nothing shows that the log is the one that was kept"


class AuditFailed(PartlyDone):
    """The old primary lacks what the live cluster holds, or held. Exit code 5."""

    exit_code = ExitCode.DEVIATION


def seed_anew(context: StageContext, cluster: str) -> str:
    """The commands that seed the old primary anew."""
    return (
        f"To seed {cluster} anew (what only it holds is salvaged first): drkit abandon {context.run}, then drkit "
        "failback"
    )


def unlike_now(context: StageContext) -> dict[TopicPartition, str]:
    """Why the old primary, where nothing was deleted, and the live cluster don't begin alike any more, by the old
    primary's partitions: groups of the live cluster may be behind records that they never had there, and that the old
    primary holds."""
    snapshot = take_failback_snapshot(context.estate, context.link.reversed())
    return dict(sorted(snapshot.unlike.items()))


def ask_for(context: StageContext, lacking: Iterable[Lacking]) -> None:
    """Journal for what the run stops now: a resume accepts this, nothing that goes later."""
    context.establish(replace(context.facts, asked=tuple(lacking)), context.carried)


def refuse_missing(
    context: StageContext, problems: Iterable[Problem], unlike: Mapping[TopicPartition, str] | None = None
) -> str:
    """Raise `AuditFailed` if the old primary lacks what the live cluster holds, or held until somebody deleted it; a
    clause about what the live cluster's retention removed before it was brought back.

    `problems`: of the way back, the context's link; `unlike`: why both sides don't begin alike.
    """
    live, cluster, run = context.link.id.source, context.link.id.target, context.run
    found = list(problems)
    missing = [problem for problem in found if problem.missing]
    if missing:
        raise AuditFailed(
            f"{cluster} lacks records that {live} holds: {and_more([each.reason for each in missing], separator='; ')}",
            meaning=f"No group moves back to {cluster} without them",
            remedy=f"{seed_anew(context, cluster)}. To go on without them: drkit mirror --until-caught-up --link "
            f"'{context.link.id.reversed()}' puts them on record; then drkit link acknowledge '{context.link.id}' "
            f"{missing[0].kind} --topic {missing[0].topic}; then drkit resume {run}",
        )
    gaps = [problem for problem in found if problem.kind == RETENTION_GAP]
    endless = without_retention(context.estate.admin(context.link.id.source), {problem.topic for problem in gaps})
    removed = [Lacking(context.link.target_topic(each.topic), each.reason) for each in gaps if each.topic in endless]
    other = [Lacking(tp.topic, why) for tp, why in (unlike or {}).items()]
    asked = [each for each in (*removed, *other) if not each.is_within(context.facts.gone)]
    if not asked:
        known = [*(each.reason for each in gaps), *(each.why for each in other)]
        return f"; {and_more(known, separator='; ')}" if known else ""
    purged = [f"{each.why}, and no retention is set" for each in removed if each in asked]
    unlike = {tp: why for tp, why in (unlike or {}).items() if Lacking(tp.topic, why) in asked}
    meaning, remedy = [], []
    if purged:
        meaning.append("What was removed before it was brought back was nowhere else")
        remedy.append(f"Put back on {live} what is needed of it, from where you have it")
    if unlike:
        meaning.append(f"Groups may not have read what only one of both holds, and would be put behind it on {cluster}")
        remedy.append(seed_anew(context, cluster))
    remedy.append(f"To go on as it is: drkit resume {run} {ACCEPT_SALVAGE_ONLY}")
    ask_for(context, asked)
    named = [*purged, *unlike.values()]
    raise AuditFailed(and_more(named, separator="; "), meaning=". ".join(meaning), remedy=". ".join(remedy))


def _offsets(lacking: Lacking) -> str:
    """How many offsets a topic lacks, in words."""
    bound = "up to " if lacking.why == _UNPROVEN else ""
    return f"{bound}{counted(lacking.missing['offsets'], 'offset')}"


def _is_below(seen: ProbedRecord, end: int) -> bool:
    """Whether a record stands below an offset: transactions' markers are none."""
    return seen.offset is not None and seen.offset < end


def _unread(seen: ProbedRecord) -> str | None:
    """Why it isn't known whether there is a record."""
    return None if seen.outside else seen.reason


@dataclass(frozen=True, slots=True)
class Audit:
    """Compare the re-seeded records one by one; any verdict but clean stops the run. `level`: nothing was deleted."""

    live: str
    cluster: str
    topics: tuple[ScrubTopic, ...]
    level: bool = False
    name: str = "audit"

    def explain(self) -> str:
        """What it will do."""
        return f"audit {self.live}->{self.cluster}; nothing moves unless it is clean"

    def execute(self, context: StageContext) -> StageReport:
        """Audit."""
        if not self.level:
            self._refuse_strangers(context)
        lost = "" if self.level else self._lost_since_the_scrub(context)
        unlike = unlike_now(context) if self.level else None
        lost += refuse_missing(context, context.estate.store.problems(context.link.id), unlike)
        verdict = context.required_ports.auditor.audit(context.link, context.say)
        if verdict.verdict != "clean":
            where = f"; findings: {verdict.path}" if verdict.path else ""
            raise AuditFailed(
                f"the audit of {self.live}->{self.cluster} is {verdict.verdict}: {verdict.detail}{where}",
                meaning=f"{self.cluster} doesn't hold what {self.live} holds, so no group moves back to it",
                remedy=f"Find the cause by the findings. If it is gone, drkit resume {context.run} audits again. "
                f"{seed_anew(context, self.cluster)}",
            )
        facts = replace(context.facts, audit=verdict.verdict, audit_detail=verdict.detail)
        return StageReport(StageOutcome.OK, f"clean: {verdict.detail}{lost}", facts)

    def _refuse_strangers(self, context: StageContext) -> None:
        """Find records that a recreated topic holds from before it was seeded: an audit compares what was brought back,
        and would not see them.

        Raises:
            AuditFailed: there are some.
            PartlyDone: that can't be seen.
        """
        store, link, admin = context.estate.store, context.link, context.estate.admin(self.cluster)
        ids = context.facts.scrubbed or {}
        names = {topic.topic: topic.live_topic for topic in self.topics}
        there = {name: info for name, info in admin.topics(names).items() if info.topic_id == ids.get(name)}
        tps = [TopicPartition(name, number) for name, info in there.items() for number in range(info.partitions)]
        starts, ends = admin.start_offsets(tps), admin.end_offsets(tps, committed=False)
        states, filler = store.topic_states(link.id), alignments(store, link.id)
        found: dict[TopicPartition, int] = {}
        for tp in tps:
            live = TopicPartition(names[tp.topic], tp.partition)
            state = states.get(live.topic)  # read after the ends: each mirrored record has its row by now
            epochs = range(1, 1 + (0 if state is None else state.epoch))  # former ones since the scrub: accepted anew
            rows = [row for epoch in epochs for row in store.mappings(link.id, live, epoch)]
            until = min((row.target_offset for row in rows), default=ends[tp])
            if live in filler:
                until = min(until, filler[live].begin)
            if starts[tp] < min(until, ends[tp]):
                found[tp] = min(until, ends[tp])
        places = {tp: LogPosition(tp, starts[tp]) for tp in found}
        first = admin.probe_records(places.values(), seconds=_RECORD_SECONDS) if places else {}
        strange = {tp: found[tp] for tp, place in places.items() if _is_below(first[place], found[tp])}
        if strange:
            named = [f"{tp} (offsets {starts[tp]} to {end - 1})" for tp, end in strange.items()]
            raise AuditFailed(
                f"{and_more(named)} on {self.cluster} hold records from before they were seeded",
                meaning=f"A client has written there since the scrub: {self.live} doesn't have these records, and "
                "groups that move back wouldn't read them",
                remedy=f"Stop the clients of {self.cluster}. {seed_anew(context, self.cluster)}. If none of these "
                f"records is needed: kafka-delete-records.sh removes them, then drkit resume {context.run}",
            )
        unread = [
            f"{tp} at {starts[tp]}: {why}" for tp, at in places.items() if (why := _unread(first[at])) is not None
        ]
        if unread:
            raise PartlyDone(
                f"{self.cluster} can't be read where its topics were not seeded: {and_more(unread, separator='; ')}",
                meaning=f"Whether a client has written there since the scrub, which {self.live} doesn't have, isn't "
                "known",
                remedy=f"Check that all brokers of {self.cluster} answer, how busy they are, and what drkit's "
                f"principal may read; then drkit resume {context.run}. If it stays so: "
                f"{seed_anew(context, self.cluster)}",
            )

    def _lost_since_the_scrub(self, context: StageContext) -> str:
        """Records that only the live cluster held after the scrub, and that are gone without having been brought back,
        or may be.

        Raises:
            AuditFailed: a topic was deleted or recreated there meanwhile, a log lost its end, or records of a topic
                without retention were deleted, and nobody accepted that.
            PartlyDone: nothing shows that a log there is still the same one, and nobody accepted that.
        """
        estate, link = context.estate, context.link
        kept = {
            topic.topic: (topic, context.facts.kept[topic.topic].live)
            for topic in self.topics
            if self._kept(context, topic)
        }
        marks = estate.store.watermarks(link.id)
        logs = live_logs(estate.admin(self.live), [topic for topic, _ in kept.values()])
        states = estate.store.topic_states(link.id)
        endless = without_retention(estate.admin(self.live), {topic.live_topic for topic, _ in kept.values()})
        tails = self._lost_tails(
            context, [topic for name, (topic, live) in kept.items() if logs[name].topic_id == live.topic_id]
        )
        found, retired, doubted = list[tuple[Lacking, str]](), list[str](), list[str]()
        for name, (topic, live) in kept.items():
            missing = deleted = lost = unsure = 0
            still = logs[name].topic_id == live.topic_id
            for number in live.starts:
                tp = TopicPartition(topic.live_topic, number)
                mark = marks.get(tp)
                state = states.get(topic.live_topic)
                same = state is not None and state.source_topic_id == live.topic_id
                rows = estate.store.mappings(link.id, tp, mark.epoch) if mark is not None and same else []
                if still:  # the audit compares what is left; what retention removed unread, or was cut off, is gone
                    cut = tails.diverged.get(tp, live.starts[number] if tp in tails.unproven else None)
                    gone = gone_since(live, logs[name], rows, number, cut)
                    deleted += gone.deleted
                    missing += gone.below
                    if tp in tails.unproven:
                        unsure += gone.above
                    else:
                        missing += gone.above
                        lost += gone.above
                else:
                    missing += lost_since(live, mark if same else None, rows, number)
            happened = {
                _CUT: lost,
                TORN: 0 if still else missing,
                _PURGED: deleted if topic.live_topic in endless else 0,
                _UNPROVEN: unsure,
            }
            lacks = [Lacking(name, what, {"offsets": count}) for what, count in happened.items() if count]
            asked = [each for each in lacks if not each.is_within(context.facts.gone)]
            found += [(each, f"{topic.live_topic} ({_offsets(each)})") for each in asked]
            if not asked:
                retired += [f"{topic.live_topic} ({counted(missing, 'offset')})"] if missing else []
                doubted += [f"{topic.live_topic} ({_offsets(each)})" for each in lacks if each.why == _UNPROVEN]
        self._refuse_lost(context, [topic.topic for topic, _ in kept.values()], found)
        said = f"; gone from {self.live} since the scrub and not brought back: {and_more(retired)}" if retired else ""
        return f"{said}; {self._unproven(doubted)}" if doubted else said

    def _refuse_lost(self, context: StageContext, topics: Sequence[str], lost: Sequence[tuple[Lacking, str]]) -> None:
        """Raise `AuditFailed` if any of these topics has lost something, `PartlyDone` if one may have. `lost`: what,
        with the topic in words."""
        if not lost:
            return
        by_cause: dict[str, list[str]] = {}
        for each, place in lost:
            by_cause.setdefault(each.why, []).append(place)
        doubted = by_cause.pop(_UNPROVEN, [])
        told = "; ".join(f"{and_more(places)}: {what} on {self.live}" for what, places in by_cause.items())
        unreadable = unreadable_salvages(context, context.facts, topics)
        rest = (
            "what only the old primary held is in its salvage"
            if not unreadable
            else f"what only the old primary held isn't kept either: {and_more(list(unreadable.values()))}"
        )
        ask_for(context, [each for each, _ in lost])
        if not told:
            raise PartlyDone(
                self._unproven(doubted),
                meaning=f"If {self.live} was set back to older disks before, they were nowhere else; {rest}",
                remedy=f"Once all brokers of {self.live} answer: drkit resume {context.run}. If it stays so, and "
                f"{self.live} was not set back: drkit resume {context.run} {ACCEPT_SALVAGE_ONLY}",
            )
        raise AuditFailed(
            f"{told} after {self.cluster} was scrubbed{f'; {self._unproven(doubted)}' if doubted else ''}",
            meaning=f"Until they were brought back, these records were nowhere else; {rest}",
            remedy=f"Put them back on {self.live} from where you have them; or, if it was intended, "
            f"drkit resume {context.run} {ACCEPT_SALVAGE_ONLY}",
        )

    def _unproven(self, places: Sequence[str]) -> str:
        """That logs may have been others when they were brought back, in words."""
        return (
            f"nothing shows that {self.live} held all of {and_more(places)} until that was brought back: the last "
            "records of before could not be read, or its cleaner has removed them"
        )

    def _lost_tails(self, context: StageContext, topics: Sequence[ScrubTopic]) -> ComparedLogs:
        """From where on these topics' partitions have lost what they held at their ends when they were kept, and which
        may have; without those of which the way back had copied some of that before: the audit compares them."""
        admin, marks = context.estate.admin(self.live), context.estate.store.watermarks(context.link.id)
        kept = {topic.live_topic: context.facts.kept[topic.topic] for topic in topics}
        lost = lost_tails(admin, kept)
        doubtful = lost.diverged.keys() | lost.unproven
        copied = compare_logs(admin, [marks[tp] for tp in doubtful if tp in marks]).diverged
        diverged = {tp: each for tp, each in lost.diverged.items() if tp not in copied}
        unproven = lost.unproven - copied.keys()
        same = with_last_records(context, self.live, {tp.topic: kept[tp.topic] for tp in unproven})
        return ComparedLogs(diverged, unproven - same)

    def _kept(self, context: StageContext, topic: ScrubTopic) -> bool:
        kept = context.facts.kept.get(topic.topic)
        return kept is not None and kept.live.topic_id is not None

"""The stage that proves, before groups move back, that the old primary is a copy of the live cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from drkit.failover.failback.brought_back import (
    AuditFailed,
    refuse_missing,
    seed_anew,
    unlike_now,
    without_retention,
)
from drkit.failover.failback.failback_plan import ScrubTopic
from drkit.failover.failback.live_log import lost_since
from drkit.failover.plan.waivers import ACCEPT_SALVAGE_ONLY
from drkit.failover.run.state_machine import StageOutcome
from drkit.failover.stages.salvage_stage import unreadable_salvages
from drkit.failover.stages.scrub_topics import live_logs
from drkit.failover.stages.stage import StageContext, StageReport
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted


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
        lost = "" if self.level else self._lost_since_the_scrub(context)
        unlike = unlike_now(context) if self.level else ()
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

    def _lost_since_the_scrub(self, context: StageContext) -> str:
        """Records that only the live cluster held after the scrub, and that are gone without having been brought back.

        Raises:
            AuditFailed: a topic was deleted or recreated there meanwhile, or records of one without retention were
                deleted, and nobody accepted that.
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
        endless = without_retention(context, {topic.live_topic for topic, _ in kept.values()})
        torn, purged, retired = [], [], []
        for name, (topic, live) in kept.items():
            missing = deleted = 0
            still = logs[name].topic_id == live.topic_id
            for number in live.starts:
                tp = TopicPartition(topic.live_topic, number)
                mark = marks.get(tp)
                state = states.get(topic.live_topic)
                same = state is not None and state.source_topic_id == live.topic_id
                rows = estate.store.mappings(link.id, tp, mark.epoch) if mark is not None and same else []
                if still:  # the audit compares what is left; what retention removed unread is gone
                    first = rows[0].source_offset if rows else live.starts[number]
                    missing += max(0, first - live.starts[number])
                    deleted += max(0, min(first, logs[name].starts.get(number, 0)) - live.starts[number])
                else:
                    missing += lost_since(live, mark if same else None, rows, number)
            if missing and not still and name not in context.facts.salvage_only:
                torn.append(f"{topic.live_topic} ({counted(missing, 'offset')})")
            elif deleted and topic.live_topic in endless and name not in context.facts.salvage_only:
                purged.append(f"{topic.live_topic} ({counted(deleted, 'offset')})")
            elif missing:
                retired.append(f"{topic.live_topic} ({counted(missing, 'offset')})")
        for places, what in ((torn, "deleted or recreated"), (purged, "no retention is set, and records were deleted")):
            if not places:
                continue
            lost = unreadable_salvages(context, context.facts, [topic.topic for topic, _ in kept.values()])
            rest = (
                "what only the old primary held is in its salvage"
                if not lost
                else f"what only the old primary held isn't kept either: {and_more(list(lost.values()))}"
            )
            raise AuditFailed(
                f"{and_more(places)}: {what} on {self.live} after {self.cluster} was scrubbed",
                meaning=f"Until they were brought back, these records were nowhere else; {rest}",
                remedy=f"Put them back on {self.live} from where you have them; or, if it was intended, "
                f"drkit resume {context.run} {ACCEPT_SALVAGE_ONLY}",
            )
        return f"; gone from {self.live} since the scrub and not brought back: {and_more(retired)}" if retired else ""

    def _kept(self, context: StageContext, topic: ScrubTopic) -> bool:
        kept = context.facts.kept.get(topic.topic)
        return kept is not None and kept.live.topic_id is not None

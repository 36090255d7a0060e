"""Whether a failback's way back has brought over all that the live cluster held, and the old primary still has it.

An audit compares what both sides hold: it can't see what the live cluster lost before that was brought back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from drkit.failover.failback.failback_snapshot import take_failback_snapshot
from drkit.failover.plan.waivers import ACCEPT_SALVAGE_ONLY
from drkit.failover.stages.stage import StageContext
from drkit.model.errors import ExitCode, PartlyDone
from drkit.model.link_state import RETENTION_GAP, Problem
from drkit.model.wording import and_more


class AuditFailed(PartlyDone):
    """The old primary lacks what the live cluster holds, or held. Exit code 5."""

    exit_code = ExitCode.DEVIATION


def seed_anew(context: StageContext, cluster: str) -> str:
    """The commands that seed the old primary anew."""
    return (
        f"To seed {cluster} anew (what only it holds is salvaged first): drkit abandon {context.run}, then drkit "
        "failback"
    )


def unlike_now(context: StageContext) -> list[str]:
    """Why the old primary, where nothing was deleted, and the live cluster don't begin alike any more: groups of the
    live cluster may be behind records that they never had there, and that the old primary holds."""
    snapshot = take_failback_snapshot(context.estate, context.link.reversed())
    return [why for tp, why in sorted(snapshot.unlike.items()) if tp.topic not in context.facts.salvage_only]


def refuse_missing(context: StageContext, problems: Iterable[Problem], unlike: Sequence[str] = ()) -> str:
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
    gaps = [
        problem
        for problem in found
        if problem.kind == RETENTION_GAP and context.link.target_topic(problem.topic) not in context.facts.salvage_only
    ]
    endless = without_retention(context, {problem.topic for problem in gaps})
    purged = [f"{each.reason}, and no retention is set" for each in gaps if each.topic in endless]
    if not purged and not unlike:
        return f"; {and_more([each.reason for each in gaps], separator='; ')}" if gaps else ""
    meaning, remedy = [], []
    if purged:
        meaning.append("What was removed before it was brought back was nowhere else")
        remedy.append(f"Put back on {live} what is needed of it, from where you have it")
    if unlike:
        meaning.append(f"Groups may not have read what only one of both holds, and would be put behind it on {cluster}")
        remedy.append(seed_anew(context, cluster))
    remedy.append(f"To go on as it is: drkit resume {run} {ACCEPT_SALVAGE_ONLY}")
    raise AuditFailed(
        and_more([*purged, *unlike], separator="; "), meaning=". ".join(meaning), remedy=". ".join(remedy)
    )


def without_retention(context: StageContext, topics: Collection[str]) -> set[str]:
    """The live topics among these from which only DeleteRecords removes records."""
    keys = ("cleanup.policy", "retention.ms", "retention.bytes")
    configs = context.estate.admin(context.link.id.source).topic_configs(sorted(topics), keys=keys)
    return {name for name, config in configs.items() if [config.get(key) for key in keys] == ["delete", "-1", "-1"]}

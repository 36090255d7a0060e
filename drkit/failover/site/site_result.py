"""The outcome of a site run: each link's run, one message for the operator, and what of it the run's journal keeps."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from drkit.config import Objectives
from drkit.failover.context.evidence import Evidence, Judgement, expected_evidence, judge
from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import CANCELLED, OUTCOME, StageRecord
from drkit.failover.journal.run_record import Plan, RunRecord
from drkit.failover.journal.site_record import CLOSE, SiteRecord, least_far, list_site
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.plan.site_plan import AnySitePlan, summed
from drkit.failover.recovery.rollback import CANCEL
from drkit.failover.run.runner import RunResult
from drkit.model.clock import now
from drkit.model.errors import DrkitError, OutcomeUnknown, PartlyDone
from drkit.model.topology import LinkId
from drkit.model.wording import and_more, counted

SiteWatch = Callable[[LinkId, str, StageRecord | None, str], None]
"""Receives progress, from any thread: (link, stage, its record once it ended, a message)."""


def nobody_watches(_link: LinkId, _stage: str, _record: StageRecord | None, _text: str) -> None:
    """A watcher that ignores progress."""


@dataclass(frozen=True, slots=True)
class LinkResult:
    """The outcome of one link. `result` None: its run was not begun. `elsewhere`: why it was left alone."""

    link: LinkId
    plan: Plan
    result: RunResult | None = None
    error: DrkitError | None = None
    elsewhere: str | None = None

    @classmethod
    def so_far(
        cls, plan: Plan, run: RunRecord | None, error: DrkitError | None = None, elsewhere: str | None = None
    ) -> LinkResult:
        """What the journal of the link's run says; `run` None: it was not begun."""
        return cls(plan.link, plan, None if run is None else RunResult.of(run), error, elsewhere)

    @property
    def state(self) -> State:
        """Its run's state."""
        return State.PLANNED if self.result is None else self.result.machine.state


def of_site(found: LinkResult, record: SiteRecord) -> LinkResult:
    """The outcome of a link; an error that names the link's run to resume names the site run instead, which continues
    all.

    `--unplanned` and `--cancel` concern one link's run.
    """
    if found.error is None:
        return found
    told = copy.copy(found.error)
    pattern = re.compile(rf"drkit resume {record.runs[found.link]}(?! --)")
    told.what, told.meaning, told.remedy = (
        pattern.sub(f"drkit resume {record.run}", text) for text in (told.what, told.meaning, told.remedy)
    )
    result = found.result
    if result is not None and result.error is not None:
        result = replace(result, error=told)
    return replace(found, result=result, error=told)


@dataclass(frozen=True, slots=True)
class SiteResult:
    """A site run's state. `error`: why it stopped, or None. `unread`: links whose runs' journals can't be read."""

    run: str
    plan: AnySitePlan
    state: State
    links: tuple[LinkResult, ...]
    error: DrkitError | None = None
    unread: Collection[LinkId] = ()

    @classmethod
    def of(
        cls, record: SiteRecord, state: State, links: Sequence[LinkResult], error: DrkitError | None = None
    ) -> SiteResult:
        """The state of the run with that record."""
        return cls(record.run, record.plan, state, tuple(links), error, frozenset(record.unread))

    @property
    def evidence(self) -> Evidence:
        """The numbers of all links together, as far as they are known."""
        damaged = "how much {} lost isn't known: the journal of its run is damaged"
        unread = [
            replace(expected_evidence(None), rpo_reason=damaged.format(link)) for link in sorted(self.unread, key=str)
        ]
        return summed([*unread, *(each.result.evidence for each in self.links if each.result is not None)])

    def judged(self, objectives: Objectives) -> Judgement:
        """What the numbers say of the objectives of the configuration; nothing of a run that stopped."""
        return judge(self.evidence, objectives, self.plan.kind, None if self.error else self.state)


def result_of(record: SiteRecord) -> SiteResult:
    """A site run from its journals, without doing anything."""
    links = tuple(
        LinkResult.so_far(
            plan,
            record.children.get(plan.link),
            record.damaged.get(plan.link),
            elsewhere=record.elsewhere.get(plan.link),
        )
        for plan in record.plan.plans
    )
    return SiteResult.of(record, record.state, links)


def state_of(links: Sequence[LinkResult]) -> State:
    """The state of the least advanced link."""
    return least_far([each.state for each in links if each.elsewhere is None])


def error_of(run: str, links: Sequence[LinkResult], state: State) -> DrkitError | None:
    """The error for the operator, if a link isn't at its end; the first error of `links` comes first."""
    if state is not State.CANCELLED:
        links = [_told(each, run) for each in links]
    failed = [each for each in links if each.error is not None]
    if not failed:
        return None
    first = failed[0].error
    if state is State.CANCELLED and first is not None:
        told = copy.copy(first)
        told.what = f"{failed[0].link}: {first.what}" if len(failed) == 1 else causes(failed)
        return told
    others = len(links) - len(failed)
    meaning = f"The other {others} {'is' if others == 1 else 'are'} at {'its' if others == 1 else 'their'} end"
    unknown = all(isinstance(each.error, OutcomeUnknown) for each in failed)
    kind = OutcomeUnknown if unknown else PartlyDone
    remedy = (first.remedy if first else "").rstrip(". ")
    whole = f"drkit resume {run}"
    if whole not in remedy:
        remedy = f"{remedy}; the whole site continues with {whole}".lstrip("; ")
    return kind(
        f"{len(failed)} of {counted(len(links), 'link')} {'is' if len(failed) == 1 else 'are'} not at "
        f"{'its' if len(failed) == 1 else 'their'} end: {causes(failed)}",
        meaning=meaning if others else "What was done remains in effect",
        remedy=remedy,
    )


def causes(failed: Sequence[LinkResult]) -> str:
    """Each link's error, in one sentence."""
    return and_more([f"{each.link}: {each.error.what}" for each in failed if each.error is not None], separator="; ")


def _told(link: LinkResult, run: str) -> LinkResult:
    """A link whose run rolled itself back isn't where the site's run leads."""
    if link.error is not None or link.elsewhere is not None or link.state is not State.CANCELLED:
        return link
    error = PartlyDone("its run rolled itself back", remedy=f"drkit resume {run} plans it again")
    return replace(link, error=error)


def keep_link(record: SiteRecord, found: LinkResult, seconds: float) -> None:
    """Journal the outcome of a link. If the store is gone, the link's own journal has it."""
    if found.elsewhere is not None:
        record.elsewhere[found.link] = found.elsewhere
    outcome = "skipped" if found.elsewhere else "ok" if found.error is None else "failed"
    payload = {
        "link": str(found.link),
        "run": record.runs[found.link],
        "state": found.state.value,
        "outcome": outcome,
        "reason": found.elsewhere or (f"{found.link} is {found.state}" if found.error is None else str(found.error)),
        "seconds": round(seconds, 3),
        "elsewhere": found.elsewhere is not None,
    }
    with suppress(DrkitError):
        record.journal.write(f"link {found.link}", OUTCOME, payload)


def end_site(site: SiteContext, record: SiteRecord, ended: Sequence[LinkResult]) -> SiteResult:
    """End or stop the run: journaled, with its summary.

    Args:
        site: the store, and connections.
        record: the run.
        ended: the outcome of each link that the run acted on, causes before their consequences.
    """
    found = {each.link: each for each in ended}
    ordered = tuple(
        found.get(plan.link) or LinkResult(plan.link, plan, elsewhere=record.elsewhere.get(plan.link))
        for plan in record.plan.plans
    )
    state = state_of(ordered)
    error = error_of(record.run, [*ended, *(each for each in ordered if each.link not in found)], state)
    try:
        if state is State.CLOSED and error is None:
            seconds = round((now() - record.started_at).total_seconds(), 3)
            reason = f"{counted(len(ended), 'link')} closed"
            record.journal.write(CLOSE, OUTCOME, {"outcome": "ok", "reason": reason, "seconds": seconds})
        elif state is State.CANCELLED:
            record.journal.write(CANCEL, CANCELLED, {"reason": "every link's run rolled itself back"})
        list_site(site.estate.store, record, state)
    except DrkitError as failed:
        error = error or PartlyDone(
            f"the end of the run could not be journaled: {failed.what}",
            meaning="Each link's own run is as shown; only the site run's record of it is missing",
            remedy=f"Once the store answers: drkit resume {record.run}",
        )
    return SiteResult.of(record, state, ordered, error)

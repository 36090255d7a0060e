"""Plans a site run: the links are planned concurrently, then what they share is settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from drkit.failover.context.state_machine import Mode
from drkit.failover.plan.failover_plan import AcceptedLoss, FailoverPlan, Obstacle, shown
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.plan.site_plan import SitePlan
from drkit.failover.plan.waves import waves_of
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import plan_again
from drkit.failover.snapshot.choose_links import LinkLeftOut, other_links
from drkit.failover.snapshot.selection import Selection, UnknownNames, known_names
from drkit.model.clock import now
from drkit.model.errors import Refused, StalePlan
from drkit.model.runs import ACCEPT_LOSS
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted

_ROUNDS = 3


def make_site_plan(site: SiteContext, request: PlanRequest, left_out: Sequence[LinkLeftOut] = ()) -> SitePlan:
    """Observe and plan every link of the run.

    Args:
        site: the links, and connections for each.
        request: the request for all links; its `link` is ignored.
        left_out: links that lead to the cluster, too, and are not moved.

    Raises:
        ConfigError: no link knows a named group or topic.
        Refused: a link can't be planned at all; it is named.
        Unreachable: the store doesn't answer.
    """
    made_at = now()
    accepted, request = request.accept_loss, replace(request, accept_loss=None)
    plans, selections, unknowing = _planned_each(site, request)
    links = [link for link in site.links if link.id in selections]
    if request.consistent:
        plans = _at_one_instant(site, request, links, plans, selections)
    plans, obstacles = _accepting(plans, accepted)
    return SitePlan(
        to=request.to,
        mode=request.mode,
        made_at=made_at,
        plans=tuple(plans),
        left_out=(*left_out, *unknowing),
        others=other_links([each.link() for each in site.estate.config.links], links, request.to),
        obstacles=tuple(obstacles),
        waves=waves_of(site.estate.config.waves),
    )


def site_plan_again(site: SiteContext, planned: SitePlan, *, allow_rewind: bool, accept_loss: AcceptedLoss) -> SitePlan:
    """Make a plan file's plan again from the current clusters.

    Raises:
        StalePlan: a link's would decide otherwise; the message names the links and what changed.
    """
    by_link = {each.link: each for each in planned.plans}
    own = accept_loss if accept_loss in {None, "unknown"} else 0  # a number is for all links together, shared out below
    moved: dict[LinkId, StalePlan] = {}

    def again(link: Link) -> FailoverPlan:
        kept = by_link[link.id]
        try:
            return plan_again(site.of(link.id), kept, allow_rewind=allow_rewind, accept_loss=own)
        except StalePlan as error:
            moved[link.id] = error
            return kept

    plans = site.side_by_side(again, [link for link in site.links if link.id in by_link])
    if moved:
        first = next(iter(moved.values()))
        raise StalePlan(
            shown([f"{link}: {error.what}" for link, error in moved.items()]),
            meaning=first.meaning,
            remedy=first.remedy,
        )
    if planned.waves != waves_of(site.estate.config.waves):
        raise StalePlan(
            "the waves of the configuration differ from those that the plan was made with",
            meaning="Groups would move in another order than planned",
            remedy="Make a new one: --dry-run --out FILE",
        )
    _refuse_new_links(site, planned)
    if accept_loss is None:
        return replace(planned, made_at=now(), plans=tuple(plans))
    plans, obstacles = _accepting(plans, accept_loss)
    return replace(planned, made_at=now(), plans=tuple(plans), obstacles=tuple(obstacles))


def _refuse_new_links(site: SiteContext, planned: SitePlan) -> None:
    """Raise `StalePlan` if a link was configured since that the plan doesn't know."""
    links = [each.link() for each in site.estate.config.links]
    known = {*planned.links, *(each.link for each in planned.others), *(each.link for each in planned.left_out)}
    meant = other_links(links, [link for link in links if link.id in planned.links], planned.to)
    new = [str(each.link) for each in meant if each.link not in known]
    if new:
        raise StalePlan(
            f"{and_more(new)} {'is' if len(new) == 1 else 'are'} configured since the plan was made",
            meaning="The plan doesn't say what happens to it",
            remedy="Make a new one: --dry-run --out FILE",
        )


def _planned(site: SiteContext, link: Link, request: PlanRequest) -> FailoverPlan:
    """A link's plan; an error names the link."""
    with site.naming(link, "move the others without it:"):
        return make_plan(site.of(link.id), replace(request, link=link))


def _planned_each(
    site: SiteContext, request: PlanRequest
) -> tuple[list[FailoverPlan], dict[LinkId, Selection], list[LinkLeftOut]]:
    """Every link's plan, each one's part of the named groups and topics, and links that know none of these.

    Raises:
        UnknownNames: no link knows a name.
    """
    asked = request.selection

    def look(link: Link) -> FailoverPlan | UnknownNames:
        try:
            return _planned(site, link, request)
        except UnknownNames as error:
            return error

    looked = dict(zip([link.id for link in site.links], site.side_by_side(look), strict=True))
    errors = {link: found for link, found in looked.items() if isinstance(found, UnknownNames)}
    if len(errors) == len(looked):
        check_known(list(errors.values()))
    selections = dict.fromkeys(looked, asked)
    left_out = []
    for link, error in errors.items():
        selections[link] = narrowed = _without(asked, error)
        if (asked.groups and not narrowed.groups) or (asked.topics and not narrowed.topics):
            left_out.append(LinkLeftOut(link, "it knows none of the groups and topics that are named"))
            del selections[link]

    def look_again(link: Link) -> FailoverPlan:
        return _planned(site, link, replace(request, selection=selections[link.id]))

    narrowed_links = [link for link in site.links if link.id in errors and link.id in selections]
    again = {plan.link: plan for plan in site.side_by_side(look_again, narrowed_links)}
    plans = [again.get(link, found) for link, found in looked.items() if link in selections]
    return [plan for plan in plans if isinstance(plan, FailoverPlan)], selections, left_out


def check_known(errors: Sequence[UnknownNames]) -> None:
    """Raise an error about the first name that no link knows, with what any of them does know. One link's stays."""
    groups = frozenset.intersection(*(error.groups for error in errors))
    topics = frozenset.intersection(*(error.topics for error in errors))
    if not groups and not topics:
        return
    if len(errors) == 1:
        raise errors[0]
    known_groups = frozenset[str]().union(*(error.known_groups for error in errors))
    known_topics = frozenset[str]().union(*(error.known_topics for error in errors))
    kind, name, known = ("group", min(groups), known_groups) if groups else ("topic", min(topics), known_topics)
    raise UnknownNames(
        f"none of the {len(errors)} links knows {kind} {name}",
        remedy=f"Known {kind}s: {known_names(known)}",
        groups=groups,
        topics=topics,
        known_groups=known_groups,
        known_topics=known_topics,
    )


def _without(selection: Selection, unknown: UnknownNames) -> Selection:
    return replace(
        selection,
        groups=tuple(each for each in selection.groups if each not in unknown.groups),
        topics=tuple(each for each in selection.topics if each.topic not in unknown.topics),
        places=tuple(each for each in selection.places if each.group not in unknown.groups),
    )


def _at_one_instant(
    site: SiteContext,
    request: PlanRequest,
    links: Sequence[Link],
    plans: list[FailoverPlan],
    selections: dict[LinkId, Selection],
) -> list[FailoverPlan]:
    """Plan at the earliest of the links' consistent instants: every link is complete then.

    Raises:
        Refused: links keep getting earlier instants.
    """
    for _ in range(_ROUNDS):
        instants = {plan.link: plan.cut.instant for plan in plans if plan.cut is not None}
        earliest: datetime = min(instants.values())
        late = [link for link in links if instants[link.id] != earliest]
        if not late:
            return plans

        def at_earliest(link: Link, until: datetime = earliest) -> FailoverPlan:
            return _planned(site, link, replace(request, selection=selections[link.id], not_after=until))

        fresh = {plan.link: plan for plan in site.side_by_side(at_earliest, late)}
        plans = [fresh.get(plan.link, plan) for plan in plans]
    raise Refused(
        f"no consistent instant over {counted(len(links), 'link')} was found in {_ROUNDS} looks",
        meaning="At each look a link was complete up to an earlier instant than the one before",
        remedy="Try again; or give an instant yourself with --at",
    )


def _accepting(plans: Sequence[FailoverPlan], accepted: AcceptedLoss) -> tuple[list[FailoverPlan], list[Obstacle]]:
    """The plans with each link's share of the accepted loss, and obstacles to that.

    Each link gets what it loses as planned, also within its budget, and the rest is divided evenly. Not counted: a link
    that waits for its backlog, and one of which nothing needs to be accepted although its loss isn't known.
    """
    if accepted is None:
        return list(plans), []
    if accepted == "unknown":
        return [_accepting_loss(plan, accepted) for plan in plans], []
    losing = [plan for plan in plans if any(each.waived_by == ACCEPT_LOSS for each in plan.obstacles)]
    needs = {plan.link: None if plan.loss.lower_bound else plan.loss.records for plan in losing}
    within = [plan for plan in plans if plan.link not in needs and not plan.loss.lower_bound and plan.loss.records]
    needs |= {plan.link: plan.loss.records for plan in within if plan.mode is Mode.UNPLANNED and not plan.waits}
    if None in needs.values():
        return [replace(plan, accept_loss=0) for plan in plans], []  # the obstacles of those links report it
    needed = sum(each or 0 for each in needs.values())
    if needed > accepted:
        obstacle = Obstacle(
            f"{needed:,} records on {counted(len(needs), 'link')} would be lost, and {accepted:,} are accepted",
            "The number is for all links of the run together",
            f"Give {ACCEPT_LOSS} {needed}, or see to it that less is missing",
        )
        return [replace(plan, accept_loss=0) for plan in plans], [obstacle]
    rest = (accepted - needed) // len(plans)
    return [_accepting_loss(plan, (needs.get(plan.link) or 0) + rest) for plan in plans], []


def _accepting_loss(plan: FailoverPlan, loss: AcceptedLoss) -> FailoverPlan:
    left = tuple(obstacle for obstacle in plan.obstacles if obstacle.waived_by != ACCEPT_LOSS)
    return replace(plan, accept_loss=loss, obstacles=left)

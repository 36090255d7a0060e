"""Checks the condition of each component of a run, with a deadline: the input of `way_out` outside of tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Kind, Mode, Run, State, next_step
from drkit.failover.journal.journal import Journal
from drkit.failover.journal.run_record import Plan, load_run, unfinished
from drkit.failover.journal.site_record import site_of
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.plan.shared_preconditions import store_age
from drkit.failover.recovery.fence_command import why_unreached
from drkit.failover.recovery.rollback import decided_otherwise
from drkit.failover.recovery.way_out import (
    ABANDON,
    FAIL_OVER,
    STATUS,
    ComponentCondition,
    Situation,
    WayOut,
    furthest,
    way_out,
)
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.errors import DrkitError, answered, unreached
from drkit.model.topology import Link, TopicPartition, is_canary
from drkit.state_topic.store_age import recovery_of
from drkit.store.link_notes import known_target_cluster


@dataclass(frozen=True, slots=True)
class Advice:
    """How to recover from a link's current state (`run` None: no run is unfinished). `broken`: the components that are
    not healthy, in words. `first`: what to correct before giving anything up, if a cluster answers but drkit can't work
    with it (its clients may be fine), or if the store is too old to fail over with. `silent`: the clusters that gave no
    answer just now, which may be slow only.
    """

    run: str | None
    way: WayOut
    broken: tuple[str, ...]
    first: str = ""
    silent: tuple[str, ...] = ()

    @property
    def do(self) -> str:
        """What to do, in words."""
        return self.said("; then ".join(self.way.commands))

    def said(self, commands: str) -> str:
        """The commands, after what must be corrected first."""
        return f"{self.first}. Only where that can't be done: {commands}" if self.first else commands


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that isn't over. `begun`: its next stage was begun. `site`: the site run that it belongs to, or None."""

    run: str
    machine: Run
    plan: Plan
    begun: bool
    site: str | None = None

    @classmethod
    def of(cls, journal: Journal, machine: Run, plan: Plan) -> Unfinished | None:
        """Read a run's journal; None if the run is over."""
        step, _ = next_step(machine)
        return None if step is None else cls(journal.run, machine, plan, journal.attempted(step.stage))


def advise(estate: ClusterContext, link: Link, unfinished: Unfinished | None) -> Advice:
    """The way out of a link's current situation.

    Args:
        estate: store and clusters; each cluster is checked briefly.
        link: the configured link.
        unfinished: its run, or None.

    Raises:
        Unreachable: the store doesn't answer.
    """
    ids = link.id
    errors = {alias: why_unreached(estate, alias) for alias in (ids.source, ids.target)}
    up = {alias: error is None for alias, error in errors.items()}
    conditions = {alias: ComponentCondition.UP if there else ComponentCondition.DOWN for alias, there in up.items()}
    control = estate.store.link_control(ids)
    away = control is not None and not control.direction.serves_source
    now = Situation(Kind.FAILOVER if away else None, Mode.UNPLANNED, State.CLOSED)
    since = None
    if unfinished is not None:
        since = decided_otherwise(control, unfinished.plan, unfinished.run, unfinished.machine.facts)
    if unfinished is not None and since is None:
        conditions |= replaced_clusters(estate, unfinished.plan, up)
        run = unfinished.machine
        now = Situation(run.kind, run.facts.mode, furthest(run, begun=unfinished.begun))
    elif up[ids.target] and _is_another(estate, link):
        conditions[ids.target] = ComponentCondition.REPLACED
    now = replace(now, source=conditions[ids.source], target=conditions[ids.target])
    refused = {alias: error for alias, error in errors.items() if error is not None and answered(error)}
    broken = tuple(
        f"{alias} is another cluster now, or was emptied"
        if each is not ComponentCondition.DOWN
        else f"{alias} {unreached(refused=alias in refused)}"
        + (f" ({refused[alias].what})" if alias in refused else "")
        for alias, each in conditions.items()
        if each is not ComponentCondition.UP
    )
    remedies = [error.remedy.rstrip(".") for error in refused.values() if error.remedy]
    name = None if unfinished is None else unfinished.run
    way = way_out(now)
    if since is not None:  # the run is given up, and the link is as without it
        broken = (since, *broken)
        way = replace(way, commands=(ABANDON, *(each for each in way.commands if each != STATUS)))
    if FAIL_OVER in way.commands and (older := store_age(estate, link).older) is not None:  # else it would be refused
        broken += (f"the store is older than its copy on {ids.target}, {older.knows_more()}",)
        remedies.append(recovery_of(ids))
    first = "; ".join(dict.fromkeys(remedies))
    way = way.filled(name or "RUN", str(ids), ids.source, ids.target)
    if unfinished is not None:
        site = None if since is not None else unfinished.site  # abandoning it would give up the other links, too
        way = replace(way, commands=tuple(_by_site(unfinished, site, each) for each in way.commands))
    down = (alias for alias, each in conditions.items() if each is ComponentCondition.DOWN and alias not in refused)
    return Advice(name, way, broken, first, tuple(down))


def _by_site(run: Unfinished, site: str | None, command: str) -> str:
    """The command with the site run, which continues all its links; `--unplanned` concerns one link's run."""
    return command if site is None or "--unplanned" in command else command.replace(run.run, site)


def unfinished_runs(estate: ClusterContext, link: Link) -> list[Unfinished]:
    """The runs of a link that are not over and whose journals can be read."""
    found = []
    for summary in unfinished(estate.store, str(link.id)):
        try:
            record = load_run(estate.store, summary.run)
        except DrkitError:
            continue
        left = Unfinished.of(record.journal, record.machine, record.plan)
        if left is not None:
            found.append(replace(left, site=site_of(estate.store, record)))
    return found


def _is_another(estate: ClusterContext, link: Link) -> bool:
    """Whether the target, which answers, is another cluster than the one that was mirrored to."""
    known = known_target_cluster(estate.store, link.id)
    try:
        return known not in {None, estate.admin(link.id.target, may_be_gone=True).cluster_id()}
    except DrkitError:
        return False


def replaced_clusters(
    estate: ClusterContext, plan: Plan, answering: Mapping[str, bool]
) -> dict[str, ComponentCondition]:
    """Clusters that answer but aren't what they were: `REPLACED`: their id differs from the one in a run's plan;
    `EMPTY`: the target has none of the mirrored records: its topics are gone, or their logs are empty.
    """
    views = (plan.target, plan.live) if isinstance(plan, FailbackPlan) else (plan.source, plan.target)
    found = {}
    for view in views:
        if not answering.get(view.alias):
            continue
        try:
            admin = estate.admin(view.alias, may_be_gone=True)
            other = view.cluster_id is not None and admin.cluster_id() != view.cluster_id
            emptied = view.alias == plan.link.target and _emptied(estate, plan, admin)
        except DrkitError:
            continue
        if other or emptied:
            found[view.alias] = ComponentCondition.REPLACED if other else ComponentCondition.EMPTY
    return found


def _emptied(estate: ClusterContext, plan: Plan, target: ClusterAdmin) -> bool:
    """Whether a target to which records were mirrored has none of their topics, or only empty logs; nor, in a failback,
    any that were brought back from there."""
    store, link = estate.store, plan.link
    states = {state.topic: state.target_topic for state in store.topic_states(link).values()}
    written = {
        TopicPartition(states[tp.topic], tp.partition)
        for tp, mark in store.watermarks(link).items()
        if mark.target_end and tp.topic in states
    }
    names = set(states.values())
    if isinstance(plan, FailbackPlan):
        names |= {name for name in store.topic_states(link.reversed()) if not is_canary(name)}
        written |= {tp for tp, mark in store.watermarks(link.reversed()).items() if mark.source_through}
    found = target.topics(names)
    if not found:
        return bool(names)
    held = [tp for tp in written if tp.topic in found and tp.topic in names]
    return bool(held) and not any(target.end_offsets(held, committed=False).values())

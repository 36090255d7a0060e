"""Plans a failback: reads the old primary and the live cluster, and says what would be kept, deleted, moved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Facts, Kind
from drkit.failover.failback.carried_offsets import carried, not_on
from drkit.failover.failback.checks import obstacles, warnings, why_not_level
from drkit.failover.failback.failback_snapshot import FailbackSnapshot, scrub_topics, take_failback_snapshot
from drkit.failover.failback.way_back import check_way_back_is_free
from drkit.failover.plan.failback_plan import FailbackPlan, with_digest
from drkit.failover.plan.failover_plan import DirectoryView, Obstacle, StagePlan
from drkit.failover.plan.shared_preconditions import (
    RightsFound,
    decision_not_compared,
    later_decision,
    look_at_rights,
    lost_rows,
    named_rights,
    store_age,
)
from drkit.failover.planning.inherited_offsets import Inherited, inherited_offsets
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.snapshot.choose_links import failed_away, leading_away, was_failed_away
from drkit.failover.snapshot.selection import Selection
from drkit.failover.stages.audit_stage import Audit
from drkit.failover.stages.directory_update import newer_entries, read_directories, warnings_of
from drkit.failover.stages.failback_stages import DrainBack, Keep, QuietFence, Reseed, Reverse, ReverseLink
from drkit.failover.stages.failover_stages import Close, Commit, Translate, Verify
from drkit.failover.stages.hooks import Hooks, hooks_of, with_hooks
from drkit.failover.stages.salvage_stage import Salvage
from drkit.failover.stages.scrub_stage import Scrub
from drkit.failover.stages.stage import Stage
from drkit.kafka.admin.write_block import WriteProbe
from drkit.mapping.translate import RowDoubts
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Denied, Refused, Unreachable
from drkit.model.groups import SHARE
from drkit.model.link_state import Direction
from drkit.model.offsets import Certainty
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, FenceMethod, serve_again
from drkit.model.topics.cycles import clash_error, cycle_error, find_clash, find_cycle, names_to_try
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted
from drkit.permissions.missing import Names
from drkit.permissions.resolve import CLUSTER_NAME
from drkit.permissions.table import Command, Operation, Side, Subject
from drkit.state_topic.guard import check_recovered
from drkit.store.fences_beside import fences_beside, lift_of, names_closed
from drkit.store.links_beside import links_beside

_DECISIONS = 2  # reversed, then active again


def make_failback_plan(
    estate: ClusterContext,
    to: str | None,
    link: Link | None = None,
    *,
    for_good: bool = False,
    by_spark: bool = False,
    together: Collection[LinkId] = (),
) -> FailbackPlan:
    """Observe and plan.

    Args:
        estate: clusters and store.
        to: the cluster to go back to; None: the source of the one link that was failed away from.
        link: the configured link, if `to` has several.
        for_good: don't go back: the live cluster stays the source permanently, the old primary its standby (reprotect).
        by_spark: let Spark's tasks seed the old primary.
        together: the links that the same run brings back.

    Raises:
        ConfigError: no such cluster; several links qualify.
        Refused: no link leads away from it, it is not failed away from, a cluster doesn't answer, the link
            alters the records that it carries, or the other direction is a link of its own.
        Unreachable: the store doesn't answer.
    """
    chosen = _find_link(estate, to, link)
    kind = Kind.REPROTECT if for_good else Kind.FAILBACK
    if chosen.alters:
        raise Refused(
            f"no {kind} goes back along {chosen.id}: its filter, transform or provenance alters what it carries",
            meaning=f"{chosen.id.target} holds other records than {chosen.id.source} held; seeding {chosen.id.source} "
            "from it would replace what was left out or redacted, and no audit could tell what is right",
            remedy=serve_again(chosen),
        )
    check_recovered(estate.store, chosen)
    check_way_back_is_free(estate, chosen.id, kind)
    age = store_age(estate, chosen)
    in_doubt = age.rows_in_doubt(chosen, estate.store.problems(chosen.id))
    try:
        snapshot = take_failback_snapshot(estate, chosen, in_doubt)
        inherited = inherited_offsets(estate, snapshot)
    except Denied as denied:
        raise named_rights(estate, chosen, Command(kind.value), denied) from denied
    plan = _plan_for(
        snapshot,
        inherited,
        estate.endpoint(chosen.id.source),
        read_directories(estate, chosen.id),
        hooks_of(estate.config.hooks, Kind.FAILBACK, {}),
        kind,
        by_spark=by_spark,
        in_doubt=in_doubt,
    )
    found = _rights(estate, snapshot, plan)
    older = later_decision(estate, chosen, age) or lost_rows(chosen, age)
    if older is None and age.unknown is not None and not age.denied:
        older = decision_not_compared(estate, chosen, age.unknown)
    further = (
        *left_by_others(estate, chosen, snapshot.live_topics),
        *_in_the_way(estate, snapshot),
        *_kept_closed(estate, snapshot, together, for_good=for_good),
    )
    return replace(
        plan,
        warnings=(
            *plan.warnings,
            *_other_readers(estate, plan, together),
            *_share_groups(estate, plan),
            *in_doubt.sentences(),
            *found.warnings,
        ),
        obstacles=(*(() if older is None else (older,)), *plan.obstacles, *further, *found.obstacles),
    )


def obstacles_since(estate: ClusterContext, plan: FailbackPlan, waived: Collection[str]) -> Iterator[Obstacle]:
    """What prevents the failback now, as a new plan finds it: its salvage may have taken hours. What the live cluster
    lacks isn't looked at, nor which cluster it is: the scrub does that itself, and knows what was accepted.

    Raises:
        DrkitError: it can't be planned any more, or not now: a cluster or the store doesn't answer, or lets nobody in.
    """
    ids = [estate.admin(each.alias).cluster_id() for each in (plan.target, plan.live)]
    if ids != [plan.target.cluster_id, plan.live.cluster_id]:
        return
    made = make_failback_plan(
        estate, None, estate.link(plan.link), for_good=plan.kind is Kind.REPROTECT, by_spark=plan.by_spark
    )
    yield from (each for each in made.obstacles if each.waived_by not in {*waived, ACCEPT_SALVAGE_ONLY})


def has_deleted(estate: ClusterContext, plan: FailbackPlan, facts: Facts) -> bool:
    """Whether a failback has deleted any topic of the old primary: it was about to, and one is gone, or another one by
    its id. Then a new plan tells nothing of this one. That its scrub was begun doesn't show it: it may have been
    refused, or killed at once; nor does a topic that is gone before: somebody else deleted it, or it isn't listed now.

    Raises:
        DrkitError: the old primary doesn't answer, or lets nobody in.
    """
    if not facts.deleting:
        return False
    there = estate.admin(plan.target.alias).topics([topic.topic for topic in plan.topics])
    ids = {name: info.topic_id for name, info in there.items()}
    return any(ids.get(topic.topic) != topic.topic_id for topic in plan.topics)


def left_since(estate: ClusterContext, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Links by which the live cluster was failed away from since the plan was made: a run may take hours, or be resumed
    much later. By the store alone: the live cluster may be gone."""
    link = estate.link(plan.link)
    yield from left_by_others(estate, link, {topic.live_topic for topic in plan.topics})


def left_by_others(estate: ClusterContext, link: Link, live_topics: Iterable[str]) -> Iterator[Obstacle]:
    """Links by which the live cluster was itself failed away from: it lacks clients' later writes to these topics, and
    to those on record."""
    recorded = {state.target_topic for state in estate.store.topic_states(link.id).values()}
    names = sorted({*live_topics, *recorded, *estate.store.topic_states(link.id.reversed())})
    for configured in estate.config.links:
        other = configured.link()
        if other.id.source != link.id.target or not was_failed_away(estate, other.id):
            continue
        topics = sorted(name for name in names if other.covers_topic(name))
        if topics:
            yield Obstacle(
                f"{link.id.target} was failed away from, too, by {other.id}: {and_more(topics)}",
                f"{link.id.source} would get the records that {link.id.target} held before, and none written "
                f"to {other.id.target} since",
                f"First drkit failback --link '{other.id}', then this link; or, if {link.id.target} serves again, "
                f"remove {other.id} from the configuration",
            )


def _other_readers(estate: ClusterContext, plan: FailbackPlan, together: Collection[LinkId]) -> Iterator[str]:
    """What becomes of links that aren't brought back `together` with this one and read topics that the scrub makes
    anew."""
    clusters, old = estate.config.clusters_by_address(), plan.target.alias
    for configured in estate.config.links:
        other = configured.link()
        if not plan.deletes or other.id in {plan.link, *together} or clusters[other.id.source] != clusters[old]:
            continue
        topics = [topic.topic for topic in plan.topics if other.covers_topic(topic.topic)]
        if not topics:
            continue
        anew = f"{and_more(topics)} on {old} {'is' if len(topics) == 1 else 'are'} deleted and made anew"
        if was_failed_away(estate, other.id):
            yield (
                f"{other.id} was failed away from, too: {anew}, and {other.id} can then be brought back only into "
                f"topics that are deleted on {old} first"
            )
            continue
        deletes = other.mirrors_deletions
        meanwhile = f" Stop its mirror first: it may delete them on {other.id.target}, too." if deletes else ""
        yield (
            f"{other.id} reads {old}, too: {anew}, so it stops there (topic_recreated), and {other.id.target} gets "
            f"nothing more of them.{meanwhile} After the failback delete each on {other.id.target}, or all of it is "
            f"there a second time; then drkit link resume '{other.id}' --topic T --accept-recreated"
        )


def _share_groups(estate: ClusterContext, plan: FailbackPlan) -> Iterator[str]:
    """Share groups of the old primary that have a place on topics that the scrub makes anew: no salvage keeps it."""
    if not plan.deletes:
        return
    old, names = plan.target.alias, {topic.topic for topic in plan.topics}
    coordinator = estate.groups(old)
    shared = [name for name, info in coordinator.list_groups().items() if info.type == SHARE]
    starts = coordinator.share_starts(shared) if shared else {}
    placed = {name: sorted({tp.topic for tp in starts[name]} & names) for name in starts}
    losing = [f"{name} on {and_more(topics)}" for name, topics in sorted(placed.items()) if topics]
    losing += [f"{name} (on which topics isn't shown)" for name in sorted(set(shared) - starts.keys())]
    if losing:
        yield (
            f"share groups (KIP-932) of {old} lose their place with the topics that are deleted: {and_more(losing)}. "
            "On the new ones share.auto.offset.reset decides (latest, unless set), or kafka-share-groups.sh "
            f"--bootstrap-server SERVERS-OF-{old} --group NAME --topic TOPIC --reset-offsets --to-earliest --execute "
            "before their consumers start there"
        )


def _kept_closed(
    estate: ClusterContext, snapshot: FailbackSnapshot, together: Collection[LinkId], *, for_good: bool
) -> Iterator[Obstacle]:
    """Links that aren't brought back `together` with this one, and whose fences would keep its clients out of the old
    primary: by a command, or by ACLs on topics and groups that they have in common. If that stays a standby `for_good`,
    what matters is the mirror alone."""
    link, old = snapshot.link, snapshot.link.id.source
    links = [each.link().id for each in estate.config.links if each.link().id not in together]
    try:
        there = estate.admin(old).acls()
    except (Refused, Unreachable):
        there = None
    shut = fences_beside(estate.store, link, links, old, there)
    if for_good and (
        not shut or _may_write(estate, old, [name for name in snapshot.topics if link.covers_topic(name)])
    ):
        return
    commanded = {each: fence for each, fence in shut.items() if fence.by_command}
    denied = {each: fence for each, fence in shut.items() if not fence.by_command}
    in_one_run = "Bring all of them back in one run: drkit failback. "
    if commanded:
        named = and_more(sorted(map(str, commanded)))
        yield Obstacle(
            f"{old} is closed to all clients by its command, for {named}, too",
            f"If opened for {link.id}, clients of {named} may write there, which reaches no other cluster; if "
            f"not, those of {link.id} can't use it",
            f"{in_one_run}{lift_of(min(commanded, key=str), old)}",
        )
    if denied:
        shared = any(rule.resource == "topic" for each in denied.values() for rule in each.denied)
        yield Obstacle(
            f"the fence of {and_more(sorted(map(str, denied)))} needs closed on {old}, too: "
            f"{names_closed(denied.values())}",
            f"Clients of {link.id} couldn't use that, and to closed topics no mirror writes that is no super user",
            # only one of them can bring a topic back that they share
            f"{'' if shared else in_one_run}{lift_of(min(denied, key=str), old)}",
        )


def _may_write(estate: ClusterContext, cluster: str, topics: Sequence[str]) -> bool:
    """Whether drkit itself may write to the first of these topics."""
    config = estate.config.clusters[cluster]
    with WriteProbe(cluster, config, timeout_seconds=estate.timeout_seconds) as probe:
        return all(names >= set(topics[:1]) for names in probe.may_write(topics[:1]).values())


def _in_the_way(estate: ClusterContext, snapshot: FailbackSnapshot) -> Iterator[Obstacle]:
    """Links beside which the mirror of the way back may not run: it would only say so after the scrub."""
    way_back, clusters = snapshot.link.reversed(), estate.config.clusters_by_address()
    beside = links_beside(estate.store, way_back, [each.link() for each in estate.config.links])
    links = [way_back, *beside]
    names = [*names_to_try(links), *sorted(snapshot.live_topics)]
    cycle = find_cycle(links, clusters, names, through=way_back)
    clash = find_clash(links, clusters, names, of=way_back)
    if cycle is not None:
        yield Obstacle(*cycle_error(cycle))
    elif clash is not None:
        yield Obstacle(*clash_error(clash, clusters))


def _rights(estate: ClusterContext, snapshot: FailbackSnapshot, plan: FailbackPlan) -> RightsFound:
    """Rights that drkit lacks on the old primary, which is scrubbed and seeded, and on the live cluster, which is
    read."""
    link, topics = snapshot.link, {topic.topic for topic in plan.topics}
    fence = snapshot.fence
    closed = fence is not None and fence.stands and fence.method is FenceMethod.ACL
    old: Names = {
        (Subject.TOPICS, Operation.DELETE): () if plan.level else topics,
        (Subject.TOPICS, None): topics,
        (Subject.GROUPS, Operation.DELETE): () if plan.level else set(plan.offsets),
        (Subject.GROUPS, Operation.READ): {position.group for position in plan.positions},
        (Subject.CLUSTER, Operation.ALTER): {CLUSTER_NAME} if closed else (),
    }
    live: Names = {
        (Subject.TOPICS, None): set(snapshot.live_topics),
        (Subject.GROUPS, None): {offset.group for offset in snapshot.live_offsets},
    }
    return look_at_rights(estate, link, Command(plan.kind.value), {Side.SOURCE: old, Side.TARGET: live})


def failback_stages(plan: FailbackPlan) -> tuple[Stage, ...]:
    """The stages of a failback, for the plan's explanation and for the runner."""
    old, live, cluster_id = plan.target.alias, plan.live.alias, plan.target.cluster_id or ""
    groups = len({position.group for position in plan.positions})
    kept = plan.kind is Kind.REPROTECT
    brought_back = (
        Salvage(old, cluster_id, live, plan.topics, plan.level, plan.inherited),
        Scrub(old, cluster_id, live, plan.link, plan.topics, sum(plan.offsets.values()), plan.level),
        Reverse(plan.link, plan.topics, level=plan.level, for_good=kept, rows_in_doubt=plan.rows_in_doubt),
        Reseed(live, old, cluster_id, plan.by_spark),
        Audit(live, old, plan.topics, plan.level),
    )
    if kept:
        return (*brought_back, Keep(plan.link))
    return (
        *brought_back,
        QuietFence(live),
        DrainBack(live, old, cluster_id),
        # where nothing was deleted, the groups' offsets there are old: the live cluster's positions win
        Translate(
            live,
            old,
            None,
            Selection(),
            allow_rewind=plan.level,
            expected=len(plan.positions),
            back=True,
        ),
        Commit(old, groups, len(plan.positions)),
        ReverseLink(plan.link, plan.endpoint, old, plan.topics, tuple(view.name for view in plan.directories)),
        Verify(old),
        Close(turned=True),
    )


def _find_link(estate: ClusterContext, to: str | None, wanted: Link | None) -> Link:
    away = failed_away(estate, leading_away(estate.config, to, wanted))
    if len(away) > 1:
        raise ConfigError(
            f"several links were failed away from: {', '.join(str(link.id) for link in away)}",
            meaning="One run moves one link",
            remedy="One after the other: "
            + "; ".join(f"drkit failback --to {link.id.source} --link '{link.id}'" for link in away),
        )
    return away[0]


# -- deciding --------------------------------------------------------------------------------------


def _plan_for(
    snapshot: FailbackSnapshot,
    inherited: Inherited,
    endpoint: str,
    directories: tuple[DirectoryView, ...],
    hooks: Hooks,
    kind: Kind,
    *,
    by_spark: bool,
    in_doubt: RowDoubts,
) -> FailbackPlan:
    topics = tuple(scrub_topics(snapshot))
    names = {topic.topic for topic in topics}
    offsets: dict[str, int] = {}
    level = why_not_level(snapshot, topics) is None
    alone: tuple[PlannedPosition, ...] = ()
    if level:
        topics = tuple(replace(topic, only={}, gap="", missing={}) for topic in topics)
    else:
        by_name = {topic.topic: topic for topic in topics}
        alone = not_on(snapshot.live_offsets, carried(snapshot.mappings, snapshot.old_offsets, by_name))
    back = kind is not Kind.REPROTECT
    for found in () if level else snapshot.old_offsets:
        if found.topic in names:
            offsets[found.group] = offsets.get(found.group, 0) + 1
    control = snapshot.control
    plan = FailbackPlan(
        link=snapshot.link.id,
        made_at=now(),
        target=snapshot.old,
        live=snapshot.live,
        endpoint=endpoint,
        control=(control.direction if control is not None else Direction.ACTIVE).value,
        control_version=None if control is None else control.version,
        failover_run=None if control is None else control.run,
        topics=topics,
        offsets=dict(sorted(offsets.items())),
        positions=_positions(snapshot, (*alone, *inherited.positions)) if back else (),
        carried=len(alone) if back else 0,
        inherited=inherited.positions if back else (),
        directories=directories if back else (),
        kind=kind,
        level=level,
        by_spark=by_spark,
        rows_in_doubt=in_doubt,
    )
    stages = tuple(StagePlan(stage.name, stage.explain()) for stage in failback_stages(plan))
    epoch = (plan.control_version or 0) + _DECISIONS
    plan = replace(
        plan,
        stages=with_hooks(stages, hooks),
        warnings=(*warnings(snapshot, plan), *_of_abandoned(inherited, back=back), *warnings_of(plan.directories)),
        obstacles=(
            *obstacles(snapshot, plan, (*alone, *inherited.positions) if back else alone),
            *newer_entries(plan.directories, plan.link, plan.target.alias, epoch),
        ),
    )
    return with_digest(plan)


def _of_abandoned(inherited: Inherited, *, back: bool) -> Iterator[str]:
    """What becomes of positions that abandoned runs kept and deleted."""
    yield from inherited.remarks
    if not inherited.positions:
        return
    groups = and_more(sorted({each.group for each in inherited.positions}))
    count = counted(len(inherited.positions), "committed offset")
    if back:
        yield f"{count} that an abandoned run kept, and that its scrub deleted ({groups}), are carried over, too"
    else:
        yield (
            f"{count} that an abandoned run kept ({groups}) are on no cluster: they stay in its salvage "
            "(positions.json, with their offsets on the live cluster)"
        )


def _positions(snapshot: FailbackSnapshot, alone: Iterable[PlannedPosition]) -> tuple[PlannedPosition, ...]:
    """The groups' positions on the live cluster, and the carried ones of groups that are on the old primary only. Their
    new positions are known once the re-seed is done."""
    link = snapshot.link
    found = []
    for offset in snapshot.live_offsets:
        topic = link.source_topic(offset.topic)
        if topic is None:
            continue
        reason = f"known once {link.id.source} is seeded again"
        found.append(
            PlannedPosition(
                group=offset.group,
                topic=offset.topic,
                partition=offset.partition,
                target_topic=topic,
                source_offset=offset.offset,
                target_offset=None,
                strategy=None,
                translation=Certainty.UNAVAILABLE,
                reread=None,
                skipped=None,
                lost=None,
                reason=reason,
                why=reason,
                metadata=offset.metadata,
            )
        )
    return tuple(sorted((*found, *alone), key=lambda p: (p.group, p.topic, p.partition)))

"""Planning a failback: look at the old primary and the live cluster, say what would be kept, deleted, moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drkit.failover.back import Audit, DrainBack, Keep, QuietFence, Reseed, Reverse, Turn
from drkit.failover.clients import look_at_directories, outrun, warnings_of
from drkit.failover.estate import Estate
from drkit.failover.failback_plan import FailbackPlan, ScrubTopic, with_digest
from drkit.failover.gate import gate_record
from drkit.failover.gate_rules import GateRecord, GateState
from drkit.failover.hooks import Hooks, hooks_of, with_hooks
from drkit.failover.level import is_level
from drkit.failover.machine import Kind
from drkit.failover.move import Close, Commit, Translate, Verify
from drkit.failover.observe import mirror_at_work
from drkit.failover.plan import DirectoryView, Obstacle, StagePlan
from drkit.failover.positions import Position, Selection
from drkit.failover.record import load_run
from drkit.failover.scrub import Salvage, Scrub
from drkit.failover.stage import Stage
from drkit.failover.world import ClusterView
from drkit.kafka.admin import TopicInfo
from drkit.kafka.groups import CommittedOffset
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, Refused, Unreachable
from drkit.model.links import Direction, LinkControl, TopicState
from drkit.model.offsets import Certainty, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition, is_canary

CLUSTER_ID = "--cluster-id"
_SHOWN = 5
_DECISIONS = 2  # reversed, then active again


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the planner saw. `topics`: all topics of the old primary; offsets by its own names."""

    link: Link
    control: LinkControl | None
    old: ClusterView
    live: ClusterView
    states: Mapping[str, TopicState]
    watermarks: Mapping[TopicPartition, Watermark]
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    live_topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    live_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    old_offsets: tuple[CommittedOffset, ...] = ()
    old_members: Mapping[str, int] = field(default_factory=dict)
    live_offsets: tuple[CommittedOffset, ...] = ()
    live_members: Mapping[str, int] = field(default_factory=dict)
    mirror: str | None = None
    run_problem: str | None = None
    fence: GateRecord | None = None
    kept: bool = False
    old_cluster_id: str | None = None


def make_failback_plan(
    estate: Estate, to: str | None, link: Link | None = None, *, keep_primary: bool = False, by_spark: bool = False
) -> FailbackPlan:
    """Observe and plan.

    Args:
        estate: where to look.
        to: the cluster to go back to; None: the source of the one link that was failed away from.
        link: the configured link, where several are meant by `to`.
        keep_primary: don't go back: the live cluster becomes the source for good, the old primary its standby.
        by_spark: have Spark's tasks seed the old primary.

    Raises:
        ConfigError: no such cluster; several links qualify.
        Refused: no link leads away from it, it is not failed away from, a cluster doesn't answer, or the
            link alters the records that it carries.
        Unreachable: the store doesn't answer.
    """
    chosen = _find_link(estate, to, link)
    if any(configured.link().id == chosen.id.reversed() for configured in estate.config.links):
        raise Refused(
            f"{chosen.id.reversed()} is a link of its own (active-active)",
            meaning=f"The way back of {chosen.id} would have its name, and the two records would mix",
            remedy="Take that link out of the configuration for the time of the failback",
        )
    if chosen.alters:
        raise Refused(
            f"{chosen.id} can't be failed back: its filter, transform or provenance alters what it carries",
            meaning=f"{chosen.id.target} holds other records than {chosen.id.source} held; seeding {chosen.id.source} "
            "from it would replace what was left out or redacted, and no audit could tell what is right",
            remedy=f"Keep {chosen.id.source}, and merge by hand what was written to {chosen.id.target} since",
        )
    sight = _look(estate, chosen)
    return _plan_for(
        sight,
        estate.endpoint(chosen.id.source),
        look_at_directories(estate, chosen.id),
        hooks_of(estate.config.hooks, Kind.FAILBACK, {}),
        Kind.KEEP_PRIMARY if keep_primary else Kind.FAILBACK,
        by_spark=by_spark,
    )


def failback_stages(plan: FailbackPlan) -> tuple[Stage, ...]:
    """The stages of a failback: those that the plan explains are those that the runner carries out."""
    old, live, cluster_id = plan.target.alias, plan.live.alias, plan.target.cluster_id or ""
    groups = len({position.group for position in plan.positions})
    kept = plan.kind is Kind.KEEP_PRIMARY
    brought_back = (
        Salvage(old, cluster_id, live, plan.topics),
        Scrub(old, cluster_id, plan.link, plan.topics, sum(plan.offsets.values()), plan.level),
        Reverse(plan.link, plan.topics, level=plan.level, for_good=kept),
        Reseed(live, old, cluster_id, plan.by_spark),
        Audit(live, old),
    )
    if kept:
        return (*brought_back, Keep(plan.link))
    return (
        *brought_back,
        QuietFence(live),
        DrainBack(live, old, cluster_id),
        # where nothing was deleted, what groups had committed there is old: the live cluster's positions rule
        Translate(live, old, None, Selection(), allow_rewind=plan.level, expected=len(plan.positions)),
        Commit(old, groups, len(plan.positions)),
        Turn(plan.link, plan.endpoint, old, plan.topics, tuple(view.name for view in plan.directories)),
        Verify(old),
        Close(),
    )


def _find_link(estate: Estate, to: str | None, wanted: Link | None) -> Link:
    links = [configured.link() for configured in estate.config.links]
    if to is not None and to not in estate.config.clusters:
        raise ConfigError(
            f"no cluster {to!r} is configured", remedy=f"Known: {', '.join(sorted(estate.config.clusters))}"
        )
    candidates = [link for link in links if to in {None, link.id.source} and wanted in {None, link}]
    if not candidates:
        known = ", ".join(str(link.id) for link in links) or "none"
        raise Refused(f"no link leads away from {to}", meaning="It was never a primary", remedy=f"Links: {known}")
    away = [link for link in candidates if _direction(estate, link.id) in {Direction.SEALED, Direction.REVERSED}]
    if not away:
        named = ", ".join(str(link.id) for link in candidates)
        raise Refused(
            f"{named} was not failed away from",
            meaning="There is nothing to go back from: the primary still is the primary",
            remedy="`drkit status` shows the links",
        )
    if len(away) > 1:
        raise ConfigError(
            f"several links were failed away from: {', '.join(str(link.id) for link in away)}",
            remedy="Name one with --to or --link",
        )
    return away[0]


def _direction(estate: Estate, link: LinkId) -> Direction:
    control = estate.store.link_control(link)
    return Direction.ACTIVE if control is None else control.direction


# -- looking ---------------------------------------------------------------------------------------


def _look(estate: Estate, link: Link) -> _Sight:
    store = estate.store
    control = store.link_control(link.id)
    problem, cluster_id, kept = _failover_run(estate, control)
    sight = _Sight(
        link=link,
        control=control,
        old=_reach(estate, link.id.source, "Bring it up: it is what a failback goes back to"),
        live=_reach(estate, link.id.target, "It serves now: nothing can be brought back without it"),
        states={name: state for name, state in store.topic_states(link.id).items() if not is_canary(name)},
        watermarks=store.watermarks(link.id),
        mirror=mirror_at_work(estate, link),
        run_problem=problem,
        fence=gate_record(store, link.id, link.id.source),
        old_cluster_id=cluster_id,
        kept=kept,
    )
    old_admin, live_admin = estate.admin(link.id.source), estate.admin(link.id.target)
    topics = old_admin.topics()
    covered = [name for name in topics if link.covers_topic(name)]
    tps = [TopicPartition(name, partition) for name in covered for partition in range(topics[name].partitions)]
    old_offsets = _offsets(estate, link.id.source, link, covered)
    live_names = {link.target_topic(name) for name in (*covered, *sight.states)}
    live_offsets = _offsets(estate, link.id.target, link, sorted(live_names))
    live = live_admin.topics(live_names)
    return replace(
        sight,
        topics=topics,
        live_topics=live,
        live_starts=live_admin.start_offsets(
            [TopicPartition(name, partition) for name, info in live.items() for partition in range(info.partitions)],
            partial=True,
        ),
        starts=old_admin.start_offsets(tps),
        ends=old_admin.end_offsets(tps, committed=False),
        configs=old_admin.topic_configs(covered),
        old_offsets=old_offsets,
        live_offsets=live_offsets,
        old_members=estate.groups(link.id.source).members(
            sorted({found.group for found in (*old_offsets, *live_offsets)})
        ),
        live_members=estate.groups(link.id.target).members(sorted({found.group for found in live_offsets})),
    )


def _reach(estate: Estate, alias: str, remedy: str) -> ClusterView:
    admin = estate.admin(alias)
    try:
        return ClusterView(alias, reachable=True, cluster_id=admin.cluster_id(), brokers=len(admin.brokers()))
    except Unreachable as error:
        raise Refused(f"{alias} does not answer: {error.what}", meaning=error.meaning, remedy=remedy) from error


def _offsets(estate: Estate, alias: str, link: Link, topics: Sequence[str]) -> tuple[CommittedOffset, ...]:
    coordinator = estate.groups(alias)
    groups = [
        name for name, info in coordinator.list_groups().items() if link.covers_group(name) and info.type != "share"
    ]
    names = set(topics)
    return tuple(found for found in coordinator.committed(groups) if found.topic in names)


def _failover_run(estate: Estate, control: LinkControl | None) -> tuple[str | None, str | None, bool]:
    """What is wrong with the run that failed the link away, the old primary's id as it saw it, and whether the link
    was turned round for good.
    """
    if control is None or control.run is None:
        return None, None, False
    try:
        record = load_run(estate.store, control.run)
    except DrkitError as error:
        return f"run {control.run}, which failed the link away, can't be read: {error.what}", None, False
    problem = None
    if not record.machine.finished:
        problem = f"run {control.run} is unfinished ({record.machine.state})"
    seen = record.plan.source.cluster_id if not isinstance(record.plan, FailbackPlan) else None
    return problem, seen, record.plan.kind is Kind.KEEP_PRIMARY and record.machine.finished


# -- deciding --------------------------------------------------------------------------------------


def _plan_for(
    sight: _Sight,
    endpoint: str,
    directories: tuple[DirectoryView, ...],
    hooks: Hooks,
    kind: Kind,
    *,
    by_spark: bool,
) -> FailbackPlan:
    topics = tuple(_scrub_topics(sight))
    names = {topic.topic for topic in topics}
    offsets: dict[str, int] = {}
    level = is_level(topics, sight.ends, sight.watermarks, sight.states, sight.live_topics, sight.live_starts)
    for found in () if level else sight.old_offsets:
        if found.topic in names:
            offsets[found.group] = offsets.get(found.group, 0) + 1
    control = sight.control
    plan = FailbackPlan(
        link=sight.link.id,
        made_at=now(),
        target=sight.old,
        live=sight.live,
        endpoint=endpoint,
        control=(control.direction if control is not None else Direction.ACTIVE).value,
        control_version=None if control is None else control.version,
        failover_run=None if control is None else control.run,
        topics=topics,
        offsets=dict(sorted(offsets.items())),
        positions=() if kind is Kind.KEEP_PRIMARY else _live_positions(sight),
        directories=() if kind is Kind.KEEP_PRIMARY else directories,
        kind=kind,
        level=level,
        by_spark=by_spark,
    )
    stages = tuple(StagePlan(stage.name, stage.explain()) for stage in failback_stages(plan))
    epoch = (plan.control_version or 0) + _DECISIONS
    plan = replace(
        plan,
        stages=with_hooks(stages, hooks),
        warnings=(*_warnings(sight, plan), *warnings_of(plan.directories)),
        obstacles=(*_obstacles(sight), *outrun(plan.directories, plan.link, plan.target.alias, epoch)),
    )
    return with_digest(plan)


def _scrub_topics(sight: _Sight) -> Iterator[ScrubTopic]:
    """Topics that the link mirrored and that are still the incarnation it mirrored."""
    for name, state in sorted(sight.states.items()):
        info = sight.topics.get(name)
        if info is None or info.topic_id != state.source_topic_id:
            continue
        tps = [TopicPartition(name, partition) for partition in range(info.partitions)]
        yield ScrubTopic(
            topic=name,
            topic_id=info.topic_id,
            live_topic=state.target_topic,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            epoch=state.epoch,
            created_by_drkit=state.created_by_drkit,
            config=dict(sight.configs.get(name, {})),
            starts={tp.partition: sight.starts[tp] for tp in tps if tp in sight.starts},
            ends={tp.partition: sight.ends[tp] for tp in tps if tp in sight.ends},
            through={
                tp.partition: sight.watermarks[tp].source_through
                for tp in tps
                if tp in sight.watermarks and sight.watermarks[tp].epoch == state.epoch
            },
        )


def _live_positions(sight: _Sight) -> tuple[Position, ...]:
    """The groups as they stand on the live cluster; where they go is known once the re-seed is done."""
    link = sight.link
    found = []
    for offset in sight.live_offsets:
        topic = link.source_topic(offset.topic)
        if topic is None:
            continue
        reason = f"known once {link.id.source} is seeded again"
        found.append(
            Position(
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
    return tuple(sorted(found, key=lambda p: (p.group, p.topic, p.partition)))


def _warnings(sight: _Sight, plan: FailbackPlan) -> Iterator[str]:
    link = sight.link
    names = {topic.topic for topic in plan.topics}
    others = [
        name for name in sight.topics if link.covers_topic(name) and name not in names and name not in sight.states
    ]
    alone = [name for name in others if link.target_topic(name) not in sight.live_topics]
    if alone:
        yield f"{_listed(alone)} on {link.id.source} were never mirrored and stay as they are"
    missing = [name for name in sight.states if name not in sight.topics]
    if missing:
        yield f"{_listed(missing)} are gone from {link.id.source}: they are created anew"
    active = sorted(group for group, count in sight.live_members.items() if count)
    if active:
        yield f"{_listed(active)} read on {link.id.target}: unless they stop first, they read some of it again"
    if sight.fence is not None and not sight.fence.proven and sight.fence.state is not GateState.OPEN:
        yield (
            f"{link.id.source} was to be fenced and isn't shown to be ({sight.fence.detail or 'it did not answer'}): "
            f"drkit fence --link '{link.id}' before its clients find it back"
        )
    if plan.only_here:
        yield (
            f"{plan.only_here:,} offsets exist only on {link.id.source}: they are salvaged, not brought to "
            f"{link.id.target}; `drkit salvage --replay-to` can replay them"
        )


def _obstacles(sight: _Sight) -> Iterator[Obstacle]:
    link, old = sight.link, sight.link.id.source
    if sight.kept:
        yield Obstacle(
            f"{link.id.target} was made the primary for good",
            f"{link.id} of the configuration points the way that data flows no more",
            f'Give the link source = "{link.id.target}" and target = "{old}" in the configuration; then groups can be '
            f"moved with drkit failover --to {old}",
        )
        return
    if sight.control is not None and sight.control.direction is Direction.REVERSED:
        yield Obstacle(
            f"a failback of {link.id} is under way (run {sight.control.run})",
            "Two at a time would undo each other",
            f"drkit resume {sight.control.run}",
        )
    elif sight.run_problem is not None:
        yield Obstacle(sight.run_problem, "The failover has to be complete before the way back", "drkit resume")
    if sight.old_cluster_id is not None and sight.old_cluster_id != sight.old.cluster_id:
        yield Obstacle(
            f"{old} is cluster {sight.old.cluster_id}; what was failed away from is {sight.old_cluster_id}",
            "The address leads to another cluster: nothing there is to be deleted",
            "Mend bootstrap_servers",
        )
    if sight.mirror is not None:
        yield Obstacle(
            f"a mirror works on {link.id}: {sight.mirror}", "It must not write while data is turned", "Stop it"
        )
    active = sorted(group for group, count in sight.old_members.items() if count)
    if active:
        yield Obstacle(
            f"{_listed(active)} {'is' if len(active) == 1 else 'are'} active on {old}",
            "Their committed offsets there are deleted and set anew, which Kafka takes only while nobody reads",
            f"Stop these consumers on {old}",
        )
    yield from _foreign_topics(sight)


def _foreign_topics(sight: _Sight) -> Iterator[Obstacle]:
    """Topics of the link on the old primary that hold what the mirror never saw."""
    link, old = sight.link, sight.link.id.source
    for name, info in sorted(sight.topics.items()):
        if not link.covers_topic(name):
            continue
        state = sight.states.get(name)
        ours = state is not None and info.topic_id == state.source_topic_id
        tps = [TopicPartition(name, partition) for partition in range(info.partitions)]
        if ours or link.target_topic(name) not in sight.live_topics or not any(sight.ends.get(tp) for tp in tps):
            continue
        what = "was recreated since it was mirrored" if state is not None else "was never mirrored"
        yield Obstacle(
            f"topic {name} on {old} {what} and holds records",
            "drkit deletes only what the link mirrored, and can't seed a topic that holds something else",
            f"Keep what is needed of it and delete it on {old}, or put it into exclude_topics",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

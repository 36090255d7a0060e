"""What planning a failback looks at: the old primary, the live cluster, what the store knows of the link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drkit.failover.estate import Estate
from drkit.failover.failback_plan import FailbackPlan, ScrubTopic
from drkit.failover.gate import gate_record
from drkit.failover.machine import Kind
from drkit.failover.observe import mirror_at_work
from drkit.failover.record import load_run
from drkit.failover.world import ClusterView
from drkit.kafka.admin import TopicInfo
from drkit.kafka.groups import CommittedOffset
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.gate import GateRecord
from drkit.model.links import LinkControl, TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition, is_canary


@dataclass(frozen=True, slots=True)
class Sight:
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


def look(estate: Estate, link: Link) -> Sight:
    """Look at everything.

    Raises:
        Refused: a cluster doesn't answer.
    """
    store = estate.store
    control = store.link_control(link.id)
    problem, cluster_id, kept = _failover_run(estate, control)
    sight = Sight(
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
    return problem, seen, record.plan.kind is Kind.REPROTECT and record.machine.finished


def scrub_topics(sight: Sight) -> Iterator[ScrubTopic]:
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

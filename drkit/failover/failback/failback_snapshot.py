"""The inputs of a failback's plan: the old primary, the live cluster, the store's data about the link, and from these
the topics that a scrub deletes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.live_log import BELOW, MISSING, RECREATED, Lacking, LiveLog, gap_of, only_here
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.failback.carried_offsets import MappedTopic, PartitionMapping, mappings_of
from drkit.failover.fencing.cluster_fence import fence_method, fence_record
from drkit.failover.fencing.write_block import settings_before
from drkit.failover.journal.run_record import KINDS, load_anchored_run, since_brought_back
from drkit.failover.plan.failback_plan import FailbackPlan, ScrubTopic
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.admin.write_block import is_blocked
from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.groups.group_admin import CommittedOffset
from drkit.lag.batch_comparison import compare_batches
from drkit.lag.last_records import compare_records, last_places
from drkit.mapping.mapping_rows import source_at
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, translate_by_rows
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.link_state import RECORDS_GIVEN_UP, Direction, LinkControl, TopicState
from drkit.model.offsets import Watermark
from drkit.model.runs import FenceMethod, FenceRecord, run_to_resume
from drkit.model.topic_policy import TopicSettings
from drkit.model.topics.removing import REMOVING
from drkit.model.topics.standby import UNCOMPACTED
from drkit.model.topology import Link, LinkId, TopicPartition, is_canary
from drkit.state_topic.other_store import mirrors_of_other_stores
from drkit.store.api import Store
from drkit.store.link_notes import known_target_cluster
from drkit.store.workers import mirror_at_work

_RECORDS_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class FailbackSnapshot:
    """The planner's input. `topics`: all topics of the old primary; offsets by its own names, `old_offsets` of all
    groups, whether the link's or not. `mappings`: from the old primary's offsets to the live cluster's; `live_logs`: by
    the old primary's names; `live_fence`: the live cluster's fence method, and why there is none. `configs`,
    `live_configs`: the topics' settings on the old primary, and what removes records on the live cluster; by the old
    primary's names.

    `mirrored_to`: the cluster id of the target that the mirror wrote to; None: it was never noted.

    `back_states`: by the old primary's names, the topics that a failback that was given up recreated and filled there.
    `recreated`: those that it recreated and left empty. `configs_before`: the configuration of both before that.
    `other_records`: partitions of the old primary that end where the
    mirror ended, and whose last records aren't those that were mirrored, or can't be compared. `unlike`: why
    the beginning of other partitions isn't the same on both, though no retention is known to explain that. `not_there`:
    records of the old primary, by partition, that a problem on record says the live cluster never got, or lacks.
    """

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
    live_logs: Mapping[str, LiveLog] = field(default_factory=dict)
    mappings: Mapping[TopicPartition, PartitionMapping] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    live_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    old_offsets: tuple[CommittedOffset, ...] = ()
    old_members: Mapping[str, int] = field(default_factory=dict)
    live_offsets: tuple[CommittedOffset, ...] = ()
    live_members: Mapping[str, int] = field(default_factory=dict)
    mirror: str | None = None
    run_problem: str | None = None
    resumed_by: str | None = None
    other_records: frozenset[TopicPartition] = frozenset()
    unlike: Mapping[TopicPartition, str] = field(default_factory=dict)
    not_there: Mapping[TopicPartition, str] = field(default_factory=dict)
    fence: FenceRecord | None = None
    kept: bool = False
    old_cluster_id: str | None = None
    back_states: Mapping[str, TopicState] = field(default_factory=dict)
    recreated: frozenset[str] = frozenset()
    configs_before: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    live_fence: tuple[FenceMethod, str] = (FenceMethod.NONE, "not looked at")
    mirrored_to: str | None = None

    @property
    def replaced(self) -> bool:
        """Whether another cluster answers as the old primary."""
        return self.old_cluster_id is not None and self.old_cluster_id != self.old.cluster_id

    def live_names(self) -> dict[str, str]:
        """The live cluster's names of mirrored or recreated topics, by the old primary's names."""
        made = {name: self.link.target_topic(name) for name in self.back_states}
        return made | {name: state.target_topic for name, state in self.states.items()}

    def way_back(self, info: TopicInfo) -> bool:
        """Whether a failback that was given up recreated this topic of the old primary."""
        state, made = self.states.get(info.name), self.back_states.get(info.name)
        mirrored = state is not None and info.topic_id == state.source_topic_id
        return not mirrored and made is not None and info.topic_id == made.target_topic_id

    def is_ours(self, info: TopicInfo) -> bool:
        """Whether a topic of the old primary is the incarnation that was mirrored, or that a failback recreated."""
        state, made = self.states.get(info.name), self.back_states.get(info.name)
        mirrored = state is not None and info.topic_id == state.source_topic_id
        made_by_it = made is not None and info.topic_id == made.target_topic_id
        return mirrored or made_by_it or info.name in self.recreated


def running_mirror(estate: ClusterContext, link: Link) -> str | None:
    """A running mirror of the link or of its way back, whichever store it uses, or None."""
    return _mirror(estate, link) or _mirror(estate, link.reversed())


def _mirror(estate: ClusterContext, link: Link) -> str | None:
    if (worker := mirror_at_work(estate.store, link.id)) is not None:
        return worker
    groups = estate.groups(link.id.target)
    found = mirrors_of_other_stores(groups, link, estate.store, estate.config.store.plain_url)
    return f"{found[0]}, which uses another store than store.url" if found else None


def take_failback_snapshot(estate: ClusterContext, link: Link, in_doubt: RowDoubts = NO_ROW_DOUBTS) -> FailbackSnapshot:
    """Read both clusters and the store; `in_doubt`: what isn't known of its mapping rows.

    Raises:
        Refused: a cluster doesn't answer.
    """
    store = estate.store
    control = store.link_control(link.id)
    decided = _decided_by(estate, control)
    back = link.id.reversed()
    snapshot = FailbackSnapshot(
        link=link,
        control=control,
        old=_reach(estate, link.id.source, "Bring it up: a failback goes back to it"),
        live=_reach(estate, link.id.target, "It serves now: nothing can be brought back without it"),
        states={name: state for name, state in store.topic_states(link.id).items() if not is_canary(name)},
        watermarks=store.watermarks(link.id),
        mirror=running_mirror(estate, link),
        run_problem=decided.problem,
        resumed_by=decided.resumed_by,
        fence=fence_record(store, link.id, link.id.source),
        old_cluster_id=decided.cluster_id,
        kept=decided.kept,
        back_states=_made_by_the_way_back(estate, control, back),
        configs_before=decided.configs,
        mirrored_to=known_target_cluster(store, link.id),
    )
    old_admin, live_admin = estate.admin(link.id.source), estate.admin(link.id.target)
    topics = old_admin.topics()
    covered = [name for name in topics if link.covers_topic(name)]
    tps = [TopicPartition(name, partition) for name in covered for partition in range(topics[name].partitions)]
    ends = old_admin.end_offsets(tps, committed=False)
    written = {tp.topic for tp, end in ends.items() if end}
    left = _recreated(estate, snapshot, {name: topics[name] for name in covered if name not in written})
    snapshot = replace(snapshot, recreated=frozenset(left), configs_before={**snapshot.configs_before, **left})
    names = snapshot.live_names()
    mirrored = [name for name in names if name in topics]
    old_offsets = _offsets(estate, link.id.source, None, sorted(mirrored))
    live_names = {link.target_topic(name) for name in (*covered, *snapshot.states)} | set(names.values())
    live_offsets = _offsets(estate, link.id.target, link, sorted(live_names))
    live = live_admin.topics(live_names)
    starts = old_admin.start_offsets(tps)
    logs = logs_of(live_admin, live, names)
    mapped = [
        MappedTopic(name, names[name], topics[name].partitions, snapshot.way_back(topics[name]), logs[name].starts)
        for name in mirrored
    ]
    mappings = mappings_of(store, link.id, mapped, in_doubt)
    held = {tp: mapping for tp, mapping in mappings.items() if tp.topic not in left}
    live_configs = live_admin.topic_configs(sorted({names[name] for name in mirrored}), keys=REMOVING)
    return replace(
        snapshot,
        topics=topics,
        live_topics=live,
        live_logs=logs,
        mappings=mappings,
        live_fence=_fence(estate, link.id.target),
        starts=starts,
        ends=ends,
        unlike=_unlike(link, held, starts, logs, old_admin, live_admin),
        not_there=_not_there(store, link.id, starts, ends),
        other_records=_other_records(store, link, snapshot.watermarks, ends, old_admin, live_admin),
        configs=_without_blocks(estate, link.id, old_admin.topic_configs(covered)),
        live_configs={name: live_configs[names[name]] for name in mirrored if names[name] in live_configs},
        old_offsets=old_offsets,
        live_offsets=live_offsets,
        old_members=estate.groups(link.id.source).members(
            sorted({found.group for found in (*old_offsets, *live_offsets)})
        ),
        live_members=estate.groups(link.id.target).members(sorted({found.group for found in live_offsets})),
    )


def _without_blocks(
    estate: ClusterContext, link: LinkId, configs: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """The topics' settings, without a block that an interrupted scrub left behind on them."""
    blocked = [name for name, config in configs.items() if is_blocked(config)]
    before = settings_before(estate, link, link.source, blocked).settings if blocked else {}
    return {name: {**config, **before.get(name, {})} for name, config in configs.items()}


def _other_records(
    store: Store,
    link: Link,
    watermarks: Mapping[TopicPartition, Watermark],
    ends: Mapping[TopicPartition, int],
    old: ClusterAdmin,
    live: ClusterAdmin,
) -> frozenset[TopicPartition]:
    """Partitions whose old log ends where it was mirrored, and holds other records than were, or can't be read."""
    marks = [mark for tp, mark in watermarks.items() if ends.get(tp) == mark.source_through]
    batches = compare_batches(old, marks)
    found = compare_records(old, live, last_places(link.id, link.target_topic, marks, store), seconds=_RECORDS_SECONDS)
    unread = {place.tp for place, _ in found.unread}
    return frozenset({*batches.replaced, *batches.silent, *batches.rewritten, *found.differs_from(), *unread})


def _not_there(
    store: Store, link: LinkId, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, str]:
    """Why the live cluster lacks offsets of the old primary below what was mirrored last, by partition there: came back
    after they were passed over, given up, or purged on the live cluster. What the old primary no longer has of them
    isn't in the answer."""
    found = {}
    for problem in store.problems(link):
        lacks = problem.missing
        if lacks is None and problem.kind == RECORDS_GIVEN_UP and problem.unsure_until is not None:
            lacks = problem.unsure_from or 0, problem.unsure_until
        if lacks is None or problem.partition is None:
            continue
        tp = TopicPartition(problem.topic, problem.partition)
        if max(lacks[0], starts.get(tp, 0)) < min(lacks[1], ends.get(tp, 0)):
            found[tp] = problem.reason
    return found


def _unlike(
    link: Link,
    mappings: Mapping[TopicPartition, PartitionMapping],
    starts: Mapping[TopicPartition, int],
    logs: Mapping[str, LiveLog],
    old: ClusterAdmin,
    live: ClusterAdmin,
) -> dict[TopicPartition, str]:
    """Why the old primary and the live cluster don't hold the same at the beginning of a partition, by the old
    primary's partition: where they are equal but for what retention explains, it isn't in the answer."""
    names, found = link.id, {}
    here: dict[TopicPartition, Missing] = {}
    there: dict[TopicPartition, Missing] = {}
    for tp, (mark, rows, *_) in mappings.items():
        log, start = logs.get(tp.topic, LiveLog()), starts.get(tp, 0)
        held_from, held_until = log.starts.get(tp.partition), log.ends.get(tp.partition, 0)
        if mark is None or held_from is None or not rows:
            continue
        live_tp, first = TopicPartition(link.target_topic(tp.topic), tp.partition), rows[0]
        if held_from < min(first.target_offset, held_until):
            found[tp] = f"{names.target} holds records of {live_tp} from before it was mirrored as it is now"
            continue
        until = translate_by_rows(start, rows, replace(mark, target_start=0)).target_offset
        if start > first.source_offset and until is not None and held_from < until:
            here[live_tp] = Missing(OffsetRange(held_from, until), tp, emptied=start >= mark.source_through)
        end = min(source_at(rows, held_from), mark.source_through)
        if held_from > first.target_offset and max(start, first.source_offset) < end:
            stretch = OffsetRange(max(start, first.source_offset), end)
            there[tp] = Missing(stretch, live_tp, emptied=held_from >= mark.target_end)
    pairs = (
        (live, old, here, link.reversed().settings_policy),
        (old, live, there, link.settings_policy),
    )
    for holds, lacks, missing, policy in pairs:
        for tp, why in _unexplained(holds, lacks, missing, policy).items():
            found[tp if missing is there else missing[tp].target] = why
    return found


def _unexplained(
    holds: ClusterAdmin, lacks: ClusterAdmin, missing: Mapping[TopicPartition, Missing], policy: TopicSettings
) -> dict[TopicPartition, str]:
    """Why a partition begins later than on the cluster that holds more, by that cluster's name of it; those that
    retention explains are left out. What can't be found out counts as unexplained: the audit of the way back compares
    what is brought back, and wouldn't see it."""
    if not missing:
        return {}
    try:
        found = find_purged(holds, lacks, missing, policy, at_ms=int(now().timestamp() * 1000))
    except (Unreachable, Refused) as error:
        why = f"begins later than on {holds.alias}, and whether retention explains it can't be told ({error.what})"
        return {tp: f"{each.target} on {lacks.alias} {why}" for tp, each in missing.items()}
    why = f"begins later than on {holds.alias}, and no retention explains it"
    return {
        tp: f"{missing[tp].target} on {lacks.alias} {why} (offsets {each.begin} to {each.end - 1} there)"
        for tp, each in ((tp, missing[tp].stretch) for tp in found)
    }


def _reach(estate: ClusterContext, alias: str, remedy: str) -> ClusterView:
    admin = estate.admin(alias)
    try:
        return ClusterView(alias, reachable=True, cluster_id=admin.cluster_id(), brokers=len(admin.brokers()))
    except Unreachable as error:
        raise Refused(f"{alias} does not answer: {error.what}", meaning=error.meaning, remedy=remedy) from error


def _fence(estate: ClusterContext, alias: str) -> tuple[FenceMethod, str]:
    try:
        return fence_method(estate, alias)
    except DrkitError as error:
        return FenceMethod.NONE, error.what


def _offsets(
    estate: ClusterContext, alias: str, link: Link | None, topics: Sequence[str]
) -> tuple[CommittedOffset, ...]:
    """The offsets that the link's groups (None: all groups) have committed on these topics."""
    coordinator = estate.groups(alias)
    groups = [
        name
        for name, info in coordinator.list_groups().items()
        if (link is None or link.covers_group(name)) and info.commits_offsets
    ]
    names = set(topics)
    return tuple(found for found in coordinator.committed(groups) if found.topic in names)


@dataclass(frozen=True, slots=True)
class _Decided:
    """What the run that decided the link says. `problem`: why it can't be gone back from; `resumed_by`: the run that
    `drkit resume` continues it by, None where its journal tells no plan; `cluster_id`: the old primary's, as it saw
    it; `kept`: the link was reversed for good; `configs`: of the old primary's topics, before a failback that was given
    up recreated them.
    """

    problem: str | None = None
    cluster_id: str | None = None
    kept: bool = False
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    resumed_by: str | None = None


def _decided_by(estate: ClusterContext, control: LinkControl | None) -> _Decided:
    if control is None or control.run is None:
        return _Decided()
    run = control.run
    listed = estate.store.runs()
    summary = next((found for found in listed if found.run == run), None)
    if summary is not None and summary.kind not in KINDS:
        return _Decided()  # `drkit abandon` and `drkit fence --lift` have no plan
    try:
        record = load_anchored_run(estate, run)
    except DrkitError as error:
        return _Decided(f"run {run}, which failed the link away, can't be read: {error.what}")
    plan, over = record.plan, record.machine.finished
    problem = None if over else f"run {run} is unfinished ({record.machine.state})"
    if isinstance(plan, FailbackPlan):
        configs = {topic.topic: topic.config for topic in plan.topics}
        kept = plan.kind is Kind.REPROTECT and record.machine.state is State.CLOSED
        return _Decided(problem, plan.target.cluster_id, kept, configs, run_to_resume(run, listed))
    return _Decided(problem, plan.source.cluster_id, resumed_by=run_to_resume(run, listed))


def _made_by_the_way_back(estate: ClusterContext, control: LinkControl | None, back: LinkId) -> dict[str, TopicState]:
    """Topics that a failback that was given up made on the old primary, by their names there."""
    if control is None or control.direction is not Direction.REVERSED:
        return {}
    return {state.target_topic: state for state in estate.store.topic_states(back).values()}


def _recreated(
    estate: ClusterContext, snapshot: FailbackSnapshot, empty: Mapping[str, TopicInfo]
) -> dict[str, Mapping[str, str]]:
    """Empty topics of the old primary that a failback recreated and that was given up before it let data flow, with
    their configuration before that. Nothing else can tell them: its journal may lack their ids."""
    unknown = {name for name, info in empty.items() if name in snapshot.states and not snapshot.is_ours(info)}
    if not unknown:
        return {}
    for summary in since_brought_back(estate.store, snapshot.link.id):
        if summary.state != State.ABANDONED or summary.kind == Kind.FAILOVER:
            continue
        try:
            record = load_anchored_run(estate, summary.run)
        except Unreachable:
            raise
        except DrkitError:
            continue
        if isinstance(record.plan, FailbackPlan) and record.journal.attempted("scrub") and not record.plan.level:
            return {topic.topic: topic.config for topic in record.plan.topics if topic.topic in unknown}
    return {}


def logs_of(admin: ClusterAdmin, found: Mapping[str, TopicInfo], names: Mapping[str, str]) -> dict[str, LiveLog]:
    """The logs of topics, by other names; `found`: the existing ones."""
    tps = [
        TopicPartition(name, number)
        for name in sorted(set(names.values()) & found.keys())
        for number in range(found[name].partitions)
    ]
    starts, ends = admin.start_offsets(tps), admin.end_offsets(tps, committed=False)
    logs = {}
    for topic, name in names.items():
        info = found.get(name)
        if info is None:
            logs[topic] = LiveLog()
            continue
        numbers = [(number, TopicPartition(name, number)) for number in range(info.partitions)]
        logs[topic] = LiveLog(
            info.topic_id,
            {number: starts[tp] for number, tp in numbers},
            {number: ends[tp] for number, tp in numbers},
        )
    return logs


def scrub_topics(snapshot: FailbackSnapshot) -> Iterator[ScrubTopic]:
    """Topics that the link mirrored and that are still the same incarnation, and those that a failback that was given
    up has recreated.
    """
    for name, live_topic in sorted(snapshot.live_names().items()):
        info = snapshot.topics.get(name)
        if info is None or not snapshot.is_ours(info) or is_canary(name):
            continue
        state, made, anew = snapshot.states.get(name), snapshot.back_states.get(name), snapshot.way_back(info)
        recorded = made.source_topic_id if anew and made is not None else state.target_topic_id if state else ""
        tps = [TopicPartition(name, partition) for partition in range(info.partitions)]
        topic = ScrubTopic(
            topic=name,
            topic_id=info.topic_id,
            live_topic=live_topic,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            epoch=max(each.epoch for each in (state, made) if each is not None),
            created_by_drkit=state.created_by_drkit if state is not None else False,
            config=dict(snapshot.configs_before.get(name, {}) if anew or name in snapshot.recreated else {})
            or dict(snapshot.configs.get(name, {})),
            starts={tp.partition: snapshot.starts[tp] for tp in tps if tp in snapshot.starts},
            ends={tp.partition: snapshot.ends[tp] for tp in tps if tp in snapshot.ends},
            live_topic_id=recorded,
            way_back=anew,
        )
        yield compared(topic, snapshot.live_logs.get(name, LiveLog()), snapshot.mappings)


def compared(topic: ScrubTopic, live: LiveLog, mappings: Mapping[TopicPartition, PartitionMapping]) -> ScrubTopic:
    """The topic with what the live cluster's log lacks of it."""
    gap = MISSING if live.topic_id is None else RECREATED if live.topic_id != topic.live_topic_id else None
    found = {}
    for number, end in topic.ends.items():
        mark, rows, *_ = mappings.get(TopicPartition(topic.topic, number), PartitionMapping())
        there = None if gap is not None or number not in live.starts else (live.starts[number], live.ends[number])
        found[number] = only_here((topic.starts.get(number, 0), end), mark, rows, there)
    only = {number: each.offsets for number, each in found.items()}
    if gap is not None and not any(only.values()):
        gap = None  # it is empty, so nothing can be missing
    missing = {f"{number}{BELOW}": each.below for number, each in found.items() if each.below}
    missing |= {f"{number} at the end": each.above for number, each in found.items() if each.above}
    return replace(topic, live_starts=live.starts, only=only, gap=gap or gap_of(found) or "", missing=missing)


def live_logs(admin: ClusterAdmin, topics: Iterable[ScrubTopic]) -> dict[str, LiveLog]:
    """The live cluster's logs of these topics, by the names on the old primary."""
    names = {topic.topic: topic.live_topic for topic in topics}
    return logs_of(admin, admin.topics(sorted(set(names.values()))), names)


def without_retention(admin: ClusterAdmin, topics: Iterable[str]) -> set[str]:
    """The topics among these from which only DeleteRecords removes records."""
    configs = admin.topic_configs(sorted(topics), keys=tuple(UNCOMPACTED))
    return {name for name, config in configs.items() if config.items() >= UNCOMPACTED.items()}


def not_accepted(admin: ClusterAdmin, topics: Iterable[ScrubTopic], accepted: Collection[Lacking]) -> list[ScrubTopic]:
    """Those with gaps that aren't within the accepted ones.

    Where the live cluster's retention or compaction goes on, the gap at a log's beginning grows while a salvage takes
    its hours: there it is accepted as such.

    Args:
        admin: the live cluster.
        topics: the failback's.
        accepted: what an operator accepted to have in the salvage only.
    """
    gaps = [topic for topic in topics if topic.gap and not topic.lacking.is_within(accepted)]
    endless = without_retention(admin, {topic.live_topic for topic in gaps}) if gaps else set()
    return [
        topic
        for topic in gaps
        if topic.live_topic in endless or not topic.lacking.behind_its_beginning().is_within(accepted)
    ]


def mapped_topics(topics: Iterable[ScrubTopic]) -> list[MappedTopic]:
    """The keys for looking up their mappings."""
    return [
        MappedTopic(topic.topic, topic.live_topic, topic.partitions, topic.way_back, topic.live_starts)
        for topic in topics
    ]


def with_gaps_now(
    estate: ClusterContext, live: str, topics: Sequence[ScrubTopic], mappings: Mapping[TopicPartition, PartitionMapping]
) -> list[ScrubTopic]:
    """The topics with what the live cluster's logs lack of them now."""
    logs = live_logs(estate.admin(live), topics)
    return [compared(topic, logs[topic.topic], mappings) for topic in topics]

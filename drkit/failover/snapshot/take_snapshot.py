"""Takes the snapshot: asks both clusters (concurrently, with a deadline) and the store. Reads only.

Either cluster may be gone; then what only it knows is None and the store's last observation is used. Only the store is
required.

The target's log ends are read before the mapping rows: a row is durable before its records are produced, so the rows
read later cover every end read before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import attrgetter

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.snapshot.past_positions import Key, PastPosition, committed_at
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import GROUP_TOPIC_PARTITION, Selection
from drkit.failover.snapshot.snapshot import ClusterView, PartitionView, Snapshot
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.groups.group_admin import read_unmovable
from drkit.lag.problems_now import LinkRecord, LogsSeen, ProblemsNow, problems_now
from drkit.mapping.mapping_rows import around, former_ranges
from drkit.mapping.resume import settled_watermark
from drkit.mapping.store_translator import PartitionRows
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubt_of_rows
from drkit.model.clock import now
from drkit.model.errors import AuthenticationError, DrkitError, NotShown, Unreachable, answered
from drkit.model.groups import TransactionHistory, UnmovableGroup
from drkit.model.link_state import LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, Watermark
from drkit.model.topology import Link, TopicPartition, is_canary
from drkit.model.wording import and_more
from drkit.state_topic.guard import check_recovered
from drkit.state_topic.store_age import NOT_OLDER, StoreAge, older_store_problems
from drkit.store.link_notes import behind_captured, check_source_cluster, known_source_cluster, unmovable_groups
from drkit.store.transactions import suspected_groups, transaction_history
from drkit.store.workers import mirror_at_work

_MOST = 1_000
_SECONDS = 5.0
_COORDINATORS_SECONDS = 3.0
"""How long to wait for group coordinators that are down: one that moves is back sooner."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One cluster's answers, by its own topic names."""

    view: ClusterView
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    start: Mapping[TopicPartition, int] = field(default_factory=dict)
    end: Mapping[TopicPartition, int] = field(default_factory=dict)
    high: Mapping[TopicPartition, int] = field(default_factory=dict)
    times: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    offsets: tuple[GroupPosition, ...] | None = None
    members: Mapping[str, int] = field(default_factory=dict)
    unmovable: tuple[UnmovableGroup, ...] | None = None
    silent: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Its partitions without an answer, though it answers, and why."""
    unread: str | None = None
    """Why not all of its groups could be read, though it answers."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The type of groups that commit no offsets."""


_TOPIC_PARTITION = attrgetter("topic", "partition")


@dataclass(frozen=True, slots=True)
class _Memory:
    """The store's data about the link, except for mapping rows."""

    control: LinkControl | None
    topics: Mapping[str, TopicState]
    watermarks: Mapping[TopicPartition, Watermark]
    mirror: str | None
    positions: tuple[GroupPosition, ...] = ()
    past: Mapping[Key, PastPosition] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def places(self) -> set[tuple[TopicPartition, int]]:
        """The partitions on record, each in the epoch of its topic."""
        found = {(tp, mark.epoch) for tp, mark in self.watermarks.items() if tp.topic not in self.topics}
        return found | {(tp, state.epoch) for state in self.topics.values() for tp in state.tps()}


def observe(
    estate: ClusterContext,
    link: Link,
    *,
    at: Moment | None = None,
    selection: Selection | None = None,
    settle: bool | None = None,
    compare: bool | None = None,
    seen: Sequence[GroupPosition] = (),
    groups: bool = True,
    source_groups: bool = True,
    target_groups: bool = True,
    own_ends: Mapping[TopicPartition, int] | None = None,
    age: Callable[[], StoreAge] = lambda: NOT_OLDER,
    rows_in_doubt: RowDoubts = NO_ROW_DOUBTS,
) -> Snapshot:
    """Take a snapshot of the link.

    Args:
        estate: clusters and store.
        link: the link; its source may be gone, and so may its target.
        at: also find the first target offset with a timestamp at or after this moment, or the groups'
            committed offsets then.
        selection: groups named in it are looked up on the target even if nobody knows them.
        settle: whether target records beyond the watermarks are the mirror's own (default: yes, until the
            link is sealed; from then on clients may write there).
        compare: whether to compare what both sides hold (`problems_now`; default: if `settle`, else, of a link that
            was failed away from, what its source holds).
        seen: positions that another program captured; the store's own take precedence.
        groups: whether to read groups; else the snapshot is of logs only.
        source_groups: whether to read groups from the source; else the store's positions are used.
        target_groups: whether to read groups' offsets and members from the target.
        own_ends: where the copy ends on the target, by the target's partitions: what is behind that isn't looked at.
        age: of the store, asked for once both clusters have answered: rows that only its copy has are used, and what
            is in doubt is named.
        rows_in_doubt: what an earlier comparison with the copy couldn't tell of the store's rows.

    Raises:
        Refused: a recovery of the store was interrupted.
        Unreachable: the store doesn't answer.
    """
    check_recovered(estate.store, link)
    source_groups, target_groups = groups and source_groups, groups and target_groups
    selection = selection or Selection()
    memory = _remember(estate, link)
    begun_at = now()
    with ThreadPoolExecutor(max_workers=2) as pool:
        asked_source = pool.submit(_bounded, link.id.source, lambda: _ask_source(estate, link, groups=source_groups))
        stored, past = (
            _remember_groups(estate, link, at) if groups else ((), {})
        )  # many, so the source is asked meanwhile
        memory = replace(memory, positions=_merge_positions(seen, stored) if seen else stored, past=past)
        remembered = {position.group for position in memory.positions} | {group for group, _ in memory.past}
        remembered |= set(selection.named)
        there = sorted(remembered) if target_groups else []
        asked_target = pool.submit(_bounded, link.id.target, lambda: _ask_target(estate, link, memory, there, at))
        source, target = asked_source.result(), asked_target.result()
    if own_ends:
        target = replace(target, end={**target.end, **{tp: own_ends[tp] for tp in own_ends.keys() & target.end.keys()}})
    if source.view.cluster_id is None:
        source = replace(source, view=replace(source.view, cluster_id=known_source_cluster(estate.store, link.id)))
    if settle is None:
        settle = memory.control is None or memory.control.direction.serves_source
    estate.reach(link.id.source).gone = not source.view.reachable and source.view.denied is None
    positions = _merge_positions(memory.positions, source.offsets)
    read = {(position.group, position.tp) for position in source.offsets or ()}
    unseen = sorted({position.group for position in positions} - remembered)
    if unseen and target_groups and target.view.reachable:
        target = _with_groups(estate, link, target, unseen)
    compared = age()
    rows_in_doubt = rows_in_doubt.with_later(compared.rows_in_doubt(link, estate.store.problems(link.id)))
    rows = PartitionRows(estate.store, compared.lost)  # after the target's ends
    rows.read(link.id, memory.places())
    flowing = settle if compare is None else compare
    left = compare is None and not flowing
    seen_now = _problems_now(estate, link, memory, source, target, rows, compared, flowing=flowing, left=left)
    look = _Look(link, memory, source, target, rows, seen_now, settle, rows_in_doubt)
    partitions = _partitions(look, positions)
    look, partitions = _looked_again(estate, look, partitions)
    source = look.source
    stamped = _stamped(estate, target, partitions, selection.moments)
    return Snapshot(
        link=link,
        observed_at=now(),
        begun_at=begun_at,
        source=source.view,
        target=target.view,
        control=memory.control,
        topics=memory.topics,
        partitions=partitions,
        positions=positions,
        positions_live=source.offsets is not None and source.unread is None,
        read_groups=frozenset(position.group for position in source.offsets or ()),
        unread_reason=source.unread,
        lacking=frozenset(
            (position.group, position.tp)
            for position in (stored if source.offsets is not None else ())
            if (position.group, position.tp) not in read
        ),
        behind_captured=behind_captured(estate.store, link.id, positions, seen_now.problems, stored),
        unmovable_there=target.kinds,
        committed=_committed(link, target),
        members=target.members,
        source_members=source.members,
        problems=tuple(seen_now.problems),
        mirror=memory.mirror,
        notes=tuple(_as_captured(link, source, memory.positions)),
        past=memory.past,
        stamped=stamped,
        stored=stored,
        left=memory.left,
        unmovable=_unmovable(estate, link, source),
        transactions=_transactions(estate, link, target, partitions),
        suspected=suspected_groups(estate.store, link.id),
        rows_in_doubt=rows_in_doubt,
    )


def _problems_now(
    estate: ClusterContext,
    link: Link,
    memory: _Memory,
    source: _Side,
    target: _Side,
    rows: PartitionRows,
    age: StoreAge,
    *,
    flowing: bool,
    left: bool,
) -> ProblemsNow:
    """Recorded problems, plus what both clusters show now. A source that is gone isn't asked again."""
    record = LinkRecord(
        link,
        memory.control,
        memory.watermarks,
        memory.topics,
        running=memory.mirror is not None,
        flowing=flowing,
        left=left,
    )
    ids = {name: info.topic_id for name, info in target.topics.items()} if target.view.reachable else None
    there = source.topics if source.view.reachable else None
    logs = LogsSeen(
        *(source.start, source.end, target.start, target.end, there, ids),
        target_cluster=target.view.cluster_id,
        source_gone=not source.view.reachable,
    )
    problems, at = estate.store.problems(link.id), now()
    serves = memory.control is None or memory.control.direction.serves_source
    if age.older is None and (record.running or not serves):  # as for a status: others find an older store there
        age = NOT_OLDER
    problems += older_store_problems(link, age, memory.watermarks.values(), target.end, at)
    return problems_now(estate, estate.store, record, logs, problems, at, rows=rows)


def _unmovable(estate: ClusterContext, link: Link, source: _Side) -> tuple[UnmovableGroup, ...]:
    """The groups that commit no offsets: from the source, or as the mirror last saw them."""
    listed = source.unmovable or ()
    if source.unmovable is not None and source.unread is None:
        return listed
    names = {each.group for each in listed} | {position.group for position in source.offsets or ()}
    kept = [each for each in unmovable_groups(estate.store, link.id) if link.covers_group(each.group)]
    return (*listed, *(each for each in kept if each.group not in names))


def _as_captured(link: Link, source: _Side, remembered: Sequence[GroupPosition]) -> Iterator[str]:
    """Which groups' captured positions are used because the source answers without them."""
    if source.unread is None:
        return
    read = {position.group for position in source.offsets or ()}
    silent = sorted({position.group for position in remembered} - read)
    used = f"the captured positions of {and_more(silent)} are used" if silent else "those that it has aren't known"
    yield f"groups of {link.id.source} can't all be read: {source.unread}; {used}"


def _transactions(
    estate: ClusterContext, link: Link, target: _Side, partitions: Mapping[TopicPartition, PartitionView]
) -> TransactionHistory | None:
    """What the mirror knows of groups that commit in transactions."""
    history = transaction_history(estate.store, link.id)
    if history is None or not target.view.reachable:
        return history
    return without_empty_gaps(estate, link.id.target, history, partitions)


def _remember(estate: ClusterContext, link: Link) -> _Memory:
    """Everything but groups. Before the source is asked: so its ends are at or beyond the watermarks."""
    store = estate.store
    covers = cache(link.covers_topic)
    topics = {name: state for name, state in store.topic_states(link.id).items() if not is_canary(name)}
    return _Memory(
        control=store.link_control(link.id),
        topics={name: state for name, state in topics.items() if covers(name)},
        watermarks={
            tp: mark for tp, mark in store.watermarks(link.id).items() if covers(tp.topic) and not is_canary(tp.topic)
        },
        mirror=mirror_at_work(estate.store, link.id),
        left=tuple(sorted(name for name in topics if not covers(name))),
    )


def _remember_groups(
    estate: ClusterContext, link: Link, at: Moment | None
) -> tuple[tuple[GroupPosition, ...], Mapping[Key, PastPosition]]:
    """The groups' last positions, and those at the requested moment."""
    store = estate.store
    covers_group, covers_topic = cache(link.covers_group), cache(link.covers_topic)
    positions = tuple(p for p in store.group_positions(link.id) if covers_group(p.group) and covers_topic(p.topic))
    if at is None or not at.by_commits:
        return positions, {}
    states = store.group_states_around(link.id, at.instant)
    covered = [each for each in states if covers_group(each.group) and covers_topic(each.topic)]
    return positions, committed_at(at.instant, covered, positions)


# -- the clusters ----------------------------------------------------------------------------------


def _bounded(alias: str, ask: Callable[[], _Side]) -> _Side:
    """Ask one side with a deadline; a cluster that doesn't answer is a fact, not an error."""
    try:
        return ask()
    except (Unreachable, AuthenticationError) as error:
        denied = error.remedy if answered(error) else None
        return _Side(ClusterView(alias, reachable=False, reason=error.what if denied else str(error), denied=denied))


def _ask_source(estate: ClusterContext, link: Link, *, groups: bool) -> _Side:
    alias = link.id.source
    admin = estate.admin(alias, may_be_gone=True)
    cluster_id = admin.cluster_id()
    check_source_cluster(estate.store, link.id, cluster_id)
    view = ClusterView(alias, reachable=True, cluster_id=cluster_id, brokers=len(admin.brokers()))
    topics = {name: info for name, info in admin.topics().items() if link.covers_topic(name)}
    tps = [TopicPartition(name, partition) for name, info in topics.items() for partition in range(info.partitions)]
    side = _Side(view, topics)
    if groups:  # before the ends: what a transaction wrote whose commit is seen lies below them
        try:
            side = _with_source_groups(estate, link, side)
        except NotShown:
            raise
        except Unreachable as error:  # its logs may answer: what they say counts
            side = replace(side, offsets=(), unread=f"{error.what} ({error.meaning})" if error.meaning else error.what)
    silent: dict[TopicPartition, str] = {}
    start = admin.start_offsets(tps, silent=silent)
    # of partitions that answer, so that the others are waited for once; high watermarks first: offsets beyond a stable
    # end that is read later surely belong to an open transaction
    high = admin.end_offsets(start, committed=False, silent=silent) if link.committed else {}
    end = admin.end_offsets(start, committed=link.committed, silent=silent)
    return replace(
        side, start=start, end=end, high=high, silent={tp: why for tp, why in silent.items() if tp not in end}
    )


def _with_source_groups(estate: ClusterContext, link: Link, side: _Side) -> _Side:
    alias, topics = link.id.source, side.topics
    ids = {name: info.topic_id for name, info in topics.items()}
    groups = estate.groups(alias, may_be_gone=True)
    at = now()
    listing = groups.list_groups_within(_COORDINATORS_SECONDS)
    listed = [name for name, group in listing.groups.items() if link.covers_group(name) and group.commits_offsets]
    fetched = groups.fetch(listed)
    offsets = tuple(
        GroupPosition(
            found.group, found.topic, found.partition, found.offset, found.metadata, at, ids.get(found.topic, "")
        )
        for name, group in fetched.offsets.items()
        for found in group
        if name not in fetched.failures  # of these, what is left counts as captured, too
        if found.topic in topics or link.covers_topic(found.topic)
    )
    members = groups.members(sorted({position.group for position in offsets}), listing.groups)
    unmovable = read_unmovable(link, groups, listing, link.covers_topic)
    unread = [] if listing.complete else [listing.missing]
    unread += [f"offsets of {group}: {why}" for group, why in sorted(fetched.failures.items())]
    return replace(
        side,
        offsets=offsets,
        members=members,
        unmovable=tuple(unmovable),
        unread=and_more(unread, separator="; ") or None,
    )


def _ask_target(estate: ClusterContext, link: Link, memory: _Memory, groups: Sequence[str], at: Moment | None) -> _Side:
    alias = link.id.target
    admin = estate.admin(alias)
    view = ClusterView(alias, reachable=True, cluster_id=admin.cluster_id(), brokers=len(admin.brokers()))
    names = {tp.topic for tp in memory.watermarks} | set(memory.topics) | {p.topic for p in memory.positions}
    topics = admin.topics({link.target_topic(name) for name in names})
    tps = [TopicPartition(name, partition) for name, info in topics.items() for partition in range(info.partitions)]
    silent: dict[TopicPartition, str] = {}
    start = admin.start_offsets(tps, silent=silent)
    end = admin.end_offsets(start, committed=False, silent=silent)  # those without an answer were waited for once
    by_stamp = None if at is None or at.by_commits else at.millis
    times = {} if by_stamp is None else admin.offsets_for_times(dict.fromkeys(end, by_stamp))
    side = _Side(view, topics, start, end, times=times, offsets=(), members={}, silent=silent)
    return _with_groups(estate, link, side, groups) if groups else side


def _stamped(
    estate: ClusterContext, target: _Side, partitions: Mapping[TopicPartition, PartitionView], moments: Iterable[int]
) -> dict[int, dict[TopicPartition, int | None]]:
    """By moment (ms), the first target offset from it on, by the source's partition."""
    if not target.view.reachable:
        return {}
    admin = estate.admin(target.view.alias)
    found = {millis: admin.offsets_for_times(dict.fromkeys(target.end, millis)) for millis in moments}
    return {
        millis: {tp: offsets.get(view.target_tp) for tp, view in partitions.items()}
        for millis, offsets in found.items()
    }


def _with_groups(estate: ClusterContext, link: Link, side: _Side, groups: Sequence[str]) -> _Side:
    """Add these groups' commits and members to the target's side."""
    coordinator = estate.groups(link.id.target)
    at = now()
    source_topic = cache(link.source_topic)
    listed = coordinator.list_groups()
    kinds = {group: listed[group].type for group in groups if group in listed and not listed[group].commits_offsets}
    groups = [group for group in groups if group not in kinds]
    offsets = tuple(
        GroupPosition(found.group, found.topic, found.partition, found.offset, found.metadata, at)
        for found in coordinator.committed(groups)
        if source_topic(found.topic) is not None
    )
    members = {**side.members, **coordinator.members(groups, listed)}
    return replace(side, offsets=(side.offsets or ()) + offsets, members=members, kinds={**side.kinds, **kinds})


def _committed(link: Link, target: _Side) -> dict[tuple[str, TopicPartition], int]:
    """The target's committed offsets by group and *source* partition."""
    found = {}
    source_topic = cache(link.source_topic)
    for position in target.offsets or ():
        topic = source_topic(position.topic)
        if topic is not None:
            found[position.group, TopicPartition(topic, position.partition)] = position.offset
    return found


def _merge_positions(
    remembered: Sequence[GroupPosition], live: Sequence[GroupPosition] | None
) -> tuple[GroupPosition, ...]:
    """The source's positions if it answered; those that it lacks stay as captured.

    A position that is gone from the source (expired, deleted, lost in the disaster itself) is kept: moving it costs
    nothing, without it the group loses its position.
    """
    there = set(map(GROUP_TOPIC_PARTITION, live or ()))
    kept = (position for position in remembered if GROUP_TOPIC_PARTITION(position) not in there)
    return tuple(sorted((*kept, *(live or ())), key=GROUP_TOPIC_PARTITION))


# -- the partitions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """The inputs of partition views. `settle`: like `observe`'s."""

    link: Link
    memory: _Memory
    source: _Side
    target: _Side
    rows: PartitionRows
    seen: ProblemsNow
    settle: bool
    rows_in_doubt: RowDoubts


def _partitions(look: _Look, positions: Sequence[GroupPosition]) -> dict[TopicPartition, PartitionView]:
    memory, source, target = look.memory, look.source, look.target
    known = (
        set(memory.watermarks)
        | set(source.end)
        | set(source.silent)
        | {TopicPartition(*tp) for tp in set(map(_TOPIC_PARTITION, positions))}
    )
    for kept in memory.topics.values():
        known.update(kept.tps())
    problems: dict[str, list[Problem]] = defaultdict(list)
    for problem in look.seen.problems:
        problems[problem.topic].append(problem)
    views = {}
    for tp in sorted(known):
        there = TopicPartition(look.link.target_topic(tp.topic), tp.partition)
        state = memory.topics.get(tp.topic)
        mark = memory.watermarks.get(tp)
        view = PartitionView(
            topic=tp.topic,
            partition=tp.partition,
            target_topic=there.topic,
            epoch=state.epoch if state is not None else mark.epoch if mark is not None else 0,
            watermark=mark,
            source_start=source.start.get(tp),
            source_end=source.end.get(tp),
            target_start=target.start.get(there),
            target_end=target.end.get(there),
            at_offset=target.times.get(there),
            problems=tuple(p for p in problems.get(tp.topic, ()) if p.concerns(tp)),
            doubts=look.seen.doubts(tp),
            source_high=source.high.get(tp),
            silent=source.silent.get(tp),
            target_silent=target.silent.get(there),
        )
        views[tp] = _with_rows(look, view, source.topics.get(tp.topic), state)
    return views


def _looked_again(
    estate: ClusterContext, look: _Look, partitions: dict[TopicPartition, PartitionView]
) -> tuple[_Look, dict[TopicPartition, PartitionView]]:
    """Partitions whose target seems to hold more than the source: under load the target's end may just be read later.

    The source's end is read again; now it is the later one, so records beyond it are another writer's.
    """
    odd = [tp for tp, view in partitions.items() if view.remark and view.source_end is not None]
    if not odd:
        return look, partitions
    link = look.link
    try:
        ends = estate.admin(link.id.source, may_be_gone=True).end_offsets(odd, committed=link.committed, partial=True)
    except DrkitError:
        return look, partitions
    look = replace(look, source=replace(look.source, end={**look.source.end, **ends}))
    again = _partitions(look, ())
    return look, {**partitions, **{tp: again[tp] for tp in odd if tp in again}}


def _with_rows(look: _Look, view: PartitionView, topic: TopicInfo | None, state: TopicState | None) -> PartitionView:
    """The view with its mapping, unless the mapping belongs to another incarnation of the topic."""
    if topic is not None and state is not None and topic.topic_id != state.source_topic_id:
        return replace(view, watermark=None, recreated=True)
    mark = view.watermark
    if mark is not None and mark.epoch != view.epoch:
        return replace(view, watermark=None)
    if mark is not None and view.target_start is not None:
        mark = replace(mark, target_start=view.target_start)  # a broker's crash undoes a DeleteRecords
        view = replace(view, watermark=mark)
    rows = tuple(look.rows.mappings(look.link.id, view.tp, view.epoch))
    view = replace(view, rows_in_doubt=doubt_of_rows(look.rows_in_doubt.of(view.tp), view.watermark, rows))
    end = view.target_end
    if end is None:
        return replace(view, rows=rows)
    valid = tuple(row for row in rows if row.target_offset <= end)
    view = replace(view, rows=valid)
    former = former_ranges(
        valid, view.epoch, (view.target_start or 0, end), partial(look.rows.mappings, look.link.id, view.tp)
    )
    view = replace(view, former=former)
    if not look.settle or mark is None or view.unproven or view.rows_in_doubt is not None:
        return view
    settled = settled_watermark(mark, rows, look.seen.own_ends.get(view.tp, end), source_end=view.source_end)
    return replace(view, watermark=settled.watermark, remark=settled.remark)


def without_empty_gaps(
    estate: ClusterContext, target: str, history: TransactionHistory, partitions: Mapping[TopicPartition, PartitionView]
) -> TransactionHistory:
    """The history, extended where a partition was mirrored a little further than the watch has read it, and the target
    holds no record there: then nothing unknown was mirrored. The mirror and the watch use separate connections, and
    the source usually dies between two of their responses.
    """
    read = dict(history.read)
    for tp, upto in history.read.items():
        view = partitions.get(tp)
        if view is None or view.through is None or not 0 < view.through - upto <= _MOST:
            continue
        if not _has_records(estate, target, view, upto):
            read[tp] = view.through
    return replace(history, read=read)


def _has_records(estate: ClusterContext, target: str, view: PartitionView, source_offset: int) -> bool:
    """Whether the target holds records from a source offset on; yes if unknown."""
    row, upper = around(view.rows, source_offset)
    if row is None or view.target_end is None or view.rows_in_doubt is not None:
        return True
    from drkit.kafka.client.log_reader import LogReader  # noqa: PLC0415 - loads aiokafka

    place = source_offset + row.delta
    if upper is not None:
        place = min(place, upper.target_offset)  # in a hole the row in force points beyond the next record
    begin = max(place, view.target_start or 0)
    try:
        with LogReader(target, estate.config.clusters[target], timeout_seconds=_SECONDS) as reader:
            return any(reader.read(*view.target_tp, begin, view.target_end))
    except DrkitError:
        return True

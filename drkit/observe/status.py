"""The status snapshot: each link's mirror, its lag, and the positions of groups.

The store has the mirror's records; both clusters are asked for their log ends, each within a timeout.
Records on the target beyond the last watermark count as mirrored, as in a failover's plan. If a cluster
doesn't answer, the snapshot shows the last observation and says so: a dead primary must not hide the
mirror's progress.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import Clusters, observing
from drkit.lag.partition_lag import partition_lag
from drkit.lag.problems_now import LinkRecord, LogsSeen, ProblemsNow, problems_now
from drkit.mapping.store_translator import PartitionRows, Translator
from drkit.mapping.translate import doubted_if_set_back
from drkit.model.clock import age_seconds, now
from drkit.model.errors import AuthenticationError, DrkitError, NoAuthorizer, Refused, Unreachable, answered, unreached
from drkit.model.groups import UnmovableGroup
from drkit.model.link_state import (
    HARMLESS,
    ROWS_MISSING,
    TRANSACTION_OPEN,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import LOOKS_WITHIN_SECONDS, Certainty, GroupPosition, Watermark
from drkit.model.runs import mark_of, serving_cluster
from drkit.model.statistics import WorkerStatistics
from drkit.model.topics.acls import Acl, fence_rules_kind, others_rules_kind, topics_denied
from drkit.model.topology import Link, LinkId, TopicPartition, is_canary
from drkit.model.totals import greatest
from drkit.model.wording import and_more, counted
from drkit.observe.drill_history import DrillKind, drills_document
from drkit.observe.formatting import short
from drkit.observe.poll_problems import blocked_problem, fence_problem, filler_problems, unfenced_problem
from drkit.state_topic.guard import begun, interrupted
from drkit.state_topic.store_age import (
    LOOK_SECONDS,
    NOT_OLDER,
    ComparedStores,
    StoreAge,
    not_compared,
    older_store_problems,
    positions_age,
)
from drkit.store.api import Store
from drkit.store.link_notes import behind_captured, check_source_cluster, unmovable_groups
from drkit.store.workers import WorkerNote, fresh, read_workers, worker_statistics

_FRESH_SECONDS = 5.0
"""A running mirror checks each partition about once a second; one that hasn't for so long has stopped."""
OUTSIDE_THE_FENCE = "outside_the_fence"
"""Kind of a problem that isn't recorded: each status detects it."""
_LATER = "the mirror's last check is in the future by this machine's clock: the clocks differ, or one was set back"


@dataclass(frozen=True, slots=True)
class ClusterLogEnds:
    """Start and end offsets of one cluster's partitions, by that cluster's topic names.

    `reason` says why nothing is known; then both mappings are empty. `refused`: the cluster answers, but one side
    refuses the other (`AuthenticationError`) or it isn't the link's cluster (`NotShown`). `ids`: of its topics;
    `cluster_id`: its own. `rules`: its ACLs (empty: none, or it has no authorizer); None: not requested, or not
    readable. `held`: how many offsets are behind open transactions, if there are any and `end` is the last stable
    offset. `silent`: why partitions of a cluster that answers don't.
    """

    start: dict[TopicPartition, int] = field(default_factory=dict)
    end: dict[TopicPartition, int] = field(default_factory=dict)
    reason: str | None = None
    refused: bool = False
    rules: frozenset[Acl] | None = None
    ids: dict[str, str] = field(default_factory=dict)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    silent: dict[TopicPartition, str] = field(default_factory=dict)
    cluster_id: str | None = None

    def unread(self, side: str) -> str | None:
        """Which partitions of a source or target (`side`) don't answer, and why; None: all do, or the whole cluster
        doesn't."""
        if not self.silent:
            return None
        named = and_more([f"{tp}: {why}" for tp, why in sorted(self.silent.items())], separator="; ")
        return f"the {side} does not answer for {counted(len(self.silent), 'partition')} ({named})"

    @property
    def reachable(self) -> bool:
        """Whether the cluster answered."""
        return self.reason is None

    def lists(self, tp: TopicPartition) -> bool:
        """Whether it named the partition, or didn't answer at all. Else its topic was deleted, or a broker was asked
        that doesn't know it."""
        return not self.reachable or tp in self.end or tp in self.silent


def logs_seen(source: ClusterLogEnds, target: ClusterLogEnds) -> LogsSeen:
    """A link's logs on both clusters, for `problems_now`."""
    there, here = (each.ids if each.reachable else None for each in (source, target))
    return LogsSeen(source.start, source.end, target.start, target.end, there, here, target.cluster_id)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a link. Offsets are exclusive ends; None means unknown. `lag_reason`: why the lag is None."""

    topic: str
    target_topic: str
    partition: int
    source_start: int | None
    source_end: int | None
    mirrored_through: int | None
    target_start: int | None
    target_end: int | None
    delta: int | None
    lag_records: int | None
    lag_seconds: float | None
    engine_reason: str | None = None
    lag_reason: str | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group's captured position on the source, and its translation on the target.

    `type`: the type of a group that commits no offsets and so can't be moved
    (`drkit.model.groups`), else None.
    """

    group: str
    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    translation: Certainty
    reason: str | None
    captured_at: datetime
    type: str | None = None


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """The loss of a failover now: records not on the target, and the age of the oldest.

    `lower_bound`: the source, or a partition of it, doesn't answer or isn't listed, so `records` is the count of the
    last check, or more. `reason`: why a value is unknown, or inexact.
    """

    records: int | None
    seconds: float | None
    lower_bound: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The status of one link. `worker`: the one that leads; `workers`: all that mirror it now, the leader first;
    `statistics`: their counters, a few seconds old. `refused`: clusters that answer but can't be used, and why;
    `target_unread`: which partitions of the target, which answers, don't, and why; `store_compared_at`: when the store
    was compared with its copy, as exact positions need; None: it couldn't be, or the link has no copy."""

    link: Link
    state: str
    reason: str | None
    source_reachable: bool
    target_reachable: bool
    worker: str | None
    observed_at: datetime | None
    partitions: tuple[PartitionStatus, ...]
    groups: tuple[GroupStatus, ...]
    problems: tuple[Problem, ...]
    recovery_point: RecoveryPoint
    workers: tuple[WorkerNote, ...] = ()
    statistics: tuple[WorkerStatistics, ...] = ()
    unmovable: tuple[UnmovableGroup, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    target_unread: str | None = None
    store_compared_at: datetime | None = None

    def unreached(self, alias: str) -> str:
        """Why a cluster isn't reachable, as a predicate: it is silent, or it answers but drkit can't use it."""
        return unreached(refused=alias in self.refused)

    @property
    def failed_over(self) -> bool:
        """Whether its source was failed away from: nothing is mirrored, and there is no failover to prepare."""
        return self.state in {"sealed", "reversed"}

    @property
    def loss_means(self) -> str:
        """The meaning of the recovery point's number in the link's state."""
        if self.failed_over:
            left = f"on {self.link.id.source} and not on {self.link.id.target}"
            return left if self.state == "sealed" else f"{left} when it was failed away from"
        return "a failover now would lose"


def link_statuses(
    config: Config,
    store: Store,
    links: Sequence[Link],
    *,
    timeout_seconds: float | None = None,
    clusters: Clusters | None = None,
    compared: ComparedStores | None = None,
) -> list[LinkStatus]:
    """The status of each link, and of the way back of a link that is reversed.

    Args:
        config: the clusters.
        store: has the mirror's records.
        links: the links.
        timeout_seconds: the bound of each call to a cluster (`observing`).
        clusters: connections that the caller keeps using; None: this call's own.
        compared: the caller's, who looks again and again; None: the store is compared with its copy now.

    Raises:
        Unreachable: the store doesn't answer.
    """
    if clusters is None:
        with observing(config.clusters, timeout_seconds) as own:
            compared = compared or ComparedStores(timeout_seconds)
            return link_statuses(config, store, links, clusters=own, compared=compared)
    compared = compared or ComparedStores(timeout_seconds)
    clusters.connect_soon({alias for link in links for alias in (link.id.source, link.id.target)})
    configured = [each.link().id for each in config.links]
    statuses = []
    for link in links:
        control = store.link_control(link.id)
        status = _link_status(clusters, store, link, control, configured, compared)
        statuses.append(_recovered_in_part(status, by) if (by := begun(store, link)) else status)
        if control is not None and control.direction is Direction.REVERSED:
            back = link.reversed()
            statuses.append(_link_status(clusters, store, back, store.link_control(back.id), configured, compared))
    return statuses


def _recovered_in_part(status: LinkStatus, by: str) -> LinkStatus:
    """The status of a link whose recovery was interrupted: the store's data may be incomplete, so nothing counts."""
    why = interrupted(status.link.id, by)
    said = f"{why.what}. {why.remedy}"
    return replace(
        status,
        state=status.state if status.failed_over else "degraded",
        reason="; ".join(filter(None, (said, status.reason))),
        partitions=tuple(
            replace(each, mirrored_through=None, delta=None, lag_records=None, lag_seconds=None, lag_reason=why.what)
            for each in status.partitions
        ),
        groups=tuple(
            replace(each, target_offset=None, translation=Certainty.UNAVAILABLE, reason=why.what)
            for each in status.groups
        ),
        recovery_point=RecoveryPoint(None, None, reason=why.what),
    )


@dataclass(frozen=True, slots=True)
class _Partitions:
    """A cluster before the request of its log ends: its connection and its topics."""

    admin: ClusterAdmin
    seen: ClusterLogEnds

    def with_ends(self, *, committed: bool) -> ClusterLogEnds:
        """Read its log ends (`ClusterAdmin.end_offsets`)."""
        there = self.seen.start  # partitions without an answer were waited for once
        silent = dict(self.seen.silent)
        try:
            # high watermarks first: offsets beyond a stable end read later surely belong to open transactions
            high = self.admin.end_offsets(there, committed=False, partial=True) if committed else {}
            ends = self.admin.end_offsets(there, committed=committed, silent=silent)
        except (Unreachable, AuthenticationError) as error:
            return _silent(error)
        held = {tp: high[tp] - end for tp, end in ends.items() if high.get(tp, end) > end}
        return replace(self.seen, end=ends, held=held, silent=silent)


def _partitions_of(
    clusters: Clusters,
    alias: str,
    wanted: Callable[[str], bool],
    check: Callable[[str], None] | None = None,
) -> _Partitions | ClusterLogEnds:
    """The partitions of the wanted topics, and their log starts; or why nothing is known. Partitions without an answer
    are left out (`ClusterLogEnds.silent`).

    `check`: called with the cluster's id, raises `NotShown` if it isn't the link's cluster.
    """
    try:
        admin = clusters.admin(alias, may_be_gone=True)
        cluster_id = admin.cluster_id()
        if check is not None:
            check(cluster_id)
        topics = [info for info in admin.topics().values() if wanted(info.name)]
        there = [TopicPartition(info.name, number) for info in topics for number in range(info.partitions)]
        silent: dict[TopicPartition, str] = {}
        starts = admin.start_offsets(there, silent=silent)
        ids = {info.name: info.topic_id for info in topics}
        return _Partitions(
            admin, ClusterLogEnds(starts, rules=_rules(admin), ids=ids, silent=silent, cluster_id=cluster_id)
        )
    except (Unreachable, AuthenticationError) as error:
        return _silent(error)


def _silent(error: DrkitError) -> ClusterLogEnds:
    return ClusterLogEnds(reason=str(error), refused=answered(error))


def _rules(admin: ClusterAdmin) -> frozenset[Acl] | None:
    try:
        return admin.acls()
    except NoAuthorizer:
        return frozenset()  # it keeps nobody out
    except (Refused, Unreachable):  # no right to read them, or no answer in time
        return None


def _link_status(
    clusters: Clusters,
    store: Store,
    link: Link,
    control: LinkControl | None,
    configured: Collection[LinkId],
    compared: ComparedStores,
) -> LinkStatus:
    at = now()
    covers = cache(link.covers_topic)  # formerly covered topics are neither mirrored nor moved
    watermarks = {tp: mark for tp, mark in store.watermarks(link.id).items() if covers(tp.topic)}
    topics = store.topic_states(link.id)
    problems = list(store.problems(link.id))
    lease = store.lease(f"mirror:{link.id}")
    by_store = store.time()
    noted = read_workers(store, link.id)
    workers = sorted(
        (worker for worker in noted if worker.expires_at > by_store),
        key=lambda worker: (not worker.leads, worker.owner),
    )
    led = lease is not None and lease.expires_at > by_store
    running = led or bool(workers)
    translator = Translator(store, link.id)
    translator.partitions()  # watermarks before ends, or growing logs would seem to have lost records
    source, target = _both_ends(clusters, store, link)
    translator.observe_target(lambda: logs_by_source(link, target.start, target.end))
    translator.heed_silence(target.reason, silent_by_source(link, target.silent))
    flowing = control is None or control.direction.serves_source
    record = LinkRecord(link, control, watermarks, topics, running=running, flowing=flowing, left=not flowing)
    age = compared.age(link.id, lambda: link_age(clusters, store, record, compared.seconds))
    seen = compared_problems(clusters, store, record, source, target, problems, translator, at, age)
    problems = list(seen.problems)
    translator.heed_problems(seen.problems, seen.unsure)
    translator.settle(provable_ends(record, source, seen), seen.own_ends)
    if control is not None and control.direction is Direction.SEALED:
        problems += _outside_the_fence(store, link, source, at)
        unfenced = unfenced_problem(store, link, source.rules, at) if source.reachable else None
        problems += [unfenced] if unfenced is not None else []
    problems += _visible_filler(store, link, control, source, target, at)
    if not link.inverse:  # the way back has no clients of its own
        problems = [*_kept_out(clusters, store, link, control, source, target, at, configured), *problems]
    positions = store.group_positions(link.id)
    behind = behind_captured(store, link.id, positions, seen.problems)
    unmovable = tuple(each for each in unmovable_groups(store, link.id) if link.covers_group(each.group))
    partitions = tuple(
        _partition(link, topics.get(tp.topic), mark, source, target, translator, seen, at=at, running=running)
        for tp, mark in sorted(watermarks.items())
    )
    seen_last = {tp for topic, state in topics.items() if covers(topic) for tp in state.tps()}
    known = set(source.end) | source.silent.keys() if source.reachable else seen_last
    partitions += tuple(_not_yet_mirrored(link, tp, source, target) for tp in sorted(known - watermarks.keys()))
    if (
        control is not None and control.direction is Direction.REVERSED
    ):  # what the source holds now was seeded from here
        brought = f"what {link.id.source} holds now was brought back from {link.id.target}"
        partitions = tuple(replace(each, lag_records=None, lag_seconds=None, lag_reason=brought) for each in partitions)
    silent = [alias for alias, ends in ((link.id.source, source), (link.id.target, target)) if not ends.reachable]
    state, reason = _state(
        control, problems, silent, _unheard(noted, by_store), running=running, known=bool(watermarks)
    )
    owners = {each.owner for each in workers}
    statistics = tuple(each for each in fresh(worker_statistics(store, link.id), at) if each.worker in owners)
    unread = target.unread("target")
    if state == "mirroring":
        reasons = (
            source.unread("source"),
            unread,
            _held(link, control, source),
            _not_begun(partitions, watermarks),
            _told(statistics),
            _not_looked_at(watermarks, source, at),
        )
        reason = next(filter(None, reasons), None)
        state = state if reason is None else "degraded"
    why = (reason, None if unread == reason else unread, *(each.reason for each in (source, target) if each.refused))
    return LinkStatus(
        link=link,
        state=state,
        reason="; ".join(filter(None, why)) or None,
        source_reachable=source.reachable,
        target_reachable=target.reachable,
        worker=lease.owner if lease is not None and led else next((each.owner for each in workers), None),
        observed_at=max((mark.observed_at for mark in watermarks.values()), default=None),
        partitions=partitions,
        groups=(
            *(_group(position, translator, behind.get((position.group, position.tp)), link) for position in positions),
            *_unmovable(link, unmovable),
        ),
        unmovable=unmovable,
        problems=tuple(problems),
        recovery_point=_recovery_point(partitions, source, watermarks, at, _sealed_at(control), problems),
        workers=tuple(workers),
        statistics=statistics,
        target_unread=unread,
        store_compared_at=age.compared_at,
        refused={
            alias: ends.reason or ""
            for alias, ends in ((link.id.source, source), (link.id.target, target))
            if ends.refused
        },
    )


def _kept_out(
    clusters: Clusters,
    store: Store,
    link: Link,
    control: LinkControl | None,
    source: ClusterLogEnds,
    target: ClusterLogEnds,
    at: datetime,
    configured: Collection[LinkId],
) -> Iterator[Problem]:
    """What keeps clients out of the cluster that they should use."""
    serving = serving_cluster(link, None if control is None else control.direction)
    ends = source if serving == link.id.source else target
    fenced = fence_problem(store, link, control, ends.rules, at, configured)
    blocked = blocked_problem(store, link, clusters, at) if source.reachable else None
    return filter(None, (fenced, blocked))


def _visible_filler(
    store: Store, link: Link, control: LinkControl | None, source: ClusterLogEnds, target: ClusterLogEnds, at: datetime
) -> list[Problem]:
    """Filler that clients can read: on the target of a failed-over link, and on its source if a failback aligned it."""
    away = {Direction.SEALED, Direction.REVERSED}
    found: list[Problem] = []
    if link.inverse:
        return found  # reported once, for the configured link
    if control is not None and control.direction in away:
        found += filler_problems(store, link, target.start, target.end, target.ids, at)
    back = store.link_control(link.reversed().id)
    if back is not None and back.direction in away:
        found += filler_problems(store, link.reversed(), source.start, source.end, source.ids, at)
    return found


def _outside_the_fence(store: Store, link: Link, source: ClusterLogEnds, at: datetime) -> Iterator[Problem]:
    """Topics that the ACL fence on a former primary doesn't cover: created after it, or opened since."""
    kinds = fence_rules_kind(link.id.source), others_rules_kind(link.id.source)
    denied = topics_denied(key for kind in kinds for key in store.notes(link.id, kind))
    standing = denied if source.rules is None else denied & topics_denied(rule.key for rule in source.rules)
    held: dict[str, int] = defaultdict(int)
    for tp, end in source.end.items():
        held[tp.topic] += end
    for topic in sorted(held.keys() - denied) if denied else ():
        reason = (
            f"{topic} was created on {link.id.source} after the fence: clients may write there, and what they wrote "
            f"({held[topic]:,} offsets) is not on {link.id.target}"
        )
        yield _outside(link, topic, reason, at)
    if standing or mark_of(link) in (source.rules or ()):  # else the whole fence is gone: `unfenced` reports it
        for topic in sorted(held.keys() & (denied - standing)):
            reason = (
                f"the rule that keeps clients from writing to {topic} was removed from {link.id.source}: what they "
                f"write there never reaches {link.id.target}"
            )
            yield _outside(link, topic, reason, at)


def _outside(link: Link, topic: str, reason: str, at: datetime) -> Problem:
    remedy = f"drkit fence --link '{link.id}' closes it too"
    return Problem(OUTSIDE_THE_FENCE, topic, None, reason, remedy, halted=False, since=at)


def logs_by_source(
    link: Link, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Log starts and ends of the link's target, by the source's names of its partitions."""
    named = ((link.source_topic(tp.topic), tp) for tp in starts if tp in ends)
    return {TopicPartition(t, tp.partition): (starts[tp], ends[tp]) for t, tp in named if t is not None}


def silent_by_source(link: Link, silent: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Why partitions of the link's target don't answer, by the source's names of them."""
    named = ((link.source_topic(tp.topic), tp.partition, why) for tp, why in silent.items())
    return {TopicPartition(topic, number): why for topic, number, why in named if topic is not None}


def _both_ends(clusters: Clusters, store: Store, link: Link) -> tuple[ClusterLogEnds, ClusterLogEnds]:
    """The log ends of both clusters as of one moment; everything else is read before, from both concurrently: a dead
    cluster costs one timeout, not two.

    The source's ends are read right after the target's: records on the target that the source lacks are then another
    writer's, and the apparent lag exceeds the real one only by the records written in between.
    """

    def on_target(topic: str) -> bool:
        return link.source_topic(topic) is not None

    check = partial(check_source_cluster, store, link.id)
    with ThreadPoolExecutor(max_workers=2) as pool:
        asked = [
            pool.submit(_partitions_of, clusters, link.id.source, link.covers_topic, check),
            pool.submit(_partitions_of, clusters, link.id.target, on_target),
        ]
        source, target = (each.result() for each in asked)
    if isinstance(target, _Partitions):
        target = target.with_ends(committed=False)  # only the mirror writes there, and its records are acknowledged
    if isinstance(source, _Partitions):
        source = source.with_ends(committed=link.committed)
    return source, target


def _not_yet_mirrored(
    link: Link, tp: TopicPartition, source: ClusterLogEnds, target: ClusterLogEnds
) -> PartitionStatus:
    """A source partition without any record of the mirror, since its topic was created or accepted as a new one: all of
    it would be lost."""
    there = TopicPartition(link.target_topic(tp.topic), tp.partition)
    lag = partition_lag(tp, None, (), start=source.start.get(tp), end=source.end.get(tp))
    return PartitionStatus(
        topic=tp.topic,
        target_topic=there.topic,
        partition=tp.partition,
        source_start=source.start.get(tp),
        source_end=source.end.get(tp),
        mirrored_through=None,
        target_start=target.start.get(there),
        target_end=target.end.get(there),
        delta=None,
        lag_records=lag.records,
        lag_seconds=None if lag.records != 0 else 0.0,
        lag_reason=source.silent.get(tp, lag.reason or (_unwatched(tp) if lag.records else None)),
    )


def _unwatched(tp: TopicPartition) -> str:
    """Why the age of records of a partition without a watermark isn't known."""
    return f"no mirror has recorded anything of {tp}: how long its records have been waiting isn't known"


def _partition(
    link: Link,
    topic: TopicState | None,
    mark: Watermark,
    source: ClusterLogEnds,
    target: ClusterLogEnds,
    translator: Translator,
    problems: ProblemsNow,
    *,
    at: datetime,
    running: bool,
) -> PartitionStatus:
    tp = mark.tp
    there = TopicPartition(link.target_topic(tp.topic), tp.partition)
    held = translator.mirrored(tp) or mark
    lost_since = mark.observed_at if held.target_end < mark.target_end else None  # the target lost its tail since
    start, end, target_end = source.start.get(tp), source.end.get(tp), target.end.get(there)
    lag = partition_lag(
        tp,
        held,
        problems.problems,
        start=start,
        end=end,
        first=translator.first(tp),
        doubts=problems.doubts(tp, lost_since=lost_since),
    )
    row = None if lag.through is None else translator.floor(tp, lag.through)
    records = None if lag.at_least and end is not None else lag.records  # else the recovery point is a lower bound
    stamps = filter(None, (held.observed_at, held.behind_since, lag.since))
    ahead = (max(stamps) - at).total_seconds()  # then the time since the last check is unknown
    later = ahead > (0.0 if end is None else LOOKS_WITHIN_SECONDS) and (end is None or records != 0)
    return PartitionStatus(
        topic=tp.topic,
        target_topic=there.topic,
        partition=tp.partition,
        source_start=mark.source_start if start is None else start,
        source_end=mark.source_end if end is None else end,
        mirrored_through=lag.mirrored_through,
        target_start=target.start.get(there, mark.target_start),
        target_end=mark.target_end if target_end is None else target_end,
        delta=None if row is None else row.delta,
        lag_records=records,
        lag_seconds=None
        if records is None or later
        else _lag_seconds(held, records, at, lag.since, running=running, live=end is not None),
        engine_reason=None if topic is None else topic.reason or None,
        lag_reason=lag.reason or (_LATER if later else _as_last_seen(link, tp, source, target.silent.get(there))),
    )


def _as_last_seen(link: Link, tp: TopicPartition, source: ClusterLogEnds, target_silent: str | None) -> str | None:
    """Why a partition's lag is that of the last look; None: both sides show what they hold now."""
    if not source.lists(tp):
        return f"as last seen: {link.id.source} doesn't list {tp}"
    return source.silent.get(tp, _on_target(link, target_silent))


def _on_target(link: Link, silent: str | None) -> str | None:
    """That the target doesn't show what it holds now; None: it does."""
    return None if silent is None else f"as last seen: {link.id.target} does not answer for it: {silent}"


def link_age(clusters: Clusters, store: Store, record: LinkRecord, seconds: float = LOOK_SECONDS) -> StoreAge:
    """What comparing the store with its copy finds (`positions_age`), within so many seconds."""
    alias = record.link.id.target
    return positions_age(
        record.link,
        store,
        clusters.config_of(alias),
        partial(clusters.admin, alias, may_be_gone=True),
        record.watermarks.values(),
        only_rows=_is_compared_otherwise(record),
        seconds=seconds,
    )


def _is_compared_otherwise(record: LinkRecord) -> bool:
    """Whether an older store is found by others: a mirror compares before it begins; a link that doesn't flow was."""
    return record.running or not record.flowing


def compared_problems(
    clusters: Clusters,
    store: Store,
    record: LinkRecord,
    source: ClusterLogEnds,
    target: ClusterLogEnds,
    problems: Sequence[Problem],
    translator: Translator,
    at: datetime,
    age: StoreAge,
) -> ProblemsNow:
    """`problems_now`, with what comparing the store with its copy found (`positions_age`): with the problem
    `store_older` of each partition that it concerns, and with the rows that the store has lost. The translator heeds
    the comparison, too.

    `problems`: those on record.
    """
    link, marks = record.link, record.watermarks.values()
    rows = PartitionRows(store, age.lost)
    unproven = dict.fromkeys(
        age.unproven, not_compared(link.id, "the copy doesn't prove this partition's mapping rows")
    )
    translator.heed_age(rows, None if age.unknown is None else not_compared(link.id, age.unknown), unproven)
    if age.older is None and _is_compared_otherwise(record):
        age = NOT_OLDER
    problems = [*problems, *older_store_problems(link, age, marks, target.end, at)]
    logs = logs_seen(source, target)
    return problems_now(clusters, store, record, logs, problems, at, rows=rows if age.lost else None)


def provable_ends(
    record: LinkRecord, source: ClusterLogEnds, problems: ProblemsNow
) -> dict[TopicPartition, int | None]:
    """The source's log ends (None: unknown) of the partitions whose target log and mapping rows show what is on the
    target: only the mirror writes there, they are about these topics, and the store lacks none."""
    if not record.flowing:
        return {}
    return {
        tp: source.end.get(tp)
        for tp, mark in record.watermarks.items()
        if _proven(mark, record.topics.get(tp.topic), source, problems)
    }


def _proven(mark: Watermark, topic: TopicState | None, source: ClusterLogEnds, problems: ProblemsNow) -> bool:
    if topic is None:
        return False
    another = source.ids.get(mark.topic, topic.source_topic_id) != topic.source_topic_id
    lost = any(
        problem.kind in ROWS_MISSING and problem.topic == mark.topic and problem.partition in {None, mark.partition}
        for problem in problems.problems
    )
    return mark.epoch == topic.epoch and not another and not lost


def _lag_seconds(
    mark: Watermark, lag: int, at: datetime, parted: datetime | None, *, running: bool, live: bool
) -> float:
    """Seconds since the source's end was first seen beyond the mirrored offset (`parted`: the one still mirrored).

    If the mirror was caught up at its last check, and the source doesn't answer now (not `live`), or there is lag and
    no mirror runs, or the mirror hasn't checked for a while, records may have come at any moment since: the time since
    that check is the conservative answer.
    """
    if lag == 0 and live:
        return 0.0
    since = mark.behind_since or parted
    if since is not None:
        return max(0.0, (at - since).total_seconds())
    looked = max(0.0, (at - mark.observed_at).total_seconds())
    return 0.0 if running and live and looked < _FRESH_SECONDS else looked


def _group(position: GroupPosition, translator: Translator, further: int | None, link: Link) -> GroupStatus:
    """`further`: where it was captured before, if the source may have been set back."""
    answer = doubted_if_set_back(translator.translate(position.tp, position.offset), link.id.source, further)
    return GroupStatus(
        group=position.group,
        topic=position.topic,
        partition=position.partition,
        source_offset=position.offset,
        target_offset=answer.target_offset,
        translation=answer.certainty,
        reason=answer.reason,
        captured_at=position.captured_at,
    )


def _unmovable(link: Link, groups: Sequence[UnmovableGroup]) -> Iterator[GroupStatus]:
    """Groups that commit no offsets, on each partition that they are known to read."""
    for each in groups:
        for tp, start in each.starts.items():
            there = TopicPartition(link.target_topic(tp.topic), tp.partition)
            yield GroupStatus(
                group=each.group,
                topic=tp.topic,
                partition=tp.partition,
                source_offset=start,
                target_offset=None,
                translation=Certainty.UNAVAILABLE,
                reason=each.why(link.id.target, there),
                captured_at=each.captured_at,
                type=each.type,
            )


def _unheard(workers: Sequence[WorkerNote], at: datetime) -> str | None:
    """Why a mirror that nobody stopped counts as stopped: its last worker's note expired, and it didn't remove it."""
    last = max(workers, key=lambda worker: worker.seen_at, default=None)
    if last is None or last.expires_at > at:
        return None
    ago = (at - last.seen_at).total_seconds()
    return (
        f"worker {short(last.owner)} was last heard of {ago:,.0f} s ago and did not end: it was killed, is frozen, or "
        "can't reach the store"
    )


def _state(
    control: LinkControl | None,
    problems: Sequence[Problem],
    silent: Sequence[str],
    unheard: str | None = None,
    *,
    running: bool,
    known: bool,
) -> tuple[str, str | None]:
    """The link's state in the contract's words, and the reason if needed. `silent`: clusters that don't answer;
    `unheard`: why no mirror seems to run."""
    if control is not None and control.direction in {Direction.SEALED, Direction.REVERSED}:
        return control.direction.value, control.reason or None
    if control is not None and control.direction is Direction.PAUSED:
        return "paused", control.reason or None
    if not running:
        return "stopped", unheard if known else "no mirror has run on this link yet"
    harmful = [problem for problem in problems if problem.kind not in HARMLESS]
    if harmful:
        more = f" (and {len(harmful) - 1} more)" if len(harmful) > 1 else ""
        return "degraded", harmful[0].reason + more
    if silent:
        return "degraded", f"the mirror runs, but {' and '.join(silent)} can't be read"
    return "mirroring", None


def _not_begun(partitions: Sequence[PartitionStatus], recorded: Container[TopicPartition]) -> str | None:
    """Why a link with a mirror and without a recorded problem isn't fully mirrored; None: it is."""
    places = ((TopicPartition(each.topic, each.partition), each) for each in partitions)
    waiting = [str(tp) for tp, each in places if tp not in recorded and each.lag_records and not is_canary(tp.topic)]
    if not waiting:
        return None
    return (
        f"nothing of {and_more(waiting)} is mirrored yet. If that lasts, the running mirror has other topics than this "
        "configuration: restart it"
    )


def _held(link: Link, control: LinkControl | None, source: ClusterLogEnds) -> str | None:
    """The reason that an operator has paused topics of the link; None: none."""
    there = {tp.topic for tp in source.end}
    held = sorted(there & control.paused_topics) if control is not None else []
    if not held:
        return None
    return f"{and_more(held)} {'is' if len(held) == 1 else 'are'} paused: `drkit link resume '{link.id}' --topic …`"


def _told(statistics: Sequence[WorkerStatistics]) -> str | None:
    """The reason of a running worker that isn't well: a cluster that it can't reach may answer this process."""
    for each in statistics:
        if each.state in {"waiting", "degraded"}:
            return each.reason or f"worker {each.worker} is {each.state}"
    return None


def _not_looked_at(watermarks: Mapping[TopicPartition, Watermark], source: ClusterLogEnds, at: datetime) -> str | None:
    """The reason that a running mirror hasn't checked partitions of the source for long; None: it has."""
    ages = {tp: (at - mark.observed_at).total_seconds() for tp, mark in watermarks.items() if tp in source.end}
    late = {tp: age for tp, age in ages.items() if age > LOOKS_WITHIN_SECONDS}
    if not late:
        ahead = {tp: -age for tp, age in ages.items() if -age > LOOKS_WITHIN_SECONDS}
        return f"{_LATER} (by {max(ahead.values()):,.0f} s for {and_more(sorted(map(str, ahead)))})" if ahead else None
    return (
        f"a mirror is running and has not checked {and_more([str(tp) for tp in sorted(late)])} for "
        f"{max(late.values()):,.0f} s: see its log"
    )


def _sealed_at(control: LinkControl | None) -> datetime | None:
    return control.changed_at if control is not None and control.direction is Direction.SEALED else None


def _recovery_point(
    partitions: Sequence[PartitionStatus],
    source: ClusterLogEnds,
    watermarks: Mapping[TopicPartition, Watermark],
    at: datetime,
    sealed_at: datetime | None = None,
    problems: Sequence[Problem] = (),
) -> RecoveryPoint:
    """Records behind open transactions count in full, as in a failover's plan: the mirror can't read them yet. They are
    as old as the transaction, where that was noticed to last.

    `sealed_at`: when the link was failed over, if it was; the loss was then as old as it ever gets.
    """
    unknown = [each for each in partitions if each.lag_records is None]
    if not partitions:
        return RecoveryPoint(None, None, reason="nothing was mirrored yet")
    if unknown:
        names = and_more(sorted({str(TopicPartition(each.topic, each.partition)) for each in unknown}))
        why = next((each.lag_reason for each in unknown if each.lag_reason), "nothing was recorded")
        return RecoveryPoint(None, None, reason=f"how much is missing isn't known of {names}: {why}")
    seconds = [p.lag_seconds for p in partitions]
    unlooked = sorted(source.held.keys() - watermarks.keys())  # nobody saw since when their transactions are open
    since = {
        TopicPartition(each.topic, each.partition): each.since
        for each in problems
        if each.kind == TRANSACTION_OPEN and each.partition is not None
    }
    seen = {tp: watermarks[tp].observed_at for tp in source.held if tp in watermarks}
    held_ages = [age_seconds(min(observed, since.get(tp, observed)), at) for tp, observed in seen.items()]
    seconds += [*held_ages, *(None for _ in unlooked)]
    held = sum(source.held.values())
    unlisted = sorted(tp for tp in (TopicPartition(p.topic, p.partition) for p in partitions) if not source.lists(tp))
    missing = f"the source doesn't list {and_more([str(tp) for tp in unlisted])}" if unlisted else None
    unread = "; ".join(filter(None, (source.unread("source"), missing))) or None
    reason = None if unread is None else f"{unread}: what came since the last look isn't counted"
    later = {each.lag_reason for each in partitions if each.lag_seconds is None and each.lag_reason is not None}
    later |= {_LATER for age in held_ages if age is None}
    later |= {_unwatched(tp) for tp in unlooked}
    if not source.reachable:
        reason = f"the source {unreached(refused=source.refused)}: {source.reason}"
    reason = "; ".join(filter(None, (reason, *sorted(later)))) or None
    if held:
        behind = (
            f"{counted(held, 'offset')} of them {'stands' if held == 1 else 'stand'} behind open transactions on the "
            "source: what these abort is no loss"
        )
        reason = behind if reason is None else f"{reason}; {behind}"
    oldest = greatest(seconds)
    if oldest is not None and sealed_at is not None:
        oldest = max(0.0, oldest - (at - sealed_at).total_seconds())
    return RecoveryPoint(
        sum(p.lag_records or 0 for p in partitions) + held,
        oldest,
        lower_bound=not source.reachable or unread is not None,
        reason=reason,
    )


def status_document(statuses: Sequence[LinkStatus], drills: Sequence[DrillKind] | None = None) -> dict[str, Any]:
    """`drkit status --output json`. `drills`: those in the store; None: it wasn't asked."""
    known = None if drills is None else drills_document(drills, now())
    return {"links": [_link_document(status) for status in statuses], "drills": known}


def _link_document(status: LinkStatus) -> dict[str, Any]:
    return {
        "source": status.link.id.source,
        "target": status.link.id.target,
        "state": status.state,
        "reason": status.reason,
        "source_reachable": status.source_reachable,
        "target_reachable": status.target_reachable,
        "worker": status.worker,
        "workers": [
            {"worker": each.owner, "leads": each.leads, "partitions": each.partitions, "seen_at": each.seen_at}
            for each in status.workers
        ],
        "statistics": [each.document() for each in status.statistics],
        "observed_at": status.observed_at,
        "store_compared_at": status.store_compared_at,
        "partitions": [asdict(partition) for partition in status.partitions],
        "groups": [asdict(group) for group in status.groups],
        "problems": [asdict(problem) for problem in status.problems],
        "recovery_point": asdict(status.recovery_point),
    }

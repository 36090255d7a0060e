"""The status snapshot: each link's mirror, its lag, and the positions of groups.

The store has the mirror's records; both clusters are asked for their log ends, each within a timeout.
Records on the target beyond the last watermark count as mirrored, as in a failover's plan. If a cluster
doesn't answer, the snapshot shows the last observation and says so: a dead primary must not hide the
mirror's progress.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

from drkit.config import Config
from drkit.kafka.admin.clusters import Clusters, observing
from drkit.lag.partition_lag import partition_lag
from drkit.lag.problems_now import LinkRecord, ProblemsNow
from drkit.lag.waiting_records import behind_open_transactions, may_be_younger, undated
from drkit.mapping.store_translator import Translator
from drkit.mapping.translate import doubted_if_set_back
from drkit.model.clock import age_seconds, now
from drkit.model.errors import unreached
from drkit.model.groups import UnmovableGroup
from drkit.model.link_state import HARMLESS, SOURCE_TOPIC_DENIED, Direction, LinkControl, Problem, TopicState
from drkit.model.offsets import LOOKS_WITHIN_SECONDS, Certainty, GroupPosition, WaitingRecords, Watermark
from drkit.model.runs import serving_cluster
from drkit.model.statistics import WorkerStatistics
from drkit.model.topology import Link, LinkId, TopicPartition, is_canary
from drkit.model.totals import greatest
from drkit.model.wording import and_more
from drkit.observe.cluster_log_ends import ClusterLogEnds, both_ends, logs_by_source, silent_by_source
from drkit.observe.copy_comparison import compared_problems, link_age, provable_ends
from drkit.observe.formatting import short
from drkit.observe.link_status import GroupStatus, LinkStatus, PartitionStatus, RecoveryPoint
from drkit.observe.poll_problems import (
    blocked_problem,
    fence_problem,
    filler_problems,
    hidden_topics,
    left_behind_problems,
    outside_the_fence,
    unfenced_problem,
)
from drkit.state_topic.guard import begun, interrupted
from drkit.state_topic.store_age import ComparedStores
from drkit.store.api import Store
from drkit.store.link_notes import behind_captured, unmovable_groups
from drkit.store.workers import WorkerNote, fresh, lease_name, read_workers, worker_statistics

_FRESH_SECONDS = 5.0
"""A running mirror checks each partition about once a second; one that hasn't for so long has stopped."""
_LATER = "the mirror's last check is in the future by this machine's clock: the clocks differ, or one was set back"


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
    lease = store.lease(lease_name(link.id))
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
    source, target = both_ends(clusters, store, link)
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
        problems += _of_former_primary(clusters, store, link, source, control, problems, at)
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
        recovery_point=_recovery_point(
            partitions, source, watermarks, at, _sealed_at(control), target_silent=_silence("target", target)
        ),
        workers=tuple(workers),
        statistics=statistics,
        source_unread=source.unread("source"),
        target_unread=unread,
        store_compared_at=age.compared_at,
        refused={
            alias: ends.reason or ""
            for alias, ends in ((link.id.source, source), (link.id.target, target))
            if ends.refused
        },
    )


def _of_former_primary(
    clusters: Clusters,
    store: Store,
    link: Link,
    source: ClusterLogEnds,
    control: LinkControl,
    known: Sequence[Problem],
    at: datetime,
) -> Iterator[Problem]:
    """What of a former primary is open to its clients, isn't shown, or was left behind; not what is `known` already."""
    told = {problem.topic for problem in known if problem.kind == SOURCE_TOPIC_DENIED}
    hidden = hidden_topics(store, link, clusters, source) - told
    yield from outside_the_fence(store, link, source, hidden, at)
    unfenced = unfenced_problem(store, link, source.rules, at) if source.reachable else None
    if unfenced is not None:
        yield unfenced
    if source.reachable:
        yield from left_behind_problems(clusters, store, link, control.run, at)


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
    found: list[Problem] = []
    if link.inverse:
        return found  # reported once, for the configured link
    if control is not None and not control.direction.serves_source:
        found += filler_problems(store, link, target.start, target.end, target.ids, at)
    back = store.link_control(link.reversed().id)
    if back is not None and not back.direction.serves_source:
        found += filler_problems(store, link.reversed(), source.start, source.end, source.ids, at)
    return found


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
    if control is not None and not control.direction.serves_source:
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


def _silence(side: str, ends: ClusterLogEnds) -> str | None:
    """That a source or target (`side`), or some of its partitions, doesn't answer, and why; None: all do."""
    if ends.reachable:
        return ends.unread(side)
    return f"the {side} {unreached(refused=ends.refused)}: {ends.reason}"


def _recovery_point(
    partitions: Sequence[PartitionStatus],
    source: ClusterLogEnds,
    watermarks: Mapping[TopicPartition, Watermark],
    at: datetime,
    sealed_at: datetime | None = None,
    *,
    target_silent: str | None = None,
) -> RecoveryPoint:
    """Records behind open transactions count in full, as in a failover's plan: the mirror can't read them yet. They
    wait since a high watermark beyond what is mirrored was first seen (`Watermark.waiting`). Of a source that doesn't
    show them now, those count that were last seen.

    `sealed_at`: when the link was failed over, if it was; the loss was then as old as it ever gets. `target_silent`:
    why the target, or some of it, doesn't show what it still holds; None: it does.
    """
    unknown = [each for each in partitions if each.lag_records is None]
    if not partitions:
        return RecoveryPoint(None, None, reason="nothing was mirrored yet")
    if unknown:
        names = and_more(sorted({str(TopicPartition(each.topic, each.partition)) for each in unknown}))
        why = next((each.lag_reason for each in unknown if each.lag_reason), "nothing was recorded")
        return RecoveryPoint(None, None, reason=f"how much is missing isn't known of {names}: {why}")
    held_by = {tp: count for tp, mark in watermarks.items() if tp not in source.end and (count := mark.held_records)}
    held_by |= source.held
    held = sum(held_by.values())
    unlooked = sorted(held_by.keys() - watermarks.keys())  # nobody saw since when their transactions are open
    waiting = _waiting(partitions, watermarks, held_by)
    unseen = [tp for tp, each in waiting.items() if each.since is None]
    held_ages = [None if each.since is None else age_seconds(each.since, at) for each in waiting.values()]
    seconds = [*(p.lag_seconds for p in partitions), *held_ages, *(None for _ in unlooked)]
    unlisted = sorted(tp for tp in (TopicPartition(p.topic, p.partition) for p in partitions) if not source.lists(tp))
    missing = f"the source doesn't list {and_more([str(tp) for tp in unlisted])}" if unlisted else None
    unread = "; ".join(filter(None, (source.unread("source"), missing))) or None
    reason = None if unread is None else f"{unread}: what came since the last look isn't counted"
    later = {each.lag_reason for each in partitions if each.lag_seconds is None and each.lag_reason is not None}
    later |= {_LATER for each in waiting.values() if each.since is not None and age_seconds(each.since, at) is None}
    later |= {_unwatched(tp) for tp in unlooked}
    later |= {undated(unseen)} if unseen else set()
    younger = [tp for tp, each in waiting.items() if each.at_most and each.since is not None]
    later |= {may_be_younger(younger)} if younger else set()
    if not source.reachable:
        reason = _silence("source", source)
    lost = None if target_silent is None else f"{target_silent}: what it has lost since the last look isn't counted"
    reason = "; ".join(filter(None, (reason, lost, *sorted(later)))) or None
    if held:
        behind = behind_open_transactions(held)
        reason = behind if reason is None else f"{reason}; {behind}"
    oldest = greatest(seconds)
    if oldest is not None and sealed_at is not None:
        oldest = max(0.0, oldest - (at - sealed_at).total_seconds())
    return RecoveryPoint(
        sum(p.lag_records or 0 for p in partitions) + held,
        oldest,
        lower_bound=not source.reachable or unread is not None or target_silent is not None,
        reason=reason,
    )


def _waiting(
    partitions: Sequence[PartitionStatus],
    watermarks: Mapping[TopicPartition, Watermark],
    held: Mapping[TopicPartition, int],
) -> dict[TopicPartition, WaitingRecords]:
    """What waits of partitions of which something is missing, those that are mirrored. What no mirror has seen yet came
    since its last look."""
    found = {}
    for each in partitions:
        tp = TopicPartition(each.topic, each.partition)
        mark = watermarks.get(tp)
        if mark is None or not (each.lag_records or tp in held):
            continue
        known = None if each.mirrored_through is None else mark.waiting_beyond(each.mirrored_through)
        if known is not None or tp in held:
            found[tp] = known or WaitingRecords(mark.source_end, mark.observed_at)
    return found

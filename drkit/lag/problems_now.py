"""A link's current problems: the recorded ones, and those that both clusters show and no mirror has recorded.

A halted partition is compared with its source again (a source may lose more); so are partitions that no mirror fetches
(none is running, an operator paused them, something halts them): by the source's leader epochs, and by the last
mirrored records; their log starts reveal records that were removed from the target. Topic ids reveal recreated or
deleted topics. Of a link that was failed away from only its source counts: the target is its clients'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.admin.logs.source_divergence import DivergenceProblems, with_divergence_now
from drkit.kafka.client.record_probe import OffsetRange
from drkit.lag.batch_comparison import compare_batches, replaced_reason, set_back_remedy, unmirrored_reason
from drkit.lag.beyond_watermarks import beyond_watermarks, foreign_writer_remedy
from drkit.lag.divergence_check import check_divergences, further_down
from drkit.lag.last_before import with_exact_ends
from drkit.lag.last_records import compare_records, last_places
from drkit.lag.partition_lag import Doubts
from drkit.lag.returned_records import with_returned
from drkit.lag.target_purges import LogStarts, held_again, with_unseen_purges
from drkit.lag.unmirrored_tail import LinkSides, unmirrored_tail
from drkit.mapping.resume import settled_watermark
from drkit.mapping.target_start import MappingRows
from drkit.model.errors import AuthenticationError, ConfigError, DrkitError, Refused, Unreachable
from drkit.model.link_state import (
    DELETED_ON_SOURCE,
    FOREIGN_WRITER,
    RECREATED,
    ROWS_MISSING,
    SOURCE_TOPIC_DELETED,
    SOURCE_TOPIC_DENIED,
    SOURCE_TRUNCATED,
    TARGET_RECREATED,
    TARGET_REPLACED,
    TOPIC_RECREATED,
    WHOLE_LINK,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import LOOKS_WITHIN_SECONDS, Watermark
from drkit.model.runs import serve_again
from drkit.model.topology import Link, LinkId, TopicPartition, is_canary
from drkit.store.api import Store
from drkit.store.link_notes import known_target_cluster, other_target_cluster, other_target_remedy

if TYPE_CHECKING:
    from drkit.kafka.transform.record_transform import Alteration

_DELETED, _MADE_ANEW = True, False
_RECORDS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """A link's records in the store, read before the clusters were asked. `running`: a mirror is running on it;
    `flowing`: only the mirror writes to the target. Of a link that was failed over only topics that were recreated on
    its source are looked for, and, if asked for (`left`), what its source has lost of what was mirrored. `halted`:
    topics, and partitions of them (None: all), that a problem on record halts."""

    link: Link
    control: LinkControl | None
    watermarks: Mapping[TopicPartition, Watermark]
    topics: Mapping[str, TopicState]
    running: bool
    flowing: bool
    left: bool = False
    halted: frozenset[tuple[str, int | None]] = frozenset()


@dataclass(frozen=True, slots=True)
class LogsSeen:
    """Log starts and ends of both sides, the source's topics, and the ids of the target's topics, each by its own
    cluster's names; empty (None) if it didn't answer. `target_cluster`: the target's cluster id. `source_gone`: the
    source didn't answer, and isn't asked again."""

    source_start: Mapping[TopicPartition, int]
    source_end: Mapping[TopicPartition, int]
    target_start: Mapping[TopicPartition, int]
    target_end: Mapping[TopicPartition, int]
    source_topics: Collection[str] | None
    target_ids: Mapping[str, str] | None
    target_cluster: str | None = None
    source_gone: bool = False

    def of_source(self) -> dict[TopicPartition, OffsetRange]:
        """The source's logs, where both their start and their end are known."""
        ends = self.source_end
        return {tp: OffsetRange(start, ends[tp]) for tp, start in self.source_start.items() if tp in ends}


@dataclass(frozen=True, slots=True)
class ProblemsNow:
    """`problems`: those on record, and those seen. `unseen`: partitions whose source lost something, and of which
    nobody can say now whether it has lost more; `unjudged`: why it isn't known whether a partition's target, or its
    source, still holds what was mirrored; `gone`: partitions that the target doesn't have; `own_ends`: the target
    offsets up to which the mirror wrote partitions whose logs go on, with records of others, or of nobody knows whom;
    `unsure`: why none of a partition's positions is exact, whatever its mapping rows say; `settled`: watermarks, as far
    as the target's log proves them, of partitions that it goes beyond though no mirror watches them.
    """

    problems: list[Problem]
    unseen: frozenset[TopicPartition] = frozenset()
    unjudged: Mapping[TopicPartition, str] = field(default_factory=dict)
    gone: frozenset[TopicPartition] = frozenset()
    own_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    unsure: Mapping[TopicPartition, str] = field(default_factory=dict)
    settled: Mapping[TopicPartition, Watermark] = field(default_factory=dict)

    def doubts(self, tp: TopicPartition, *, lost_since: datetime | None = None) -> Doubts:
        """The open questions about a partition; `lost_since`: `Doubts.lost_since`."""
        return Doubts(tp in self.unseen, self.unjudged.get(tp), tp in self.gone, lost_since, self.unsure.get(tp))


def problems_now(
    clusters: Clusters,
    store: Store,
    record: LinkRecord,
    logs: LogsSeen,
    problems: Sequence[Problem],
    at: datetime,
    *,
    rows: MappingRows | None = None,
) -> ProblemsNow:
    """See the module docstring. If a cluster doesn't answer, the recorded problems and open questions remain.

    `rows`: the store's mapping rows, if they are read already; None: reads them from the store.
    """
    rows = rows or store
    record = replace(record, halted=frozenset((each.topic, each.partition) for each in problems if each.halted))
    replaced = _replaced_target(store, record, logs, at)
    seen = _seen_now(clusters, store, record, logs, problems, at, rows, replaced)
    if replaced is not None:
        return replace(seen, problems=[replaced, *seen.problems])
    target = partial(clusters.admin, record.link.id.target, may_be_gone=True)
    exact = with_exact_ends(target, rows, record.link, {**record.watermarks, **seen.settled}, seen.problems)
    return replace(seen, problems=exact)


def _replaced_target(store: Store, record: LinkRecord, logs: LogsSeen, at: datetime) -> Problem | None:
    """The problem that another cluster than the link's answers at the target's address; None: it is the link's, it
    doesn't answer, or no mirror has noted which it is."""
    link, found = record.link, logs.target_cluster
    known = None if found is None else known_target_cluster(store, link.id)
    if found is None or known in {None, found}:
        return None
    reason = other_target_cluster(link.id, found, known or "")
    remedy = other_target_remedy(link, found, None if record.control is None else record.control.direction)
    return Problem(TARGET_REPLACED, WHOLE_LINK, None, reason, remedy, halted=True, since=at)


def _seen_now(
    clusters: Clusters,
    store: Store,
    record: LinkRecord,
    logs: LogsSeen,
    problems: Sequence[Problem],
    at: datetime,
    rows: MappingRows,
    replaced: Problem | None,
) -> ProblemsNow:
    if not record.flowing:
        return _left_behind(clusters, store, record, logs, problems, at, rows, replaced)
    link = record.link
    seen = (
        DivergenceProblems(list(problems))
        if logs.source_gone
        else _compared(clusters, store, record, logs, problems, at)
    )
    lost = _lost_topics(clusters, record, logs, replaced)
    found, unjudged = seen.problems, dict(seen.unjudged)
    strangers, settled, unknown, own_ends = _beyond_watermarks(clusters, store, rows, record, logs, found, lost, at)
    found, unjudged = found + strangers, {**unjudged, **unknown}
    if not logs.source_gone:
        found, deeper = _further_down(clusters, store, record, logs, found, problems, lost)
        others, reasons = _other_records(clusters, record, logs, rows, found, lost, settled, at)
        found = found + others
        unjudged |= deeper | reasons | _ending_early(record, logs, found, at)
    if not link.inverse:
        found = found + _problems_of(store, record, lost, found, at, replaced)
        found = with_returned(store, link.id, record.watermarks, logs.of_source(), found)
    if not record.running:
        found = found + _hidden(clusters, record, logs, found, at)
    starts = LogStarts(logs.source_start, logs.target_start)
    alone = {tp: settled.get(tp, mark) for tp, mark in record.watermarks.items() if _unwatched(record, mark, at)}
    found, purges = with_unseen_purges(clusters, store, rows, link, alone, starts, found, at)
    lost_more = {
        TopicPartition(each.topic, each.partition): each.reason
        for each in found
        if each.kind == SOURCE_TRUNCATED and each.partition is not None
    }
    unsure = {tp: lost_more[tp] for tp in seen.unseen} | unjudged  # but a log's lost beginning leaves the rest in place
    unjudged |= purges
    gone = frozenset(tp for tp in record.watermarks if lost.get(tp.topic) is _DELETED)
    return ProblemsNow(found, seen.unseen, unjudged, gone, own_ends, unsure, settled)


def _left_behind(
    clusters: Clusters,
    store: Store,
    record: LinkRecord,
    logs: LogsSeen,
    problems: Sequence[Problem],
    at: datetime,
    rows: MappingRows,
    replaced: Problem | None,
) -> ProblemsNow:
    """What the source of a link that was failed away from shows. What the target lacks of what was mirrored is no loss:
    it belongs to its clients."""
    anew = _left_behind_anew(clusters, record, logs, problems, at)
    sealed = record.control is not None and record.control.direction is Direction.SEALED
    if not (record.left and sealed) or record.link.inverse or logs.source_topics is None:
        return ProblemsNow([*problems, *anew])
    told = {problem.topic for problem in [*problems, *anew] if problem.kind == TOPIC_RECREATED}
    lost = _lost_topics(clusters, record, logs, replaced).keys() - told
    kept = {tp: mark for tp, mark in record.watermarks.items() if tp.topic not in lost}
    record = replace(record, watermarks=kept)
    seen = _compared(clusters, store, record, logs, problems, at)
    found = [each for each in seen.problems if each.kind != TOPIC_RECREATED or each in problems]
    found, deeper = _further_down(clusters, store, record, logs, found, problems, lost)
    others, reasons = _other_records(clusters, record, logs, rows, found, lost, {}, at)
    found = found + others
    source = record.link.id.source
    remedy = f"`drkit failback` keeps what only {source} holds before it brings {source} back"
    if record.link.alters:
        remedy = serve_again(record.link)
    found = [each if each in problems else replace(each, remedy=remedy) for each in found]
    found = with_returned(store, record.link.id, kept, logs.of_source(), found)
    found = held_again(rows, record.link, kept, logs.target_start, found)
    unjudged = dict(seen.unjudged) | deeper | reasons | _ending_early(record, logs, found, at)
    unsure = f"whether {source} still holds what was mirrored is not known"
    unjudged |= {
        TopicPartition(name, number): f"{unsure}: {name} on {record.link.id.target} isn't the mirror's any more"
        for name in lost
        for number in range(record.topics[name].partitions)
    }
    lost_more = dict.fromkeys(seen.unseen, f"whether {source} has lost more since is not known")
    return ProblemsNow([*found, *anew], seen.unseen, unjudged, unsure=lost_more | unjudged)


def _left_behind_anew(
    clusters: Clusters, record: LinkRecord, logs: LogsSeen, problems: Sequence[Problem], at: datetime
) -> list[Problem]:
    """A problem for each topic that was recreated on a source that was failed away from, and holds records: nothing of
    it is on the target."""
    control, alias = record.control, record.link.id.source
    if control is None or control.direction is not Direction.SEALED or not logs.source_topics:
        return []
    told = {problem.topic for problem in problems if problem.kind == TOPIC_RECREATED}
    names = sorted((record.topics.keys() & set(logs.source_topics)) - told)
    try:
        admin = clusters.admin(alias, may_be_gone=True)
        anew = {
            name: info
            for name, info in admin.topics(names).items()
            if not is_canary(name) and info.topic_id != record.topics[name].source_topic_id
        }
        tps = [TopicPartition(name, number) for name, info in anew.items() for number in range(info.partitions)]
        ends = admin.end_offsets(tps, committed=False) if tps else {}
    except (Unreachable, AuthenticationError, Refused):
        return []
    written = sorted({tp.topic for tp, end in ends.items() if end})
    return [
        Problem(
            TOPIC_RECREATED,
            name,
            None,
            f"{name} on {alias} is a new topic of the same name (id {anew[name].topic_id}): none of its records is on "
            f"{record.link.id.target}",
            "Stop who writes there, and copy the records that you need; "
            + (
                f"to go back: {serve_again(record.link)}"
                if record.link.alters
                else f"`drkit failback` then wants {name} deleted on {alias}"
            ),
            halted=True,
            since=at,
        )
        for name in written
    ]


def _compared(
    clusters: Clusters, store: Store, record: LinkRecord, logs: LogsSeen, problems: Sequence[Problem], at: datetime
) -> DivergenceProblems:
    """Halted partitions, and those that no mirror fetches, compared with the source's current logs. If the source
    answers only for some partitions, drkit doesn't wait for the others again."""
    link, marks = record.link, record.watermarks
    if logs.source_topics is not None:
        marks = {tp: mark for tp, mark in marks.items() if tp in logs.source_start}

    sides = partial(link_sides, clusters, link, store, left=record.left)
    check = partial(check_divergences, marks=marks, link=link.id, store=store, sides=sides)
    return with_divergence_now(
        partial(clusters.admin, link.id.source, may_be_gone=True),
        link,
        marks,
        record.topics,
        problems,
        at,
        unwatched=frozenset(tp for tp, mark in marks.items() if not link.inverse and _unwatched(record, mark, at)),
        check=check,
    )


class _Beyond(NamedTuple):
    """What targets hold beyond the stored watermarks: a problem for each one to which another client wrote; watermarks
    as far as the mirror's own records prove them; why that isn't known of others; `ProblemsNow.own_ends`."""

    problems: list[Problem]
    settled: Mapping[TopicPartition, Watermark]
    unknown: Mapping[TopicPartition, str]
    own_ends: Mapping[TopicPartition, int]


def _beyond_watermarks(
    clusters: Clusters,
    store: Store,
    rows: MappingRows,
    record: LinkRecord,
    logs: LogsSeen,
    problems: Sequence[Problem],
    lost: Collection[str],
    at: datetime,
) -> _Beyond:
    """See `beyond_watermarks`; of partitions that no mirror watches, and of which no problem says so already."""
    link = record.link
    if link.inverse or link.shares_target:  # a failback's own clients, and those of the target's owners
        return _Beyond([], {}, {}, {})
    told = {(each.topic, each.partition) for each in problems if each.kind == FOREIGN_WRITER}
    other = {(each.topic, each.partition) for each in problems if each.kind in RECREATED | ROWS_MISSING}
    there = {tp: TopicPartition(link.target_topic(tp.topic), tp.partition) for tp in record.watermarks}
    marks = {
        tp: mark
        for tp, mark in record.watermarks.items()
        if logs.target_end.get(there[tp], 0) > mark.target_end
        and tp.topic not in lost
        and not _named(tp, other)
        and not is_canary(tp.topic)
        and _unwatched(record, mark, at)
    }
    if not marks:
        return _Beyond([], {}, {}, {})
    ends = {there[tp]: logs.target_end[there[tp]] for tp in marks}
    try:
        target = clusters.admin(link.id.target, may_be_gone=True)
    except (Unreachable, AuthenticationError, Refused) as error:
        unsure = f"who wrote what {link.id.target} holds beyond the mirror's last save is not known: {error.what}"
        return _Beyond([], {}, dict.fromkeys(marks, unsure), {tp: mark.target_end for tp, mark in marks.items()})
    seen = beyond_watermarks(target, store, link.id, marks.values(), there, ends)
    own_ends = seen.own_ends | {tp: marks[tp].target_end for tp in seen.unknown}
    settled, found = {}, []
    for tp, mark in marks.items():
        own_end = own_ends.get(tp, ends[there[tp]])
        known = rows.mappings(link.id, tp, mark.epoch)
        settled[tp] = settled_watermark(mark, known, own_end, source_end=logs.source_end.get(tp)).watermark
        if tp in seen.written_from and not _named(tp, told):
            reason = (
                f"{there[tp]} on {link.id.target} holds records that the mirror did not write, from target offset "
                f"{own_end:,} on"
            )
            found.append(
                Problem(
                    FOREIGN_WRITER,
                    tp.topic,
                    tp.partition,
                    reason,
                    foreign_writer_remedy(link.id, tp.topic, there[tp].topic),
                    halted=True,
                    since=mark.observed_at,
                    unsure_from=settled[tp].source_through,
                )
            )
    return _Beyond(found, settled, seen.unknown, own_ends)


def _other_records(
    clusters: Clusters,
    record: LinkRecord,
    logs: LogsSeen,
    rows: MappingRows,
    problems: Sequence[Problem],
    lost: Collection[str],
    settled: Mapping[TopicPartition, Watermark],
    at: datetime,
) -> tuple[list[Problem], dict[TopicPartition, str]]:
    """A problem for each partition that no mirror fetches and whose source holds other records than were mirrored, by
    the last mirrored batch (`source_batches`) or the last mirrored records of both sides (`settled`: watermarks that
    the target's log moves up), unless one on record says from where on they do. Second, why partitions could not be
    compared: nobody knows whether their source was set back.
    """
    link = record.link
    if link.inverse:
        return [], {}
    told = {(each.topic, each.partition) for each in problems if each.differs_from is not None}
    told |= {(each.topic, each.partition) for each in problems if each.kind in RECREATED}
    marks = [
        mark
        for tp, mark in record.watermarks.items()
        if tp in logs.source_start and tp.topic not in lost and not is_canary(tp.topic)
        if _unwatched(record, mark, at) and not _named(tp, told)
    ]
    if not marks:
        return [], {}
    unsure = f"whether {link.id.source} still holds what was mirrored is not known"
    try:
        source = clusters.admin(link.id.source, may_be_gone=True)
        batches = compare_batches(source, marks)
    except (Unreachable, AuthenticationError, Refused) as error:
        return [], {mark.tp: f"{unsure}: {error.what}" for mark in marks}
    ids = link.id
    found = [
        _set_back(ids, tp, replaced_reason(ids.source, ids.target, tp, batch), record.watermarks[tp].observed_at)
        for tp, batch in sorted(batches.replaced.items())
    ]
    unread = dict.fromkeys(batches.silent, f"{unsure}: its last mirrored batch can't be read there")
    left = [settled.get(mark.tp, mark) for mark in marks if mark.tp not in batches.replaced]
    others, reasons = _other_last_records(clusters, record, logs, rows, left, batches.rewritten)
    places = {mark.tp: settled.get(mark.tp, mark) for mark in marks}
    return _parted_at(clusters, record, rows, places, found + others), {
        **{tp: f"{unsure}: {why}" for tp, why in reasons.items()},
        **unread,
    }


def _parted_at(
    clusters: Clusters,
    record: LinkRecord,
    rows: MappingRows,
    marks: Mapping[TopicPartition, Watermark],
    problems: list[Problem],
) -> list[Problem]:
    """The problems, those that don't know from where on both sides differ with the place behind the last equal record;
    where it can't be found in time, or others write to the target, too, no record counts as mirrored."""
    open_ones = {_tp(each): marks[_tp(each)] for each in problems if each.unsure_from == 0}
    if not open_ones or record.link.shares_target:
        return problems
    try:
        sides = link_sides(clusters, record.link, rows, left=record.left)
        places = unmirrored_tail(sides, open_ones.values()).same_until
    except DrkitError:
        return problems
    return [replace(each, unsure_from=places[_tp(each)]) if _tp(each) in places else each for each in problems]


def _tp(problem: Problem) -> TopicPartition:
    """The partition of a problem that has one."""
    return TopicPartition(problem.topic, -1 if problem.partition is None else problem.partition)


def _further_down(
    clusters: Clusters,
    store: Store,
    record: LinkRecord,
    logs: LogsSeen,
    problems: list[Problem],
    recorded: Sequence[Problem],
    lost: Collection[str],
) -> tuple[list[Problem], dict[TopicPartition, str]]:
    """The problems, those that are as `recorded` compared again below the place that they name; the others were just
    now. Second, why that isn't known of some.
    """
    link = record.link
    if link.inverse:
        return problems, {}
    if link.shares_target:
        below = {
            TopicPartition(each.topic, each.partition): each.differs_from
            for each in recorded
            if each.differs_from and each.partition is not None
        }
        return problems, {
            tp: f"whether {link.id.source} still holds what was mirrored below source offset {first} is not known: "
            f"others write to {link.id.target}, too, so no records are compared"
            for tp, first in below.items()
        }
    places = {_place(each): each.differs_from for each in recorded}
    marks = {tp: mark for tp, mark in record.watermarks.items() if tp in logs.source_start and tp.topic not in lost}
    deeper, unread = further_down(
        [each for each in problems if each.differs_from == places.get(_place(each))],
        marks,
        link=link.id,
        store=store,
        sides=partial(link_sides, clusters, link, store, left=record.left),
    )
    found = {_place(each): each for each in deeper.values()}
    return [found.get(_place(each), each) for each in problems], unread


def _place(problem: Problem) -> tuple[str, str, int | None]:
    """What a problem is about; there is one of each."""
    return problem.kind, problem.topic, problem.partition


def _ending_early(
    record: LinkRecord, logs: LogsSeen, problems: Sequence[Problem], at: datetime
) -> dict[TopicPartition, str]:
    """Why it isn't known what a source still holds whose log ends below what was mirrored, though no problem says so:
    a log that lost nothing doesn't get shorter."""
    told = {(each.topic, each.partition) for each in problems if each.differs_from is not None}
    return {
        tp: f"whether {record.link.id.source} still holds what was mirrored is not known: its log of {tp} ends at "
        f"{logs.source_end[tp]:,}, and was mirrored up to {mark.source_through:,}"
        for tp, mark in record.watermarks.items()
        if logs.source_end.get(tp, mark.source_through) < mark.source_through and _unwatched(record, mark, at)
        if not _named(tp, told)
    }


def _named(tp: TopicPartition, places: Collection[tuple[str, int | None]]) -> bool:
    """Whether a partition, or its whole topic, is among these."""
    return (tp.topic, tp.partition) in places or (tp.topic, None) in places


def _other_last_records(
    clusters: Clusters,
    record: LinkRecord,
    logs: LogsSeen,
    rows: MappingRows,
    marks: Sequence[Watermark],
    rewritten: Collection[TopicPartition],
) -> tuple[list[Problem], dict[TopicPartition, str]]:
    """As `_other_records`, by the last mirrored records of both sides, and, where that is all that can tell
    (`rewritten`), by what the source holds above them; not where others write to the target, too."""
    link = record.link
    there = {mark.tp: TopicPartition(link.target_topic(mark.topic), mark.partition) for mark in marks}
    seen = [
        replace(mark, target_start=logs.target_start[there[mark.tp]])
        for mark in marks
        if there[mark.tp] in logs.target_start
    ]
    if link.shares_target or not seen:
        return [], {}
    try:
        sides = link_sides(clusters, link, rows, left=record.left)
        found = compare_records(
            sides.source,
            sides.target,
            last_places(link.id, link.target_topic, seen, rows),
            seconds=_RECORDS_SECONDS,
            alteration=sides.alteration,
        )
        differ = found.differs_from()
        tail = unmirrored_tail(sides, [mark for mark in seen if mark.tp in rewritten and mark.tp not in differ])
    except (Unreachable, AuthenticationError, Refused, ConfigError) as error:
        return [], {mark.tp: error.what for mark in seen}
    unread = {place.tp: why for place, why in found.unread if place.tp not in differ} | tail.unread
    since = {mark.tp: mark.observed_at for mark in seen}
    problems = [other_records(link.id, tp, offset, since[tp]) for tp, offset in sorted(differ.items())]
    ids = link.id
    for tp, offset in sorted(tail.first.items()):
        reason = unmirrored_reason(ids.source, ids.target, tp, offset)
        problems.append(_set_back(ids, tp, reason, since[tp], tail.same_until[tp]))
    return problems, unread


def link_sides(clusters: Clusters, link: Link, rows: MappingRows, *, left: bool) -> LinkSides:
    """What both sides of a link are compared with. `left`: as `LinkSides.left`.

    Raises:
        ConfigError: one of its callables can't be imported here.
        Unreachable: a cluster doesn't answer.
    """
    source = clusters.admin(link.id.source, may_be_gone=True)
    target = clusters.admin(link.id.target, may_be_gone=True)
    alteration = _alteration(link, source, target)
    return LinkSides(link.id, source, target, link.target_topic, rows, alteration, link.committed, left)


def _alteration(link: Link, source: ClusterAdmin, target: ClusterAdmin) -> Alteration | None:
    """What the link changes in records, if anything. Raises as `link_sides`."""
    if not link.alters:
        return None
    from drkit.kafka.transform.record_transform import Alteration  # noqa: PLC0415 - loads librdkafka

    alteration = Alteration.named(link, f"link {link.id}")
    if link.marks:
        alteration.identify(source.cluster_id(), target.cluster_id())
    return alteration


def other_records(link: LinkId, tp: TopicPartition, offset: int, since: datetime) -> Problem:
    """The problem that what was mirrored of a partition isn't what its source holds."""
    reason = (
        f"{tp} on {link.source} holds another record at source offset {offset} than was mirrored to {link.target}: "
        f"{link.source} was restored from an older copy of its disks, or another program writes to {link.target}"
    )
    return _set_back(link, tp, reason, since)


def _set_back(link: LinkId, tp: TopicPartition, reason: str, since: datetime, first: int = 0) -> Problem:
    """The problem that a source holds other records than were mirrored, from source offset `first` on (0: unknown).
    `since`: when the mirror looked last; when it happened isn't known."""
    return Problem(
        FOREIGN_WRITER,
        tp.topic,
        tp.partition,
        reason,
        set_back_remedy(link, tp.topic),
        halted=True,
        since=since,
        unsure_from=first,
    )


def _unwatched(record: LinkRecord, mark: Watermark, at: datetime) -> bool:
    """Whether no mirror fetches this partition: none runs, it is paused, a problem halts it (its worker looks at the
    logs' ends only), or its worker hasn't checked it for long, or nobody knows when: the clocks differ by as much."""
    control = record.control
    held = control is not None and (control.direction is Direction.PAUSED or mark.topic in control.paused_topics)
    if held or not record.running or _named(mark.tp, record.halted):
        return True
    return abs((at - mark.observed_at).total_seconds()) > LOOKS_WITHIN_SECONDS


def _lost_topics(clusters: Clusters, record: LinkRecord, logs: LogsSeen, replaced: Problem | None) -> dict[str, bool]:
    """Topics (by the source's names) whose target isn't the one that the mirror wrote: `_DELETED`, or recreated. Topics
    that the source lacks, too, are left out. `replaced`: the target is another cluster.

    A list of all topics leaves out those that drkit's principal may not see: missing ones are requested by name.
    """
    ids, there = logs.target_ids, logs.source_topics
    if ids is None:
        return {}
    mine = {
        topic: state
        for topic, state in record.topics.items()
        if (state.target_topic_id or replaced) and not is_canary(topic) and (there is None or topic in there)
    }
    missing = sorted({state.target_topic for state in mine.values()} - ids.keys())
    denied: set[str] = set()
    try:
        named = clusters.admin(record.link.id.target, may_be_gone=True).topics(missing, denied=denied)
    except (Unreachable, AuthenticationError, Refused):
        named, denied = {}, set(missing)
    now_there = {**ids, **{name: info.topic_id for name, info in named.items()}}
    return {
        topic: _DELETED if state.target_topic not in now_there else _MADE_ANEW
        for topic, state in mine.items()
        if state.target_topic not in denied and now_there.get(state.target_topic) != state.target_topic_id
    }


def _hidden(
    clusters: Clusters, record: LinkRecord, logs: LogsSeen, problems: Sequence[Problem], at: datetime
) -> list[Problem]:
    """A problem for each mirrored topic that a source that answers doesn't list, unless a recorded one says so: it was
    deleted there, or drkit's principal may no longer see it, so that its current content is unknown."""
    if logs.source_topics is None:
        return []
    link, alias = record.link.id, record.link.id.source
    told = {problem.topic for problem in problems if problem.kind in {SOURCE_TOPIC_DENIED, *DELETED_ON_SOURCE}}
    mirrored = {tp.topic for tp in record.watermarks if record.link.covers_topic(tp.topic)}
    absent = sorted(mirrored - told - set(logs.source_topics))
    denied: set[str] = set()
    try:
        admin = clusters.admin(alias, may_be_gone=True)
        found = admin.topics(absent, denied=denied)
        gone = admin.absent_everywhere(set(absent) - denied - found.keys())
    except (Unreachable, AuthenticationError, Refused):
        return []
    hidden = [
        Problem(
            SOURCE_TOPIC_DENIED,
            topic,
            None,
            f"drkit can't see {topic} on {alias}: its current content is unknown",
            f"Grant drkit's principal DESCRIBE on {topic} on {alias}",
            halted=True,
            since=at,
        )
        for topic in sorted(denied)
    ]
    deleted = [
        Problem(
            SOURCE_TOPIC_DELETED,
            topic,
            None,
            *source_topic_deleted(link, topic, by_mirror=record.link.mirrors_deletions and _is_drkits(record, topic)),
            halted=False,
            since=at,
        )
        for topic in sorted(gone)
    ]
    return hidden + deleted


def _is_drkits(record: LinkRecord, topic: str) -> bool:
    state = record.topics.get(topic)
    return state is not None and state.created_by_drkit


def source_topic_deleted(link: LinkId, topic: str, *, by_mirror: bool = False) -> tuple[str, str]:
    """What to say of a topic that is no longer on the source, and what to do. `by_mirror`: a mirror deletes it."""
    if by_mirror:
        return (
            f"{topic} was deleted on {link.source}; on {link.target} it stays until a mirror has looked",
            f"`drkit mirror --link '{link}'` deletes it there too, or says what keeps it",
        )
    return (
        f"{topic} was deleted on {link.source}; on {link.target} it stays",
        "Delete it there by hand if nobody needs it",
    )


def made_anew(
    clusters: Clusters, store: Store, record: LinkRecord, logs: LogsSeen, problems: Sequence[Problem], at: datetime
) -> list[Problem]:
    """A problem for each topic whose target isn't the mirror's, unless a recorded one says so; arguments as
    `problems_now`'s."""
    replaced = _replaced_target(store, record, logs, at)
    return _problems_of(store, record, _lost_topics(clusters, record, logs, replaced), problems, at, replaced)


def _problems_of(
    store: Store,
    record: LinkRecord,
    lost: Mapping[str, bool],
    problems: Sequence[Problem],
    at: datetime,
    replaced: Problem | None,
) -> list[Problem]:
    """A problem for each lost topic without a recorded one that says as much. `replaced`: as in `_lost_topics`."""
    told = {problem.topic for problem in problems if problem.kind in RECREATED}
    untold = sorted(lost.keys() - told)
    if not untold:
        return []
    # a running mirror may have recreated one on request since the record was read
    kept = store.topic_states(record.link.id)
    same = [
        topic for topic in untold if topic in kept and _incarnation(kept[topic]) == _incarnation(record.topics[topic])
    ]
    if replaced is not None:
        return [replace(replaced, kind=TARGET_RECREATED, topic=topic) for topic in same]
    return [target_recreated(record.link.id, record.topics[topic], deleted=lost[topic], at=at) for topic in same]


def _incarnation(state: TopicState) -> tuple[int, str]:
    return state.epoch, state.target_topic_id


def target_recreated(link: LinkId, state: TopicState, *, deleted: bool, at: datetime) -> Problem:
    """The problem that a topic on the target was deleted or recreated."""
    where = f"{state.target_topic} on {link.target}"
    return Problem(
        TARGET_RECREATED,
        state.topic,
        None,
        f"{where} was deleted" if deleted else f"{where} was deleted and recreated, not by drkit",
        f"Find out who did it; then `drkit link resume '{link}' --topic {state.topic} --accept-recreated` mirrors the "
        "topic from its start again",
        halted=True,
        since=at,
    )

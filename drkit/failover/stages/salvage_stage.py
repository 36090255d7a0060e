"""The stage that salvages what only the old primary holds, and detects later whether that is still everything.

A salvage compares both logs. Their state when it began (log ends, the last records, the live topic's id and bounds,
committed offsets) is journaled with it: if any of that has changed before the scrub, the salvage is repeated. The last
records show what log ends and ids hide: a cluster that is restored from an older copy of its disks, and grows to the
same ends, holds other records below them. Where the live cluster's cleaner works, the very last one has to be the same:
a log loses records at its end only, and what the cleaner takes below has a newer record of its key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from drkit.failover.context.interfaces import Salvaged
from drkit.failover.context.live_log import LiveLog, TopicKept
from drkit.failover.context.state_machine import Facts, StageOutcome
from drkit.failover.failback.carried_offsets import carried, documents, mappings_of, offsets_digest
from drkit.failover.failback.failback_snapshot import live_logs, mapped_topics, not_accepted, with_gaps_now
from drkit.failover.failback.lost_tail import live_batches
from drkit.failover.fencing.quiescence import differing, still_written
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.plan.shared_preconditions import rows_in_doubt
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.failover.stages.stage import StageContext, StageReport
from drkit.kafka.client.record_probe import LogPosition
from drkit.kafka.groups.group_admin import CommittedOffset, GroupAdmin
from drkit.lag.last_records import TAIL_OFFSETS
from drkit.model.errors import DrkitError, FolderUnusable, Refused
from drkit.model.runs import ACCEPT_SALVAGE_ONLY
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted

_TAIL_SECONDS = 120.0

WRITTEN = "it was written after it was salvaged"
UNREAD = "its last records can't be read in time"
UNREPLICATED = "records at its end aren't replicated yet, so nobody can read them"
CLEANED = (
    "its last record on the live cluster is another one, or gone, than when it was salvaged (the log cleaner removes "
    "records whose key is written again)"
)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Keep what only the old primary holds. `inherited`: committed offsets that an abandoned run kept and deleted."""

    cluster: str
    cluster_id: str
    live: str
    topics: tuple[ScrubTopic, ...]
    level: bool = False
    inherited: tuple[PlannedPosition, ...] = ()
    name: str = "salvage"

    def explain(self) -> str:
        """What it will do."""
        if self.level:
            return f"nothing to keep: nothing is deleted on {self.cluster}"
        if not self.topics:
            return f"nothing to keep: {self.cluster} has no topic of the link"
        count = sum(topic.only_here for topic in self.topics)
        return (
            f"compare both logs of {counted(len(self.topics), 'topic')} and keep every record that {self.live} doesn't "
            f"hold ({counted(count, 'offset')} by what is known now), as Parquet and in a replayable form, and all "
            "committed offsets"
        )

    def execute(self, context: StageContext) -> StageReport:
        """Write them out."""
        check_cluster(context, self.cluster, self.cluster_id)
        with suppress(Refused):  # another cluster is there: the failover's loss can't be counted any more
            complete_evidence(context.estate, context.link.reversed())
        if self.inherited and not context.carried:
            context.establish(context.facts, self.inherited)
            context = replace(context, carried=self.inherited)
        if self.level or not self.topics:
            facts = replace(context.facts, salvaged=0)
            return StageReport(StageOutcome.SKIPPED, f"nothing is deleted on {self.cluster}", facts)
        facts, _, said = keep(context, self.cluster, self.live, self.topics)
        said += refuse_gaps(context, self.live, self.topics, facts)
        return StageReport(StageOutcome.OK, said, facts)


def keep(
    context: StageContext, cluster: str, live: str, topics: Sequence[ScrubTopic]
) -> tuple[Facts, tuple[PlannedPosition, ...], str]:
    """Salvage what only the old primary holds of these topics; facts and carried offsets, journaled, and what was done.

    It uses a new folder: an earlier attempt's is never overwritten.

    Raises:
        Refused: the last records can't be read in time, the topics are still written, or open transactions hide
            records.
        FolderUnusable: the folder can't be written.
        DrkitError: the salvage is incomplete.
    """
    names = {topic.topic: topic for topic in topics}
    seen = topics_at_salvage(context, cluster, live, topics)
    _refuse_cut(context, cluster, topics, seen)
    if unread := [f"{name} ({at.unread})" for name, at in seen.items() if at.unread]:  # a salvage may take hours
        raise Refused(
            f"the last records of {and_more(unread)} can't be read in {_TAIL_SECONDS:g} s",
            meaning="They show later whether both logs still hold what was salvaged: without them nothing is deleted",
            remedy=f"Check that all brokers of {cluster} and {live} answer, and how busy they are; then try again",
        )
    batches = live_batches(context.estate.admin(live), {names[name].live_topic: at.live for name, at in seen.items()})
    offsets = committed_on(context.estate.groups(cluster), names)
    configured = context.link.reversed()
    in_doubt = rows_in_doubt(context.estate, configured)
    mappings = mappings_of(context.estate.store, configured.id, mapped_topics(topics), in_doubt)
    again = {topic.topic: topic for topic in with_gaps_now(context.estate, live, topics, mappings)}
    fresh = carried(mappings, offsets, again)
    out = free_folder(context.salvage_folder)
    try:
        kept = context.required_ports.salvager.salvage(
            context.link.reversed(), sorted(names), documents(offsets, fresh), out, context.say
        )
    except FolderUnusable as error:
        raise FolderUnusable(
            error.what,
            meaning=f"Records that only {cluster} holds can't be kept there, so nothing is deleted",
            remedy="Make room there, or give --salvage-dir DIR on a disk with room",
        ) from error
    now_there = {str(tp): end for tp, end in ends_now(context, cluster, topics).items()}
    moved = differing(_written(seen), now_there)
    if moved:
        raise still_written(cluster, moved)
    if kept.incomplete:
        raise Refused(
            and_more(kept.incomplete, separator="; "),
            meaning="What nobody has compared isn't deleted",
            remedy=f"Check that all brokers of {cluster} are up and list these topics to drkit's principal (DESCRIBE); "
            "then try again",
        )
    if kept.unreadable:
        raise Refused(
            f"{cluster} can't be read at {and_more(unreadable_places(kept))}: batches there fail their checksum, "
            "or the broker can't find them",
            meaning="They can't be compared or kept; a scrub would delete the last copy. (A topic that was compacted "
            "once, and isn't now, has such gaps without any loss)",
            remedy="Restore these partitions from a readable replica or backup (the rest is kept in "
            f"{kept.path}), or delete the topics on {cluster} yourself if they may be lost; then try again",
        )
    if kept.uncommitted:
        where = [f"{place} up to {end:,}" for place, end in sorted(kept.uncommitted.items())]
        raise Refused(
            f"transactions are still open on {cluster}: {and_more(where)}",
            meaning="Records after their first one can't be read yet, and would be deleted unread",
            remedy="Wait until they are over (transaction.timeout.ms, 15 minutes at most by default), then try again. "
            "One that stays hangs: kafka-transactions.sh describe shows its state. If that is PrepareCommit, it was "
            "committed: restart the broker that coordinates it. Another one may be ended: kafka-transactions.sh abort",
        )
    made = {
        name: TopicKept(
            kept.path,
            kept.records.get(name, 0),
            at.ends,
            at.live,
            at.offsets,
            at.tails,
            batches.get(names[name].live_topic, {}),
        )
        for name, at in seen.items()
    }
    everything = {**context.facts.kept, **made}
    facts = replace(
        context.facts,
        kept=everything,
        salvaged=sum(each.records for each in everything.values()),
        salvage_path=kept.path,
    )
    again_there = {(each.group, each.target_topic, each.partition) for each in fresh}
    others = [each for each in context.carried if (each.group, each.target_topic, each.partition) not in again_there]
    carry = (*others, *fresh)
    context.establish(facts, carry)
    records = sum(kept.records.values())
    return (
        facts,
        carry,
        f"{counted(records, 'record')} and {counted(len(offsets), 'committed offset')} are kept in {kept.path}",
    )


def _refuse_cut(
    context: StageContext, cluster: str, topics: Sequence[ScrubTopic], seen: Mapping[str, TopicAtSalvage]
) -> None:
    """Raise `Refused` where logs of the old primary end earlier than for the plan, or than an earlier salvage saw: what
    it then keeps is less than was planned."""
    lost: dict[TopicPartition, int] = {}
    for topic in topics:
        before = context.facts.kept.get(topic.topic)
        for number, end in seen[topic.topic].ends.items():
            known = max(topic.ends.get(number, 0), 0 if before is None else before.ends.get(number, 0))
            if end < known:
                lost[TopicPartition(topic.topic, number)] = known - end
    if lost:  # of topics that somebody has made anew nothing is deleted
        here = context.estate.admin(cluster).topics([topic.topic for topic in topics])
        same = {each.topic for each in topics if each.topic in here and here[each.topic].topic_id == each.topic_id}
        lost = {tp: count for tp, count in lost.items() if tp.topic in same}
    if not lost:
        return
    places = [f"{place} ({count:,})" for place, count in sorted(lost.items())]
    paths = sorted({each.path for each in context.facts.kept.values()})
    earlier = f"; what was kept of them before is in {and_more(paths)}" if paths else ""
    again = "a new plan counts what is left: drkit failback"
    raise Refused(
        f"{cluster} has lost {counted(sum(lost.values()), 'offset')} at the end of its logs since the failback was "
        f"planned: {and_more(places)}",
        meaning=f"A salvage would hold so many records less than the plan says{earlier}; none of these topics is "
        "deleted",
        remedy=f"Find out why {cluster} lost them (an older copy of its disks, an unclean leader election). "
        + (
            f"If it gets them back: drkit resume {context.run}. If they are gone for good: drkit abandon "
            f"{context.run}; then {again}"
            if paths  # else the run is cancelled now
            else f"Then {again}"
        ),
    )


@dataclass(frozen=True, slots=True)
class TopicAtSalvage:
    """A topic of the old primary at one moment: its log ends, the live cluster's log, a digest of committed offsets,
    and one of the last records of both logs. `compacted`: whether the live cluster's cleaner works there. `unread`: why
    not all of these records were read in time; the digest then shows nothing.
    """

    ends: dict[int, int]
    live: LiveLog
    offsets: str
    tails: str
    compacted: bool = False
    unread: str = ""


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last records of a topic's log: their digests by partition, why not all were read in time, and the partitions
    that have any there."""

    digests: dict[int, str]
    unread: str
    held: frozenset[int]

    def __str__(self) -> str:
        return ",".join(f"{number}:{digest}" for number, digest in sorted(self.digests.items()))


def topics_at_salvage(
    context: StageContext,
    cluster: str,
    live: str,
    topics: Sequence[ScrubTopic],
    earlier: Mapping[str, TopicKept] | None = None,
) -> dict[str, TopicAtSalvage]:
    """The current state of these topics on both clusters.

    `earlier`: salvages to compare with; the live cluster's last records are then those below its log ends of that time,
    as its clients write.
    """
    ends: dict[str, dict[int, int]] = {topic.topic: {} for topic in topics}
    for tp, end in ends_now(context, cluster, topics).items():
        ends[tp.topic][tp.partition] = end
    logs = live_logs(context.estate.admin(live), topics)
    tails = _tails(context, cluster, ends)
    live_names = {topic.topic: topic.live_topic for topic in topics}
    live_ends = {
        live_names[name]: (earlier[name].live if earlier is not None and name in earlier else logs[name]).ends
        for name in ends
    }
    compacted = context.estate.admin(live).compacted(sorted(live_ends))
    live_tails = _tails(context, live, live_ends, compacted)
    offsets = committed_on(context.estate.groups(cluster), ends)  # last: nothing keeps them from changing
    return {
        name: TopicAtSalvage(
            of,
            logs[name],
            offsets_digest(each for each in offsets if each.topic == name),
            f"{_digest(str(tails[name]))} {live_tails[live_names[name]]}",
            live_names[name] in compacted,
            tails[name].unread or live_tails[live_names[name]].unread,
        )
        for name, of in ends.items()
    }


def _tails(
    context: StageContext, alias: str, ends: Mapping[str, Mapping[int, int]], compacted: Collection[str] = ()
) -> dict[str, _Tail]:
    """By topic, the last records below these log ends, markers of transactions included; of `compacted` ones, the very
    last of each partition. Why one can't be read is part of it, unless that says nothing about the log."""
    places = {
        name: [
            LogPosition(TopicPartition(name, number), offset)
            for number, end in sorted(of.items())
            for offset in range(max(0, end - TAIL_OFFSETS), end)
        ]
        for name, of in ends.items()
    }
    seen = context.estate.admin(alias).probe_records(
        [place for each in places.values() for place in each], seconds=_TAIL_SECONDS, control=True
    )

    def held(place: LogPosition) -> object:
        """The record there; not what comes behind it, which clients may have written since."""
        found = seen[place]
        if found.offset is None:
            return found.reason
        if found.offset != place.offset:
            return None
        return found.timestamp, found.crc, found.producer_id, found.marker_epoch

    tails = {}
    for name, wanted in places.items():
        there = [(place.tp.partition, place.offset, held(place)) for place in wanted]
        if name in compacted:
            last = {number: (number, offset, found) for number, offset, found in there if found is not None}
            there = list(last.values())
        late = next((f"on {alias}: {seen[place].reason}" for place in wanted if seen[place].late), "")
        having = frozenset(number for number, _, found in there if isinstance(found, tuple))
        records: dict[int, list[object]] = {number: [] for number in ends[name]}
        for each in there:
            records[each[0]].append(each)
        tails[name] = _Tail({number: _digest(repr(each)) for number, each in records.items()}, late, having)
    return tails


def _digest(text: str) -> str:
    """Short, as a run keeps one of each partition."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_last_records(context: StageContext, live: str, kept: Mapping[str, TopicKept]) -> set[TopicPartition]:
    """Partitions of these topics, by their names on the live cluster, that still hold the records there that were the
    last ones when they were kept: so they hold, too, what was below and no cleaner or retention has removed."""
    if not kept:
        return set()
    compacted = context.estate.admin(live).compacted(sorted(kept))
    tails = _tails(context, live, {name: each.live.ends for name, each in kept.items()}, compacted)
    return {
        TopicPartition(name, number)
        for name, tail in tails.items()
        for before in (kept[name].tails.partition(" ")[2].split(","),)
        for number in tail.held  # what is not read in time is no record that was kept
        if f"{number}:{tail.digests[number]}" in before
    }


def unreadable_salvages(context: StageContext, facts: Facts, topics: Iterable[str]) -> dict[str, str]:
    """Salvages of these topics that can't be read back, with reasons, by path. Reads them completely."""
    unreadable: dict[str, str] = {}
    for path in sorted({facts.kept[name].path for name in topics if name in facts.kept}):
        try:
            context.required_ports.salvager.check(path)
        except DrkitError as error:
            unreadable[path] = error.what
    return unreadable


def stale(facts: Facts, unreadable: Mapping[str, str], now: Mapping[str, TopicAtSalvage]) -> dict[str, str]:
    """Topics whose salvage is no longer complete, or can't be read back; the reason by topic."""
    found = {}
    for name, seen in now.items():
        kept = facts.kept.get(name)
        if kept is None:
            found[name] = "it isn't salvaged"
        elif kept.path in unreadable:
            found[name] = f"its salvage can't be read back: {unreadable[kept.path]}"
        elif kept.ends != seen.ends:
            found[name] = WRITTEN
        elif seen.unread:
            found[name] = f"{UNREAD}: {seen.unread}"
        elif kept.tails != seen.tails:
            why = "its last records, or the live cluster's, are others than when it was salvaged"
            found[name] = CLEANED if seen.compacted else why
        elif not seen.live.holds_all_of(kept.live):
            found[name] = "the live cluster no longer holds what it held when it was salvaged"
        elif kept.offsets != seen.offsets:
            found[name] = "groups have committed on it after it was salvaged"
    return found


def refuse_gaps(context: StageContext, live: str, topics: Sequence[ScrubTopic], facts: Facts) -> str:
    """Raise `Refused` if the live cluster now lacks mirrored records of a topic, and nobody accepted just that; what it
    lacks is journaled, so that a resume accepts this. A clause about what was accepted."""
    mappings = mappings_of(context.estate.store, context.link.id.reversed(), mapped_topics(topics))
    found = [topic for topic in with_gaps_now(context.estate, live, topics, mappings) if topic.gap]
    gaps = not_accepted(context.estate.admin(live), found, facts.salvage_only)
    if not gaps:
        accepted = and_more([f"{topic.live_topic} {topic.gap}" for topic in found])
        return f"; in the salvage only: on {live}, {accepted}" if found else ""
    named = [f"{topic.live_topic} {topic.gap} ({counted(topic.only_here, 'offset')})" for topic in gaps]
    context.establish(replace(facts, asked=tuple(topic.lacking for topic in gaps)), context.carried)
    raise Refused(
        f"on {live}, {and_more(named)}",
        meaning=f"After a failback these records would be in the salvage only ({facts.salvage_path})",
        remedy=f"Put them back on {live}, or give {ACCEPT_SALVAGE_ONLY}",
    )


def unreadable_places(kept: Salvaged) -> list[str]:
    """What the salvage could not read of its source, in words."""
    return [
        f"{place} from offset {first} to {until - 1}"
        for place, ranges in sorted(kept.unreadable.items())
        for first, until in ranges
    ]


def committed_on(groups: GroupAdmin, topics: Iterable[str]) -> list[CommittedOffset]:
    """Committed offsets of all groups on these topics, of any link."""
    names = set(topics)
    listed = [name for name, info in groups.list_groups().items() if info.commits_offsets]
    return [found for found in groups.committed(listed) if found.topic in names]


def check_cluster(context: StageContext, alias: str, cluster_id: str) -> None:
    """Raise `Refused` unless the cluster behind the alias is the one that was confirmed."""
    found = context.estate.admin(alias).cluster_id()
    if found != cluster_id:
        raise Refused(
            f"{alias} is cluster {found}, not {cluster_id}",
            meaning="The address leads to another cluster than the confirmed one; nothing there is changed",
            remedy=f"Correct bootstrap_servers of {alias} in the configuration",
        )


def ends_now(
    context: StageContext, alias: str, topics: Iterable[ScrubTopic], *, replicated: bool = True
) -> dict[TopicPartition, int]:
    """The log ends of these topics on a cluster, including partitions added since the plan: the high watermarks, or
    (`replicated=False`) those of the leaders' logs: a client may have been acknowledged what isn't replicated yet."""
    admin = context.estate.admin(alias)
    planned = {topic.topic: topic.partitions for topic in topics}
    found = {name: info.partitions for name, info in admin.topics(planned).items()}
    tps = [
        TopicPartition(name, partition)
        for name, count in planned.items()
        for partition in range(max(count, found.get(name, 0)))
    ]
    return admin.end_offsets(tps, committed=False) if replicated else admin.log_ends(tps)


def _written(seen: Mapping[str, TopicAtSalvage]) -> dict[str, int]:
    return {str(TopicPartition(name, number)): end for name, at in seen.items() for number, end in at.ends.items()}


def free_folder(folder: Path) -> Path:
    """The folder, or the first numbered variant that doesn't exist yet."""
    number = 1
    free = folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free

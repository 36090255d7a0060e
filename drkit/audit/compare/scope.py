"""The scope of an audit: both sides' offsets, and the places of records, observed once at the start.

The order of the observations matters while the mirror runs: the watermarks are read before the target's ends, and these
before the source's. So records below a watermark are read on the target, and each record read on the target has its
original within the range read on the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from drkit.audit.compare.offset_zones import Zone, nominal, place, source_of, zones
from drkit.audit.compare.target_removals import removed_records
from drkit.audit.read.log_source import reached
from drkit.config import Config
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.admin.logs.leader_epochs import kept_offsets
from drkit.kafka.client.record_probe import LogPosition, OffsetRange
from drkit.kafka.transform.record_transform import configured_at
from drkit.kafka.transform.transformed_reader import packed_alteration
from drkit.lag.batch_comparison import held_below
from drkit.model.audit.audit_result import ANY_AGE, AuditRequest, PlacementBasis, TopicChoice
from drkit.model.clock import now, to_millis
from drkit.model.digests import RangeDigest
from drkit.model.errors import ConfigError, DrkitError
from drkit.model.link_state import Problem, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topics.removing import is_compacted
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import check_source_cluster, check_target_cluster

_MARGIN = 1_000
"""Offsets read before a time window's first, so that a record moved a little is still met."""

NOTHING_HIDDEN = OffsetRange(0, 0)

_TIMEOUT_SECONDS = 15.0


class LogStart(NamedTuple):
    """Where a partition's log begins (0 where there is none), and the id of its topic (None: there is none)."""

    topic_id: str | None
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """One partition: what is read of it on each side, and what is known of it.

    `number` names it in DataFrames. `source_start`, `target_start` are the logs' starts, and
    `source_from`, `target_from` where reading begins (the same unless a time window is asked for).
    `first_place`: the first target offset that stands for a source record. `earlier_until`: target
    offsets below it may stand for records of an earlier topic of this name on the source. `digests`: what the mirror
    kept of ranges that it forwarded, where they are asked for. `source_held`: below this offset the source surely still
    holds what these were made of. `purged`: ranges of source offsets that were removed from the target, and that no
    retention explains (`target_removals.py`). `hidden`, `source_hidden`: offsets [first, until) of the target and of
    the source behind an open transaction, which readers of committed records don't get; `source_hidden_since`: the
    timestamp (ms) of the first record there, where an age was asked for and it could be read. `source_id`, `target_id`:
    Kafka's ids of both topics; None where there is none. `compaction_explains`: what the target lacks may be what its
    cleaner took rightly: the source is compacted too, the link's policy says so, or it is failed over. Else what
    consumers of the source read was lost.
    """

    number: int
    topic: str
    target_topic: str
    partition: int
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    source_from: int
    target_from: int
    zones: tuple[Zone, ...]
    basis: PlacementBasis
    first_place: int
    mirrored_through: int | None
    sealed_at: int | None
    earlier_until: int | None
    source_compacted: bool
    target_compacted: bool
    compaction_explains: bool = False
    digests: tuple[RangeDigest, ...] = ()
    source_held: int = 0
    target_anew: bool = False
    partial: bool = False
    told: tuple[tuple[int, int], ...] = ()
    purged: tuple[tuple[int, int], ...] = ()
    hidden: OffsetRange = NOTHING_HIDDEN
    source_hidden: OffsetRange = NOTHING_HIDDEN
    source_hidden_since: int | None = None
    source_id: str | None = None
    target_id: str | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition, by its source topic."""
        return TopicPartition(self.topic, self.partition)

    @property
    def by_content_only(self) -> bool:
        """Whether there is something to compare, and no mapping that says where it belongs."""
        something = self.source_end > self.source_start or self.target_end > self.target_start
        return something and self.basis is PlacementBasis.CONTENT

    @property
    def starts(self) -> tuple[LogStart, LogStart]:
        """Where the log begins on the source and on the target."""
        return LogStart(self.source_id, self.source_start), LogStart(self.target_id, self.target_start)

    @property
    def start_place(self) -> int:
        """The place of the source's log start: below it stands what the source no longer has."""
        return place(self.zones, self.source_start)


@dataclass(frozen=True, slots=True)
class Scope:
    """All that an audit compares. `source_cluster`, `target_cluster`: how to reach both sides (they hold secrets).
    `incomplete`: what can't be compared, and why, in words. `alteration`: what the link does to records, packed."""

    link: Link
    partitions: tuple[PartitionScope, ...]
    source_cluster: ClusterConfig = field(repr=False)
    target_cluster: ClusterConfig = field(repr=False)
    since_ms: int | None
    until_ms: int | None
    observed_at: datetime
    notes: tuple[str, ...]
    by_digest: bool = False
    incomplete: tuple[str, ...] = ()
    alteration: Mapping[str, Any] | None = None

    @property
    def asks_callables(self) -> bool:
        """Whether callables of the user's decide what is on the target."""
        return self.alteration is not None and bool(self.alteration["filter"] or self.alteration["transform"])

    def source_reached(self) -> dict[str, Any]:
        """How tasks read the source (`log_source.reached`): what the link mirrors, as it is on the target. What the
        link wrote is committed in any case, its source's records where it mirrors committed ones only."""
        return reached(
            self.link.id.source,
            self.source_cluster,
            committed=self.link.committed,
            dense={each.topic for each in self.partitions if not each.source_compacted},
            alteration=self.alteration,
        )

    def target_reached(self) -> dict[str, Any]:
        """How tasks read the target."""
        dense = {each.target_topic for each in self.partitions if not each.target_compacted}
        return reached(self.link.id.target, self.target_cluster, dense=dense)

    @property
    def offsets(self) -> int:
        """How many offsets there are to read, on both sides."""
        return sum(each.source_end - each.source_from + each.target_end - each.target_from for each in self.partitions)

    def within(self, stamp: int) -> bool:
        """Whether a timestamp (ms) is in the time window."""
        return (self.since_ms is None or stamp >= self.since_ms) and (self.until_ms is None or stamp < self.until_ms)

    def starts(self) -> list[LogStart]:
        """Where logs begin on both sides, to see whether retention moved them, or a topic was deleted or recreated."""
        return [start for each in self.partitions for start in each.starts]


def observe_scope(request: AuditRequest, store: Store, config: Config) -> Scope:
    """Look at both clusters and the store.

    Raises:
        ConfigError: a topic or partition asked for exists on neither side.
        Unreachable: a cluster or the store doesn't answer.
    """
    link = request.link
    source_cluster, target_cluster = config.clusters[link.id.source], config.clusters[link.id.target]
    control = store.link_control(link.id)
    states = store.topic_states(link.id)
    watermarks = store.watermarks(link.id)
    digests = _digests(request, store, watermarks) if request.from_digests else {}
    with (
        ClusterAdmin(link.id.target, target_cluster, timeout_seconds=_TIMEOUT_SECONDS) as target_admin,
        ClusterAdmin(link.id.source, source_cluster, timeout_seconds=_TIMEOUT_SECONDS) as source_admin,
    ):
        ids = source_admin.cluster_id(), target_admin.cluster_id()
        if not link.inverse:  # nothing is said of what other clusters hold
            check_source_cluster(store, link.id, ids[0])
            check_target_cluster(store, link, ids[1])
        on_source = source_admin.topics()
        chosen = _chosen_topics(link, request.topics, on_source, states)
        target = _Side.of(
            target_admin, {link.target_topic(topic) for topic in chosen}, request, committed=True, all_ends=True
        )
        source = _Side.of(source_admin, chosen, request, committed=link.committed, all_ends=link.committed)
        since = _hidden_since(source_admin, source) if request.unseen_since not in {None, ANY_AGE} else {}
        held = source_held(link.id, store, source_admin, source, digests, watermarks)
        differing = differing_from(link.id, store, source_admin, watermarks, source.starts)
        sealed = control is not None and not control.direction.serves_source
        builder = _ScopeBuilder(
            link, store, states, watermarks, digests, held, differing, source, since, target, sealed=sealed
        )
        for topic, partitions in chosen.items():
            builder.add_topic(topic, partitions)
        removed = removed_records(
            link, store, control, states, watermarks, builder.partitions, source_admin, target_admin
        )
    return Scope(
        link=link,
        partitions=tuple(replace(each, purged=removed.get(each.number, ())) for each in builder.partitions),
        source_cluster=source_cluster,
        target_cluster=target_cluster,
        since_ms=None if request.since is None else to_millis(request.since),
        until_ms=None if request.until is None else to_millis(request.until),
        observed_at=now(),
        notes=tuple(builder.notes),
        by_digest=request.from_digests,
        incomplete=tuple(builder.incomplete) if chosen else (_nothing_covered(link),),
        alteration=packed_alteration(link, configured_at(config, link), *ids) if link.alters else None,
    )


def refuse_unknown_topics(
    link: Link, choices: Sequence[TopicChoice], store: Store, source_cluster: ClusterConfig
) -> None:
    """Raise `NoSuchTopics` where some of the choices name no topic of the link."""
    with ClusterAdmin(link.id.source, source_cluster, timeout_seconds=_TIMEOUT_SECONDS) as admin:
        _chosen_topics(link, choices, admin.topics(), store.topic_states(link.id))


def _hidden_since(admin: ClusterAdmin, source: _Side) -> dict[TopicPartition, int | None]:
    """The timestamp (ms) of the first record behind each open transaction's beginning; None where it can't be read."""
    places = {tp: LogPosition(tp, hidden.begin) for tp in source.ends for hidden in (source.hidden(tp),) if any(hidden)}
    seen = admin.probe_records(places.values(), seconds=_TIMEOUT_SECONDS) if places else {}
    return {tp: seen[place].timestamp for tp, place in places.items()}


def _nothing_covered(link: Link) -> str:
    return (
        f"the topics of {link.id} match none on {link.id.source}, and none that was mirrored is recorded: nothing was "
        "compared"
    )


def log_starts(scope: Scope, config: Config) -> list[LogStart]:
    """Where logs begin now, in the order of `Scope.starts`."""
    link = scope.link.id
    source = _starts(config, link.source, [each.tp for each in scope.partitions])
    target = _starts(
        config,
        link.target,
        [TopicPartition(each.target_topic, each.partition) for each in scope.partitions],
    )
    return [start for both in zip(source, target, strict=True) for start in both]


def _starts(config: Config, alias: str, tps: Sequence[TopicPartition]) -> list[LogStart]:
    with ClusterAdmin(alias, config.clusters[alias], timeout_seconds=_TIMEOUT_SECONDS) as admin:
        starts = admin.start_offsets(tps)
        topics = admin.topics({tp.topic for tp in tps})
    ids = {name: info.topic_id for name, info in topics.items()}
    return [LogStart(ids.get(tp.topic), starts.get(tp, 0)) for tp in tps]


def _digests(
    request: AuditRequest, store: Store, watermarks: Mapping[TopicPartition, Watermark]
) -> dict[TopicPartition, tuple[RangeDigest, ...]]:
    """The range digests of what is audited, read as early as the watermarks that they were written with."""
    return {
        tp: tuple(store.range_digests(request.link.id, tp, mark.epoch))
        for tp, mark in watermarks.items()
        if not request.topics or any(choice.covers(*tp) for choice in request.topics)
    }


class NoSuchTopics(ConfigError):
    """Choices that name no topic of a link; another link may have them."""

    def __init__(self, link: LinkId, choices: Sequence[TopicChoice], covered: Sequence[str]) -> None:
        known = ", ".join(covered[:10]) + (" …" if len(covered) > 10 else "")  # noqa: PLR2004 - enough to recognise
        super().__init__(
            f"--topic {choices[0].topic}: the link {link} has no such topic",
            remedy=f"Its topics are: {known}" if covered else "The link covers no topic that exists on its source",
        )
        self.choices = frozenset(choices)


def choices_by_link(
    links: Sequence[Link], choices: Sequence[TopicChoice], store: Store, config: Config
) -> dict[LinkId, tuple[TopicChoice, ...]]:
    """What each of several links has of the choices; without links that have none of them. A link whose source doesn't
    answer keeps all.

    Raises:
        NoSuchTopics: no link has one of them.
    """
    found = {link.id: tuple(choices) for link in links}
    if not choices or len(links) == 1:
        return found
    refused: dict[LinkId, NoSuchTopics] = {}
    for link in links:
        try:
            refuse_unknown_topics(link, choices, store, config.clusters[link.id.source])
        except NoSuchTopics as error:
            refused[link.id] = error
            found[link.id] = tuple(each for each in choices if each not in error.choices)
        except DrkitError:
            continue
    for choice in choices:
        if not any(choice in some for some in found.values()):
            raise next(error for error in refused.values() if choice in error.choices)
    return {link: some for link, some in found.items() if some}


def _chosen_topics(
    link: Link, choices: Iterable[TopicChoice], on_source: Mapping[str, TopicInfo], states: Mapping[str, TopicState]
) -> dict[str, frozenset[int] | None]:
    covered = sorted({name for name in (*on_source, *states) if link.covers_topic(name)})
    named = {choice: [topic for topic in covered if choice.names(topic)] for choice in choices}
    if unknown := [choice for choice, topics in named.items() if not topics]:
        raise NoSuchTopics(link.id, unknown, covered)
    wanted: dict[str, frozenset[int] | None] = {}
    for choice, topics in named.items():
        for topic in topics:
            before = wanted.get(topic, frozenset())
            wanted[topic] = None if before is None or choice.partitions is None else before | choice.partitions
    return wanted or dict.fromkeys(covered)


@dataclass(frozen=True, slots=True)
class _Side:
    """One cluster: its topics, their logs' bounds and clean-up policies."""

    topics: Mapping[str, TopicInfo]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    since: Mapping[TopicPartition, int | None]
    compacted: frozenset[str]
    watermarks: Mapping[TopicPartition, int]

    @classmethod
    def of(
        cls,
        admin: ClusterAdmin,
        names: Iterable[str],
        request: AuditRequest,
        *,
        committed: bool,
        all_ends: bool = False,
    ) -> _Side:
        """Look at a cluster; `all_ends`: at high watermarks, too."""
        topics = admin.topics(sorted(names))
        tps = [TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)]
        watermarks = admin.end_offsets(tps, committed=False) if all_ends else {}  # first: they only rise
        ends = admin.end_offsets(tps, committed=committed)
        starts = admin.start_offsets(tps)
        since = {} if request.since is None else admin.offsets_for_times(dict.fromkeys(tps, to_millis(request.since)))
        return cls(topics, starts, ends, since, frozenset(admin.compacted(topics)), watermarks)

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """Log start and end; nothing where the partition isn't there."""
        if tp not in self.ends or tp not in self.starts:
            return 0, 0
        return self.starts[tp], max(self.starts[tp], self.ends[tp])

    def hidden(self, tp: TopicPartition) -> OffsetRange:
        """What stands behind an open transaction."""
        end, watermark = self.ends.get(tp, 0), self.watermarks.get(tp, 0)
        return OffsetRange(end, watermark) if end < watermark else NOTHING_HIDDEN

    def topic_id(self, name: str) -> str | None:
        """Kafka's id of a topic; None where there is none."""
        return self.topics[name].topic_id if name in self.topics else None

    def window_start(self, tp: TopicPartition) -> int:
        """The first offset that a time window can concern: nothing below is stamped within it."""
        start, end = self.bounds(tp)
        if tp not in self.since:
            return start
        found = self.since[tp]
        return end if found is None else min(max(found, start), end)


class _ScopeBuilder:
    """Puts the observations together, partition by partition."""

    def __init__(
        self,
        link: Link,
        store: Store,
        states: Mapping[str, TopicState],
        watermarks: Mapping[TopicPartition, Watermark],
        digests: Mapping[TopicPartition, tuple[RangeDigest, ...]],
        held: Mapping[TopicPartition, int],
        differing: Mapping[TopicPartition, int],
        source: _Side,
        source_hidden_since: Mapping[TopicPartition, int | None],
        target: _Side,
        *,
        sealed: bool,
    ) -> None:
        self._link = link
        self._store = store
        self._states = states
        self._watermarks = watermarks
        self._digests = digests
        self._held = held
        self._differing = differing
        self._source = source
        self._source_hidden_since = source_hidden_since
        self._target = target
        self._sealed = sealed
        self.partitions: list[PartitionScope] = []
        self.notes: list[str] = []
        self.incomplete: list[str] = []

    def add_topic(self, topic: str, numbers: frozenset[int] | None) -> None:
        """Add a topic's partitions (None: all that either side has)."""
        name = self._link.target_topic(topic)
        on_source, on_target = self._source.topics.get(topic), self._target.topics.get(name)
        known = max((info.partitions for info in (on_source, on_target) if info is not None), default=0)
        if numbers is not None and max(numbers) >= known:
            raise ConfigError(f"--topic {topic}: there is no partition {max(numbers)}", remedy=_partitions(known))
        state = self._states.get(topic)
        recreated = self._notes_of(topic, name, state, on_source, on_target)
        anew = state is not None and on_target is not None and on_target.topic_id != state.target_topic_id
        for number in sorted(numbers) if numbers is not None else range(known):
            self.partitions.append(self._partition(topic, name, number, state, recreated=recreated, anew=anew))
        alone = [each.partition for each in self.partitions if each.topic == topic and each.by_content_only]
        if alone:
            self.incomplete += self._uncompared(topic, name, alone, mirrored=state is not None, recreated=recreated)

    def _uncompared(
        self, topic: str, name: str, alone: Sequence[int], *, mirrored: bool, recreated: bool
    ) -> Iterable[str]:
        """Why partitions of a topic have no mapping."""
        link = self._link.id
        if mirrored and topic not in self._source.topics:
            yield f"{topic} no longer exists on {link.source}: there is nothing to compare {name} on {link.target} with"
            return
        there = self._target.ends
        absent = (
            [each for each in alone if TopicPartition(name, each) not in there] if mirrored and not recreated else []
        )
        if absent:
            these = "partition" if len(absent) == 1 else "partitions"
            numbers = ", ".join(map(str, absent))
            yield f"{name} on {link.target} has no {these} {numbers}, and nothing of {topic} was mirrored there"
        if len(alone) > len(absent):
            yield (
                f"no mapping is recorded for {topic}, so it was compared by content and order only: it was never "
                "mirrored by drkit, was recreated, or the store lost it"
            )

    def _notes_of(
        self, topic: str, name: str, state: TopicState | None, on_source: TopicInfo | None, on_target: TopicInfo | None
    ) -> bool:
        """Say what is odd about a topic; returns whether the source's is another one than was mirrored."""
        if on_target is None:
            self.notes.append(f"{name} does not exist on {self._link.id.target}")
        if on_source is None:
            self.notes.append(
                f"{topic} no longer exists on {self._link.id.source}: its records count as source_retired"
            )
        if state is None:
            return on_source is None
        if on_target is not None and on_target.topic_id != state.target_topic_id:
            self.notes.append(f"{name} was recreated on {self._link.id.target} after the mirror made it")
        if on_source is not None and on_source.topic_id != state.source_topic_id:
            self.notes.append(
                f"{topic} was recreated on {self._link.id.source} after it was mirrored: what was mirrored before "
                "counts as source_retired, what is there now as unseen unless the target holds the same"
            )
            return True
        return on_source is None

    def _partition(
        self, topic: str, name: str, number: int, state: TopicState | None, *, recreated: bool, anew: bool
    ) -> PartitionScope:
        tp, target_tp = TopicPartition(topic, number), TopicPartition(name, number)
        source_start, source_end = self._source.bounds(tp)
        target_start, target_end = self._target.bounds(target_tp)
        watermark = self._watermarks.get(tp)
        epoch = state.epoch if state is not None else watermark.epoch if watermark is not None else None
        if watermark is not None and watermark.epoch != epoch:
            watermark = None  # of an earlier topic of this name
        rows = [] if epoch is None else self._store.mappings(self._link.id, tp, epoch)
        if recreated:
            rows, watermark = [], None
        earlier_until = target_end if recreated else self._earlier_until(tp, epoch, rows)
        cut = zones(rows) if rows else nominal(source_start, target_start)
        if watermark is not None and not self._sealed:
            self.incomplete += self._gone_unjudged(watermark, cut, source_start, target_start, target_end)
        there = target_tp in self._target.ends
        nothing_there = state is not None and not recreated and there and target_start == target_end
        source_from, target_from = self._source.window_start(tp), self._target.window_start(target_tp)
        meant = self._link.topic_settings.overrides_of(topic)
        source_compacted, target_compacted = topic in self._source.compacted, name in self._target.compacted
        if source_from > source_start or target_from > target_start:
            source_from, target_from = _widened(cut, source_from, target_from)
        return PartitionScope(
            number=len(self.partitions),
            topic=topic,
            target_topic=name,
            partition=number,
            source_start=source_start,
            source_end=source_end,
            target_start=target_start,
            target_end=target_end,
            source_from=min(max(source_from, source_start), source_end),
            target_from=min(max(target_from, target_start), target_end),
            zones=cut,
            basis=PlacementBasis.MAPPING if rows or nothing_there else PlacementBasis.CONTENT,
            first_place=min((row.target_offset for row in rows), default=target_start),
            mirrored_through=None if watermark is None else watermark.source_through,
            sealed_at=self._sealed_at([] if anew else rows, None if anew else watermark, target_start)
            if self._sealed
            else None,
            earlier_until=earlier_until,
            source_compacted=source_compacted,
            target_compacted=target_compacted,
            compaction_explains=target_compacted and (source_compacted or is_compacted(meant) or self._sealed),
            digests=() if watermark is None else self._digests.get(tp, ()),
            source_held=self._held.get(tp, 0),
            target_anew=anew,
            hidden=self._target.hidden(target_tp),
            source_hidden=self._source.hidden(tp),
            source_hidden_since=self._source_hidden_since.get(tp),
            source_id=self._source.topic_id(topic),
            target_id=self._target.topic_id(name),
        )

    def _gone_unjudged(
        self, mark: Watermark, cut: tuple[Zone, ...], source_start: int, target_start: int, target_end: int
    ) -> Iterable[str]:
        """What is on the target though the source had lost it, where the source has removed what replaced it, too."""
        first, until = self._differing.get(mark.tp, source_start), min(source_start, mark.source_through)
        if first < until and place(cut, first) < target_end and target_start < place(cut, until):
            source, target = self._link.id.source, self._link.id.target
            yield (
                f"{mark.tp}: {source} no longer held what was mirrored of its offsets {first} to {until - 1}, and has "
                f"removed since what it held instead: what {target} has of them can't be compared with anything"
            )

    def _earlier_until(self, tp: TopicPartition, epoch: int | None, rows: list[OffsetMapping]) -> int | None:
        """Where this epoch's part of the target begins, if an earlier one has a part in it: not necessarily the one
        before, of which nothing may have been mirrored."""
        if not epoch or not rows:
            return None
        earlier = any(self._store.mappings(self._link.id, tp, each) for each in range(epoch - 1, -1, -1))
        return min(row.target_offset for row in rows) if earlier else None

    @staticmethod
    def _sealed_at(rows: list[OffsetMapping], watermark: Watermark | None, target_start: int) -> int:
        """The target offset that the sealed link is known to have got to."""
        if watermark is not None:
            return watermark.target_end
        return min((row.target_offset for row in rows), default=target_start)


def _partitions(count: int) -> str:
    """Which partitions a topic has, in words."""
    if not count:
        return "Neither cluster has this topic any more"
    return "It has partition 0 only" if count == 1 else f"It has partitions 0 to {count - 1}"


def _widened(cut: tuple[Zone, ...], source_from: int, target_from: int) -> tuple[int, int]:
    """Where to begin on both sides so that what one side's window begins with is met on the other."""
    back = source_of(cut, target_from)
    first_source = source_from if back is None else min(source_from, back)
    return first_source - _MARGIN, min(target_from, place(cut, source_from)) - _MARGIN


def source_held(
    link: LinkId,
    store: Store,
    admin: ClusterAdmin,
    source: _Side,
    digests: Mapping[TopicPartition, Collection[RangeDigest]],
    watermarks: Mapping[TopicPartition, Watermark],
) -> dict[TopicPartition, int]:
    """By partition, the offset below which its source still holds what digests were made of (0: nothing shows that):
    it holds the batch that ends there, and no problem on record says that both sides differ from an earlier one on.

    Raises:
        Unreachable: the store doesn't answer.
    """
    batches = {}
    for tp, rows in digests.items():
        start, end = source.bounds(tp)
        known = {row.source_batch for row in rows}
        last = watermarks[tp].source_batch  # mostly behind the last marker, too
        if known and last is not None:
            known.add(last)
        batches[tp] = [each for each in known if start <= each.last_offset < end]
    held = held_below(admin, batches)
    for problem, tp in _problems_of(store, link, digests):
        if problem.differs_from is not None:
            held[tp] = min(held[tp], problem.differs_from)
    return held


def differing_from(
    link: LinkId,
    store: Store,
    source: ClusterAdmin,
    watermarks: Mapping[TopicPartition, Watermark],
    starts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """By partition, the offset from which its source no longer held what was mirrored, as a mirror noted or the
    source's leader epochs show. Asked only of partitions whose source has removed its first records: all others are
    compared as they are.

    Raises:
        Unreachable: the source or the store doesn't answer.
    """
    marks = {tp: mark for tp, mark in watermarks.items() if min(starts.get(tp, 0), mark.source_through) > 0}
    ends = source.epoch_ends({tp: mark.leader_epoch for tp, mark in marks.items() if mark.leader_epoch is not None})
    found = {}
    for tp, mark in marks.items():
        end = ends.get(tp)
        if end is None or mark.leader_epoch is None:
            continue
        kept = kept_offsets(mark.source_through, mark.leader_epoch, end)
        if kept is not None and kept.exact:
            found[tp] = kept.offset
    for problem, tp in _problems_of(store, link, marks):
        if problem.differs_from is not None:
            found[tp] = min(found.get(tp, problem.differs_from), problem.differs_from)
    return found


def _problems_of(
    store: Store, link: LinkId, tps: Collection[TopicPartition]
) -> Iterator[tuple[Problem, TopicPartition]]:
    """What a mirror has noted of these partitions, or of their topics."""
    for problem in store.problems(link):
        yield from ((problem, tp) for tp in tps if problem.concerns(tp))

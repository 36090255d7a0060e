"""The position of each group on the target. Pure.

Sources of a group's position on a partition:

- by mapping: the group's committed source offset translated to the target (`drkit.mapping.translate`);
- by time (`--at`): the first target offset with a timestamp at or after the requested moment, else the log
  end. Everything below it has an earlier timestamp, but a group that lagged, or a record that a slow clock
  stamped late, may leave unread records below it.

- by the timeline (`--committed-at`): the source offset that the group had committed at that moment, translated;
  if that is unknown, the group gets no position.

With `--at` the position is the *earlier* of mapping and time: at least back to that moment, and never past unread
records. If only one is known it is used, and the reason says so.

- by order (`--to-earliest`, `--to-latest`, `--group NAME=earliest`): an end of the target's log, whatever that skips;
  skipped records are counted.

A group that commits its offsets in transactions has got, by mapping, to the end of the last transaction whose output
reached the target, wherever it was captured (`drkit.failover.positions.transactional_positions`). By time and by the
timeline it goes no further than that, or results would be missing.

A partition on which a group never committed on the source is left alone on the target: the consumer's own
`auto.offset.reset` decides there, as on the source.

`reread` counts target offsets from the position to the group's progress; `lost` counts source offsets below the
group's commit that never reached the target. A group that may have committed since its capture reads an unknown number
again: then `reread` is None, the rest of the target's log is the bound, and `captured_at` says how old the capture is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache, partial

from drkit.failover.positions.transactional_positions import place_by_transactions, place_unwatched
from drkit.failover.snapshot.past_positions import Key, PastPosition
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import (
    GROUP_TOPIC_PARTITION,
    Edge,
    Selection,
    Where,
    check_names,
)
from drkit.failover.snapshot.snapshot import PartitionView, Snapshot
from drkit.mapping import doubted, heed
from drkit.mapping.translate import left_unread, translate_by_rows, unavailable, why_set_back
from drkit.model.groups import SHARE, UnmovableGroup
from drkit.model.offsets import Certainty, GroupPosition, Translation
from drkit.model.topology import TopicPartition
from drkit.model.wording import counted


class Strategy(StrEnum):
    """What decided a position; the contract's `strategy`."""

    TIMESTAMP = "timestamp"
    MAPPING = "mapping"
    PRESERVED = "preserved"
    MIRRORMAKER = "mirrormaker"  # what MirrorMaker 2 recorded (`drkit.failover.positions.mirrormaker_positions`)


class NoReset(StrEnum):
    """Why `kafka-consumer-groups.sh --reset-offsets` can't give a position to a group that has none."""

    NOT_ON_TARGET = "not on the target"
    SHARE_GROUP = "share group"
    UNKNOWN_TYPE = "unknown type of group"
    OTHER_THERE = "another type of group on the target"


_FEW = 100
"""So many transactions an application may commit while the watch of transactions is a moment late."""
_NO_RESET, _UNKNOWN = {SHARE: NoReset.SHARE_GROUP}, NoReset.UNKNOWN_TYPE
_NOT_KNOWN = PastPosition(None, "", Certainty.UNAVAILABLE, "where it had committed then is not known", None)


@dataclass(slots=True)
class PlannedPosition:
    """A group's position on a target partition, with its reasons. Treat as immutable; it isn't `frozen` because a
    failover makes a hundred thousand within seconds.

    `target_offset` None: not placed, `reason` says why. `reread`, `skipped`, `lost`: counts of
    offsets, None where not known. `why` always explains the choice; `reason` is None when the
    translation is exact and nothing else moved the position. `existing` is what the group has
    committed on the target already. `reread_at_most`: where `reread` isn't known exactly, a bound.
    `transactional`: the group commits its offsets in transactions (`drkit.failover.positions.transactional_positions`);
    `transactions_again`: how many of them are processed again, or None. `no_reset`: of a position that isn't placed,
    what keeps an operator from resetting it with Kafka's tool, or None.
    """

    group: str
    topic: str
    partition: int
    target_topic: str
    source_offset: int | None
    target_offset: int | None
    strategy: Strategy | None
    translation: Certainty
    reread: int | None
    skipped: int | None
    lost: int | None
    reason: str | None
    why: str
    metadata: str = ""
    existing: int | None = None
    captured_at: datetime | None = None
    reread_at_most: int | None = None
    transactional: bool = False
    transactions_again: int | None = None
    no_reset: NoReset | None = None

    @property
    def reread_bound(self) -> int | None:
        """How many records are read again at most: the exact count where it is known; None: no bound is known."""
        return self.reread_at_most if self.reread is None else self.reread

    @classmethod
    def unplaced(
        cls,
        stands: GroupPosition,
        target_topic: str,
        reason: str | None = None,
        *,
        translation: Certainty = Certainty.UNAVAILABLE,
        lost: int | None = None,
        no_reset: NoReset | None = None,
    ) -> PlannedPosition:
        """A group's source position without a target position (yet)."""
        return cls(
            group=stands.group,
            topic=stands.topic,
            partition=stands.partition,
            target_topic=target_topic,
            source_offset=stands.offset,
            target_offset=None,
            strategy=None,
            translation=translation,
            reread=None,
            skipped=None,
            lost=lost,
            reason=reason,
            why=reason or "",
            metadata=stands.metadata,
            captured_at=stands.captured_at,
            no_reset=no_reset,
        )

    @property
    def target_tp(self) -> TopicPartition:
        """The partition, by its target topic."""
        return TopicPartition(self.target_topic, self.partition)

    @property
    def rewinds(self) -> bool:
        """Whether committing it would move the group's existing position on the target back."""
        return self.target_offset is not None and self.existing is not None and self.existing > self.target_offset


def choose_positions(
    snapshot: Snapshot, selection: Selection, at: Moment | None, *, final: bool = False
) -> tuple[PlannedPosition, ...]:
    """The position of every selected group and partition, sorted by group, topic, partition.

    `final`: the positions were captured after the fence, so no group has committed since.

    Raises:
        ConfigError: a named group or topic is unknown; the message lists the known ones.
    """
    check_names(snapshot, selection)
    chosen = []
    places = selection.where()
    rule: Where | None = selection.edge or at
    by_commits = isinstance(rule, Moment) and rule.by_commits
    present = {(position.group, position.tp): position for position in snapshot.positions} if by_commits else {}
    # groups with equal positions share the result
    known: dict[tuple[TopicPartition, int], PlannedPosition] = {}
    known_elsewhere: dict[tuple[TopicPartition, int, Where | None], PlannedPosition] = {}
    types = types_of(snapshot)
    whole, by_output_of = _whole(snapshot), cache(partial(_ByOutput.of, snapshot))
    for position in _then(snapshot, present) if by_commits else snapshot.positions:
        group, tp = position.group, position.tp
        if not selection.covers(group, tp):
            continue
        if group in types:
            chosen.append(of_another_type(position, snapshot, types[group]))
            continue
        by_output = None if whole and snapshot.is_live(group, tp) else by_output_of()
        where = places.get(group, rule)
        if where is not rule:
            position = present.get((group, tp), position)  # noqa: PLW2901 - not from where it was in the past
        existing = snapshot.committed.get((group, tp))
        if by_commits and where is rule:
            placed = place(position, snapshot.partitions.get(tp), snapshot, where, present.get((group, tp)))
            placed = bounded(replace(placed, existing=existing), tp, snapshot, final=final)
            if by_output is not None:
                placed = by_output.not_past(placed, present.get((group, tp), position))
            chosen.append(placed)
            continue
        by_transactions = by_output.place(position, where) if by_output is not None else None
        if by_transactions is not None:
            chosen.append(replace(by_transactions, existing=existing))
            continue
        stands = (tp, position.offset)
        found = known.get(stands) if where is rule else known_elsewhere.get((*stands, where))
        if found is None:
            found = place(position, snapshot.partitions.get(tp), snapshot, where)
            if where is rule:
                known[stands] = found
            else:
                known_elsewhere[*stands, where] = found
        placed = bounded(_as_of(found, position, existing), tp, snapshot, final=final)
        chosen.append(_after_set_back(placed, tp, snapshot))
    there = set(map(GROUP_TOPIC_PARTITION, chosen))
    chosen += [each for each in _unmovable(snapshot, selection) if GROUP_TOPIC_PARTITION(each) not in there]
    return tuple(sorted(chosen, key=GROUP_TOPIC_PARTITION))


def types_of(snapshot: Snapshot) -> dict[str, UnmovableGroup | str]:
    """By group that commits no offsets, how the source shows it, or else its type on the target."""
    return {**snapshot.unmovable_there, **{each.group: each for each in snapshot.unmovable}}


def of_another_type(position: GroupPosition, snapshot: Snapshot, kind: UnmovableGroup | str) -> PlannedPosition:
    """A captured position, unplaced, of a group whose id is another type's on one of the sides, of `types_of`."""
    target, topic = snapshot.target.alias, snapshot.link.target_topic(position.topic)
    if isinstance(kind, UnmovableGroup):
        why = kind.why(target, TopicPartition(topic, position.partition))
        reason = f"on {snapshot.source.alias} it is by now {why}"
        return PlannedPosition.unplaced(position, topic, reason, no_reset=_NO_RESET.get(kind.type, _UNKNOWN))
    tool = "kafka-share-groups.sh" if kind == SHARE else "the tool of its type"
    reason = (
        f"on {target} its id is that of a {kind} group, which takes no committed offsets: delete that group ({tool} "
        "--delete), then plan again; or rename one of the two"
    )
    return PlannedPosition.unplaced(position, topic, reason, no_reset=NoReset.OTHER_THERE)


def _unmovable(snapshot: Snapshot, selection: Selection) -> list[PlannedPosition]:
    """Groups that commit no offsets, on each partition that they are known to read: none has a position."""
    found = []
    for group in snapshot.unmovable:
        for tp, start in group.starts.items():
            if not selection.covers(group.group, tp):
                continue
            stands = GroupPosition(group.group, *tp, start or 0, "", group.captured_at)
            topic = snapshot.link.target_topic(tp.topic)
            why = group.why(snapshot.target.alias, TopicPartition(topic, tp.partition))
            no_reset = _NO_RESET.get(group.type, _UNKNOWN)
            found.append(replace(PlannedPosition.unplaced(stands, topic, why, no_reset=no_reset), source_offset=start))
    return found


def _as_of(placed: PlannedPosition, position: GroupPosition, existing: int | None) -> PlannedPosition:
    """The same position for another group with the same source position."""
    return PlannedPosition(
        position.group,
        placed.topic,
        placed.partition,
        placed.target_topic,
        placed.source_offset,
        placed.target_offset,
        placed.strategy,
        placed.translation,
        placed.reread,
        placed.skipped,
        placed.lost,
        placed.reason,
        placed.why,
        position.metadata,
        existing,
        position.captured_at,
        placed.reread_at_most,
        no_reset=placed.no_reset,
    )


def bounded(
    placed: PlannedPosition, tp: TopicPartition, snapshot: Snapshot, *, final: bool, elsewhere: bool = False
) -> PlannedPosition:
    """The same (just made, so changed in place), with a bound of the records read again if the group may have read on
    since its capture. `elsewhere`: another program captured it."""
    lacking = (placed.group, tp) in snapshot.lacking
    if (final and not lacking) or placed.target_offset is None or placed.reread_bound is None:
        return placed
    live = not elsewhere and snapshot.is_live(placed.group, tp)
    if live and not snapshot.source_members.get(placed.group):
        return placed
    view = snapshot.partitions.get(tp)
    if view is None or view.target_end is None:
        return placed
    most = max(placed.reread_bound, view.target_end - placed.target_offset)
    why = "it still reads" if live else "it may have read on since its position was captured"
    if lacking and (snapshot.positions_live or placed.group in snapshot.read_groups):
        placed.translation = Certainty.CONSERVATIVE
        why = f"{snapshot.source.alias} has no commit of it there any more: {why}"
    elif most == placed.reread_bound:
        return placed
    placed.reread = None if most else 0
    placed.reread_at_most, placed.reason = most or None, _and(placed.reason, why)
    return placed


def _after_set_back(placed: PlannedPosition, tp: TopicPartition, snapshot: Snapshot) -> PlannedPosition:
    """The same (just made, so changed in place): where the source may have been set back, the group reads again at most
    up to where it was captured before."""
    further, view = snapshot.behind_captured.get((placed.group, tp)), snapshot.partitions.get(tp)
    if further is None or placed.target_offset is None or view is None or view.target_end is None:
        return placed
    upto = None if view.rows_in_doubt is not None else _by_rows(further, view).target_offset
    most = (view.target_end if upto is None else min(upto, view.target_end)) - placed.target_offset
    if most <= 0:
        return placed
    bound = placed.reread_bound
    placed.reread, placed.reread_at_most = None, None if bound is None else max(bound, most)
    placed.translation = Certainty.CONSERVATIVE
    placed.reason = _and(placed.reason, why_set_back(snapshot.source.alias, further))
    return placed


def never_committed(snapshot: Snapshot, selection: Selection) -> dict[str, list[TopicPartition]]:
    """By group, the partitions of topics it reads on which it never committed."""
    committed: dict[str, set[TopicPartition]] = defaultdict(set)
    for position in snapshot.positions:
        committed[position.group].add(position.tp)
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in sorted(snapshot.partitions):
        by_topic[tp.topic].append(tp)
    missing = {}
    for group, tps in sorted(committed.items()):
        topics = sorted({tp.topic for tp in tps})
        left = [tp for topic in topics for tp in by_topic[topic] if tp not in tps and selection.covers(group, tp)]
        if left:
            missing[group] = left
    return missing


def _then(snapshot: Snapshot, present: Mapping[Key, GroupPosition]) -> list[GroupPosition]:
    """The groups' positions at the requested moment; if unknown, the current ones."""
    found = dict(present)
    for (group, tp), past in snapshot.past.items():
        if past.offset is not None:
            seen_at = past.seen_at or snapshot.observed_at
            found[group, tp] = GroupPosition(group, *tp, past.offset, past.metadata, seen_at)
    return [position for _, position in sorted(found.items())]


def place(
    position: GroupPosition,
    view: PartitionView | None,
    snapshot: Snapshot,
    where: Where | None,
    present: GroupPosition | None = None,
) -> PlannedPosition:
    """One group's position on one partition; `present`: its current source position, if that differs."""
    target, topic = snapshot.target.alias, snapshot.link.target_topic(position.topic)
    if view is not None and view.recreated:
        reason = f"{position.topic} was recreated on {snapshot.source.alias}: the target has the earlier one's records"
        return PlannedPosition.unplaced(position, topic, reason)
    if view is None or view.target_end is None:
        reason = f"{topic}:{position.partition} is not on {target}"
        if view is not None and view.target_silent is not None:
            reason = f"{target} does not answer for {topic}:{position.partition}: {view.target_silent}"
        if not snapshot.target.reachable:
            reason = f"{target} did not answer: {snapshot.target.reason}"
        return PlannedPosition.unplaced(position, topic, reason, no_reset=NoReset.NOT_ON_TARGET)
    if isinstance(where, Moment) and where.by_commits:
        return _by_commits(PlannedPosition.unplaced(position, topic), view, snapshot, where, present)
    mapped = _mapped(position.offset, view, snapshot)
    lost = _lost(position.offset, view)
    base = PlannedPosition.unplaced(position, topic, translation=mapped.certainty, lost=lost)
    if where is None:
        return _by_mapping(base, mapped, view)
    if isinstance(where, Edge):
        return _by_order(base, mapped, view, view.target_end, where)
    stamped = snapshot.stamped.get(where.millis)
    found = view.at_offset if stamped is None else stamped.get(view.tp)
    return _by_time(base, mapped, found, view, where)


def _by_mapping(
    base: PlannedPosition, mapped: Translation, view: PartitionView, because: str | None = None
) -> PlannedPosition:
    """`because`: a further reason for this position."""
    if mapped.target_offset is None:
        reason = mapped.reason or "the source offset has no known place on the target"
        return replace(base, reason=reason, why=reason)
    exact = mapped.certainty is Certainty.EXACT
    preserved = exact and bool(view.rows) and all(row.delta == 0 for row in view.rows)
    return replace(
        base,
        target_offset=mapped.target_offset,
        strategy=Strategy.PRESERVED if preserved else Strategy.MAPPING,
        reread=mapped.reread,
        reread_at_most=_rest(mapped.target_offset, view) if mapped.reread is None else None,
        skipped=mapped.skipped,
        reason=_and(None if exact else mapped.reason, because),
        why=because or _why_mapped(mapped, preserved=preserved),
    )


def _rest(target_offset: int, view: PartitionView) -> int | None:
    """How many offsets the target's log has from there on."""
    return None if view.target_end is None else view.target_end - target_offset


def _whole(snapshot: Snapshot) -> bool:
    """Whether groups that commit in transactions continue from their committed offsets: nothing is missing on the
    target, or the link also mirrors uncommitted records. A lag of 0 shows nothing of a partition that the source is
    silent about (it is the mirror's last look), or of one that may lack more."""
    if not snapshot.link.committed:
        return True
    if not (snapshot.source.reachable and snapshot.positions_live) or snapshot.lag != 0 or snapshot.silent:
        return False
    return not any(view.missing.at_least for view in snapshot.partitions.values())


@dataclass(frozen=True, slots=True)
class _ByOutput:
    """Places groups that commit in transactions after the last one whose output reached the target.

    `through`: the mirrored offset of each source partition. `doubt`: why it isn't known of one of them whether its
    mirrored records are all there; `unread`: one with transactions that may be the first ones of a group there; None:
    there is none, as far as is known.
    """

    snapshot: Snapshot
    through: Mapping[TopicPartition, int | None]
    doubt: str | None
    unread: TopicPartition | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> _ByOutput:
        """The parts that all groups share, computed once."""
        watched = {} if snapshot.transactions is None else snapshot.partitions
        doubts = (view.doubts.unsure for view in snapshot.partitions.values())
        followed = {tp.topic for tp in (snapshot.transactions.begun if snapshot.transactions is not None else ())}
        unread = (tp for tp, view in watched.items() if tp.topic not in followed and _few_transactions(view))
        through = {tp: view.through for tp, view in watched.items()}
        return cls(snapshot, through, next(filter(None, doubts), None), next(unread, None))

    def place(self, position: GroupPosition, where: Where | None = None) -> PlannedPosition | None:
        """None if the group doesn't commit in transactions."""
        snapshot = self.snapshot
        found = None
        if snapshot.transactions is not None:
            found = place_by_transactions(snapshot.transactions, position, self.through)
        if found is None and position.group in snapshot.suspected:
            found = place_unwatched(position)
        if found is None:
            return None
        if self.doubt is not None:
            doubt = f"whether all of its output is on {snapshot.target.alias} is not known: {self.doubt}"
            found = replace(found, again=None, reason=_and(found.reason, doubt))
        if self.unread is not None and found.again is not None:
            doubt = f"{self.unread} has transactions, and whether they are the first of this group there is not known"
            found = replace(found, again=None, reason=_and(found.reason, doubt))
        stands = position._replace(offset=found.offset, metadata=found.metadata)
        view = snapshot.partitions.get(position.tp)
        placed = replace(place(stands, view, snapshot, where), transactional=True, transactions_again=found.again)
        if placed.target_offset is None or view is None or view.target_end is None:
            return placed
        if where is not None and placed.target_offset != place(stands, view, snapshot, None).target_offset:
            placed.transactions_again = None  # those in between, too: their number isn't known
        reread = placed.reread
        if found.again is None:
            reread = None
        elif reread is not None and found.again and found.reached is not None:
            upto = _mapped(found.reached, view, snapshot).target_offset
            reread = None if upto is None else max(0, upto - placed.target_offset)
        return replace(
            placed,
            translation=placed.translation if found.reason is None else Certainty.CONSERVATIVE,
            reread=reread,
            reread_at_most=view.target_end - placed.target_offset if reread is None else None,
            reason=_and(found.reason, placed.reason),
            why=_and(found.reason or "after the last transaction whose output is on the target", placed.why) or "",
        )

    def not_past(self, placed: PlannedPosition, position: GroupPosition) -> PlannedPosition:
        """A position in the group's past, or where its output on the target ends, if that is earlier. `position`: its
        current one on the source."""
        limit = self.place(position)
        if limit is None or placed.target_offset is None:
            return placed
        if limit.target_offset is not None and limit.target_offset < placed.target_offset:
            why = f"{placed.reason}; its output is on {self.snapshot.target.alias} only up to an earlier one"
            return replace(limit, existing=placed.existing, reason=_and(limit.reason, why), why=why)
        unknown = limit.target_offset is None or limit.transactions_again is None
        return replace(
            placed,
            transactional=True,
            translation=Certainty.CONSERVATIVE if unknown else placed.translation,
            reason=_and(placed.reason, limit.reason if unknown else None),
        )


def _few_transactions(view: PartitionView) -> bool:
    """Whether what is mirrored of a partition ends as behind a transaction (its marker has no place on the target), and
    has so few such places that they may be younger than the last look at who made them."""
    mark = view.watermark
    if mark is None or not view.rows or len(view.rows) > _FEW:
        return False
    return mark.target_end - mark.source_through < view.rows[-1].delta


def _by_commits(
    base: PlannedPosition, view: PartitionView, snapshot: Snapshot, at: Moment, present: GroupPosition | None
) -> PlannedPosition:
    """The group's committed offset at the moment, by mapping; `base` has that source offset."""
    past = snapshot.past.get((base.group, TopicPartition(base.topic, base.partition)), _NOT_KNOWN)
    if past.offset is None:
        reason = past.reason or str(_NOT_KNOWN.reason)
        return replace(base, source_offset=None, metadata="", captured_at=None, reason=reason, why=reason)
    mapped = _mapped(past.offset, view, snapshot)
    base = replace(base, translation=mapped.certainty, lost=_lost(past.offset, view))
    placed = _by_mapping(base, mapped, view)
    if placed.target_offset is None:
        return placed
    had = f"where {base.group} had committed at {at.local}: source offset {past.offset}"
    stands = None if present is None else _mapped(present.offset, view, snapshot)
    reread, skipped = _since(placed.target_offset, mapped, stands)
    exact = past.certainty is Certainty.EXACT and mapped.certainty is Certainty.EXACT
    return replace(
        placed,
        strategy=Strategy.MAPPING,
        translation=Certainty.EXACT if exact else Certainty.CONSERVATIVE,
        reread=reread,
        skipped=skipped,
        reason=_and(_and(had, past.reason), placed.reason),
        why=_and(had, past.reason) or had,
    )


def _since(target_offset: int, mapped: Translation, present: Translation | None) -> tuple[int | None, int | None]:
    """How many records the group reads again, and how many it skips, of those it has read; None: unknown."""
    if present is None or present.target_offset is None:
        return None, mapped.skipped
    back = present.target_offset - target_offset
    if back < 0 and mapped.reread is None:  # neither place is known, only that it skips nothing
        return None, None
    if back < 0:  # it was moved back since: the records in between are skipped
        return 0, None if mapped.skipped is None else mapped.skipped - back
    return None if present.reread is None else present.reread + back, mapped.skipped


def _by_order(base: PlannedPosition, mapped: Translation, view: PartitionView, end: int, edge: Edge) -> PlannedPosition:
    """An end of the target's log, as the operator requested; skipped or repeated records are counted."""
    earliest = edge is Edge.EARLIEST
    offset = (view.target_start or 0) if earliest else end
    why = f"{'the log of the target begins' if earliest else 'the log of the target ends'} at {offset}: as requested"
    placed = replace(base, target_offset=offset, strategy=Strategy.TIMESTAMP, why=why)
    if mapped.target_offset is None:
        return replace(placed, reason=_and(why, f"what is skipped or read again is not known: {mapped.reason}"))
    back = mapped.target_offset - offset
    unsure = mapped.reread is None and back < 0
    ahead = f"{-back} offsets that the group had not read are skipped" if back < 0 and not unsure else None
    return replace(
        placed,
        reread=None if mapped.reread is None else max(0, mapped.reread + back),
        skipped=None if mapped.skipped is None or unsure else mapped.skipped + max(0, -back),
        reason=_and(_and(mapped.reason, why), ahead),
    )


def _by_time(
    base: PlannedPosition, mapped: Translation, found: int | None, view: PartitionView, at: Moment
) -> PlannedPosition:
    end = view.target_end or 0
    timed = end if found is None else min(found, end)
    seen = f"nothing on the target is stamped at or after {at.local}, so its end {end}" if found is None else ""
    by_time = seen or f"{timed} is the first offset stamped at or after {at.local}"
    if mapped.target_offset is None:
        return replace(
            base,
            target_offset=timed,
            strategy=Strategy.TIMESTAMP,
            reason=f"by time alone ({by_time}): the position by mapping isn't known: {mapped.reason}",
            why=f"by time alone: {by_time}; what the group had not read of older records is not known",
        )
    if mapped.target_offset < timed:
        unread = f"the group had read only up to here; by time it would be {timed}, past what was unread"
        return _by_mapping(base, mapped, view, unread)
    back = mapped.target_offset - timed
    reason = f"{by_time}; {back} before where the group had got to ({mapped.target_offset})" if back else None
    exact = mapped.certainty is Certainty.EXACT
    return replace(
        base,
        target_offset=timed,
        strategy=Strategy.TIMESTAMP,
        reread=None if mapped.reread is None else mapped.reread + back,
        skipped=mapped.skipped,
        reason=_and(None if exact else mapped.reason, reason),
        why=reason or f"{by_time}, which is where the group had got to",
    )


def _by_rows(offset: int, view: PartitionView) -> Translation:
    rows, mark = view.rows, view.watermark
    if not rows and mark is not None and offset <= mark.source_through:
        if mark.source_through > mark.source_start:
            why = "the store has lost rows, or the target has other writers"
            return unavailable(offset, f"mirrored up to {mark.source_through}, and there is no mapping row: {why}")
        if left_unread(offset, mark.source_through, view.former):
            why = (
                "what the target holds from before it was accepted as a new one may have records that the group hasn't"
            )
            return unavailable(offset, f"nothing of the topic is mirrored yet: {why} read")
        # Observed, and nothing was ever produced: all future records come at the target's end.
        return Translation(offset, Certainty.EXACT, mark.target_end)
    return translate_by_rows(offset, rows, mark, view.former, view.rows_in_doubt)


def _mapped(offset: int, view: PartitionView, snapshot: Snapshot) -> Translation:
    """Translate by the view's rows, apply problems, then keep the result within the target's current log."""
    answer = heed(_by_rows(offset, view), snapshot.problems, view.tp, lambda other: _by_rows(other, view))
    answer = doubted(answer, view.doubts.unsure)
    target = snapshot.target.alias
    if answer.target_offset is None or view.target_start is None or view.target_end is None:
        return answer
    if answer.target_offset < view.target_start:
        gone = view.target_start - answer.target_offset
        return replace(
            answer,
            certainty=Certainty.CONSERVATIVE,
            target_offset=view.target_start,
            reason=f"{target} no longer holds {gone} offsets from there on (retention or DeleteRecords removed them); "
            "its log starts here",
        )
    if answer.target_offset > view.target_end:
        missing = answer.target_offset - view.target_end
        return replace(
            answer,
            certainty=Certainty.CONSERVATIVE,
            target_offset=view.target_end,
            reason=f"{target} has lost {missing} acknowledged offsets; its log ends here",
        )
    return answer


def _lost(offset: int, view: PartitionView) -> int | None:
    missing = view.missing
    through = missing.through
    if view.watermark is None or through is None or (view.unproven and offset > through):
        return None
    if left_unread(through, offset, view.former):
        return None  # the target may hold some of them, from before the topic was accepted as a new one
    return missing.lost_below(offset)


def _why_mapped(mapped: Translation, *, preserved: bool) -> str:
    if preserved:
        return "offsets are the same on both sides"
    if mapped.certainty is Certainty.EXACT and mapped.target_offset is not None:
        return f"source offset {mapped.source_offset} is {mapped.target_offset} on the target"
    return mapped.reason or "the mapping's conservative answer"


def _and(first: str | None, second: str | None) -> str | None:
    return "; ".join(part for part in (first, second) if part) or None


@dataclass(frozen=True, slots=True)
class RemovedUnread:
    """So many `positions` begin where the target's logs do; `offsets`: removed before them, of all together.

    `most`: of `worst`.
    """

    positions: int = 0
    offsets: int = 0
    most: int = 0
    worst: PlannedPosition | None = None

    def sentence(self, target: str) -> str:
        """For people; empty if nothing was removed."""
        if self.worst is None:
            return ""
        return (
            f"{counted(self.positions, 'position')} {'begins' if self.positions == 1 else 'begin'} where the logs on "
            f"{target} do: retention or DeleteRecords removed {counted(self.offsets, 'offset')} there that the groups "
            f"had not read, most of {self.worst.group} on {self.worst.topic}:{self.worst.partition} ({self.most:,})"
        )


def removed_unread(
    placed: Iterable[PlannedPosition], partitions: Mapping[TopicPartition, PartitionView]
) -> RemovedUnread:
    """Count it over positions that are placed; `partitions`: by the source's names."""
    purged = {tp: view for tp, view in partitions.items() if view.target_start}
    found = RemovedUnread()
    for position in placed if purged else ():  # there may be 100,000, and most logs lost nothing
        view = purged.get(TopicPartition(position.topic, position.partition))
        count = 0 if view is None else _before(position, view)
        if count:
            first = count > found.most
            found = RemovedUnread(
                found.positions + 1,
                found.offsets + count,
                count if first else found.most,
                position if first else found.worst,
            )
    return found


def _before(position: PlannedPosition, view: PartitionView) -> int:
    """The target offsets from the first that a group had not read, of those that the source still holds, to where the
    target's log begins."""
    mark = view.watermark
    if not view.target_start or position.target_offset != view.target_start:
        return 0
    if position.source_offset is None or mark is None:
        return 0
    start = mark.source_start if view.source_start is None else view.source_start
    unread = max(position.source_offset, start)
    place = translate_by_rows(unread, view.rows, replace(mark, target_start=0)).target_offset
    return 0 if place is None else max(0, view.target_start - place)

"""Positions from MirrorMaker 2's records, and how imprecise they are. Pure, except for `read_mirrormaker`.

MirrorMaker 2 records a pair of offsets (a sync) now and then. For a commit `c` between two syncs

    source   s1 ─────── c ─────── s2         the record at s1 is the record at d1, that at s2 is at d2
    target   d1 ── ?  ? ? ? ───── d2

everything above s1 on the source is above d1 on the target, so `d1 + 1` never passes an unread record (`d1` itself if
c = s1). The records in between are read again: at most c - s1 - 1, because each source offset has at most one; at most
d2 - (d1 + 1) offsets; and at most what the target's log holds from there.

A group may have read on since its checkpoint: then what it reads again is bounded by the target's log alone.

A checkpoint is MirrorMaker 2's own answer (before 3.5.1 it could pass unread records, KAFKA-12468, so `skipped` is
unknown for it). The greatest of all answers for offsets at or below c is used. Records beyond the last sync may be
missing on the target: the loss is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Loss, Mode
from drkit.failover.positions.positions import NoReset, PlannedPosition, Strategy, bounded, of_another_type, types_of
from drkit.failover.snapshot.selection import Selection
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.kafka.groups.mirrormaker import Checkpoint, MirrorMakerOffsets, OffsetSync, read_offsets
from drkit.model.errors import ConfigError, Refused
from drkit.model.offsets import Certainty, GroupPosition
from drkit.model.topology import Link, TopicPartition
from drkit.model.totals import total

WORD = "mm2"
LOSS_UNKNOWN = Loss(None, None, None, reason="MirrorMaker 2 doesn't record how far it has mirrored")


@dataclass(frozen=True, slots=True)
class CheckpointTranslation:
    """An offset on the target. `at_most`: a bound of the records read again, or None. `by_sync`: it comes from a pair
    of offsets, so it surely passes no unread record; else from MirrorMaker 2's own translation.
    """

    target_offset: int
    at_most: int | None
    why: str
    by_sync: bool


def parse_positions_from(text: str | None) -> str | None:
    """MirrorMaker 2's alias of the source: from `mm2:ALIAS`, or "" from `mm2` (as drkit calls it); None stays None.

    Raises:
        ConfigError: something else.
    """
    if text is None:
        return None
    word, _, alias = text.partition(":")
    if word != WORD or (":" in text and not alias):
        raise ConfigError(f"--positions-from {text!r} is not known", remedy=f"Write {WORD}, or {WORD}:ALIAS")
    return alias


def read_mirrormaker(estate: ClusterContext, link: Link, alias: str) -> MirrorMakerOffsets:
    """Read its topics on both clusters, with a deadline.

    Raises:
        DrkitError: there are none.
        Refused: drkit may not see the checkpoints.
        Unreachable: the target doesn't answer.
    """
    clusters = estate.config.clusters
    return read_offsets(
        clusters[link.id.source],
        clusters[link.id.target],
        (alias or link.id.source, link.id.target),
        timeout_seconds=estate.timeout_seconds,
        patience_seconds=estate.reach(link.id.source).seconds,
    )


def captured(link: Link, offsets: MirrorMakerOffsets) -> list[GroupPosition]:
    """The checkpoints as positions on the source: each group as MirrorMaker 2 last saw it."""
    found = []
    for each in offsets.checkpoints:
        topic = link.source_topic(each.tp.topic)
        if topic is not None and link.covers_topic(topic) and link.covers_group(each.group):
            position = GroupPosition(each.group, topic, each.tp.partition, each.upstream, each.metadata, each.at)
            found.append(position)
    return found


def positions_by_mirrormaker(
    snapshot: Snapshot, offsets: MirrorMakerOffsets, selection: Selection, *, final: bool = False
) -> tuple[PlannedPosition, ...]:
    """Each selected group's position, sorted by group, topic, partition. `final`: drkit captured those without a
    checkpoint after the fence.

    Raises:
        ConfigError: a named group is unknown.
    """
    known = {position.group for position in snapshot.positions}
    for group in selection.groups:
        if group not in known:
            raise ConfigError(
                f"group {group} has neither a checkpoint of MirrorMaker 2 nor a position on {snapshot.source.alias}",
                remedy=f"Known: {', '.join(sorted(known)[:5]) or 'none'}",
            )
    checkpoints = {(each.group, each.tp): each for each in offsets.checkpoints}
    types = types_of(snapshot)
    placed = [
        of_another_type(position, snapshot, types[position.group])
        if position.group in types
        else _place(snapshot, position, checkpoints, offsets.syncs, final=final)
        for position in snapshot.positions
        if selection.covers(position.group, position.tp)
    ]
    return tuple(sorted(placed, key=lambda p: (p.group, p.topic, p.partition)))


def answer(
    offset: int, syncs: Sequence[OffsetSync], checkpoint: Checkpoint | None, start: int, end: int
) -> CheckpointTranslation | None:
    """The greatest offset that surely passes no unread record for source offset `offset`, or None.

    Args:
        offset: the group's committed offset on the source.
        syncs: of the partition, ascending.
        checkpoint: of the group and partition; used if its offset is at or below.
        start: the target's log start.
        end: the target's log end.
    """
    found: list[CheckpointTranslation] = []
    place = bisect_right(syncs, offset, key=lambda sync: sync.upstream)
    floor = syncs[place - 1] if place else None
    following = syncs[place] if place < len(syncs) else None
    if floor is not None and floor.upstream == offset:
        found.append(
            CheckpointTranslation(
                floor.downstream, 0, f"a sync says that source offset {offset} is {floor.downstream}", by_sync=True
            )
        )
    elif floor is not None:
        passed = offset - floor.upstream - 1
        why = f"{passed} source offsets after the last sync before it ({floor.upstream} is {floor.downstream})"
        found.append(CheckpointTranslation(floor.downstream + 1, passed, why, by_sync=True))
    known = floor is not None and floor.upstream == offset  # then a checkpoint adds nothing
    if checkpoint is not None and checkpoint.upstream <= offset and not known:
        why = f"the checkpoint says {checkpoint.downstream} for source offset {checkpoint.upstream}"
        found.append(CheckpointTranslation(checkpoint.downstream, None, why, by_sync=False))
    if not found:
        return None
    best = max(found, key=lambda each: (each.target_offset, each.at_most is not None))
    if best.at_most is None and floor is not None and floor.upstream < offset:
        # the offset is at or beyond the sync's own, so at most what the sync's would read lies before it
        best = replace(best, at_most=offset - floor.upstream - 1)
    bounds = [end - best.target_offset]
    bounds += [] if best.at_most is None else [best.at_most]
    bounds += [] if following is None else [following.downstream - best.target_offset]
    best = replace(best, at_most=max(0, min(bounds)))
    if best.target_offset < start:
        return replace(best, target_offset=start, why=f"{best.why}; the target's log begins at {start}")
    if best.target_offset > end:
        return replace(best, target_offset=end, at_most=0, why=f"{best.why}; the target's log ends at {end}")
    return best


def _place(
    snapshot: Snapshot,
    position: GroupPosition,
    checkpoints: Mapping[tuple[str, TopicPartition], Checkpoint],
    syncs: Mapping[TopicPartition, Sequence[OffsetSync]],
    *,
    final: bool,
) -> PlannedPosition:
    view = snapshot.partitions.get(position.tp)
    base = replace(
        PlannedPosition.unplaced(position, snapshot.link.target_topic(position.topic)),
        existing=snapshot.committed.get((position.group, position.tp)),
    )
    if view is None or view.target_start is None or view.target_end is None:
        reason = f"{base.target_topic}:{position.partition} is not on {snapshot.target.alias}"
        return replace(base, reason=reason, why=reason, no_reset=NoReset.NOT_ON_TARGET)
    checkpoint = checkpoints.get((position.group, base.target_tp))
    found = answer(
        position.offset,
        syncs.get(position.tp, ()),
        checkpoint,
        view.target_start,
        view.target_end,
    )
    if found is None:
        reason = "MirrorMaker 2 has neither a checkpoint nor a sync at or below this offset"
        return replace(base, reason=reason, why=reason)
    exact = found.by_sync and found.at_most == 0 and found.target_offset < view.target_end
    why = None if exact else f"by MirrorMaker 2: {found.why}; at most {found.at_most} records are read again"
    if found.target_offset == view.target_end:
        why = f"by MirrorMaker 2: {found.why}; it is the log's end: records missing before it are unknown"
    placed = replace(
        base,
        target_offset=found.target_offset,
        strategy=Strategy.MIRRORMAKER,
        translation=Certainty.EXACT if exact else Certainty.CONSERVATIVE,
        reread=0 if found.at_most == 0 else None,
        reread_at_most=found.at_most,
        skipped=0 if found.by_sync else None,
        reason=why,
        why=why or found.why,
    )
    of_checkpoint = checkpoint is not None and checkpoint.at == position.captured_at  # else drkit read or captured it
    return bounded(placed, position.tp, snapshot, final=final and not of_checkpoint, elsewhere=of_checkpoint)


def check_possible(snapshot: Snapshot, mode: Mode) -> None:
    """Raise `Refused` if MirrorMaker 2's records don't suffice for a plan."""
    if not snapshot.target.reachable:
        raise snapshot.target.refusal()
    if mode is Mode.PLANNED:
        raise Refused(
            "a planned move can't rely on MirrorMaker 2",
            meaning="It doesn't record how far it has mirrored, so drkit can't show that nothing is lost",
            remedy="Use drkit mirror for a planned move, or --unplanned",
        )
    if not snapshot.positions:
        raise Refused(
            f"MirrorMaker 2 has no checkpoint of a group that {snapshot.link.id} carries",
            remedy="Check `groups` and `topics` of the link, and MirrorMaker 2's own `groups` and replication policy",
        )


def cautions(offsets: MirrorMakerOffsets, positions: Sequence[PlannedPosition]) -> list[str]:
    """What an operator must know of positions from MirrorMaker 2."""
    said = list(offsets.notes)
    bound = bound_of(positions)
    if bound is None:
        said.append("how much is read again isn't known")
    elif bound:
        said.append(f"at most {bound:,} records are read again: MirrorMaker 2 records offsets only now and then")
    if any(position.target_offset is not None and position.skipped is None for position in positions):
        said.append(
            "some positions rest on checkpoints alone: those of MirrorMaker 2 before 3.5.1 may pass unread records "
            "(KAFKA-12468)"
        )
    said.append("drkit can't stop MirrorMaker 2: stop it first, and its sync.group.offsets above all")
    return said


def bound_of(positions: Sequence[PlannedPosition]) -> int | None:
    """How many records are read again at most, in total; None: unknown."""
    return total(p.reread_bound for p in positions if p.target_offset is not None)

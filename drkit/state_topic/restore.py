"""Fills a new store from a backup.

A backup lacks later changes of the links. So every link that was active is paused until an operator has checked that it
wasn't failed over since, and positions beyond each partition's watermark are conservative (`store_recovered`) until a
mirror has compared the records there.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from drkit.model.clock import iso, now
from drkit.model.digests import RangeDigest
from drkit.model.errors import Refused
from drkit.model.link_state import STORE_RECOVERED, Direction, LinkControl, Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.state_topic.guard import BEGUN, RECOVERY, RESTORED, RESTORING, STATE, begun_by
from drkit.state_topic.recovery import put_control, with_row_at
from drkit.store import codec
from drkit.store.api import WholeStore
from drkit.store.backup import Backup, BackupBlock, blocks
from drkit.store.producers import retire_noted_producers
from drkit.store.timeline import read_state
from drkit.store.workers import BEFORE, lose_workers


def holds_something(store: WholeStore) -> bool:
    """Whether the store has any data other than those of interrupted recoveries, or of an interrupted restore.

    A restore ends all its links one after the other: while one isn't over, none of the others was resumed.
    """
    notes = [store.notes(link, RECOVERY) for link in store.links()]
    restoring = any(each.get(STATE) == RESTORING for each in notes)
    left = [
        each for each in notes if each.get(STATE) not in {BEGUN, RESTORING} and not (restoring and RESTORED in each)
    ]
    return bool(left or (not restoring and (store.runs() or store.journals())))


def check_whole(backup: Backup) -> None:
    """Raise `Refused` if the backup is of a store that a recovery or a restore had filled in part."""
    for block in blocks(backup.path):
        for kind, name, body in block.rows if block.kind == "note" else ():
            if kind == RECOVERY and name == STATE and begun_by(body) is not None:
                raise Refused(
                    f"{backup.path} is of a store that had only a part of the state of {block.link}",
                    meaning="A recovery or restore of that store was interrupted before. Restored, it would count as "
                    "whole. Nothing was changed",
                    remedy="Restore another backup; or fill a new store from the copy on the target: drkit store "
                    f"recover --from {_of(block).target} --link '{block.link}'",
                )


def restore(store: WholeStore, backup: Backup, configured: Collection[LinkId]) -> list[LinkControl]:
    """Fill a store that holds nothing (`holds_something`); can be repeated after an interruption.

    What an interrupted restore or recovery left in the store is removed.

    Args:
        store: the store.
        backup: as `read_backup` read it.
        configured: the links of the configuration; a way back isn't one, and follows its link.

    Returns:
        the current state of each configured link of the backup.

    Raises:
        Unreachable: the store doesn't answer.
    """
    _begin(store, backup)
    marks: dict[LinkId, dict[TopicPartition, Watermark]] = defaultdict(dict)
    controls: dict[LinkId, LinkControl] = {}
    digests: dict[LinkId, list[RangeDigest]] = defaultdict(list)
    for block in blocks(backup.path):
        if block.kind == "range_digest" and block.link is not None:
            digests[block.link] += [_digest(*row) for row in block.rows]
            continue
        if block.kind == "watermark" and block.link is not None:
            marks[block.link] |= {mark.tp: mark for mark in (codec.read_watermark(*row) for row in block.rows)}
        if block.kind == "link_control" and block.link is not None:
            controls[block.link] = codec.read_link_control(block.link, *block.rows[0])
            continue
        _PUT[block.kind](store, block)
    found = []
    for link in backup.links:
        retire_noted_producers(store, link)
        lose_workers(store, link, [BEFORE], store.time())
        _put_digests(store, link, digests[link])
        for mark in marks[link].values():
            _doubt(store, link, mark, backup)
        control = controls.get(link)
        if link in configured:
            control = _held(link, control, backup)
            found.append(control)
        put_control(store, control)
    for link in backup.links:  # last, and nothing else between: until then none of the links is used
        store.put_notes(link, RECOVERY, {STATE: str(iso(now())), RESTORED: str(iso(backup.created_at))})
    return found


def _begin(store: WholeStore, backup: Backup) -> None:
    if store.links() and not holds_something(store):
        store.remove_all()
    for link in backup.links:
        store.put_notes(link, RECOVERY, {STATE: RESTORING})


def _held(link: LinkId, control: LinkControl | None, backup: Backup) -> LinkControl:
    """Sealed or reversed links stay so; active ones wait for an operator."""
    if control is not None and control.direction is not Direction.ACTIVE:
        return control
    reason = f"restored from a backup of {iso(backup.created_at)}: resume it where it was not failed over since"
    if control is None:
        return LinkControl(link, Direction.PAUSED, 1, now(), reason, None, frozenset())
    return replace(control, direction=Direction.PAUSED, version=control.version + 1, changed_at=now(), reason=reason)


def _doubt(store: WholeStore, link: LinkId, mark: Watermark, backup: Backup) -> None:
    """Positions beyond a watermark go back to it, and the next record goes to its end."""
    rows = store.mappings(link, mark.tp, mark.epoch)
    more = [row for row in with_row_at(rows, mark) if row not in rows]
    store.append_mappings(link, more)
    store.put_problem(
        link,
        Problem(
            STORE_RECOVERED,
            mark.topic,
            mark.partition,
            f"the store was restored from a backup of {iso(backup.created_at)}: what landed on {link.target} beyond "
            f"source offset {mark.source_through} (target offset {mark.target_end}) since is not in it",
            f"While {link.source} answers, drkit mirror --link '{link}' compares what landed there, and settles this. "
            f"Else groups that had read further go back to source offset {mark.source_through} and read again",
            halted=False,
            since=now(),
            unsure_from=mark.source_through,
        ),
    )


def _put_digests(store: WholeStore, link: LinkId, digests: list[RangeDigest]) -> None:
    """By generation, the oldest first: readers prefer the newer holder's data."""
    by_generation: dict[int, list[RangeDigest]] = defaultdict(list)
    for each in digests:
        by_generation[each.generation].append(each)
    for generation in sorted(by_generation):
        store.put_range_digests(link, by_generation[generation])


def _digest(
    topic: str,
    partition: int,
    epoch: int,
    target_start: int,
    target_end: int,
    source_start: int,
    batches: int,
    records: int,
    digest: str,
    batch_crc: int,
    generation: int,
) -> RangeDigest:
    tp, raw = TopicPartition(topic, partition), base64.b64decode(digest)
    return codec.read_digest(
        tp, epoch, target_start, target_end, source_start, batches, records, raw, batch_crc, generation
    )


def _of(block: BackupBlock) -> LinkId:
    if block.link is None:
        raise ValueError(f"rows of {block.kind} without a link")
    return block.link


def _put_notes(store: WholeStore, block: BackupBlock) -> None:
    by_kind: dict[str, dict[str, str]] = defaultdict(dict)
    for kind, name, body in block.rows:
        by_kind[kind][name] = body
    for kind, notes in by_kind.items():
        if kind != RECOVERY:
            store.put_notes(_of(block), kind, notes)


def _put_problems(store: WholeStore, block: BackupBlock) -> None:
    for row in block.rows:
        store.put_problem(_of(block), codec.read_problem(*row))


def _put_states(store: WholeStore, block: BackupBlock) -> None:
    states = []
    for group, topic, at, before, held_until, expires_at, positions, topic_id in block.rows:
        packed = base64.b64decode(positions)
        states.append(read_state(group, topic, at, before, held_until, expires_at, packed, topic_id))
    store.put_group_states(_of(block), states)


def _put_journal(store: WholeStore, block: BackupBlock) -> None:
    for row in block.rows:
        store.append_entry(codec.read_entry(*row))


def _put_runs(store: WholeStore, block: BackupBlock) -> None:
    for row in block.rows:
        store.put_run(codec.read_run(*row))


def _put_mappings(store: WholeStore, block: BackupBlock) -> None:
    rows = [OffsetMapping(*row) for row in block.rows]
    for epoch in sorted({row.epoch for row in rows}):
        store.append_mappings(_of(block), [row for row in rows if row.epoch == epoch])


_PUT: dict[str, Callable[[WholeStore, BackupBlock], Any]] = {
    "generation": lambda store, block: store.raise_generation(_of(block), block.rows[0][0]),
    "topic_state": lambda store, block: store.put_topic_states(
        _of(block), [codec.read_topic_state(*row) for row in block.rows]
    ),
    "note": _put_notes,
    "problem": _put_problems,
    "group_position": lambda store, block: store.put_group_positions(
        _of(block), codec.read_group_positions(block.rows)
    ),
    "group_state": _put_states,
    "watermark": lambda store, block: store.put_watermarks(
        _of(block), [codec.read_watermark(*row) for row in block.rows]
    ),
    "mapping": _put_mappings,
    "run": _put_runs,
    "journal": _put_journal,
}

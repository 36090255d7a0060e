"""Reads a link's state from its state topic, and checks what is proven."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.clock import from_millis
from drkit.model.errors import DrkitError
from drkit.model.link_state import LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.state_topic import connection
from drkit.state_topic.copy_topic import find_copy
from drkit.state_topic.records import (
    FORMAT,
    POSITIONS_A_RECORD,
    RowBlock,
    StateKind,
    proven_rows,
    read_key,
)
from drkit.store import codec
from drkit.store.api import LinkStore


class ProvenPartition(NamedTuple):
    """The proven part of a partition: all rows that its watermark counts."""

    watermark: Watermark
    rows: list[OffsetMapping]


@dataclass
class LinkCopy:
    """A link's state in its topic. `written_at`: when its last record was written; `records`: the number of keys.

    `unproven`: watermarks whose rows aren't those that they count. `counted`: the number of rows that each watermark
    counts, and the chain over them. `headless`: those whose first rows were deleted from the topic.
    `begins`: the first offset of the topic; beyond 0 records were deleted: compaction keeps it. `unreadable`: keys with
    undecodable values.
    """

    topic: str
    written_at: datetime | None = None
    records: int = 0
    control: LinkControl | None = None
    topics: dict[str, TopicState] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    problems: list[Problem] = field(default_factory=list)
    positions: list[GroupPosition] = field(default_factory=list)
    partitions: dict[TopicPartition, ProvenPartition] = field(default_factory=dict)
    unproven: dict[TopicPartition, Watermark] = field(default_factory=dict)
    counted: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    headless: set[TopicPartition] = field(default_factory=set)
    begins: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def watermarks(self) -> dict[TopicPartition, Watermark]:
        """How far a store knew each partition to be mirrored, whether its rows are proven or not."""
        return {tp: found.watermark for tp, found in self.partitions.items()} | self.unproven

    @property
    def lost_marks(self) -> set[TopicPartition]:
        """The partitions whose watermark can't be read."""
        keys = (read_key(key.encode()) or ("",) for key in self.unreadable)
        return {TopicPartition(str(key[1]), int(key[2])) for key in keys if key[0] == StateKind.WATERMARK}


def read_copy(
    link: Link,
    store: LinkStore | None,
    target: ClusterConfig,
    admin: ClusterAdmin,
    *,
    seconds: float = connection.READ_SECONDS,
) -> LinkCopy | None:
    """The copy on the target; None: there is none.

    Args:
        link: a configured link.
        store: its store; None: it was lost.
        target: the target's configuration.
        admin: a connection to it.
        seconds: how long reading the topic may take.

    Raises:
        Unreachable: the target doesn't answer.
        Refused: it may not be read, or several topics may be it.
        DrkitError: another version of drkit wrote it.
    """
    topic = find_copy(link, store, admin, target)
    if topic is None:
        return None
    copy = copy_of(link, topic, connection.read_all(link.id.target, target, topic, seconds=seconds))
    copy.begins = connection.begins(admin, topic)
    return copy


def copy_of(link: Link, topic: str, found: Mapping[bytes, SmallTopicRecord]) -> LinkCopy:
    """The copy from these records."""
    copy = LinkCopy(topic)
    marks: dict[TopicPartition, tuple[Watermark, int, str]] = {}
    blocks: dict[tuple[TopicPartition, int], list[RowBlock]] = defaultdict(list)
    newest = -1
    for raw, record in found.items():
        key = read_key(raw)
        if key is None:
            continue
        newest = max(newest, record.at_millis)
        if record.value is None:
            continue
        copy.records += 1
        try:
            value = json.loads(record.value)
            if key[0] == StateKind.WATERMARK:
                mark = codec.read_watermark(*value["mark"])
                marks[mark.tp] = mark, value["rows"], value["chain"]
            elif key[0] == StateKind.ROWS:
                tp, epoch, number = TopicPartition(str(key[1]), int(key[2])), int(key[3]), int(key[4])
                pairs = tuple((source, target) for source, target in value)
                blocks[tp, epoch].append(RowBlock(number, pairs))
            else:
                _take(copy, link, key, value)
        except (ValueError, TypeError, KeyError, IndexError):
            copy.unreadable.append(raw.decode(errors="replace"))
    copy.written_at = from_millis(newest) if newest >= 0 else None
    for tp, (mark, count, chain) in sorted(marks.items()):
        there = sorted(blocks[tp, mark.epoch])
        rows = proven_rows(tp, mark.epoch, there, count, chain)
        copy.counted[tp] = count, chain
        if rows is None:
            copy.unproven[tp] = mark
            if [block.number for block in there] != list(range(len(there))) or not there:
                copy.headless.add(tp)
        else:
            copy.partitions[tp] = ProvenPartition(mark, rows)
    copy.problems.sort(key=lambda problem: problem.since)
    return copy


def _take(copy: LinkCopy, link: Link, key: tuple[str | int, ...], value: Any) -> None:
    match key[0]:
        case StateKind.LINK:
            if value["format"] != FORMAT:
                raise DrkitError(
                    f"topic {copy.topic} on {link.id.target} has format {value['format']}, this drkit knows {FORMAT}",
                    remedy="Use the drkit that wrote it",
                )
        case StateKind.CONTROL:
            control = codec.read_link_control(link.id, *value)
            if copy.control is None or copy.control.version < control.version:
                copy.control = control
        case StateKind.TOPIC:
            copy.topics[str(key[1])] = codec.read_topic_state(*value)
        case StateKind.NOTE:
            copy.notes[str(key[1])][str(key[2])] = value
        case StateKind.PROBLEM:
            copy.problems.append(codec.read_problem(*value))
        case StateKind.POSITIONS:
            first = int(key[3]) * POSITIONS_A_RECORD
            copy.positions += codec.read_group_positions(
                (str(key[1]), str(key[2]), *each) for each in value if first <= each[0] < first + POSITIONS_A_RECORD
            )

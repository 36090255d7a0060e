"""The records of a link's state topic: keys, values, and the proof that mapping rows are complete. Pure.

| key | value |
|---|---|
| `link` | format, link, ids of both clusters, when it was last written |
| `control` version | the link's decision; a late writer's may be beside a newer one, and the highest version counts |
| `topic` T | a topic's state |
| `note` kind, name | a note |
| `problem` kind, T, p | a problem |
| `positions` group, T, block | a group's positions on up to `POSITIONS_A_RECORD` partitions |
| `rows` T, p, epoch, block | up to `ROWS_A_RECORD` mapping rows |
| `watermark` T, p | the watermark, how many rows there are, and the chain over them |

Keys are JSON lists, values JSON; columns are those of `drkit.store.codec`.

**Proof.** Several writers may be running, one of them late, and compaction keeps only the newest record of a key. So
each watermark has the number of the partition's rows and a hash chain over them: rows are used only if they are exactly
these (`proven_rows`). Rows are written before the watermark that counts them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from drkit.model.offsets import OffsetMapping
from drkit.model.runs import patterns_checksum
from drkit.model.topology import Link, LinkId, TopicPartition

FORMAT = 1
ROWS_A_RECORD = 256
POSITIONS_A_RECORD = 500
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.2",
}
NOT_KEPT = frozenset({"worker", "statistics", "history_minutes", "history_quarters", "groups_log"})
"""Kinds of notes that are useless once their writer is gone, or that only show more where they are (`groups_log`)."""
_DIGEST_BYTES = 8
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")

_SECTION_SIZE = {"rows": 3, "positions": 3, "note": 2}

Key = tuple[str | int, ...]


class StateKind(StrEnum):
    """The first element of a key."""

    LINK = "link"
    CONTROL = "control"
    TOPIC = "topic"
    NOTE = "note"
    PROBLEM = "problem"
    POSITIONS = "positions"
    ROWS = "rows"
    WATERMARK = "watermark"


def state_topic(link: Link) -> str:
    """The name that a configured link's first state topic gets, on its target. Internal: no link mirrors it.

    Links of two configurations between the same clusters differ in their topic patterns, and so in this name. Which
    name a link has: `copy_topic`.
    """
    return f"{state_topic_prefix(link.id)}{patterns_checksum(link):08x}"


def state_topic_prefix(link: LinkId) -> str:
    """The common prefix of the names of a link's state topics, with any patterns."""
    return _ILLEGAL.sub("-", f"__drkit_state.{link.source}.{link.target}.")


STATE_TOPICS = re.compile(r"__drkit_state[.].+[.][0-9a-f]{8}")
"""The names of all links' state topics."""


def key_bytes(key: Key) -> bytes:
    """A key as it is written."""
    return json.dumps(list(key), ensure_ascii=False, separators=(",", ":")).encode()


def read_key(raw: bytes | None) -> Key | None:
    """The key of a record; None: it is none of drkit's."""
    try:
        found = json.loads(raw or b"")
    except ValueError:
        return None
    return tuple(found) if isinstance(found, list) and found and found[0] in set(StateKind) else None


def section_of(raw: bytes) -> Key:
    """The section of a key, compared as a whole: rows by partition, positions by group and topic, else by kind."""
    key = read_key(raw) or ("",)
    return key[: _SECTION_SIZE.get(str(key[0]), 1)]


def value_bytes(value: Any) -> bytes:
    """A value as it is written."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a value of a state topic")


# -- mapping rows ----------------------------------------------------------------------------------


def chained(chain: str, source_offset: int, target_offset: int) -> str:
    """The chain with one row more. It begins with the empty text."""
    text = f"{chain} {source_offset} {target_offset}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


class RowBlock(NamedTuple):
    """A record of rows: its number, and the rows as (source, target)."""

    number: int
    rows: tuple[tuple[int, int], ...]


class RowBlocks:
    """The rows of one partition and epoch as blocks, which only grow. Not shared by threads.

    `read_through`: the source offset of the last of the `rows` that they began with.
    """

    def __init__(self, epoch: int, rows: Iterable[tuple[int, int]] = ()) -> None:
        self.epoch = epoch
        self.count = 0
        self.chain = ""
        self.read_through = -1
        self._last: list[tuple[int, int]] = []
        self._changed: dict[int, RowBlock] = {}
        for source, target in rows:
            self.add(source, target)
            self.read_through = source

    def add(self, source_offset: int, target_offset: int) -> bool:
        """Append a row; False: it doesn't follow the others, so they must be read again."""
        if self._last and source_offset <= self._last[-1][0]:
            return (source_offset, target_offset) in self._last
        if len(self._last) == ROWS_A_RECORD:
            self._last = []
        self._last.append((source_offset, target_offset))
        self.chain = chained(self.chain, source_offset, target_offset)
        self.count += 1
        number = (self.count - 1) // ROWS_A_RECORD
        self._changed[number] = RowBlock(number, tuple(self._last))
        return True

    def begin(self, rows: Sequence[tuple[int, int]]) -> bool:
        """Whether all of these rows are the first of the given ones."""
        return RowBlocks(self.epoch, rows[: self.count]).chain == self.chain

    def taken(self) -> list[RowBlock]:
        """The blocks that changed since the last call."""
        changed = list(self._changed.values())
        self._changed = {}
        return changed


def begins_with(pairs: Sequence[tuple[int, int]], count: int, chain: str) -> bool:
    """Whether the first rows, as (source, target), are those that a watermark counts."""
    reached = ""
    for source, target in pairs[:count]:
        reached = chained(reached, source, target)
    return len(pairs) >= count and reached == chain


def proven_rows(
    tp: TopicPartition, epoch: int, blocks: Sequence[RowBlock], count: int, chain: str
) -> list[OffsetMapping] | None:
    """The rows that the watermark counts; None: these blocks don't match it.

    Args:
        tp: the partition.
        epoch: its epoch.
        blocks: ascending by number.
        count: how many rows the watermark counts.
        chain: the chain over them.
    """
    pairs = [pair for block in blocks for pair in block.rows]
    if not begins_with(pairs, count, chain):
        return None
    pairs = pairs[:count]
    return [OffsetMapping(*tp, epoch, source, target) for source, target in pairs]

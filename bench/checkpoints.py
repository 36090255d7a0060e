"""MirrorMaker 2's translated offsets, from its checkpoints topic on the target."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bench.judge import Place
from bench.reader import read

TOPIC = "{source}.checkpoints.internal"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's position on the source and MirrorMaker 2's translation of it."""

    group: str
    place: Place
    source_offset: int
    target_offset: int


def read_checkpoints(address: str, source: str) -> dict[tuple[str, Place], Checkpoint]:
    """The newest checkpoint of each group and partition on a target cluster."""
    found = {}
    for record in read(address, TOPIC.format(source=source)):
        if record.key is not None and record.value is not None:
            checkpoint = decode(record.key, record.value)
            found[checkpoint.group, checkpoint.place] = checkpoint
    return found


def decode(key: bytes, value: bytes) -> Checkpoint:
    """A checkpoint record. Key: group, topic (strings), partition (int32). Value: version 0 (int16),
    upstream and downstream offset (int64), metadata.

    Raises:
        ValueError: another version.
    """
    group, at = _string(key, 0)
    topic, at = _string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    version, upstream, downstream = struct.unpack_from(">hqq", value, 0)
    if version != 0:
        raise ValueError(f"a checkpoint of version {version}, and this bench knows 0")
    return Checkpoint(group, Place(topic, partition), upstream, downstream)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    start = at + 2
    return data[start : start + size].decode(), start + size

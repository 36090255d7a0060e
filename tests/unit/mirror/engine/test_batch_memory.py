"""What the engine's queues take of memory: whole answers as long as one batch of them waits, and no longer."""

from __future__ import annotations

import pytest

from drkit.kafka.client.connection import BufferPool
from drkit.mirror.engine.buffer_accounting import BufferAccounting
from drkit.mirror.engine.inflight_window import Mark
from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.engine.partition_state import Append, Markers
from tests.unit.kafka.client.test_frames import free_bytes

_MIB = 1 << 20
MARK = Mark(PartitionProgress(1, 1), done=False)


def append(records: memoryview | bytes) -> Append:
    return Append((b"h" * 61, records), 1, MARK, 0, 0)


@pytest.fixture
def frames() -> BufferPool:
    return BufferPool()


def test_an_answer_counts_whole_until_its_last_batch_is_sent(frames: BufferPool) -> None:
    memory, frame = BufferAccounting(), frames.lend(8 * _MIB)
    large, small = append(frame[: 7 * _MIB]), append(frame[7 * _MIB : 7 * _MIB + 100])
    memory.wait([large, small])
    del frame
    assert memory.held == 8 * _MIB, "once, not for each batch"
    memory.sent(large)
    assert memory.held == 8 * _MIB + large.size, "what the connection has is a copy"
    memory.free(large)
    assert (memory.held, free_bytes(frames)) == (8 * _MIB, 0)
    memory.sent(small)
    memory.free(small)
    assert (memory.held, free_bytes(frames)) == (0, 8 * _MIB)


def test_what_little_is_left_of_an_answer_is_copied_when_memory_is_short(frames: BufferPool) -> None:
    memory, frame = BufferAccounting(), frames.lend(8 * _MIB)
    frame[:4] = b"kept"
    small, large = append(frame[:100]), append(frame[100:])
    memory.wait([small, large])
    del frame
    memory.compact()
    assert memory.held == 8 * _MIB, "most of it waits"
    memory.sent(large)
    memory.free(large)
    memory.compact()
    assert memory.held == small.size
    assert free_bytes(frames) == 8 * _MIB
    assert bytes(small.payload[1][:4]) == b"kept"
    memory.free(small)
    assert memory.held == 0


def test_dropped_batches_and_what_was_built_here_are_given_back(frames: BufferPool) -> None:
    memory, frame = BufferAccounting(), frames.lend(_MIB)
    items = [append(frame[:10]), append(b"merged"), Markers(3, MARK)]
    memory.wait(items)
    assert memory.held == _MIB + items[1].size + 300
    for item in items:
        memory.free(item)
    assert memory.held == 0

"""Memory for large answers: lent, kept while anybody refers to it, used again."""

from __future__ import annotations

import threading

from drkit.kafka.client.connection import BufferPool, _free

_MIB = 1 << 20


def free_bytes(frames: BufferPool) -> int:
    return sum(map(len, _free(frames._blocks)))


def test_what_is_lent_is_as_large_as_asked_for_and_can_be_written() -> None:
    frame = BufferPool().lend(_MIB + 5)
    assert len(frame) == _MIB + 5
    frame[:] = bytes(range(256)) * 4096 + b"12345"
    assert frame[-5:] == b"12345"
    assert not frame.readonly


def test_a_block_comes_back_only_when_no_part_of_it_is_referred_to() -> None:
    frames = BufferPool()
    frame = frames.lend(3 * _MIB)
    frame[:4] = b"held"
    part = frame[:4]
    del frame
    assert free_bytes(frames) == 0
    other = frames.lend(3 * _MIB)
    other[:4] = b"else"
    assert part == b"held"
    del part
    assert free_bytes(frames) == 3 * _MIB
    again = frames.lend(2 * _MIB)
    assert free_bytes(frames) == 0
    assert len(again) == 2 * _MIB


def test_what_is_far_too_large_is_not_lent_and_no_more_is_kept_than_should_be() -> None:
    frames = BufferPool()
    lent = [frames.lend(8 * _MIB) for _ in range(5)]
    assert free_bytes(frames) == 0
    lent.clear()
    small = frames.lend(_MIB)
    assert free_bytes(frames) == 8 * _MIB  # of forty; none of them was lent for so little
    del small
    assert free_bytes(frames) == 9 * _MIB
    frames.release()
    assert free_bytes(frames) == 0


def test_a_large_block_is_used_again_however_large() -> None:
    frames = BufferPool()
    frames.lend(40 * _MIB)[-4:] = b"mark"
    assert frames.lend(40 * _MIB)[-4:] == b"mark"


def test_threads_never_share_a_block() -> None:
    frames, together = BufferPool(), threading.Barrier(4)
    wrong: list[int] = []

    def work(mark: int) -> None:
        for _ in range(100):
            frame = frames.lend(_MIB)
            frame[:8] = bytes([mark]) * 8
            together.wait()  # until each has written
            if frame[:8] != bytes([mark]) * 8:
                wrong.append(mark)
            together.wait()
            del frame

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

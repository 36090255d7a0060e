"""The machine code against plain Python, byte for byte; and what happens where it can't be had."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.kafka import compiled
from drkit.kafka.compiled import ENOUGH
from drkit.kafka.compiled.kernel import tables
from drkit.kafka.compiled.native import Kernel
from drkit.kafka.protocol import records
from drkit.kafka.protocol.coalescing import joined_natively, joined_plainly, merged, scan
from drkit.kafka.protocol.record_batch import DELETE_HORIZON, HEADER_BYTES, parse
from drkit.mirror.engine.batch_splitter import Rules, pieces
from tests.support.links.batches import batch_bytes, retouched
from tests.support.wait import wait_until

_REFUSE_EXEC_GAIN = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, Linux 6.3: what systemd's MemoryDenyWriteExecute asks for
    sys.exit(77)
from drkit.kafka import compiled
try:
    compiled.load()
except PermissionError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return compiled.load()


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hasn't asked for the compiled loops."""
    monkeypatch.setattr(compiled._State, "kernel", None)
    monkeypatch.setattr(compiled._State, "wanted", False)
    monkeypatch.setattr(compiled._State, "found", 0)


_BODY = st.none() | st.binary(max_size=90) | st.integers(0, 9_000).map(bytes)
_ROW = st.tuples(st.integers(0, 2**45), st.none() | st.binary(max_size=70), _BODY, st.just([]))
_BATCHES = st.lists(st.lists(_ROW, min_size=1, max_size=18), min_size=1, max_size=10)


def _bytes(batches: list[list[tuple[int, bytes | None, bytes | None, list[object]]]]) -> bytes:
    found, base = [], 40
    for rows in batches:
        found.append(batch_bytes(rows, base_offset=base))
        base += len(rows)
    return b"".join(found)


@settings(max_examples=300, deadline=None)
@given(batches=_BATCHES)
def test_both_join_alike(kernel: Kernel, batches) -> None:
    data = _bytes(batches)
    assert joined_natively(kernel, data, 0) == joined_plainly(data, 0)


@settings(max_examples=500, deadline=None)
@given(batches=_BATCHES, at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), sums=st.booleans())
def test_both_stop_alike_where_a_byte_was_changed(kernel: Kernel, batches, at, byte, sums) -> None:
    """Also where the checksum says that the byte is right: a producer's defect, which a broker needn't see."""
    data = bytearray(_bytes(batches))
    index = int(at * len(data))
    data[index] = byte
    if sums:
        begin = 0
        for batch in parse(memoryview(bytes(data))):
            end = begin + len(batch.whole)
            struct.pack_into(">I", data, begin + 17, crc32c(bytes(data[begin + 21 : end])))
            begin = end
    plain, ours = joined_plainly(bytes(data), 0), joined_natively(kernel, bytes(data), 0)
    if sums and plain[1] != ours[1]:  # one is stricter with what no producer writes, and leaves it to others
        (shorter, _), (longer, _) = sorted((plain, ours), key=lambda each: each[1])
        assert longer is not None
        assert shorter is None or shorter.records() == longer.records()[: shorter.records_count]
    else:
        assert ours == plain


def test_batches_of_two_leader_epochs_stay_apart(kernel: Kernel) -> None:
    """Each run says of which epoch it is: a log that lost its tail is told by that."""
    rows = [[(1_000 + number, None, b"v", [])] for number in range(6)]
    data = bytearray(_bytes(rows))
    for number, batch in enumerate(parse(memoryview(bytes(data)))):
        at = sum(len(each.whole) for each in islice(parse(memoryview(bytes(data))), number))
        data[at + 12 : at + 16] = struct.pack(">i", 4 if number < 3 else 7)
        first_offset = batch.base_offset - number
    for joined in (joined_plainly, partial(joined_natively, kernel)):
        first, after = joined(bytes(data), 0)
        second, end = joined(bytes(data), after)
        assert first is not None
        assert second is not None
        assert [(each.base_offset, each.records_count, each.leader_epoch) for each in (first, second)] == [
            (first_offset, 3, 4),
            (first_offset + 3, 3, 7),
        ]
        assert end == len(data)
    found, damaged = scan(memoryview(bytes(data)))
    assert ([each.leader_epoch for each in found], damaged) == ([4, 7], None)


@pytest.mark.parametrize("moved", [1_000, -2], ids=["too high", "too low"])
def test_a_batch_whose_offset_is_out_of_order_is_damaged(moved: int) -> None:
    """No checksum covers it: the broker serves it, and a reader would pass over what follows."""
    data = bytearray(_bytes([[(5, b"k", b"v", []), (5, b"k", b"w", [])] for _ in range(4)]))
    whole = list(parse(memoryview(bytes(data))))
    struct.pack_into(">q", data, sum(len(each.whole) for each in whole[:2]), whole[2].base_offset + moved)
    found, damaged = scan(memoryview(bytes(data)))
    read = [each.last_offset for each in found]
    assert (read, damaged) == (([43], 1_044) if moved > 0 else ([], 40)), "of two nobody knows which one it is"


def test_a_cut_anywhere_is_no_record_less_and_none_more(kernel: Kernel) -> None:
    whole = _bytes([[(5 + n, b"k%d" % n, b"v" * n, [])] for n in range(12)])
    for end in range(HEADER_BYTES, len(whole)):
        assert joined_natively(kernel, whole[:end], 0) == joined_plainly(whole[:end], 0)


def test_stamps_from_the_ends_of_time_are_left_alone(kernel: Kernel) -> None:
    data = bytearray(_bytes([[(5, b"k", b"v", [])], [(5, b"k", b"w", [])]]))
    struct.pack_into(">q", data, 27, -(2**63))
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21 : next(parse(memoryview(bytes(data)))).whole.nbytes])))
    assert joined_natively(kernel, bytes(data), 0) == (None, 0)


@settings(max_examples=200, deadline=None)
@given(batches=_BATCHES, codec=st.sampled_from([0, 1, 2, 3, 4]))
def test_both_merge_alike(kernel: Kernel, batches, codec) -> None:
    data = b"".join(batch_bytes(rows, base_offset=40, codec=codec) for rows in batches)
    found = list(parse(memoryview(data)))
    state = compiled._State
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "kernel", kernel)
        done = merged(found, 10_000_000)
    assert done is not None
    ((count, built),) = done
    plain = records.build([record for batch in found for record in records.read(batch)], 0)
    assert count == len(found)
    assert built._replace(payload=bytes(records.decompress(codec, built.payload))) == plain


def test_batches_whose_stamps_count_from_a_delete_horizon_are_left_to_plain_python(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel
) -> None:
    monkeypatch.setattr(compiled._State, "kernel", kernel)
    one = batch_bytes([(5, b"k", b"v", [])])
    assert merged(list(parse(memoryview(one * 4))), 10_000) is not None
    assert merged(list(parse(memoryview(one * 3 + retouched(one, attributes=DELETE_HORIZON)))), 10_000) is None


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(_ROW, min_size=1, max_size=5), at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_records_that_are_not_what_they_should_be_are_not_merged(kernel: Kernel, rows, at, byte) -> None:
    (batch,) = parse(memoryview(batch_bytes(rows)))
    plain = bytearray(batch.records)
    plain[int(at * len(plain))] = byte
    done = kernel.merge([(bytes(plain), len(rows), 0)])
    if done is not None:  # then they are readable, and say the same
        bodies = [r.body for r in records.read_plain(bytes(plain), len(rows), 0, 0)]
        assert [r.body for r in records.read_plain(done[0], len(rows), 0, 0)] == bodies
    assert kernel.merge([(bytes(batch.records) + b"\0", len(rows), 0)]) is None
    assert kernel.merge([(bytes(batch.records)[:-1], len(rows), 0)]) is None


def test_what_is_merged_is_cut_where_the_target_takes_no_more(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    monkeypatch.setattr(compiled._State, "kernel", kernel)
    rows = [(n, b"k%d" % n, bytes(100), []) for n in range(60)]
    found = list(parse(memoryview(b"".join(batch_bytes(rows[n : n + 3], base_offset=n) for n in range(0, 60, 3)))))
    runs = merged(found, 2_000)
    assert runs is not None
    assert [count for count, _ in runs] == [4] * 5
    assert all(len(built.payload) <= 2_000 for _, built in runs)
    assert sum(built.records_count for _, built in runs) == 60
    assert merged(found, 300) is None  # not even one of them fits: plain Python takes it apart


@pytest.mark.usefixtures("unasked")
def test_a_steady_stream_of_small_batches_does_without() -> None:
    for _ in range(ENOUGH // 40 + 1):
        scan(memoryview(_bytes([[(5, b"k", b"v", [])]] * 40)))
    assert not compiled._State.wanted


@pytest.mark.usefixtures("unasked")
def test_a_short_backlog_does_without() -> None:
    scan(memoryview(_bytes([[(5, b"k", b"v", [])]] * 2_000)))
    assert not compiled._State.wanted


@pytest.mark.usefixtures("unasked", "kernel")
@pytest.mark.parametrize(("records_each", "size", "codec"), [(1, 5, 0), (1, 1_000, 0), (16, 10, 0), (10, 100, 3)])
def test_a_long_backlog_of_small_batches_has_it_loaded(
    records_each: int, size: int, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "ENOUGH", 400)
    rows = [(5, b"k", bytes(size), [])] * records_each
    data = b"".join(batch_bytes(rows, base_offset=n * records_each, codec=codec) for n in range(200))
    for _ in range(2):
        assert not compiled._State.wanted
        found, _ = scan(memoryview(data))
        list(pieces(found, (), 0, Rules(committed=True, limit=1_000_000, keeps_apart=lambda _: True)))
    wait_until(lambda: compiled.ready() is not None, timeout=120, what="the compiled loops are loaded")
    assert scan(memoryview(data)) == (found, None)


def test_compiled_code_is_kept_and_loaded_by_other_processes(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment["DRKIT_CACHE_DIR"] = str(tmp_path)
    for hits in (0, 2):
        script = (
            "from drkit.kafka import compiled; compiled.load(); from drkit.kafka.compiled import kernel; "
            f"assert kernel.join.cache_hits + kernel.renumber.cache_hits == {hits}"
        )
        subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert list((tmp_path / "numba").rglob("*.nbc"))


@pytest.mark.usefixtures("unasked")
def test_without_numba_plain_python_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for module in ("drkit.kafka.compiled.native", "drkit.kafka.compiled.kernel"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled._load()
    assert compiled.ready() is None
    assert "plain Python" in caplog.text
    (run,), _ = scan(memoryview(_bytes([[(5, b"k", b"v", [])]] * 3)))
    assert run.records_count == 3


@pytest.mark.usefixtures("unasked")
def test_without_another_thread_plain_python_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    compiled.found(ENOUGH)
    assert "can't start new thread" in caplog.text


def test_a_header_must_be_there(kernel: Kernel) -> None:
    whole = _bytes([[(5, b"k", b"v", [])]])
    for at in (-1, -166, len(whole) - HEADER_BYTES + 1):
        with pytest.raises(ValueError, match="no batch header"):
            kernel.join(whole, at)


@pytest.mark.usefixtures("unasked")
def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRKIT_COMPILED", "0")
    compiled.found(ENOUGH)
    assert not compiled._State.wanted


def test_where_memory_may_not_be_made_executable_it_says_so() -> None:
    ran = subprocess.run([sys.executable, "-c", _REFUSE_EXEC_GAIN], check=False, capture_output=True, text=True)
    if ran.returncode == 77:
        pytest.skip("this kernel can't refuse it (Linux 6.3)")
    assert "cannot allocate executable memory" in ran.stdout, ran.stderr


def test_the_tables_are_the_checksums() -> None:
    table = tables()
    crc = 0xFFFFFFFF
    for byte in b"123456789":
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    assert crc ^ 0xFFFFFFFF == crc32c(b"123456789") == 0xE3069283

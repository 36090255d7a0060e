"""The records of the two transactional logs, as Kafka's schemas have them."""

from __future__ import annotations

import struct

import pytest

from drkit.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, header, parse
from drkit.kafka.protocol.record_body import encode
from drkit.kafka.protocol.records import Damaged, RawRecord, build
from drkit.kafka.protocol.transaction_log import (
    CommitRecord,
    Status,
    TransactionEntry,
    commit_records,
    commits,
    removed_groups,
    transaction_entries,
)
from drkit.model.topology import TopicPartition


def batch(*bodies: tuple[bytes | None, bytes | None]):
    built = build([RawRecord(n, 0, encode(key, value, [])) for n, (key, value) in enumerate(bodies)], 0)
    head = header(
        attributes=TRANSACTIONAL | CONTROL,
        count=len(bodies),
        base_timestamp=built.base_timestamp,
        max_timestamp=built.max_timestamp,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        records=built.payload,
    )
    (found,) = parse(memoryview(head + bytes(built.payload)))
    return found


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


KEY = struct.pack(">h", 0) + text("app")


@pytest.mark.parametrize("version", [0, 1])
def test_a_step_of_a_transaction(version):
    head = struct.pack(">hqhib", version, 77, 3, 60_000, Status.PREPARE_COMMIT)
    if version:
        topics = bytes([2]) + compact("out") + bytes([3]) + struct.pack(">ii", 1, 4) + b"\0"
        value = head + topics + struct.pack(">qq", 1, 2) + b"\0"
    else:
        topics = struct.pack(">i", 1) + text("out") + struct.pack(">iii", 2, 1, 4)
        value = head + topics + struct.pack(">qq", 1, 2)
    found = list(transaction_entries(batch((KEY, value), (KEY, None))))
    partitions = frozenset({TopicPartition("out", 1), TopicPartition("out", 4)})
    assert found == [(0, TransactionEntry("app", 77, Status.PREPARE_COMMIT, partitions))]


@pytest.mark.parametrize("version", [0, 1])
def test_a_step_without_partitions(version):
    none = b"\0" if version else struct.pack(">i", -1)
    value = struct.pack(">hqhib", version, 77, 3, 60_000, Status.EMPTY) + none + struct.pack(">qq", 1, 2) + b"\0"
    ((_, entry),) = transaction_entries(batch((KEY, value)))
    assert (entry.status, entry.partitions) == (Status.EMPTY, frozenset())


@pytest.mark.parametrize("version", [1, 3, 4])
def test_a_committed_offset(version):
    key = struct.pack(">h", 1) + text("billing") + text("in") + struct.pack(">i", 2)
    epoch = struct.pack(">i", 9) if version >= 3 else b""
    metadata = compact("note") if version >= 4 else text("note")
    value = struct.pack(">hq", version, 120) + epoch + metadata + struct.pack(">q", 1)
    group = struct.pack(">h", 2) + text("billing")
    found = list(commit_records(batch((key, value), (group, b"whatever"), (key, None))))
    place = TopicPartition("in", 2)
    assert found == [CommitRecord("billing", place, 120, "note"), CommitRecord("billing", place, None, "")]


@pytest.mark.parametrize("kind", [0, 1])
def test_markers(kind):
    assert commits(batch((struct.pack(">hh", 0, kind), b"\0\0\0\0\0\1"))) is (kind == 1)


def test_what_is_cut_short_is_damaged():
    with pytest.raises(Damaged):
        list(transaction_entries(batch((KEY, b"\0\0\0"))))
    with pytest.raises(Damaged):
        list(commit_records(batch((struct.pack(">h", 1) + text("g"), b"\0"))))
    with pytest.raises(Damaged):
        commits(batch((b"\0", None)))


@pytest.mark.parametrize("version", [0, 1])
def test_a_transaction_of_several_topics_in_several_batches_of_a_log(version):
    head = struct.pack(">hqhib", version, 77, 3, 60_000, Status.PREPARE_ABORT)

    def topic(name: str, *partitions: int) -> bytes:
        rows = struct.pack(f">{len(partitions)}i", *partitions)
        if version:
            return compact(name) + bytes([len(partitions) + 1]) + rows + b"\1\5\2xy"  # a tagged field of 2 bytes
        return text(name) + struct.pack(">i", len(partitions)) + rows

    count = bytes([3]) if version else struct.pack(">i", 2)
    value = head + count + topic("a", 0, 7) + topic("b" * 60, 1) + struct.pack(">qq", 1, 2) + b"\0"
    found = list(transaction_entries(batch((None, value), (KEY, None), (KEY, value), (KEY, value))))
    partitions = frozenset({TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("b" * 60, 1)})
    assert found == [(n, TransactionEntry("app", 77, Status.PREPARE_ABORT, partitions)) for n in (2, 3)]


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_both_key_versions_and_nothing_else(version):
    key = struct.pack(">h", version) + text("billing") + text("in") + struct.pack(">i", 2)
    value = struct.pack(">hq", 3, 120) + struct.pack(">i", 9) + text("") + struct.pack(">q", 1)
    found = list(commit_records(batch((None, value), (key, value), (struct.pack(">h", 2) + text("g"), None))))
    assert found == [CommitRecord("billing", TopicPartition("in", 2), 120, "")]


def test_markers_are_told_by_their_type_wherever_they_stand():
    commit, abort = (struct.pack(">hh", 0, kind) for kind in (1, 0))
    assert commits(batch((None, b""), (b"\0", b""), (commit, b""), (abort, b"")))
    assert not commits(batch((abort, b""), (commit, b"")))
    assert not commits(batch((struct.pack(">hh", 1, 2), b"")))
    with pytest.raises(Damaged, match="the control batch at offset 0 holds no marker"):
        commits(batch((None, b"")))


def test_what_is_damaged_names_its_offset_and_log():
    with pytest.raises(Damaged, match="the record at offset 1 of __transaction_state"):
        list(transaction_entries(batch((KEY, None), (KEY, b"\0\0\0"))))
    unknown = struct.pack(">hqhib", 0, 77, 3, 60_000, 99) + struct.pack(">i", 0)
    with pytest.raises(Damaged, match="the record at offset 0 of __transaction_state"):
        list(transaction_entries(batch((KEY, unknown))))
    with pytest.raises(Damaged, match="the record at offset 1 of __consumer_offsets"):
        list(commit_records(batch((None, b""), (struct.pack(">h", 1) + text("g"), b"\0"))))


def test_tombstones_name_the_groups_that_are_removed():
    offset = struct.pack(">h", 1) + text("offset") + text("t") + struct.pack(">i", 0)
    classic, consumer = (struct.pack(">h", version) + text(name) for version, name in ((2, "classic"), (3, "consumer")))
    member = struct.pack(">h", 5) + text("stays") + text("member")
    kept = struct.pack(">h", 2) + text("kept")
    found = removed_groups(batch((offset, None), (classic, None), (consumer, None), (member, None), (kept, b"\0\0")))
    assert list(found) == ["offset", "classic", "consumer"]
    with pytest.raises(Damaged):
        list(removed_groups(batch((b"\0", None))))

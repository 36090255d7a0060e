"""Record batches in a broker's form, built with aiokafka: an encoder that isn't drkit's."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c

from drkit.kafka.protocol import records
from drkit.kafka.protocol.coalescing import scan
from drkit.kafka.protocol.record_batch import Batch

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
Plain = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Timestamp (ms), key, value, headers."""


def batch_bytes(rows: Sequence[Plain], *, base_offset: int = 0, codec: int = 0, magic: int = 2) -> bytes:
    """One batch (or message set) with these records at consecutive offsets from `base_offset` on."""
    if magic < 2:
        old = LegacyRecordBatchBuilder(magic, codec, 2**30)
        for number, (stamp, key, value, _) in enumerate(rows):
            old.append(base_offset + number, timestamp=stamp, key=key, value=value)
        data = bytes(old.build())
        return data if codec == 0 else struct.pack(">q", base_offset + len(rows) - 1) + data[8:]
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    for number, (stamp, key, value, headers) in enumerate(rows):
        builder.append(number, stamp, key, value, headers)
    data = bytes(builder.build())
    return struct.pack(">q", base_offset) + data[8:]


def control_bytes(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """A transaction marker (KIP-98): a control batch of one record."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, 0)
    body = b"\x00\x00\x00" + bytes([len(key) << 1]) + key + bytes([len(value) << 1]) + value + b"\x00"
    record = bytes([len(body) << 1]) + body
    tail = struct.pack(">hiqqqhii", 0x30, 0, 1, 1, producer_id, 0, -1, 1) + record
    return struct.pack(">qiibI", offset, 49 + len(record), 0, 2, crc32c(tail)) + tail


def retouched(data: bytes, **fields: int) -> bytes:
    """A batch with changed header fields and a matching checksum."""
    places = {
        "attributes": (21, ">h"),
        "last_delta": (23, ">i"),
        "base_timestamp": (27, ">q"),
        "max_timestamp": (35, ">q"),
        "producer_id": (43, ">q"),
        "count": (57, ">i"),
    }
    out = bytearray(data)
    for name, value in fields.items():
        at, shape = places[name]
        struct.pack_into(shape, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def thinned(keep: list[int], codec: int = 0) -> bytes:
    """A batch of ten records at offset 0, after the log cleaner kept only some; their deltas stay."""
    (whole,) = scan(memoryview(batch_bytes([(7, b"k%d" % i, b"v", []) for i in range(10)])))[0]
    assert isinstance(whole, Batch)
    out = bytearray()
    for record in records.read(whole):
        if record.offset in keep:
            middle = b"\0\0" + records.encoded(record.offset)
            out += records.encoded(len(middle) + len(record.body)) + middle + bytes(record.body)
    data = bytearray(batch_bytes([(7, b"k", b"v", [])])[:61]) + records.compress(codec, bytes(out))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return retouched(bytes(data), attributes=codec, count=len(keep), last_delta=9)

"""Record batches of an exact size, built once and sent many times."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Literal

from aiokafka.record.default_records import DefaultRecordBatchBuilder

Codec = Literal["none", "lz4", "zstd"]
_CODES: dict[Codec, int] = {"none": 0, "lz4": 3, "zstd": 4}
_NOBODY = -1  # producer id, epoch and sequence of a producer that isn't idempotent
_MAGIC = 2
_NO_LIMIT = 1 << 30
_WORDS = (
    "parcel", "harbour", "invoice", "terminal", "refund", "delayed", "customs", "approved", "warehouse", "priority",
    "returned", "carrier", "pending", "northbound", "signature", "fragile", "express", "partial", "confirmed", "route",
)  # fmt: skip
_SEED = 20261121


def json_values(size: int, count: int) -> list[bytes]:
    """`count` different JSON objects of exactly `size` bytes, that compress about as well as business events do.

    Raises:
        ValueError: `size` is too small for the fixed fields.
    """
    dice = random.Random(_SEED)  # noqa: S311 - test data
    return [_json_value(size, number, dice) for number in range(count)]


def _json_value(size: int, number: int, dice: random.Random) -> bytes:
    event = {"id": number, "user": dice.randrange(10**6), "amount": round(dice.uniform(1, 500), 2), "note": ""}
    room = size - len(json.dumps(event, separators=(",", ":")))
    if room < 0:
        raise ValueError(f"a JSON value of {size} bytes has no room for its fields")
    note = ""
    while len(note) < room:
        note += f"{dice.choice(_WORDS)} {dice.randrange(16**6):06x} "
    event["note"] = note[:room]
    return json.dumps(event, separators=(",", ":")).encode()


def record_batch(values: Sequence[bytes], codec: Codec, *, timestamp_ms: int | None = None) -> bytes:
    """One batch of format v2 that holds exactly these values, without keys, base offset 0, no producer id."""
    stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    builder = DefaultRecordBatchBuilder(_MAGIC, _CODES[codec], False, _NOBODY, _NOBODY, _NOBODY, _NO_LIMIT)
    for offset, value in enumerate(values):
        builder.append(offset, stamp, None, value, [])
    return bytes(builder.build())


def batch_variants(*, record_bytes: int, codec: Codec, records_a_batch: int, variants: int) -> list[bytes]:
    """Different batches of one shape, to be sent in turn."""
    values = json_values(record_bytes, records_a_batch * variants)
    return [
        record_batch(values[start : start + records_a_batch], codec) for start in range(0, len(values), records_a_batch)
    ]

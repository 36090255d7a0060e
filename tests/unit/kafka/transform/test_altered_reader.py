"""A source's log as a link makes it: batches at the source's offsets, and where a callable has no answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Generator, Sequence

import pytest

from drkit.kafka.protocol.record_batch import Batch, unreadable
from drkit.kafka.protocol.record_body import encode
from drkit.kafka.protocol.record_columns import RecordColumns
from drkit.kafka.protocol.records import RawRecord as Encoded
from drkit.kafka.transform.record_transform import Alteration
from drkit.kafka.transform.transformed_reader import AlteredReader, packed_alteration, rebuilt, unpacked_alteration
from drkit.model.errors import ConfigError
from drkit.model.record import Record
from drkit.model.topology import Link, LinkId
from tests.support.links import callables

LINK = Link(LinkId("a", "b"), topics=(".*",), filter="tests.support.links.callables:keeps_two_of_three")
STAMP = 1_700_000_000_000


def encoded(offset: int, value: bytes, stamp: int = STAMP) -> Encoded:
    return Encoded(offset, stamp, encode(b"k", value, [("h", None)]))


class Log:
    """Stands for a log's reader."""

    def __init__(self, *answers: Sequence[Batch]) -> None:
        self.answers = answers

    def read(self, *_: object) -> Generator[list[Batch], None, None]:
        yield from map(list, self.answers)


def seen(reader: AlteredReader, first: int = 0, until: int = 1_000) -> tuple[RecordColumns, list[tuple[int, int]]]:
    """Records, and offsets that can't be known."""
    columns = RecordColumns()
    unknown = [
        (batch.base_offset, batch.last_offset + 1)
        for found in reader.read("t", 0, first, until)
        for batch in found
        if not columns.add_readable(batch, first, until)
    ]
    return columns, unknown


def test_a_rebuilt_batch_holds_its_records_at_their_offsets() -> None:
    records = [encoded(7, b"x", STAMP + 5), encoded(9, b"y", STAMP - 3), encoded(2**30, b"z", -1)]
    columns = RecordColumns()
    columns.add(rebuilt(records), 0, 2**40)
    assert columns.offsets == [7, 9, 2**30]
    assert columns.stamps == [STAMP + 5, STAMP - 3, -1]
    assert columns.values == [b"x", b"y", b"z"]
    assert columns.headers == [[("h", None)]] * 3


def test_what_is_left_out_is_a_hole() -> None:
    log = Log(
        [rebuilt([encoded(n, b"v%d" % n) for n in range(10, 20)]), unreadable(20, 25)], [rebuilt([encoded(25, b"")])]
    )
    reader = AlteredReader(log, Alteration(LINK, callables.keeps_two_of_three, callables.redacts))
    columns, unknown = seen(reader, 11, 26)
    assert columns.offsets == [11, 12, 14, 15, 17, 18]
    assert columns.values == [b"V11", b"V12", b"V14", b"V15", b"V17", b"V18"]
    assert columns.keys == [b"k-k"] * 6
    assert unknown == [(20, 25)]
    assert reader.reasons == []


def flips() -> Callable[[Record], bool]:
    """Answers otherwise each time it is asked about offset 3 or 4."""
    turns = {3: itertools.cycle([True, False]), 4: itertools.cycle([False, True])}
    return lambda record: record.offset not in turns or next(turns[record.offset])


def raises(record: Record) -> bool:
    if record.offset in {3, 4}:
        raise ValueError("can't read this")
    return True


@pytest.mark.parametrize(
    ("asked", "why"),
    [(flips(), "returns another result if called again at source offset 3 of t:0"), (raises, "raised ValueError")],
)
def test_a_callable_without_one_answer_makes_its_offsets_unknown_and_no_others(
    asked: Callable[[Record], bool], why: str
) -> None:
    log = Log([rebuilt([encoded(n, b"v%d" % n) for n in range(8)])])
    reader = AlteredReader(log, Alteration(LINK, asked))
    columns, unknown = seen(reader)
    assert columns.offsets == [0, 1, 2, 5, 6, 7]
    assert unknown == [(3, 5)]
    assert len(reader.reasons) == 2
    assert why in reader.reasons[0]


def test_it_travels_as_json() -> None:
    packed = packed_alteration(LINK, "drkit.toml: links.0", "ida", "idb")
    reader = AlteredReader(
        Log([rebuilt([encoded(0, b"a"), encoded(1, b"b")])]), unpacked_alteration(json.loads(json.dumps(packed)))
    )
    assert seen(reader)[0].offsets == [0]
    with pytest.raises(ConfigError, match="can't be imported") as missing:
        unpacked_alteration(packed | {"filter": "not_there_at_all:f"})
    assert "on every node" in (missing.value.remedy or "")

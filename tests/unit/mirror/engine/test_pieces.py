"""What happens to fetched batches: forwarded, merged, taken apart, left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.kafka.protocol import records
from drkit.kafka.protocol.coalescing import scan
from drkit.mirror.engine.batch_splitter import Hole, RecordRun, Rules, SourceGap, TooLarge, pieces
from tests.support.links.batches import batch_bytes, control_bytes, retouched, thinned

pytestmark = pytest.mark.usefixtures("joining")

_ROW = (7, b"k", b"v", [])
RULES = Rules(committed=True, limit=1_000_000, keeps_apart=lambda _: True)
TOGETHER = RULES._replace(keeps_apart=lambda _: False)


def _cut(*parts: bytes, position: int = 0, aborted=(), rules: Rules = RULES):
    found, damaged = scan(memoryview(b"".join(parts)))
    assert damaged is None
    return list(pieces(found, aborted, position, rules))


def _told(cut) -> list[tuple[object, ...]]:
    return [
        ("hole", each.source_next)
        if isinstance(each, Hole)
        else ("run", each.source_first, each.source_next, each.records_count, each.reason)
        for each in cut
    ]


def _bodies(run: RecordRun) -> list[bytes]:
    plain = memoryview(records.decompress(run.attributes & 7, run.payload))
    return [bytes(r.body) for r in records.read_plain(plain, run.records_count, 0, run.base_timestamp)]


def _large(offset: int, codec: int = 0, count: int = 30) -> bytes:
    rows = [(7 + i, b"k%d" % (offset + i), b"v", []) for i in range(count)]
    return batch_bytes(rows, base_offset=offset, codec=codec)


def test_a_complete_batch_goes_as_it_is():
    data = _large(0, codec=4)
    (run,) = _cut(data)
    assert _told([run]) == [("run", 0, 30, 30, None)]
    assert bytes(run.payload) == data[61:]


def test_small_neighbours_become_one():
    parts = [batch_bytes([_ROW] * 3, base_offset=3 * i, codec=3) for i in range(4)]
    (run,) = _cut(*parts)
    assert _told([run]) == [("run", 0, 12, 12, "merged")]
    assert run.attributes == 3
    assert _bodies(run) == _bodies(_cut(batch_bytes([_ROW] * 12))[0])


def test_neighbours_of_another_codec_or_beyond_a_hole_stay_apart():
    parts = [
        batch_bytes([_ROW] * 2, base_offset=0),
        batch_bytes([_ROW] * 2, base_offset=2, codec=3),
        batch_bytes([_ROW] * 2, base_offset=6, codec=3),
    ]
    assert _told(_cut(*parts)) == [
        ("run", 0, 2, 2, None),
        ("run", 2, 4, 2, None),
        ("hole", 6),
        ("run", 6, 8, 2, None),
    ]


def test_what_is_below_the_position_is_not_sent_again():
    assert _told(_cut(_large(0), _large(30), position=30)) == [("run", 30, 60, 30, None)]
    (run,) = _cut(_large(0, codec=3), position=12)
    assert _told([run]) == [("run", 12, 30, 18, "partly_mirrored")]
    assert _bodies(run) == _bodies(_cut(_large(0))[0])[12:]
    ones = [batch_bytes([_ROW], base_offset=i) for i in range(5)]
    assert _told(_cut(*ones, position=3)) == [("run", 3, 5, 2, "merged")]


def test_markers_and_aborted_transactions_are_holes():
    open_ = 0x10
    parts = [
        retouched(_large(0), attributes=open_, producer_id=5),
        retouched(_large(30), attributes=open_, producer_id=6),
        control_bytes(60, 5, commit=False),
        control_bytes(61, 6, commit=True),
        retouched(_large(62), attributes=open_, producer_id=5),
        control_bytes(92, 5, commit=True),
    ]
    committed = _cut(*parts, aborted=[(5, 0)])
    assert _told(committed) == [
        ("hole", 30),
        ("run", 30, 60, 30, None),
        ("hole", 61),
        ("hole", 62),
        ("run", 62, 92, 30, None),
        ("hole", 93),
    ]
    everything = _cut(*parts, aborted=[(5, 0)], rules=RULES._replace(committed=False))
    assert sum(each.records_count for each in everything if isinstance(each, RecordRun)) == 90


def test_a_batch_emptied_by_the_cleaner_is_a_hole():
    header = bytearray(_large(0)[:61])
    header[8:12] = (49).to_bytes(4, "big")
    assert _told(_cut(retouched(bytes(header), count=0, last_delta=29))) == [("hole", 30)]


def test_compaction_holes_stand_apart_where_they_are_to_be_matched():
    assert _told(_cut(thinned([0, 1, 4, 8], codec=3))) == [
        ("run", 0, 2, 2, "compacted"),
        ("hole", 4),
        ("run", 4, 5, 1, "compacted"),
        ("hole", 8),
        ("run", 8, 9, 1, "compacted"),
        ("hole", 10),
    ]


def test_compaction_holes_are_gaps_of_one_run_otherwise():
    run, hole = _cut(thinned([2, 3, 7], codec=4), rules=TOGETHER)[1:]
    assert _told([run, hole]) == [("run", 2, 8, 3, "compacted"), ("hole", 10)]
    assert run.gaps == ((2, 7),)


@settings(max_examples=40)
@given(keep=st.sets(st.integers(0, 9), min_size=1, max_size=9), position=st.integers(0, 9), apart=st.booleans())
def test_every_record_kept_is_sent_once_in_its_order(keep, position, apart):
    cut = _cut(thinned(sorted(keep)), position=position, rules=RULES if apart else TOGETHER)
    sent, at = [], position
    for each in cut:
        if isinstance(each, RecordRun):
            assert each.source_first >= at
            gaps = dict(each.gaps)
            offset = each.source_first
            for index in range(each.records_count):
                offset = gaps.get(index, offset)
                sent.append(offset)
                offset += 1
            assert offset <= each.source_next
        assert each.source_next > at
        at = each.source_next
    assert sent == [offset for offset in sorted(keep) if offset >= position]
    assert at == 10


def test_append_time_becomes_the_timestamp_of_each_record():
    data = retouched(_large(0, codec=3), attributes=3 | 0x08, max_timestamp=99)
    (run,) = _cut(data)
    assert _told([run]) == [("run", 0, 30, 30, "log_append_time")]
    assert (run.base_timestamp, run.max_timestamp, run.attributes) == (99, 99, 3)


def test_a_batch_above_the_limit_is_split():
    rows = [(7, b"k", bytes([65 + i]) * 400, []) for i in range(30)]
    cut = _cut(batch_bytes(rows), rules=RULES._replace(limit=2_000))
    assert {each.reason for each in cut} == {"too_large"}
    assert all(61 + len(each.payload) <= 2_000 for each in cut)
    assert [body for each in cut for body in _bodies(each)] == _bodies(_cut(batch_bytes(rows))[0])


def test_a_few_small_batches_are_forwarded_each_by_itself():
    three = [batch_bytes([_ROW] * 2, base_offset=2 * i, codec=3) for i in range(3)]
    assert _told(_cut(*three)) == [("run", 0, 2, 2, None), ("run", 2, 4, 2, None), ("run", 4, 6, 2, None)]
    four = [*three, batch_bytes([_ROW] * 2, base_offset=6, codec=3)]
    assert _told(_cut(*four)) == [("run", 0, 8, 8, "merged")]


def test_small_batches_before_one_that_is_taken_apart_come_first():
    parts = [
        *(batch_bytes([_ROW] * 2, base_offset=2 * i) for i in range(4)),
        batch_bytes([(7, b"k", b"x" * 150, [])] * 17, base_offset=8),
        batch_bytes([_ROW] * 2, base_offset=25),
    ]
    cut = _cut(*parts, rules=RULES._replace(limit=2_000))
    assert [(each.source_first, each.source_next) for each in cut] == [(0, 8), (8, 18), (18, 25), (25, 27)]


def test_what_comes_before_a_record_above_the_limit_is_told():
    found, _ = scan(memoryview(batch_bytes([_ROW] * 2) + batch_bytes([(7, b"k", b"x" * 5_000, [])], base_offset=2)))
    cut = pieces(found, (), 0, RULES._replace(limit=2_000))
    assert _told([next(cut)]) == [("run", 0, 2, 2, "merged")]
    with pytest.raises(TooLarge):
        next(cut)


def test_a_record_that_fits_only_where_it_is_packed_tightly_is_not_too_large():
    value = b"".join(b'{"number": %d}' % (n * n) for n in range(2_000))
    found, _ = scan(memoryview(batch_bytes([(7, b"k", b"small", []), (7, b"k", value, [])], codec=3)))
    alone = list(records.read(found[0]))[1:]
    loose, tight = (61 + len(records.build(alone, 3, tight=each).payload) for each in (False, True))
    assert tight < loose
    (run,) = pieces(found, (), 1, RULES._replace(limit=tight))
    assert (run.reason, len(_bodies(run))) == ("partly_mirrored", 1)
    with pytest.raises(TooLarge):
        list(pieces(found, (), 1, RULES._replace(limit=tight - 1)))


def test_a_record_above_the_limit_is_named():
    rows = [(7, b"k", b"x" * 100, []), (7, b"k", b"x" * 5_000, [])]
    with pytest.raises(TooLarge, match="offset 1") as caught:
        _cut(batch_bytes(rows), rules=RULES._replace(limit=2_000))
    assert caught.value.offset == 1


def test_messages_of_an_old_format_become_one_batch():
    rows = [(10 + i, b"k%d" % i, b"v" * 200, []) for i in range(3)]
    cut = _cut(batch_bytes(rows, magic=1), position=1)
    assert _told(cut) == [("run", 1, 3, 2, "old_format")]


def test_old_formats_become_format_2():
    rows = [(10 + i, b"k%d" % i, b"v", []) for i in range(3)]
    cut = _cut(batch_bytes(rows, magic=1, codec=1))
    assert _told(cut) == [("run", 0, 3, 3, "old_format")]
    assert cut[0].attributes == 1


@pytest.mark.parametrize(
    "last", [_large(60), batch_bytes([_ROW] * 2, base_offset=60), control_bytes(60, 5, commit=True)]
)
@pytest.mark.parametrize("begin", [30, 0])
def test_a_gap_where_there_can_be_none_ends_what_is_appended(begin, last):
    parts = (_large(0), last) if begin else (last,)
    found = []
    data, damaged = scan(memoryview(b"".join(parts)))
    assert damaged is None
    with pytest.raises(SourceGap) as gap:
        found.extend(pieces(data, (), 0, RULES._replace(dense_from=0)))  # what comes before the error stays
    assert _told(found) == ([("run", 0, 30, 30, None)] if begin else [])
    assert (gap.value.first, gap.value.end) == (begin, 60)


def test_gaps_below_where_a_log_becomes_dense_are_holes():
    rules = RULES._replace(dense_from=60)
    assert _told(_cut(_large(0), _large(60), rules=rules)) == [
        ("run", 0, 30, 30, None),
        ("hole", 60),
        ("run", 60, 90, 30, None),
    ]
    with pytest.raises(SourceGap) as gap:
        _cut(_large(0), _large(61), rules=rules)
    assert (gap.value.first, gap.value.end) == (60, 61)


def test_where_a_message_of_an_old_format_begins_is_unknown_and_no_gap():
    old = (9).to_bytes(8, "big") + batch_bytes([_ROW] * 3, magic=1, codec=1)[8:]
    rules = RULES._replace(dense_from=0)
    assert _told(_cut(old, _large(10), rules=rules))[-1] == ("run", 10, 40, 30, None)
    with pytest.raises(SourceGap) as gap:
        _cut(old, _large(12), rules=rules)
    assert (gap.value.first, gap.value.end) == (10, 12)

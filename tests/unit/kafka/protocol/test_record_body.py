"""Key, value and headers of a record: read as aiokafka writes them, written so that it reads them, added to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.kafka.protocol.record_batch import parse
from drkit.kafka.protocol.record_body import can_name, decode, encode, encode_headers, with_headers
from drkit.kafka.protocol.records import read
from tests.support.links.batches import batch_bytes

SIZES = [0, 1, 63, 64, 127, 128, 3_999, 4_000, 4_001, 8_191, 8_192, 9_000]
"""Around where a length takes another byte, or is no longer looked up."""


def body_of(key, value, headers=()):
    """What aiokafka makes of it."""
    (batch,) = parse(memoryview(batch_bytes([(5, key, value, list(headers))])))
    (record,) = read(batch)
    return bytes(record.body)


@pytest.mark.parametrize("size", SIZES)
def test_lengths_of_every_class_are_written_and_read_alike(size):
    for key, value, headers in (
        (bytes(size), b"v", []),
        (b"k", bytes(size), []),
        (b"k", b"v", [("h", bytes(size))]),
        (b"k", b"v", [("h" * size, b"x")]),
    ):
        body = body_of(key, value, headers)
        assert encode(key, value, headers) == body
        assert decode(body) == (key, value, headers)


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 70, 200])
def test_any_number_of_headers_is_written_and_read_alike(count):
    headers = [(f"h{n}", None if n % 3 == 0 else b"v%d" % n) for n in range(count)]
    body = body_of(None, None, headers)
    assert encode(None, None, headers) == body
    assert decode(body) == (None, None, headers)


_TEXT = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _TEXT), max_size=4)


@given(_TEXT, _TEXT, _HEADERS, _HEADERS)
def test_headers_are_added_behind_a_record_s_own_which_stay_as_they_are(key, value, own, more):
    body = encode(key, value, own)
    assert with_headers(body, len(more), encode_headers(more)) == encode(key, value, [*own, *more])


@pytest.mark.parametrize("size", SIZES)
def test_headers_are_added_however_long_key_and_value_are(size):
    more = [("new", b"1")]
    for key, value in ((bytes(size), None), (None, bytes(size)), (bytes(size), bytes(size))):
        assert with_headers(encode(key, value, []), 1, encode_headers(more)) == encode(key, value, more)


@pytest.mark.parametrize("own", [0, 1, 61, 62, 63, 64, 65, 200])
def test_headers_are_added_however_many_there_are(own):
    there = [(f"h{n}", b"") for n in range(own)]
    for count in (0, 1, 2, 70):
        more = [(f"new{n}", None) for n in range(count)]
        assert with_headers(encode(b"k", b"v", there), count, encode_headers(more)) == encode(b"k", b"v", there + more)


def test_a_length_written_longer_than_it_need_be_is_read():
    body = encode(b"k", b"v", [("h", b"x")])
    longer = b"\x82\x00" + body[1:]
    assert decode(longer) == decode(body)
    assert decode(body[:2] + b"\x82\x00" + body[3:]) == decode(body)
    assert decode(with_headers(longer, 1, encode_headers([("n", None)]))) == (b"k", b"v", [("h", b"x"), ("n", None)])
    null = b"\x81\x00" + encode(None, b"v", [])[1:]
    assert decode(null) == (None, b"v", [])
    assert with_headers(null, 1, encode_headers([("n", None)])) == null[:-1] + encode(None, None, [("n", None)])[2:]
    none = encode(b"k", None, [])
    assert decode(none[:2] + b"\x81\x00" + none[3:]) == (b"k", None, [])


def test_a_header_s_name_that_is_no_utf_8_keeps_its_bytes():
    body = encode(b"k", b"v", [("xx", b"1")]).replace(b"xx", b"\xffx")
    key, value, headers = decode(body)
    assert headers == [("\udcffx", b"1")]
    assert encode(key, value, headers) == body


def test_which_texts_can_be_a_header_s_name():
    assert all(can_name(name) for name in ("", "h", "grüße", "\udcff"))
    assert not can_name("\ud800")


@pytest.mark.parametrize("headers", [[], [("h", b"x")]])
def test_a_body_that_ends_too_early_says_so(headers):
    with pytest.raises(IndexError):
        decode(encode(b"k", b"v", headers)[:4])
    with pytest.raises(IndexError):
        with_headers(b"\x02k\x02v", 1, b"")


@pytest.mark.parametrize("headers", [[], [("h", b"x")]])
def test_a_body_whose_lengths_reach_beyond_it_or_end_before_it_says_so(headers):
    body = encode(b"k", b"value", headers)
    with pytest.raises(IndexError):
        decode(body[:2] + b"\x7e" + body[3:])  # the value's length
    with pytest.raises(IndexError):
        decode(body + b"x")

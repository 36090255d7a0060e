"""How Kafka's protocol writes numbers, texts, arrays and tagged fields; transaction markers, byte for byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from drkit.kafka.protocol import encoding as form
from drkit.kafka.protocol.data_requests import WriteTxnMarkers, _Markers0, _Markers1


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16_383, "ff7f"), (16_384, "808001")],
)
def test_an_unsigned_varint_has_seven_bits_a_byte_the_lowest_first(value, written):
    assert form.unsigned(value).hex() == written
    data = memoryview(b"\xff" + bytes.fromhex(written) + b"\xff")
    assert form.read_unsigned(data, 1) == (value, 1 + len(written) // 2)


@given(st.integers(0, 2**32 - 1))
def test_every_length_reads_back(value):
    written = form.compact_length(value)
    assert form.compact_count(memoryview(written), 0) == (value, len(written))
    assert form.unsigned(value + 1) == written


@pytest.mark.parametrize("text", ["", "a", "grüße", "x" * 126, "x" * 127, "x" * 300])
def test_texts_are_written_with_their_length_in_bytes(text):
    size = len(text.encode())
    plain, compact = form.text(text), form.compact_text(text)
    assert plain == struct.pack(">h", size) + text.encode()
    for written, read in ((plain, form.string), (compact, form.compact_string)):
        assert read(memoryview(b"??" + written + b"??"), 2) == (text, 2 + len(written))


def test_null_is_read_as_the_empty_text_and_as_a_negative_count():
    assert form.string(memoryview(b"\xff\xffrest"), 0) == ("", 2)
    assert form.compact_string(memoryview(b"\0rest"), 0) == ("", 1)
    assert form.compact_count(memoryview(b"\0rest"), 0) == (-1, 1)
    assert form.count(memoryview(struct.pack(">i", 3) + b"rest"), 0) == (3, 4)


def test_tagged_fields_are_passed_over_or_read_by_their_tags():
    section = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"
    data = memoryview(b"?" + section + b"rest")
    assert form.tags(data, 1) == 1 + len(section)
    found, at = form.tagged(data, 1)
    assert ({tag: bytes(value) for tag, value in found.items()}, at) == ({0: b"abc", 129: b""}, 1 + len(section))
    assert form.tags(memoryview(b"\0rest"), 0) == 1
    assert form.no_tags(data, 7) == 7


# -- transaction markers ---------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "count"), [("t", 1), ("o" * 200, 3), ("x", 200)])
def test_markers_are_what_kafka_python_makes_of_them(topic, count):
    request = WriteTxnMarkers(77, 3, topic, 5, count)
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    one = marker(
        producer_id=77,
        producer_epoch=3,
        transaction_result=False,
        topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[5])],
        coordinator_epoch=0,
    )
    theirs = WriteTxnMarkersRequest(version=1, markers=[one] * count).encode()
    assert b"".join(request.build(_Markers1).parts) == theirs
    name = struct.pack(">h", len(topic)) + topic.encode()
    old = struct.pack(">qhb", 77, 3, 0) + struct.pack(">i", 1) + name + struct.pack(">iii", 1, 5, 0)
    assert b"".join(request.build(_Markers0).parts) == struct.pack(">i", count) + old * count


ERRORS = [("t", 5, 0), ("t", 6, 31), ("u", 0, 47)]


def test_an_answer_names_the_error_of_each_partition():
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = result.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult

    def by_topic(name):
        return [partition(partition_index=p, error_code=e) for each, p, e in ERRORS if each == name]

    topics = [topic(name=name, partitions=by_topic(name)) for name in ("t", "u")]
    markers = [result(producer_id=77, topics=topics), result(producer_id=78, topics=topics[1:])]
    data = WriteTxnMarkersResponse(version=1, markers=markers).encode()
    found = _Markers1.RESPONSE_TYPE.decode(memoryview(b"head" + data), 4)
    assert found.errors == [*ERRORS, ERRORS[2]]


def test_an_answer_of_the_old_version_names_them_too():
    def partitions(*rows):
        return struct.pack(">i", len(rows)) + b"".join(struct.pack(">ih", *row) for row in rows)

    t = struct.pack(">h", 1) + b"t" + partitions((5, 0), (6, 31))
    u = struct.pack(">h", 1) + b"u" + partitions((0, 47))
    data = struct.pack(">i", 2) + struct.pack(">qi", 77, 2) + t + u + struct.pack(">qi", 78, 1) + u
    found = _Markers0.RESPONSE_TYPE.decode(memoryview(b"head" + data), 4)
    assert found.errors == [*ERRORS, ERRORS[2]]

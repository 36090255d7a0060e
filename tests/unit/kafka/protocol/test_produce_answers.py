"""Appends by topics' names, and what brokers answer; topics by their ids, as they come and go."""

from __future__ import annotations

import struct
import uuid

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from drkit.kafka.protocol.data_requests import (
    Fetch,
    FetchPlace,
    FetchReply,
    Produce,
    Produced,
    TopicIds,
    _Fetch12,
    _Fetch13,
    _Produce8,
    _Produce13,
)

ONE, OTHER = uuid.uuid4().bytes, uuid.uuid4().bytes


def test_appends_by_names_are_what_kafka_python_makes_of_them() -> None:
    request = Produce(
        {"flights": [(3, (b"h" * 61, memoryview(b"r" * 200))), (4, (b"h" * 61, b""))], "o" * 200: [(0, (b"x", b"y"))]},
        timeout_ms=500,
    )
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData
    theirs = ProduceRequest(
        version=8,
        transactional_id=None,
        acks=-1,
        timeout_ms=500,
        topic_data=[
            topic(
                name="flights",
                partition_data=[part(index=3, records=b"h" * 61 + b"r" * 200), part(index=4, records=b"h" * 61)],
            ),
            topic(name="o" * 200, partition_data=[part(index=0, records=b"xy")]),
        ],
    )
    assert b"".join(request.build(_Produce8).parts) == theirs.encode()
    assert (request.build(_Produce8).API_KEY, request.build(_Produce8).API_VERSION) == (0, 8)


def test_an_answer_to_appends_says_what_came_of_each_partition() -> None:
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    refused = part.BatchIndexAndErrorMessage

    def answer(index, error, base, **more):
        fields = {"log_append_time_ms": -1, "log_start_offset": 7, "record_errors": [], "error_message": None}
        return part(index=index, error_code=error, base_offset=base, **(fields | more))

    records = [refused(batch_index=n, batch_index_error_message=why) for n, why in ((5, "why"), (6, None), (7, "x"))]
    responses = [
        topic(name="flights", partition_responses=[
            answer(3, 0, 1_000),
            answer(4, 87, -1, record_errors=records, error_message="bad"),
        ]),
        topic(name="orders", partition_responses=[answer(0, 87, -1, record_errors=[*records[1:], *records])]),
    ]  # fmt: skip
    data = ProduceResponse(version=8, responses=responses, throttle_time_ms=340).encode()
    found = _Produce8.RESPONSE_TYPE.decode(memoryview(b"head" + data), 4)
    assert found.partitions == [
        Produced("flights", 3, 0, 1_000, -1, 7, ""),
        Produced("flights", 4, 87, -1, -1, 7, "bad; record 5: why; record 6; record 7: x"),
        Produced("orders", 0, 87, -1, -1, 7, "record 6; record 7: x; record 5: why"),
    ]
    assert found.throttle_ms == 340


def test_several_topics_are_read_by_their_ids() -> None:
    ids = TopicIds({"flights": ONE})
    request = Produce({"flights": [(3, (b"h", b"r"))]}, timeout_ms=1, topic_ids=ids)
    built = request.build(_Produce13)
    ids.put("orders", OTHER)

    def taken(number: int) -> bytes:
        return struct.pack(">ihqqq", number, 0, 1_000, -1, 7) + b"\1\0\0"

    data = b"\3" + ONE + b"\2" + taken(3) + b"\0" + OTHER + b"\3" + taken(4) + taken(5) + b"\0" + bytes(5)
    found = built.RESPONSE_TYPE.decode(memoryview(b"head" + data), 4)
    assert [
        (each.topic, each.partition, each.base_offset, each.log_start, each.message) for each in found.partitions
    ] == [
        ("flights", 3, 1_000, 7, ""),
        ("orders", 4, 1_000, 7, ""),
        ("orders", 5, 1_000, 7, ""),
    ]


def test_a_former_topic_of_the_name_is_known_still_in_answers_under_way() -> None:
    ids = TopicIds({"t": ONE})
    assert TopicIds().by_name == {}
    ids.put("t", OTHER)
    assert ids.by_name == {"t": OTHER}
    view = memoryview(b"?" + ONE + OTHER + bytes(16))
    assert [ids.read(view, at) for at in (1, 17, 33)] == [("t", 17), ("t", 33), ("", 49)]


@pytest.mark.parametrize(
    ("ids", "forgotten", "version"),
    [
        (None, {}, 12),
        (TopicIds(), {}, 12),
        (TopicIds({"t": ONE}), {}, 13),
        (TopicIds({"t": ONE}), {"u": [1]}, 12),
        (TopicIds({"t": ONE, "u": OTHER}), {"u": [1]}, 13),
    ],
)
def test_a_fetch_goes_by_ids_where_all_are_known(ids, forgotten, version) -> None:
    request = Fetch({"t": [FetchPlace(0, 5, 1)]}, forgotten=forgotten, max_bytes=1, topic_ids=ids)
    assert version == request.build(_Fetch13).API_VERSION
    assert request.build(_Fetch12).API_VERSION == 12


@pytest.mark.parametrize(("ids", "version"), [(None, 8), (TopicIds({"u": ONE}), 8), (TopicIds({"t": ONE}), 13)])
def test_appends_go_by_ids_where_all_are_known(ids, version) -> None:
    request = Produce({"t": [(0, (b"h", b"r"))]}, timeout_ms=1, topic_ids=ids)
    assert version == request.build(_Produce13).API_VERSION
    assert request.build(_Produce8).API_VERSION == 8


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_reader_may_see_is_asked_for(committed) -> None:
    request = Fetch({}, max_bytes=9, committed=committed, max_wait_ms=3, min_bytes=4, session=5, epoch=6)
    head = b"".join(request.build(_Fetch12).parts)[:25]
    assert struct.unpack(">iiiibii", head) == (-1, 3, 4, 9, int(committed), 5, 6)


def test_an_answer_without_topics_has_its_error_and_session() -> None:
    found = FetchReply.decode(memoryview(b"head" + struct.pack(">ihi", 9, 70, 12) + b"\1\0"), 4)
    assert (found.error, found.session, found.partitions, found.size) == (70, 12, [], 16)
    assert found.throttle_ms == 9


def test_null_records_are_none() -> None:
    """A broker that refuses a partition answers null."""
    head = struct.pack(">ihqqq", 3, 6, -1, -1, -1) + b"\0" + struct.pack(">i", -1)
    data = struct.pack(">ihi", 0, 0, 0) + b"\2" + b"\2t" + b"\2" + head + b"\0" + b"\0" + b"\0" + b"\0"
    (found,) = FetchReply.decode(memoryview(data), 0).partitions
    assert (found.topic, found.partition, found.error, bytes(found.records)) == ("t", 3, 6, b"")
    assert (found.preferred_replica, found.aborted) == (-1, [])

"""Fetch and Produce as they are written and read, byte for byte against kafka-python's own classes for it."""

from __future__ import annotations

import base64
import struct
import uuid

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest
from kafka.protocol.producer import ProduceRequest

from drkit.kafka.admin.logs.log_offsets import topics_asked
from drkit.kafka.protocol.data_requests import (
    Fetch,
    FetchPlace,
    FetchReply,
    Produce,
    Produced,
    TopicIds,
    _Fetch12,
    _Fetch13,
    _Produce13,
    id_bytes,
)
from drkit.model.topology import TopicPartition


def test_a_request_is_what_kafka_python_makes_of_it() -> None:
    request = Fetch(
        {"flights": [FetchPlace(3, 1_000, 65_536, last_epoch=7), FetchPlace(200, 5, 1)]},
        forgotten={"o" * 200: [1, 2]},
        session=5,
        epoch=6,
        max_wait_ms=20,
        max_bytes=1 << 20,
        rack="r1",
    )
    ours = b"".join(request.build(_Fetch12).parts)
    topic = FetchRequest.FetchTopic
    place = topic.FetchPartition
    theirs = FetchRequest(
        version=12,
        replica_id=-1,
        max_wait_ms=20,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=5,
        session_epoch=6,
        topics=[
            topic(
                topic="flights",
                partitions=[
                    place(
                        partition=3,
                        current_leader_epoch=-1,
                        fetch_offset=1_000,
                        last_fetched_epoch=7,
                        log_start_offset=-1,
                        partition_max_bytes=65_536,
                    ),
                    place(
                        partition=200,
                        current_leader_epoch=-1,
                        fetch_offset=5,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=1,
                    ),
                ],
            )
        ],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="o" * 200, partitions=[1, 2])],
        rack_id="r1",
    )
    assert ours == theirs.encode()


def partition(number: int, records: bytes, tags: bytes, aborted: bytes = b"\1") -> bytes:
    head = struct.pack(">ihqqq", number, 0, 130, 120, 10)
    return head + aborted + struct.pack(">i", -1) + bytes([len(records) + 1]) + records + tags


def test_an_answer_says_where_logs_part() -> None:
    diverging = b"\1\0\x0d" + struct.pack(">iq", 4, 940) + b"\0"
    aborted = b"\2" + struct.pack(">qq", 77, 11) + b"\0"
    leader = b"\1\1\x09" + struct.pack(">ii", 2, 5) + b"\0"
    parts = [partition(0, b"", diverging), partition(1, b"abc", b"\0", aborted), partition(2, b"", leader, b"\0")]
    topic = bytes([3]) + b"t1" + bytes([len(parts) + 1]) + b"".join(parts) + b"\0"
    data = struct.pack(">ihi", 0, 0, 99) + b"\2" + topic + b"\0"
    theirs = FetchResponse.decode(data, version=12)
    assert [p.diverging_epoch and p.diverging_epoch.end_offset for p in theirs.responses[0].partitions] == [
        940,
        None,
        None,
    ]

    answer = FetchReply.decode(memoryview(b"head" + data), 4)
    assert (answer.error, answer.session) == (0, 99)
    cut, whole, moved = answer.partitions
    assert (cut.topic, cut.partition, cut.diverging, bytes(cut.records)) == ("t1", 0, (4, 940), b"")
    assert (whole.partition, whole.diverging, bytes(whole.records)) == (1, None, b"abc")
    assert (whole.aborted, whole.high_watermark, whole.stable_offset, whole.log_start) == ([(77, 11)], 130, 120, 10)
    assert (moved.partition, moved.diverging, list(moved.aborted)) == (2, None, [])


_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def test_a_request_by_topic_ids_is_what_kafka_python_makes_of_it() -> None:
    request = Fetch(
        {"flights": [FetchPlace(3, 1_000, 65_536, last_epoch=7)]},
        forgotten={"flights": [1, 2]},
        max_bytes=1 << 20,
        topic_ids=TopicIds({"flights": _ID.bytes}),
    )
    built = request.build(_Fetch13)
    topic = FetchRequest.FetchTopic
    place = topic.FetchPartition
    theirs = FetchRequest(
        version=13,
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[
            topic(
                topic_id=_ID,
                partitions=[
                    place(
                        partition=3,
                        current_leader_epoch=-1,
                        fetch_offset=1_000,
                        last_fetched_epoch=7,
                        log_start_offset=-1,
                        partition_max_bytes=65_536,
                    )
                ],
            )
        ],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic_id=_ID, partitions=[1, 2])],
        rack_id="",
    )
    assert b"".join(built.parts) == theirs.encode()
    assert (built.API_VERSION, request.build(_Fetch12).API_VERSION) == (13, 12)
    parts = [partition(0, b"abc", b"\0"), partition(1, b"", b"\0")]
    answers = _ID.bytes + bytes([len(parts) + 1]) + b"".join(parts) + b"\0"
    others = uuid.uuid4().bytes + b"\2" + partition(7, b"x", b"\0") + b"\0"
    data = struct.pack(">ihi", 0, 0, 99) + b"\3" + others + answers + b"\0"
    answer = built.RESPONSE_TYPE.decode(memoryview(data), 0)
    assert [(each.topic, each.partition, bytes(each.records)) for each in answer.partitions] == [
        ("flights", 0, b"abc"),
        ("flights", 1, b""),
    ]


def test_where_an_id_lacks_topics_go_by_their_names() -> None:
    known = TopicIds({"flights": _ID.bytes})
    assert Fetch({"orders": [FetchPlace(0, 0, 1)]}, max_bytes=1, topic_ids=known).build(_Fetch13).API_VERSION == 12
    batches = {"orders": [(0, (b"head", b"records"))]}
    assert Produce(batches, timeout_ms=1, topic_ids=known).build(_Produce13).API_VERSION == 8


def test_appends_by_topic_ids_are_what_kafka_python_makes_of_them() -> None:
    request = Produce(
        {"flights": [(3, (b"h" * 61, memoryview(b"r" * 200))), (4, (b"h" * 61, b""))]},
        timeout_ms=500,
        topic_ids=TopicIds({"flights": _ID.bytes}),
    )
    built = request.build(_Produce13)
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData
    theirs = ProduceRequest(
        version=13,
        transactional_id=None,
        acks=-1,
        timeout_ms=500,
        topic_data=[
            topic(
                topic_id=_ID,
                partition_data=[part(index=3, records=b"h" * 61 + b"r" * 200), part(index=4, records=b"h" * 61)],
            )
        ],
    )
    assert b"".join(built.parts) == theirs.encode()
    refused = struct.pack(">ihqqq", 3, 87, -1, -1, 0) + b"\2" + struct.pack(">i", 5) + b"\4why\0" + b"\4bad" + b"\0"
    taken = struct.pack(">ihqqq", 4, 0, 1_000, -1, 0) + b"\1\0\0"
    data = b"\2" + _ID.bytes + b"\3" + refused + taken + b"\0" + struct.pack(">i", 250) + b"\0"
    answer = built.RESPONSE_TYPE.decode(memoryview(data), 0)
    assert answer.partitions == [
        Produced("flights", 3, 87, -1, -1, 0, "bad; record 5: why"),
        Produced("flights", 4, 0, 1_000, -1, 0, ""),
    ]
    assert answer.throttle_ms == 250


def test_the_id_of_a_topic_is_none_where_its_cluster_has_none() -> None:
    text = base64.urlsafe_b64encode(_ID.bytes).decode().rstrip("=")
    assert [id_bytes(each) for each in (text, "", "A" * 22)] == [_ID.bytes, b"", b""]


def test_offsets_are_asked_for_in_plain_tuples_as_in_objects() -> None:
    """Thousands of partitions cost a seventh that way; the bytes must be the same, in each version that is sent."""
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partition_type = topic_type.ListOffsetsPartition
    objects = [topic_type(name="t", partitions=[partition_type(partition_index=3, timestamp=-1)])]
    for version in (4, 5):
        encoded = {
            bytes(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics).encode(version=version))
            for topics in (objects, topics_asked({TopicPartition("t", 3): -1}))
        }
        assert len(encoded) == 1

"""Fetch 12 as it is written and read, byte for byte against kafka-python's own classes for it."""

from __future__ import annotations

import struct

from kafka.protocol.consumer import FetchRequest, FetchResponse

from drkit.kafka.messages import Fetch, FetchAnswer, FetchPlace, _Fetch12


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

    answer = FetchAnswer.decode(memoryview(b"head" + data), 4)
    assert (answer.error, answer.session) == (0, 99)
    cut, whole, moved = answer.partitions
    assert (cut.topic, cut.partition, cut.diverging, bytes(cut.records)) == ("t1", 0, (4, 940), b"")
    assert (whole.partition, whole.diverging, bytes(whole.records)) == (1, None, b"abc")
    assert (whole.aborted, whole.high_watermark, whole.stable_offset, whole.log_start) == ([(77, 11)], 130, 120, 10)
    assert (moved.partition, moved.diverging, list(moved.aborted)) == (2, None, [])

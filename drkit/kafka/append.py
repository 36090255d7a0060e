"""Appending one record by a Produce request of our own: what librdkafka can't express, it can.

librdkafka takes the timestamp 0 (the first millisecond of 1970, which some producers write for "no
time") for "now". The caller is the partition's only writer, which makes the append repeatable: when
an answer is lost, the log's end says whether the record landed.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka import errors as kafka_errors
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from drkit.kafka import offsets
from drkit.kafka.wire import Again, Wire, check
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


def append_record(
    wire: Wire, tp: TopicPartition, *, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int
) -> int:
    """Append one record and return its offset.

    Args:
        wire: the cluster.
        tp: its partition, which nobody else writes to meanwhile.
        key: None is no key, which differs from an empty one.
        value: None is a tombstone, which differs from an empty one.
        headers: in their order, duplicates and null values included.
        timestamp: ms since the epoch, any value, 0 included.

    Raises:
        Unreachable: the cluster didn't answer; the record may have landed.
        DrkitError: the cluster refuses the record, or the partition doesn't exist.
    """
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1)
    builder.append(timestamp=timestamp, key=key, value=value, headers=list(headers))
    builder.close()
    before = _log_end(wire, tp)
    asked = False

    async def step(wire: Wire) -> int:
        nonlocal asked
        absent: set[TopicPartition] = set()
        leaders = await offsets.find_leaders(wire, [tp], absent)
        if absent:
            raise kafka_errors.UnknownTopicOrPartitionError(str(tp))
        if not leaders:
            raise Again(f"{tp} has no leader")
        if asked and (landed := await offsets.ask_log_end(wire, next(iter(leaders)), tp)) > before:
            return landed - 1
        asked = True
        topic_type = ProduceRequest.TopicProduceData
        partition_type = topic_type.PartitionProduceData
        response = await wire.send(
            ProduceRequest(
                transactional_id=None,
                acks=-1,
                timeout_ms=int(wire.timeout_seconds * 1000),
                topic_data=[
                    topic_type(
                        name=tp.topic, partition_data=[partition_type(index=tp.partition, records=builder.buffer())]
                    )
                ],
                min_version=3,
                max_version=9,
            ),
            next(iter(leaders)),
        )
        answer = response.responses[0].partition_responses[0]
        check(answer.error_code, str(tp))
        offset: int = answer.base_offset
        return offset

    return wire.call(f"append a record to {tp}", step)


def _log_end(wire: Wire, tp: TopicPartition) -> int:
    found = offsets.list_offsets(wire, "read the log's end", {tp: offsets.LATEST}, true_end=True)
    if tp not in found:
        raise DrkitError(f"{tp} does not exist on cluster {wire.alias}", remedy="Create the topic, or mend its name")
    return found[tp]

import json

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from bench.live import OVERHEAD, sent_ns, stamped
from bench.wire import Shape, batch_variants, json_values, record_batch, requests


@pytest.mark.parametrize("size", [100, 1000])
def test_values_are_json_of_exactly_that_size_and_differ(size):
    values = json_values(size, 50)
    assert {len(value) for value in values} == {size}
    assert all(json.loads(value) for value in values)
    assert len(set(values)) == 50


def test_a_value_too_small_for_its_fields_is_refused():
    with pytest.raises(ValueError, match="no room"):
        json_values(10, 1)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_batch_holds_exactly_its_values(codec):
    values = json_values(100, 7)
    batch = DefaultRecordBatch(record_batch(values, codec))
    assert batch.validate_crc()
    assert batch.compression_type == {"none": 0, "lz4": 3, "zstd": 4}[codec]
    assert [bytes(record.value) for record in batch] == values


def test_variants_differ_and_have_one_shape():
    made = batch_variants(record_bytes=100, codec="none", records_a_batch=10, variants=3)
    assert len(set(made)) == 3
    assert {DefaultRecordBatch(batch).last_offset_delta for batch in made} == {9}


def test_a_shape_writes_whole_batches_and_at_least_one_for_each_partition():
    assert Shape(1_000_000, 100, "lz4", 150, 8).loaded_records == 999_900
    assert Shape(100, 100, "lz4", 10, 100).loaded_records == 1000


def test_requests_have_one_batch_a_partition_and_lose_none():
    sent = list(requests([b"a", b"b", b"c"], batches=10, partitions=4))
    assert [sorted(request) for request in sent] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1]]
    assert [request[0] for request in sent] == [b"a", b"b", b"c"]


def test_requests_are_bounded():
    sent = list(requests([bytes(3 << 20)], batches=4, partitions=4))
    assert [len(request) for request in sent] == [1, 1, 1, 1]


def test_a_stamp_is_read_back_from_a_json_value():
    value = stamped(b"n" * (100 - OVERHEAD), 12345)
    assert len(value) == 100
    assert sent_ns(value) == 12345
    assert json.loads(value)["sent_ns"] == f"{12345:019d}"

"""The reader of logs against a broker: what isn't there any more ends a read, with what is true."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from drkit.config import ClusterConfig
from drkit.kafka.client.log_reader import LogReader
from drkit.lab import Lab
from drkit.model.errors import Unreachable

pytestmark = pytest.mark.lab


def test_a_log_that_ends_below_what_was_to_be_read_ends_the_read_with_its_end(lab: Lab, unique_name: str) -> None:
    servers = {"bootstrap.servers": lab.bootstrap("primary"), "log_level": 0}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(unique_name, 1, 1)])[unique_name].result(20)
    producer = Producer(servers)
    for number in range(20):
        producer.produce(unique_name, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    seen: list[int] = []

    cluster = ClusterConfig(bootstrap_servers=lab.bootstrap("primary"))
    with (
        LogReader("primary", cluster, timeout_seconds=1.0) as reader,
        pytest.raises(Unreachable, match=f"{unique_name}:0 has nothing at 20, and was to be read up to 30") as told,
    ):
        seen.extend(each.offset for each in reader.records(unique_name, 0, 0, 30))

    assert len(seen) == 20
    assert "lost its tail" in str(told.value.meaning)
    assert told.value.remedy

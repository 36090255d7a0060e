"""The project's compose file and the testcontainers fixtures carry a mirror and a failover, end to end.

Each runs the real commands against real brokers in containers, with Cassandra as the store; what is on
the clusters is read by plain confluent-kafka.
"""

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.wait import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

QUIET = {"log_level": 0}  # a killed broker is expected here
TOPIC, GROUP, PARTITIONS, RECORDS, READ = "orders", "billing", 3, 900, 400


def drkit(estate, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "drkit", *arguments],
        env=estate.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def fill(bootstrap):
    """Records in every partition, and a group that has read some of each."""
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})  # its calls end when it is collected
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"order {number}", f"customer {number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    group = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    committed = [
        TopicPartition(TOPIC, p, READ // PARTITIONS + p * 10)  # a different position in each partition
        for p in range(PARTITIONS)
    ]

    def commit():
        """A coordinator that was just made may still be loading."""
        try:
            return group.commit(offsets=committed, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                raise
            return None

    wait_until(commit, 30, "the commit")
    group.close()
    return {tp.partition: tp.offset for tp in committed}


def read(bootstrap, group=None, positions=None):
    """All records of the topic by partition, from the start or from `positions`, in order of offset."""
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": bootstrap, "group.id": group or "witness", "enable.auto.commit": False}
    )
    ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), 10)[1] for p in range(PARTITIONS)}
    starts = positions or dict.fromkeys(range(PARTITIONS), 0)
    consumer.assign([TopicPartition(TOPIC, p, starts[p]) for p in range(PARTITIONS)])
    found = {p: [] for p in range(PARTITIONS)}

    def all_read():
        for message in consumer.consume(RECORDS, 0.2):
            assert message.error() is None
            found[message.partition()].append((message.key(), message.value(), message.timestamp()[1]))
        at = {tp.partition: tp.offset for tp in consumer.position([TopicPartition(TOPIC, p) for p in ends])}
        return all(max(at[p], starts[p]) >= end for p, end in ends.items())

    wait_until(all_read, 60, "the end of the topic")
    consumer.close()
    return found


def positions_of(bootstrap, group):
    consumer = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=20)
    consumer.close()
    return {tp.partition: tp.offset for tp in found}


def mirror_then_fail_over(estate):
    committed = fill(estate.primary)
    mirrored = drkit(estate, "mirror", "--until-caught-up")
    assert mirrored.returncode == 0, mirrored.stderr
    source, target = read(estate.primary), read(estate.dr)
    assert sum(len(rows) for rows in target.values()) == RECORDS
    assert target == source
    estate.kill_primary()
    moved = drkit(estate, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", "--output", "json")
    assert moved.returncode == 6, moved.stderr  # done; what a dead primary took since the last look can't be judged
    run = json.loads(moved.stdout)
    assert run["state"] == "closed"
    assert (run["evidence"]["rpo_records"], run["evidence"]["rpo_lower_bound"]) == (0, True)
    positions = positions_of(estate.dr, GROUP)
    assert {row["partition"]: row["target_offset"] for row in run["groups"] if row["group"] == GROUP} == positions
    unread = read(estate.dr, GROUP, positions)
    assert unread == {p: rows[committed[p] :] for p, rows in source.items()}


def test_compose(composed):
    mirror_then_fail_over(composed)


def test_testcontainers(containers):
    mirror_then_fail_over(containers)

"""Reading from a replica near the worker (KIP-392), and from the leader again when that replica is gone."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic

from drkit.config import ClusterConfig
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.lab import Lab
from drkit.mirror.engine.batch_engine import BatchEngine
from drkit.mirror.engine.fetcher import Fetcher
from drkit.mirror.engine.interface import PartitionStart
from drkit.model.topology import TopicPartition
from tests.support.clusters.guard import Guard
from tests.support.links.mirroring import Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def racks(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard):
    """Three brokers, each in a rack of its own, whose leaders name the replica near a reader."""
    folder = tmp_path_factory.mktemp("racks")
    lab_guard.watch(folder)
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    lab = Lab.up(folder, brokers=3, store="sqlite", clusters=("racks",), broker_config=selector)
    yield lab
    lab.down()


def test_a_near_replica_is_read_and_the_leader_when_it_is_gone(racks: Lab, lab: Lab, unique_name: str) -> None:
    source, target = Side(racks.bootstrap("racks")), Side(lab.bootstrap("dr"))
    new = NewTopic(unique_name, 1, 3, config={"min.insync.replicas": "1"})
    source.admin.create_topics([new])[unique_name].result(30)
    wait_until(lambda: source.partitions(unique_name) == 1, what="the topic")
    target.create(unique_name)
    leader = source.admin.list_topics(unique_name, timeout=20).topics[unique_name].partitions[0].leader
    near = next(node for node in racks.nodes if node.node_id != leader)
    dr = ClusterConfig(bootstrap_servers=lab.bootstrap("dr"))
    with ProducerStateAdmin("dr", dr) as producers:
        producer_id = producers.new_producer_id()
    engine = BatchEngine(
        ("racks", ClusterConfig(bootstrap_servers=racks.bootstrap("racks"))),
        ("dr", dr),
        keep_rows=lambda *_: None,
        may_produce=lambda: True,
        trim=lambda *_: None,
        rack=f"rack-{near.node_id}",
    )
    place = TopicPartition(unique_name, 0)

    def write(count: int) -> None:
        producer = source.producer(acks="all")
        for number in range(count):
            producer.produce(unique_name, value=b"%d" % number)
        assert producer.flush(60) == 0

    def read_by() -> set[int]:
        readers = [partition.reader for partition in engine._partitions().values()]
        return {reader.node for reader in readers if isinstance(reader, Fetcher)}

    try:
        write(50)
        engine.start([PartitionStart(place, unique_name, 1, 0, 0, 0, 1_000_000, producer_id)])
        wait_until(lambda: engine.moved() == 50, 60, "the first records")
        wait_until(lambda: read_by() == {near.node_id}, what="reading from the near replica")
        write(50)
        wait_until(lambda: engine.moved() == 100, 60, "records through the near replica")
        racks.kill(near.name)
        write(50)
        wait_until(lambda: engine.moved() == 150, 60, "records through the leader")
        # until the dead replica leaves the ISR, the leader continues naming it as the near one
        wait_until(lambda: near.node_id not in read_by(), 60, "reading from the leader")
        assert engine.poll(0) == []
    finally:
        engine.close()
    assert len(target.read(unique_name)) == 150

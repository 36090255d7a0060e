"""A partition goes to another worker and comes back; then the store is lost: what its copy proves is true."""

from __future__ import annotations

import pytest

from drkit.model.clock import now
from drkit.store import open_store
from drkit.store.workers import live_workers
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

PARTITIONS = 2


def shares(mirrored: Mirrored) -> list[int]:
    return sorted(worker.partitions for worker in live_workers(mirrored.store, mirrored.link.id, now()))


def test_positions_are_right_where_another_worker_wrote_mapping_rows_meanwhile(mirrored: Mirrored) -> None:
    mirrored.configure('offsets = "translate"')
    topic = mirrored.name("returned")
    mirrored.source.create(topic, PARTITIONS)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(60)

    def mirror_transactions(count: int) -> None:
        """Each has two records and a marker in every partition: the mirror writes a row."""
        for number in range(count):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                for step in range(2):
                    producer.produce(topic, value=f"{number}-{step}", partition=partition)
            producer.commit_transaction(60)
        for partition in range(PARTITIONS):
            mirrored.wait_through(topic, partition)

    with mirrored.running() as first:
        mirror_transactions(1)
        with mirrored.running() as second:
            wait_until(lambda: shares(mirrored) == [1, 1], 120, "a partition with each worker")
            mirror_transactions(20)
        wait_until(lambda: shares(mirrored) == [PARTITIONS], 120, "both with the first again")
        mirror_transactions(1)
    assert (first.error, second.error) == (None, None)

    mirrored.store.close()
    lost = mirrored.folder / "drkit.db"
    lost.rename(lost.with_suffix(".lost"))
    recovered = mirrored.drkit("store", "recover", "--from", "dr")
    assert recovered.returncode == 0, recovered.stderr
    mirrored.store = open_store(mirrored.config.store.plain_url, create=False)
    assert mirrored.problems() == []
    for partition in range(PARTITIONS):
        mirrored.assert_translates(topic, partition)

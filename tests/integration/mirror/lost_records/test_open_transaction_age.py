"""What stands behind an open transaction on the primary is as old as it waits: in the recovery point, and in the loss
that a failover states. It was as old as the mirror's last look, about a second, however long one was open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from confluent_kafka import Producer

from drkit.kafka.admin.logs.producers import TransactionAdmin
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition
from drkit.observe.link_status import LinkStatus, RecoveryPoint
from drkit.observe.status import link_statuses
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

OLD = 5.0
"""More than a mirror's looks are apart."""


def point(mirrored: Mirrored) -> RecoveryPoint:
    found: LinkStatus = link_statuses(mirrored.config, mirrored.store, [mirrored.link], timeout_seconds=1.5)[0]
    return found.recovery_point


def older(mirrored: Mirrored, records: int, than: float) -> RecoveryPoint | None:
    """The recovery point, once it has so many records, and they are older."""
    found = point(mirrored)
    return found if found.records == records and (found.seconds or 0.0) > than else None


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(20) == 0


def began(mirrored: Mirrored, tp: TopicPartition) -> datetime | None:
    """When the transaction began that is open in the partition, by its coordinator."""
    with TransactionAdmin("primary", mirrored.config.clusters["primary"]) as admin:
        its = admin.first_open([tp])[tp]
        return next(each.began for each in admin.coordinated([its.producer_id]))


def mark(mirrored: Mirrored, tp: TopicPartition) -> Watermark | None:
    return mirrored.store.watermarks(mirrored.link.id).get(tp)


@contextmanager
def opened(mirrored: Mirrored, topic: str, name: str) -> Iterator[Producer]:
    """A transaction with one record in the topic."""
    producer = mirrored.source.producer(transactional_id=mirrored.name(name))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value=b"undecided", partition=0)
    assert producer.flush(20) == 0
    yield producer


def held(mirrored: Mirrored, tp: TopicPartition) -> tuple[int, int] | None:
    """What a mirror saw last behind open transactions: how many offsets, and up to where."""
    found = mark(mirrored, tp)
    return None if found is None or found.waiting is None else (found.held_records, found.waiting.until)


def test_it_grows_older_whatever_ends_before_it_and_also_once_the_primary_is_gone(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    with mirrored.running():
        wait_until(lambda: point(mirrored).records == 0, 30, "the mirror")
        with opened(mirrored, topic, "first") as first, opened(mirrored, topic, "second"):
            write(mirrored, topic, 20)
            seen = wait_until(lambda: older(mirrored, 22, OLD), 60, "the age of what waits")
            first.abort_transaction(20)  # the other one still holds all of it back, and a marker more
            seen = wait_until(lambda: older(mirrored, 22, seen.seconds or 0.0), 30, "the second transaction")
            loss = mirrored.planned_loss()
            assert (loss.records, loss.lower_bound) == (22, False)
            assert (loss.seconds or 0.0) >= (seen.seconds or 0.0)
            wait_until(lambda: held(mirrored, TopicPartition(topic, 0)) == (22, 33), 30, "the mirror to see the marker")
            mirrored.lab.pause("primary")
            try:
                gone = wait_until(lambda: older(mirrored, 22, seen.seconds or 0.0), 30, "the age without the primary")
                assert gone.lower_bound
                assert "22 offsets of them stand behind open transactions" in (gone.reason or "")
                lost = mirrored.planned_loss()
                assert (lost.records, lost.lower_bound, lost.upper_bound) == (22, True, True)
                assert (lost.seconds or 0.0) >= (gone.seconds or 0.0)
            finally:
                mirrored.lab.resume("primary")
    assert older(mirrored, 22, OLD) is not None, "without a mirror it waits as long"


def test_of_one_that_was_open_before_the_mirror_its_coordinator_says_since_when(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    tp = TopicPartition(topic, 0)
    with opened(mirrored, topic, "before"):
        write(mirrored, topic, 5)
        since = began(mirrored, tp)
        assert since is not None

        def told() -> bool:
            """A coordinator that is slow to answer isn't waited for: the next one asks again."""
            mirrored.catch_up()
            found = mark(mirrored, tp)
            waiting = None if found is None else found.waiting
            return waiting is not None and (waiting.until, waiting.since, waiting.at_most) == (16, since, False)

        for _ in range(2):  # another one takes it over
            wait_until(told, 60, "the coordinator's word")
            assert "isn't known" not in (point(mirrored).reason or "")

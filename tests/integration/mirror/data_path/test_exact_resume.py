"""What is still under way when a worker dies: recognised, refused or counted once; never there twice.

The zombie is played by raw Produce requests with the link's own producer id, as a worker that is believed
dead would send them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.kafka.protocol.record_batch import HEADER_BYTES, header
from drkit.model.clock import now
from drkit.model.topology import TopicPartition
from tests.support.clusters import raw
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.batches import batch_bytes
from tests.support.links.log_reader import Record
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("exact resumes", 3)]

NOW, OLD = 0, 1_370_000_000_000
"""Stamps of a test's records: the producer's clock; or 2013, of which the broker forgets the producer."""
COUNT = 10


def write(mirrored: Mirrored, topic: str, stamp: int, first: int) -> None:
    """Ten records to the source."""
    producer = mirrored.source.producer()
    for number in range(first, first + COUNT):
        producer.produce(topic, key=b"k", value=b"%d" % number, timestamp=stamp and stamp + number)
    assert producer.flush(20) == 0


class Zombie:
    """Writes to the target as a worker of the link would."""

    def __init__(self, mirrored: Mirrored, topic: str) -> None:
        self._mirrored = mirrored
        self._topic = topic
        leases = f"producer:{mirrored.link.id}:{mirrored.lab.cluster_id('dr')}"
        lease = mirrored.store.lease(leases)
        assert lease is not None, leases
        self.id = int(lease.owner)

    def last_sequence(self) -> int | None:
        """As the broker knows it."""
        target = TopicPartition(self._topic, 0)
        with self._admin() as admin:
            return admin.last_sequences([target], self.id)[target]

    def send(self, records: list[Record], sequence: int) -> int:
        """One batch of these; returns the offset that it got. AssertionError: refused."""
        rows = [(record.timestamp, record.key, record.value, list(record.headers)) for record in records]
        payload = batch_bytes(rows)[HEADER_BYTES:]
        head = header(
            attributes=0,
            count=len(rows),
            base_timestamp=rows[0][0],
            max_timestamp=rows[-1][0],
            producer_id=self.id,
            producer_epoch=0,
            base_sequence=sequence,
            records=payload,
        )
        (offset,) = raw.produce(self._mirrored.target.bootstrap, self._topic, 0, (head, payload))
        return offset

    @contextmanager
    def _admin(self) -> Iterator[ProducerStateAdmin]:
        admin = ProducerStateAdmin(
            "dr", ClusterConfig(bootstrap_servers=self._mirrored.target.bootstrap), timeout_seconds=20
        )
        try:
            yield admin
        finally:
            admin.close()


def begun(mirrored: Mirrored, stamp: int) -> tuple[str, Zombie]:
    """A topic with ten records mirrored, and one who could have done it."""
    topic = mirrored.name("t")
    mirrored.source.create(topic, message_timestamp_before_max_ms=str(2**63 - 1))
    write(mirrored, topic, stamp, 0)
    assert mirrored.catch_up().caught_up
    return topic, Zombie(mirrored, topic)


def assert_exact(mirrored: Mirrored, topic: str, count: int) -> None:
    assert len(mirrored.assert_same(topic)) == count
    mirrored.assert_translates(topic)
    assert not mirrored.problems(), mirrored.problems()


@pytest.mark.parametrize("stamp", sampled("a dead worker's batch", [NOW, OLD], 1))
def test_a_dead_workers_batch_that_landed_before_the_take_over_counts(mirrored: Mirrored, stamp: int) -> None:
    topic, zombie = begun(mirrored, stamp)
    write(mirrored, topic, stamp, COUNT)
    last = zombie.last_sequence()
    assert last == COUNT - 1
    assert zombie.send(mirrored.source.read(topic)[COUNT:], last + 1) == COUNT
    write(mirrored, topic, stamp, 2 * COUNT)
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic, 3 * COUNT)


def test_a_zombies_batch_that_was_written_already_is_recognised(mirrored: Mirrored) -> None:
    topic, zombie = begun(mirrored, NOW)
    write(mirrored, topic, NOW, COUNT)
    assert mirrored.catch_up().caught_up
    late = mirrored.source.read(topic)[COUNT:]
    assert zombie.send(late, COUNT) == COUNT, "where it is already"
    assert mirrored.target.end(topic) == 2 * COUNT
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic, 2 * COUNT)


@pytest.mark.parametrize(
    ("first", "count"),
    sampled(
        "a zombie's batch",
        [pytest.param(COUNT, 5), pytest.param(COUNT + 5, COUNT), pytest.param(3 * COUNT, COUNT)],
        1,
    ),
)
def test_a_zombies_batch_that_does_not_follow_is_refused(mirrored: Mirrored, first: int, count: int) -> None:
    topic, zombie = begun(mirrored, NOW)
    write(mirrored, topic, NOW, COUNT)
    with mirrored.running():
        mirrored.wait_through(topic)
        late = mirrored.source.read(topic)[-count:]
        with pytest.raises(AssertionError, match="error=45"):  # OUT_OF_ORDER_SEQUENCE_NUMBER
            zombie.send(late, first)
        write(mirrored, topic, NOW, 2 * COUNT)
        mirrored.wait_through(topic)
    assert_exact(mirrored, topic, 3 * COUNT)


def test_a_zombies_next_batch_takes_the_place_of_the_one_that_has_it(mirrored: Mirrored) -> None:
    """Both are the same records: the other worker looks at the target again and continues behind them."""
    topic, zombie = begun(mirrored, NOW)
    with mirrored.running():
        mirrored.wait_through(topic)
        mirrored.hold(topic)  # its worker reads nothing now, and knows where it stands
        last = zombie.last_sequence()
        assert last is not None
        due = mirrored.source.read(topic)[mirrored.target.end(topic) :]
        zombie.send(due, last + 1)
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
        write(mirrored, topic, NOW, 2 * COUNT)
        mirrored.wait_through(topic)
    mirrored.assert_same(topic)
    mirrored.assert_translates(topic)
    assert not mirrored.problems(), mirrored.problems()


def test_a_broker_that_forgot_the_producer(mirrored: Mirrored) -> None:
    topic, zombie = begun(mirrored, OLD)
    write(mirrored, topic, OLD, COUNT)
    zombie.send(mirrored.source.read(topic)[COUNT:], COUNT)  # whose acknowledgement nobody got
    mirrored.lab.restart("dr-1")
    wait_until(lambda: zombie.last_sequence() is None, what="the broker's forgetting")
    write(mirrored, topic, OLD, 2 * COUNT)
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic, 3 * COUNT)
    with pytest.raises(AssertionError, match="error=45"):
        zombie.send(mirrored.source.read(topic)[-COUNT:], COUNT)


@pytest.mark.parametrize("stamp", sampled("killed while answers are owed", [NOW, OLD], 1))
def test_killed_while_the_target_owes_its_answers(mirrored: Mirrored, stamp: int) -> None:
    """The mirror dies with requests in a stopped broker's socket; they land after its death."""
    topic, _ = begun(mirrored, stamp)
    process = mirrored.process("--output", "json")
    write(mirrored, topic, stamp, COUNT)
    mirrored.wait_through(topic)
    mirrored.lab.pause("dr-1")
    since = now()
    try:
        for number in range(2, 7):
            write(mirrored, topic, stamp, number * COUNT)
        wait_in_flight(process, since)
        mirrored.kill(process)
    finally:
        mirrored.lab.resume("dr-1")
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic, 7 * COUNT)


def wait_in_flight(process: subprocess.Popen[str], since: datetime) -> None:
    """Until the mirror tells of requests without an answer, at a time after `since`."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        told = event["type"] == "progress" and datetime.fromisoformat(event["at"]) > since
        if told and event["statistics"]["in_flight_records"]:
            return
    pytest.fail(f"the mirror ended: {process.communicate()}")


def test_a_marker_that_comes_late_and_one_that_is_missing(mirrored: Mirrored) -> None:
    """Markers carry no sequence number: the rows say where the records really are, and nothing stands still."""
    topic, zombie = begun(mirrored, NOW)
    raw.mark(mirrored.target.bootstrap, topic, 0, zombie.id)
    write(mirrored, topic, NOW, COUNT)
    assert mirrored.catch_up().caught_up
    assert [record.offset for record in mirrored.target.read(topic)][COUNT] == COUNT + 1
    assert_exact(mirrored, topic, 2 * COUNT)
    transactions = mirrored.source.producer(transactional_id=topic)
    transactions.init_transactions(30)
    transactions.begin_transaction()
    transactions.produce(topic, value=b"aborted", partition=0)
    assert transactions.flush(20) == 0
    transactions.abort_transaction(20)
    wait_until(lambda: mirrored.source.end(topic) == 2 * COUNT + 2, what="the abort's marker")
    write(mirrored, topic, NOW, 2 * COUNT)
    last = zombie.last_sequence()
    assert last is not None
    late = mirrored.source.read(topic)[2 * COUNT :]
    assert late[0].offset == 2 * COUNT + 2
    zombie.send(late[:5], last + 1)  # its markers for the aborted one are lost
    write(mirrored, topic, NOW, 3 * COUNT)
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic, 4 * COUNT)


def test_the_same_while_the_mirror_runs(mirrored: Mirrored) -> None:
    topic, zombie = begun(mirrored, NOW)
    with mirrored.running():
        for number in range(1, 4):
            raw.mark(mirrored.target.bootstrap, topic, 0, zombie.id)
            write(mirrored, topic, NOW, number * COUNT)
            mirrored.wait_through(topic)
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic, 4 * COUNT)

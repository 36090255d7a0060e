"""The drill's clients on real brokers: what they keep is what happened, whatever is done to the brokers."""

import signal
import time
from collections import Counter
from contextlib import closing

import pytest
from confluent_kafka import Producer

from drkit.config import load_config
from drkit.drill.environment.clients import Clients
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.steps import Transactions, Workload
from drkit.drill.judge.history import AttemptOutcome, HistoryPart, LogEnd
from drkit.drill.workload import reading
from drkit.drill.workload.reading import NotRead, value_of
from drkit.lab import Lab
from tests.support.collection.sampling import some_of
from tests.support.links.log_reader import read_partition
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("clients of drills", 2)]


def properties(lab):
    return {
        alias: {"bootstrap.servers": cluster.bootstrap_servers, **cluster.properties()}
        for alias, cluster in load_config(lab.config_path).clusters.items()
    }


@pytest.fixture
def workload(unique_name):
    return Workload(
        do="workload", topic=unique_name, partitions=3, keys=10, records_per_second=400.0, group=f"g-{unique_name}"
    )


@pytest.fixture
def clients(lab, workload, tmp_path):
    reading.create_topic(properties(lab)["primary"], workload.topic, workload.partitions, 1, 20)
    found = Clients("drill-test", tmp_path, workload, properties(lab))
    yield found
    found.stop(found.running())


def read(lab, workload, cluster="primary"):
    return reading.read_all(properties(lab)[cluster], "drill-test", workload.topic, workload.partitions, 20)


def test_what_was_acknowledged_and_read_is_what_is_there(lab, workload, clients):
    clients.start("consumer", "primary")
    clients.start("producer", "primary")
    wait_until(lambda: clients.count("polls", "primary") >= 500, what="500 records read")
    clients.stop(clients.running("producer"))
    ends = reading.log_ends(properties(lab)["primary"], workload.topic, workload.partitions, 10)
    wait_until(lambda: clients.positions("primary") == ends, what="the group at the end")
    clients.stop(clients.running())
    attempts, polls, landed = clients.attempts(), clients.polls(), read(lab, workload)
    assert clients.incomplete() == {}
    assert {a.outcome for a in attempts} == {AttemptOutcome.ACKED}
    assert {(a.partition, a.offset, a.record, a.digest) for a in attempts} == {
        (one.partition, one.offset, one.record, one.digest) for one in landed
    }
    assert {(p.partition, p.offset, p.record) for p in polls} == {(o.partition, o.offset, o.record) for o in landed}
    assert len(polls) == len(landed) == len(attempts) >= 500
    confirmed = reading.group_positions(
        properties(lab)["primary"], workload.group, workload.topic, workload.partitions, 10
    )
    assert confirmed == ends
    last = {p.partition: p.offset for p in clients.committed()}
    assert last == ends


def test_a_producer_goes_on_with_the_numbers_of_the_one_before(lab, workload, clients):
    for wanted in (200, 400):
        clients.start("producer", "primary")
        wait_until(lambda wanted=wanted: clients.count("acks", "primary") >= wanted, what=f"{wanted} acks")
        clients.stop(clients.running())
    numbers = {}
    for attempt in clients.attempts():
        numbers.setdefault(attempt.record.key, []).append(attempt.record.seq)
    assert all(seqs == list(range(len(seqs))) for seqs in numbers.values())
    assert len(read(lab, workload)) == sum(len(seqs) for seqs in numbers.values())


def test_two_producers_at_once_have_keys_of_their_own(lab, workload, clients):
    """A record is known by its key and its number: the one's is never taken for the other's."""
    first = clients.start("producer", "primary")
    wait_until(lambda: first.ledger.count("acks") > 0, what="the first at work")
    second = clients.start("producer", "primary")
    wait_until(lambda: second.ledger.count("acks") >= 100, what="both at work")
    clients.stop(clients.running())
    attempts = clients.attempts()
    assert len({a.record for a in attempts}) == len(attempts)
    assert {a.record.key.rstrip("0123456789") for a in attempts} == {"k", "primary-k"}
    sent = {a.record: a.digest for a in attempts if a.outcome is AttemptOutcome.ACKED}
    assert {one.record: one.digest for one in read(lab, workload)}.items() >= sent.items()


def test_a_producer_is_replaced_when_the_broker_lost_what_it_had_sent(lab, workload, clients):
    """Sequence numbers no longer fit, which is fatal to an idempotent producer: the application makes another."""
    clients.start("producer", "primary")
    wait_until(lambda: clients.count("acks", "primary") >= 200, what="200 acks")
    with closing(LabCluster(lab, "primary")) as cluster:
        ends = cluster.cut_many(workload.topic, range(workload.partitions), 20, cleanly=True)
    assert all(after < before for before, after in ends.values())
    acked = clients.count("acks", "primary")
    wait_until(lambda: clients.count("acks", "primary") >= acked + 200, 90, "further acks")
    clients.stop(clients.running())
    assert clients.incomplete() == {}
    numbers = [a.record for a in clients.attempts()]
    assert len(set(numbers)) == len(numbers), "no record is sent twice under one name"


@pytest.fixture
def transactional(lab, workload, tmp_path):
    """Clients whose producer writes in transactions of 10 records, every third of which it aborts."""
    asked = workload.model_copy(update={"transactions": Transactions(records=10, abort_every=3)})
    reading.create_topic(properties(lab)["primary"], asked.topic, asked.partitions, 1, 20)
    (tmp_path / "run").mkdir()
    found = Clients(f"drill-{asked.topic}", tmp_path / "run", asked, properties(lab))
    yield found
    found.stop(found.running())


def by_outcome(clients, outcome):
    return {a.record for a in clients.attempts() if a.outcome is outcome}


def readable(lab, workload):
    """What a reader of committed records finds on the primary."""
    own, drill = properties(lab)["primary"], f"drill-{workload.topic}"
    return {one.record for one in reading.read_all(own, drill, workload.topic, workload.partitions, 20)}


def test_transactions_are_committed_and_aborted_as_the_ledger_says(lab, workload, transactional):
    transactional.start("consumer", "primary")
    transactional.start("producer", "primary")
    wait_until(lambda: transactional.count("polls", "primary") >= 300, what="300 records read")
    transactional.stop(transactional.running("producer"))
    ends = reading.log_ends(properties(lab)["primary"], workload.topic, workload.partitions, 10)
    wait_until(lambda: transactional.positions("primary") == ends, what="the group behind the last marker")
    transactional.stop(transactional.running())
    assert transactional.incomplete() == {}
    acked, aborted = (by_outcome(transactional, each) for each in (AttemptOutcome.ACKED, AttemptOutcome.ABORTED))
    assert acked == readable(lab, workload) == {poll.record for poll in transactional.polls()}
    assert len(aborted) >= 100
    everything = [
        one.value
        for partition in range(workload.partitions)
        for one in read_partition(lab.bootstrap("primary"), workload.topic, partition, committed=False)
    ]
    drill = f"drill-{workload.topic}"
    assert {value_of(drill, record, workload.value_bytes) for record in acked | aborted} == set(everything)
    *whole, _cut_short = Counter(attempt.transaction for attempt in transactional.attempts()).values()
    assert set(whole) == {10}


def test_a_broker_that_dies_in_a_transaction_leaves_no_wrong_outcome(lab, workload, transactional):
    transactional.start("producer", "primary")
    wait_until(lambda: transactional.count("acks", "primary") >= 100, what="100 records committed")
    with closing(LabCluster(lab, "primary")) as cluster:
        cluster.restart(cleanly=False)
    acked = transactional.count("acks", "primary")
    wait_until(lambda: transactional.count("acks", "primary") >= acked + 100, 120, "further commits")
    transactional.stop(transactional.running())
    assert transactional.incomplete() == {}
    there = readable(lab, workload)
    assert by_outcome(transactional, AttemptOutcome.ACKED) <= there
    assert not by_outcome(transactional, AttemptOutcome.ABORTED) & there


@pytest.mark.parametrize(("kind", "part"), [("producer", HistoryPart.ATTEMPTS), ("consumer", HistoryPart.POLLS)])
def test_a_client_that_was_killed_leaves_its_part_incomplete(clients, kind, part):
    client = clients.start(kind, "primary")
    table = "attempts" if kind == "producer" else "polls"
    wait_until(lambda: client.ledger.count(table) > 0 or kind == "consumer", what="it works")
    client.child.send(signal.SIGKILL)
    wait_until(lambda: client.child.exit_code() is not None, what="it is gone")
    assert list(clients.incomplete()) == [part]
    assert "-9" in clients.incomplete()[part]


def test_a_dead_cluster_leaves_sends_without_an_answer_and_clients_that_end_in_order(workload, tmp_path, lab_guard):
    """On a lab of its own: the broker is killed under load."""
    folder = tmp_path / "lab"
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite", clusters=("primary",))
    try:
        own = properties(lab)
        reading.create_topic(own["primary"], workload.topic, workload.partitions, 1, 20)
        (tmp_path / "run").mkdir()
        clients = Clients("drill-test", tmp_path / "run", workload, own)
        clients.start("consumer", "primary")
        clients.start("producer", "primary")
        wait_until(lambda: clients.count("polls", "primary") >= 200, what="200 records read")
        lab.kill("primary")
        killed_at = time.monotonic()
        wait_until(
            lambda: sum(a.sent_at > killed_at + 0.5 for a in clients.attempts()) >= 100, what="sends into nothing"
        )
        clients.stop(clients.running())
        assert clients.incomplete() == {}
        assert not reading.answers(own["primary"], 1.0)
        with pytest.raises(NotRead):
            reading.log_ends(own["primary"], workload.topic, workload.partitions, 1.0)
        attempts = clients.attempts()
        unanswered = [a for a in attempts if a.outcome is AttemptOutcome.UNKNOWN]
        assert all(a.outcome is AttemptOutcome.UNKNOWN for a in attempts if a.sent_at > killed_at + 0.5)
        lab.restart("primary")
        landed = {one.record for one in read(lab, workload)}
        acked = {a.record for a in attempts if a.outcome is AttemptOutcome.ACKED}
        assert acked <= landed
        assert landed - acked <= {a.record for a in unanswered}
    finally:
        lab.down()


def test_an_open_transaction_holds_the_last_stable_offset_below_the_end_until_it_ends(lab, unique_name):
    """As a lost marker does for good; with the marker both ends are the same, and it has an offset of its own."""
    primary = properties(lab)["primary"]
    reading.create_topic(primary, unique_name, 2, 1, 20)
    producer = Producer({**primary, "transactional.id": unique_name})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in (0, 1, 1):
        producer.produce(unique_name, b"v", b"k", partition)
    assert producer.flush(20) == 0
    assert reading.stable_ends(primary, unique_name, 2, 20, 0.0) == [LogEnd(0, 0, 1), LogEnd(1, 0, 2)]
    producer.commit_transaction(20)
    assert reading.stable_ends(primary, unique_name, 2, 20, 30.0) == [LogEnd(0, 2, 2), LogEnd(1, 3, 3)]


def test_reading_tells_what_it_cannot(lab, unique_name):
    with pytest.raises(NotRead, match="can't be read"):
        reading.read_all(properties(lab)["dr"], "d", unique_name, 1, 5)
    reading.create_topic(properties(lab)["dr"], unique_name, 2, 1, 20)
    assert reading.read_all(properties(lab)["dr"], "d", unique_name, 2, 20) == []
    assert reading.group_positions(properties(lab)["dr"], "nobody", unique_name, 2, 10) == {}
    with pytest.raises(NotRead, match="can't be created"):
        reading.create_topic(properties(lab)["dr"], unique_name, 2, 1, 20)

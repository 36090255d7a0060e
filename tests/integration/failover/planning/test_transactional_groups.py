"""Exactly-once applications keep that promise over a failover, or the plan says by how much they can't.

A real consume-transform-produce loop runs on the primary while the mirror runs; both are cut off in the middle of it;
the same loop continues on dr. An independent reader counts the results.
"""

import json
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from drkit.config import load_config
from drkit.failover.context.state_machine import State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.failover.snapshot.point_in_time import TimeBasis, parse_moment
from drkit.failover.snapshot.snapshot import PartitionView
from drkit.failover.snapshot.take_snapshot import without_empty_gaps
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.lab import Lab
from drkit.lab.toolchain import ensure
from drkit.mirror.control import accept_recreated
from drkit.model.clock import iso, now
from drkit.model.groups import TransactionHistory
from drkit.model.link_state import Direction, LinkControl
from drkit.model.offsets import Certainty, OffsetMapping, Watermark
from drkit.model.topology import TopicPartition
from drkit.store import open_store
from drkit.store.transactions import suspected_groups, transaction_history
from drkit.store.workers import lose_workers
from tests.support.clusters.guard import Guard
from tests.support.collection.sampling import some_of
from tests.support.links import transactional_app
from tests.support.links.estates import TIMEOUT, mirror, mirroring, texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("transactional groups", 2)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """A lab of their own: where a transaction was committed to a part of the coordinators' log, no group of that part
    is known to commit without, so that on the shared lab other tests' groups would not be placed exactly."""
    folder = tmp_path_factory.mktemp("transactions")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite")
    open_store(load_config(lab.config_path).store.plain_url).close()
    yield lab
    lab.down()


STARTED = []


@pytest.fixture(autouse=True)
def no_application_left():
    """End those that a failed test leaves."""
    yield
    for app in STARTED:
        if app.process.poll() is None:
            app.kill()
    STARTED.clear()


class App:
    """The application as a process, and how many transactions it says it has committed."""

    def __init__(self, own, alias, topic, outputs, *options):
        self.committed = 0
        command = [sys.executable, transactional_app.__file__, "--bootstrap", own.client(alias)["bootstrap.servers"]]
        command += ["--group", own.topic("app"), "--input", topic, "--id", own.topic("app"), *options]
        for output in outputs:
            command += ["--output", output]
        self._start(command)

    def _start(self, command):
        STARTED.append(self)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for _ in self.process.stdout:
            self.committed += 1

    def wait_for(self, count):
        """Until so many transactions are committed; a JVM on a busy machine has the time that it needs."""

        def done():
            assert self.process.poll() is None or self.committed >= count, self.process.stderr.read()
            return self.committed >= count

        wait_until(done, 180, f"{count} transactions")

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        self._close()

    def finish(self):
        said = self.process.stderr.read()
        assert self.process.wait(60) == 0, said
        self._close()

    def _close(self):
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


class JavaApp(App):
    """Kafka's own one, for its system tests: it copies each record to the same partition of its output. Its producer
    speaks version 2 of transactions (KIP-890): each has an epoch of its own."""

    def __init__(self, own, alias, topic, output, size=1):
        self.committed = 0
        tools = ensure("mirrormaker")
        command = [str(tools.java), "-Xmx128m", "-cp", tools.classpath("mirrormaker")]
        command += ["org.apache.kafka.tools.TransactionalMessageCopier", "--group-mode", "--use-group-metadata"]
        command += ["--broker-list", own.client(alias)["bootstrap.servers"], "--transaction-size", str(size)]
        command += ["--consumer-group", own.topic("app"), "--transactional-id", own.topic("app")]
        command += ["--input-topic", topic, "--input-partition", "0", "--output-topic", output, "--max-messages", "-1"]
        self._start(command)

    def _read(self):
        for line in self.process.stdout:  # a line for each poll, whether it got a record or none
            if line.startswith("{") and line.endswith("}\n"):
                self.committed = max(self.committed, json.loads(line).get("totalProcessed", 0))


def epochs(lab, topic):
    """The producers' epochs in a topic's logs on the primary's disk, as they are there."""
    found = set()
    for log in (lab.dir / "nodes" / "primary-1" / "data").glob(f"{topic}-*/*.log"):
        data, at = log.read_bytes(), 0
        while at + 61 <= len(data):
            length, (epoch,) = int.from_bytes(data[at + 8 : at + 12], "big"), struct.unpack_from(">h", data, at + 51)
            found.add(epoch)
            at += 12 + length
    return found


@contextmanager
def frozen(lab):
    lab.pause("primary")
    try:
        yield
    finally:
        lab.resume("primary")


def captured(own):
    return sum(p.offset for p in own.store.group_positions(own.link.id) if p.group == own.topic("app"))


def through(own, topic):
    """Up to where partition 0 is mirrored by the store; None: nothing is recorded of it (yet, or of this epoch)."""
    mark = own.store.watermarks(own.link.id).get((topic, 0))
    return None if mark is None else mark.source_through


def known(own):
    """Up to where the group's transactions are known, over all partitions."""
    history = transaction_history(own.store, own.link.id)
    latest = {}
    for each in () if history is None else history.transactions:
        if each.outputs is not None:
            latest |= {key: offset for key, (offset, _) in (each.offsets or {}).items()}
    return sum(latest.values())


def mirrored(own, topic):
    """How much of a topic is recorded as being on dr, where all that was there when its watch began is."""
    history, marks = transaction_history(own.store, own.link.id), own.store.watermarks(own.link.id)
    begun = {tp: offset for tp, offset in history.begun.items() if tp.topic == topic}
    through = {tp: marks[tp].source_through for tp in begun if tp in marks}
    return sum(through.values()) if begun and all(through.get(tp, -1) >= begun[tp] for tp in begun) else 0


def told(positions):
    return [(p.partition, p.source_offset, p.transactions_again, p.reason) for p in positions]


def behind_the_mirror(position):
    """Whether the number is unknown because the watch was cut off between two reads, and the mirror had read on.

    It either hasn't read a transaction at all that the mirror has, or it has read its records but not its end. Which of
    the two, or neither, is a matter of the moment at which the primary goes away.
    """
    return any(why in position.reason for why in ("mirrored further than", "mirrored into a transaction whose end"))


def results(own, *outputs):
    """How often each result stands on dr, by output."""
    return [Counter(value for values in own.values("dr", output).values() for value in values) for output in outputs]


def planned(own, at):
    with own.estate(without_primary(own)) as estate:
        plan = make_plan(estate, PlanRequest("dr", at=at))
    return [position for position in plan.positions if position.group == own.topic("app")]


def failed_over(own):
    with own.estate(without_primary(own)) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    assert result.machine.state is State.CLOSED
    return [position for position in result.positions if position.group == own.topic("app")]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_what_was_processed_before_a_disaster_is_processed_once(lab, own, protocol):
    """Output is mirrored within milliseconds, offsets are captured every 0.8 s; some transactions are given up, and the
    application is killed once and comes back with the next producer epoch."""
    topic, output = own.create("primary", "in"), own.create("primary", "out")
    own.produce("primary", topic, texts("i", 300))
    options = ("--protocol", protocol, "--abort-every", "7")
    with mirroring(own):
        first = App(own, "primary", topic, [output], *options)
        first.wait_for(10)
        first.kill()
        app = App(own, "primary", topic, [output], *options)
        app.wait_for(40)
        wait_until(lambda: known(own) > captured(own) + 3, 60, "transactions known beyond what was captured")
        with frozen(lab):
            app.kill()
            positions = failed_over(own)
            before = captured(own)
            there = results(own, output)[0]
            App(own, "dr", topic, [output], "--protocol", protocol, "--batch", "200", "--until-end").finish()
    (counts,) = results(own, output)
    inputs = {f"done-{value}" for values in own.values("dr", topic).values() for value in values}
    assert set(counts) == inputs, "nothing is missing"
    twice = sum(count - 1 for count in counts.values())
    assert all(position.transactional for position in positions)
    again = [position.transactions_again for position in positions]
    placed = sum(position.source_offset for position in positions)
    assert placed >= before
    sys.stdout.write(f"{told(positions)}, captured {before}, twice {twice}\n")
    if None in again:
        assert all(behind_the_mirror(p) for p in positions if p.transactions_again is None), told(positions)
    else:
        assert twice == sum(again) == len(there) - placed, told(positions)
        assert all((p.translation is Certainty.EXACT) == (p.transactions_again == 0) for p in positions)


def test_transactions_of_version_2_are_followed_as_those_of_version_1(lab, own):
    """A Java producer's epoch goes up with each transaction, in its records and markers."""
    topic, output = own.create("primary", "in"), own.create("primary", "out")
    own.produce("primary", topic, texts("i", 2000))
    with mirroring(own):
        app = JavaApp(own, "primary", topic, output)
        app.wait_for(40)
        wait_until(lambda: known(own) > captured(own) + 3, 60, "transactions known beyond what was captured")
        with frozen(lab):
            app.kill()
            assert len(epochs(lab, output)) > 20, "the producer spoke version 1, in which they stay the same"
            positions = failed_over(own)
            before, there = captured(own), results(own, output)[0]
            JavaApp(own, "dr", topic, output, size=200).finish()
    (counts,) = results(own, output)
    assert set(counts) == {value for values in own.values("dr", topic).values() for value in values}
    twice = sum(count - 1 for count in counts.values())
    again = [position.transactions_again for position in positions]
    placed = sum(position.source_offset for position in positions)
    sys.stdout.write(f"{told(positions)}, captured {before}, twice {twice}\n")
    assert all(position.transactional for position in positions)
    assert placed >= before
    if None in again:
        assert all(behind_the_mirror(p) for p in positions if p.transactions_again is None), told(positions)
    else:
        assert twice == sum(again) == len(there) - placed, told(positions)


def test_a_group_that_the_mirror_had_no_time_to_follow_is_not_exact(lab, own):
    """Its first commits are captured, its output is on dr, and the primary dies before its transactions are found."""
    topic, output = own.create("primary", "in"), own.create("primary", "out")
    own.produce("primary", topic, texts("i", 300))
    with mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror")
        app = App(own, "primary", topic, [output])
        wait_until(lambda: captured(own), 60, "the first capture")
        with frozen(lab):
            app.kill()
            with own.estate(without_primary(own)) as estate:
                plan = make_plan(estate, PlanRequest("dr"))
    assert plan.positions
    for position in plan.positions:
        assert position.transactional, position
        if position.transactions_again is None:
            assert position.translation is Certainty.CONSERVATIVE
            assert "transactions" in position.reason


def test_a_commit_during_the_look_at_the_source_is_not_ahead_of_the_ends_that_were_looked_at(own, monkeypatch):
    """The log ends were read before the groups: nothing was missing below them, so a group counted as exact whose last
    output wasn't on dr."""
    topic, output = own.create("primary", "in", partitions=1), own.create("primary", "out", partitions=1)
    group = own.commit("primary", "app", topic, {0: 0})
    own.produce("primary", topic, texts("i", 10, [0]))
    producer = Producer({**own.client("primary"), "transactional.id": group})
    producer.init_transactions(TIMEOUT)
    consumer = Consumer({**own.client("primary"), "group.id": group})

    def process(upto):
        producer.begin_transaction()
        producer.produce(output, f"upto-{upto}", partition=0)
        place = [ClientPartition(topic, 0, upto)]
        producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), TIMEOUT)
        producer.commit_transaction(TIMEOUT)

    process(3)
    mirror(own)
    look = GroupAdmin.list_groups_within

    def just_then(self, seconds):
        process(5)
        return look(self, seconds)

    monkeypatch.setattr(GroupAdmin, "list_groups_within", just_then)
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
    consumer.close()
    (position,) = plan.positions
    assert position.source_offset == 3 or position.translation is Certainty.CONSERVATIVE, position
    assert position.transactional


def test_a_group_that_begins_to_commit_in_transactions_is_not_exact_before_they_are_found(lab, own):
    """It has committed without any for long, as an application does that is switched to exactly-once processing."""
    topic, output = own.create("primary", "in"), own.create("primary", "out")
    own.produce("primary", topic, texts("i", 300))
    own.commit("primary", "app", topic, {0: 5, 1: 7})
    with mirroring(own):
        wait_until(lambda: captured(own) == 12, 60, "the first capture")
        app = App(own, "primary", topic, [output])
        wait_until(lambda: captured(own) > 12, 60, "a capture of what it committed in a transaction")
        with frozen(lab):
            app.kill()
            with own.estate(without_primary(own)) as estate:
                plan = make_plan(estate, PlanRequest("dr"))
    assert plan.positions
    for position in (each for each in plan.positions if each.source_offset not in {5, 7}):
        assert position.transactional, position
        assert position.transactions_again is not None or position.translation is Certainty.CONSERVATIVE


def test_a_group_that_rests_beside_transactions_is_told_apart_by_its_last_commit(lab, own):
    """Both have committed before the mirror came, into the same part of the coordinators' log, and do so no more."""
    topic, output = own.create("primary", "in"), own.create("primary", "out")
    own.produce("primary", topic, texts("i", 300))
    app = App(own, "primary", topic, [output])
    app.wait_for(10)
    app.kill()
    parts = len(AdminClient(own.client("primary")).list_topics(OFFSETS_TOPIC).topics[OFFSETS_TOPIC].partitions)
    home = partition_of(own.topic("app"), parts)
    beside = next(name for name in map("beside-{}".format, count()) if partition_of(own.topic(name), parts) == home)
    own.commit("primary", beside, topic, {0: 5, 1: 7})
    with mirroring(own):
        wait_until(lambda: captured(own), 60, "the first capture")
        wait_until(lambda: suspected_groups(own.store, own.link.id) == {own.topic("app")}, 60, "the log read back")
        marks = own.store.watermarks
        wait_until(lambda: len(marks(own.link.id)) == 4, 60, "the mirror")
        wait_until(lambda: all(marks(own.link.id)[topic, n].source_through >= 300 for n in (0, 1)), 60, "the records")
        with frozen(lab), own.estate(without_primary(own)) as estate:
            plan = make_plan(estate, PlanRequest("dr"))
    told_apart = {position.group: (position.transactional, position.translation) for position in plan.positions}
    assert told_apart == {
        own.topic(beside): (False, Certainty.EXACT),
        own.topic("app"): (True, Certainty.CONSERVATIVE),
    }


def test_output_that_goes_to_none_of_the_links_topics_makes_nothing_exact(lab, own):
    """Another link may bring it over, or none does: how much of it is on dr can't be told by this link."""
    topic, output = own.create("primary", "in"), f"elsewhere.{own.name}"
    admin = AdminClient(own.client("primary"))
    admin.create_topics([NewTopic(output, 2, 1)])[output].result(TIMEOUT)
    own.produce("primary", topic, texts("i", 300))

    def seen():
        history = transaction_history(own.store, own.link.id)
        return captured(own) and history is not None and history.elsewhere.get(own.topic("app"))

    def mirrored():
        marks = own.store.watermarks(own.link.id)
        return [marks[each].source_through for each in ((topic, 0), (topic, 1)) if each in marks] == [300, 300]

    with mirroring(own):
        app = App(own, "primary", topic, [output])
        assert wait_until(seen, 60, "the group is known to commit in transactions") == {output}
        wait_until(mirrored, 60, "what it reads, of which it has a place then")
        with frozen(lab):
            app.kill()
            with own.estate(without_primary(own)) as estate:
                plan = make_plan(estate, PlanRequest("dr"))
    assert plan.positions
    for position in plan.positions:
        assert (position.transactional, position.transactions_again) == (True, None), position
        assert position.translation is Certainty.CONSERVATIVE
        assert f"to {output}, none of this link's topics" in position.reason


def test_what_was_processed_of_a_topic_that_was_made_anew_is_no_place_in_the_new_one(lab, own):
    """The application processed 40 records of the former topic, and a few of the new one, whose output isn't on dr."""
    topic, other = (own.create("primary", name, partitions=1) for name in ("in", "other"))
    output = own.create("primary", "out")
    own.produce("primary", topic, texts("former", 300, [0]))
    own.produce("primary", other, texts("other", 10, [0]))
    own.commit("primary", "app", other, {0: 3})  # so that the group outlives the topic
    with mirroring(own):
        first = App(own, "primary", topic, [output])
        first.wait_for(40)
        wait_until(lambda: known(own) >= 40, 60, "the transactions known")
        first.kill()
        admin = AdminClient(own.client("primary"))
        admin.delete_topics([topic])[topic].result(TIMEOUT)
        wait_until(lambda: topic not in own.topic_names("primary"), what="the deletion")
        wait_until(lambda: own.committed("primary", own.topic("app")) == {(other, 0): 3}, what="its offset dropped")
        own.create("primary", "in", partitions=1)
        own.produce("primary", topic, texts("new", 100, [0]))
        with own.estate() as estate:
            clusters = [estate.admin(alias) for alias in ("primary", "dr")]
            accept_recreated(own.store, own.link, topic, source=clusters[0], target=clusters[1])
        control = LinkControl(own.link.id, Direction.ACTIVE, 1, now(), "held", None, frozenset({output}))
        assert own.store.set_link_control(control, expected_version=None)
        app = App(own, "primary", topic, [output])
        app.wait_for(5)
        wait_until(lambda: through(own, topic) == 100, 60, "the new records")
        here = (own.topic("app"), topic)
        wait_until(
            lambda: here in {(p.group, p.topic) for p in own.store.group_positions(own.link.id)}, 60, "a capture"
        )
        with frozen(lab):
            app.kill()
            with own.estate(without_primary(own)) as estate:
                plan = make_plan(estate, PlanRequest("dr"))
    (placed,) = [position for position in plan.positions if (position.group, position.topic) == here]
    assert placed.source_offset <= app.committed + 1, "not where it was in the former topic"
    assert (placed.transactional, placed.translation) == (True, Certainty.CONSERVATIVE)


def test_what_was_mirrored_behind_a_hole_is_not_taken_for_nothing(own):
    """Two markers of the source, then a record that is mirrored: nobody has read yet whose transaction it is of."""
    topic = own.create("dr", "out", 1)
    own.produce("dr", topic, texts("o", 11, [0]))
    place = TopicPartition(topic, 0)
    mark = Watermark(*place, 1, 14, 11, 0, 14, 0, now())
    rows = tuple(OffsetMapping(*place, 1, source, target) for source, target in ((0, 0), (12, 10)))
    view = PartitionView(*place, topic, 1, rows, mark, source_start=0, source_end=14, target_start=0, target_end=11)
    with own.estate() as estate:
        for read, known in ((11, 11), (13, 14)):
            history = TransactionHistory("w", now(), read={place: read})
            assert without_empty_gaps(estate, "dr", history, {place: view}).read == {place: known}


def test_output_that_arrived_in_part_is_counted_as_transactions_that_are_processed_again(lab, own):
    """Two output topics, one of them paused: on dr the other one is ahead by so many transactions. A mirror is fenced
    off there."""
    topic, ahead, behind = (own.create("primary", name) for name in ("in", "ahead", "behind"))
    own.produce("primary", topic, texts("i", 300))
    with mirroring(own):
        app = App(own, "primary", topic, [ahead, behind])
        wait_until(lambda: known(own) and mirrored(own, behind) > 10, 60, "the first transactions")
        control = LinkControl(own.link.id, Direction.ACTIVE, 1, now(), "held", None, frozenset({behind}))
        assert own.store.set_link_control(control, expected_version=None)
        held = known(own)
        wait_until(lambda: known(own) > held + 40, 60, "transactions after the pause")
        app.kill()
        # frozen in between, what is mirrored may be ahead of what is known of transactions: then no number is known
        wait_until(
            lambda: all(p.transactions_again is not None for p in planned(own, None)), 30, "its last transaction"
        )
        with frozen(lab):
            lately = parse_moment(iso(now()), now=now())
            usual, stamped, committed = (
                planned(own, at) for at in (None, lately, replace(lately, basis=TimeBasis.COMMITS))
            )
            assert usual
            assert [(p.target_offset, p.transactional) for p in stamped] == [(p.target_offset, True) for p in usual]
            assert all(p.transactional for p in committed)
            assert [p for p, most in zip(committed, usual, strict=True) if p.target_offset > most.target_offset] == []
            lose_workers(own.store, own.link.id, ["killed"], own.store.time())  # so a marker ends dr's logs
            positions = failed_over(own)
            there = [sum(counts.values()) for counts in results(own, ahead, behind)]
            assert there[0] > there[1]
            App(own, "dr", topic, [ahead, behind], "--batch", "200", "--until-end").finish()
    of_ahead, of_behind = results(own, ahead, behind)
    inputs = {f"done-{value}" for values in own.values("dr", topic).values() for value in values}
    assert set(of_ahead) == set(of_behind) == inputs, "nothing is missing"
    assert set(of_behind.values()) == {1}
    assert all(position.transactions_again is not None for position in positions), told(positions)
    again = sum(position.transactions_again for position in positions)
    assert sum(count - 1 for count in of_ahead.values()) == again == there[0] - there[1]
    assert any("processed again" in position.reason for position in positions)

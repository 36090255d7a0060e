"""A status says `mirroring` only while every partition moves, or is at the end of what can be read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.mirror.health import open_transactions
from drkit.mirror.progress import MirrorProgress
from drkit.model.errors import Unreachable
from drkit.model.link_state import TRANSACTION_OPEN
from drkit.model.topology import Link
from drkit.observe.link_status import LinkStatus
from drkit.observe.status import link_statuses
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("green lights", 2)]


def status(mirrored: Mirrored, link: Link | None = None) -> LinkStatus:
    return link_statuses(mirrored.config, mirrored.store, [link or mirrored.link], timeout_seconds=1.5)[0]


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(20) == 0


@contextmanager
def frozen(lab: Lab, alias: str) -> Iterator[None]:
    lab.pause(alias)
    try:
        yield
    finally:
        lab.resume(alias)


def green(mirrored: Mirrored) -> bool:
    seen = status(mirrored)
    return seen.state == "mirroring" and seen.recovery_point.records == 0


def test_a_cluster_that_does_not_answer_is_no_green_light(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    with mirrored.running():
        wait_until(lambda: green(mirrored), 30, "the mirror")
        with frozen(mirrored.lab, "dr"):
            write(mirrored, topic, 10)
            seen = wait_until(
                lambda: found if (found := status(mirrored)).state != "mirroring" else None, 20, "the state"
            )
            assert seen.state == "degraded"
            assert "dr can't be read" in (seen.reason or "")
            late = wait_until(
                lambda: next((p for p in status(mirrored).partitions if (p.lag_seconds or 0) > 5), None),
                30,
                "the lag's age",
            )
            assert late.lag_records == 10
        wait_until(lambda: green(mirrored), 60, "dr again")
        with frozen(mirrored.lab, "primary"):
            seen = status(mirrored)
            assert seen.state == "degraded"
            assert "primary can't be read" in (seen.reason or "")
        wait_until(lambda: green(mirrored), 60, "primary again")


def test_topics_that_no_worker_knows_of_are_no_green_light(mirrored: Mirrored) -> None:
    """The configuration got one more topic, and the mirror was not started again."""
    topic, other = mirrored.name("orders"), f"elsewhere-{mirrored.prefix}"
    for each in (topic, other):
        mirrored.source.create(each)
        write(mirrored, each, 10)
    edited = replace(mirrored.link, topics=(*mirrored.link.topics, other))
    with mirrored.running():
        wait_until(lambda: green(mirrored), 30, "the mirror")
        seen = status(mirrored, edited)
        assert seen.state == "degraded"
        assert f"{other}:0" in (seen.reason or "")
        assert "restart it" in (seen.reason or "")
        assert seen.recovery_point.records == 10


def test_a_mirror_that_cannot_look_is_no_green_light(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host is cut off from a cluster that answers everybody else: made here by what its look meets then."""
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    cut_off = threading.Event()
    observe = MirrorProgress.observe

    def observed(progress: MirrorProgress) -> None:
        if cut_off.is_set():
            raise Unreachable("primary does not answer this host")
        observe(progress)

    monkeypatch.setattr(MirrorProgress, "observe", observed)
    with mirrored.running():
        wait_until(lambda: green(mirrored), 30, "the mirror")
        cut_off.set()
        seen = wait_until(lambda: found if (found := status(mirrored)).state != "mirroring" else None, 30, "the state")
        assert seen.source_reachable
        assert (seen.state, seen.problems) == ("degraded", ())
        assert "primary does not answer this host" in (seen.reason or "")
        cut_off.clear()
        wait_until(lambda: green(mirrored), 30, "the mirror again")


def test_what_an_open_transaction_hides_is_no_green_light(mirrored: Mirrored) -> None:
    """Acknowledged records stand behind it: a failover now would lose them."""
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    producer = mirrored.source.producer(transactional_id=mirrored.name("open"))
    producer.init_transactions(20)
    with mirrored.running():
        wait_until(lambda: green(mirrored), 30, "the mirror")
        producer.begin_transaction()
        producer.produce(topic, value=b"undecided", partition=0)
        assert producer.flush(20) == 0
        write(mirrored, topic, 20)
        point = status(mirrored).recovery_point
        assert (point.records, point.lower_bound) == (21, False)
        assert "21 offsets of them stand behind open transactions" in (point.reason or "")
        producer.abort_transaction(20)
        wait_until(lambda: green(mirrored), 30, "all of it")


def test_records_that_the_target_stamps_itself_are_no_green_light(mirrored: Mirrored) -> None:
    """Somebody sets message.timestamp.type there. The mirror sets it back within a second; what it writes until then
    has other timestamps than the source's."""
    topic = mirrored.name("stamped")
    mirrored.source.create(topic)
    write(mirrored, topic, 50)
    with mirrored.running():
        mirrored.wait_through(topic)
        mirrored.hold(topic)
        write(mirrored, topic, 50)
        with ClusterAdmin("dr", ClusterConfig(bootstrap_servers=mirrored.target.bootstrap)) as admin:
            admin.set_topic_configs(topic, {"message.timestamp.type": "LogAppendTime"})
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
        wait_until(lambda: mirrored.problems() or mirrored.through(topic) >= 100, 60, "a verdict")
        told = [(each.kind, each.unsure_from) for each in mirrored.problems()]
        if told:  # it was not set back before the records came
            assert told == [("foreign_writer", 50)]
            assert "differs from source offset 50 in its timestamp" in mirrored.problems()[0].reason
            assert not green(mirrored)
        else:
            mirrored.assert_same(topic)


def test_a_transaction_that_nobody_ends_is_no_green_light(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing behind it can be read: no lag shows what others have written there since."""
    monkeypatch.setattr(open_transactions, "HANGS_SECONDS", 1.0)
    monkeypatch.setattr(open_transactions, "SPARE_SECONDS", -599.0)  # this producer's transactions may last ten minutes
    topic = mirrored.name("hangs")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    producer = mirrored.source.producer(transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions(30)
    with mirrored.running() as running:
        wait_until(lambda: green(mirrored), 90, "the mirror")
        producer.begin_transaction()
        producer.produce(topic, value=b"open", partition=0)
        assert producer.flush(30) == 0
        write(mirrored, topic, 10)
        (problem,) = wait_until(lambda: mirrored.problems(TRANSACTION_OPEN), 90, "the problem")
        assert "producer id " in problem.reason
        assert f"transactional id {topic}" in problem.reason
        assert f"begins with transactional id {topic} ends it" in problem.remedy
        assert "transactions.sh abort" not in problem.remedy  # its coordinator has it
        seen = status(mirrored)
        assert (seen.state, seen.recovery_point.records) == ("degraded", 11)
        assert (seen.recovery_point.seconds or 0.0) >= 1.0
        producer.abort_transaction(30)
        wait_until(lambda: green(mirrored), 90, "its end")
    assert running.error is None
    assert len(mirrored.target.read(topic)) == 20

"""Loads and groups whose cluster dies, stands still or comes back, and that are told to stop."""

from __future__ import annotations

from collections import Counter

import pytest

from drkit.lab.datasets import open_dataset
from drkit.lab.datasets.readers import GroupReader, readers_for
from drkit.lab.datasets.report import Behaviour, LoadOutcome, TopicReport
from drkit.lab.datasets.workload import DatasetWorkload, LoadOptions, load, prepare_topics
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.log_reader import Seen, read_log
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("loads and disasters", 3)]

IMPATIENT = 3.0
ENOUGH = 3000


def _start(admin, client, options, dataset=None):
    dataset = dataset or open_dataset("flights")
    prepare_topics(admin, dataset.topics)
    workload = DatasetWorkload(dataset, client, options)
    workload.start()
    return workload


def _wait_for(workload, acknowledged=ENOUGH):
    def far_enough():
        assert workload.join(0) is None, "the load ended too early"
        return workload.progress.acknowledged >= acknowledged

    wait_until(far_enough, what=f"{acknowledged} records acknowledged")


def _end_of(workload):
    return wait_until(lambda: workload.join(0.1), timeout=60, what="the load's end")


@pytest.mark.parametrize("transactional", sampled("a load killed in mid-stream", [False, True], 1))
def test_killed_in_mid_stream_the_load_ends_and_what_it_reports_as_acknowledged_is_on_the_log(
    admin, client, cluster, loading_lab, transactional
):
    workload = _start(
        admin, client, LoadOptions(rate=5000, transactional=transactional, delivery_timeout_seconds=IMPATIENT)
    )
    _wait_for(workload)
    loading_lab.kill("primary-1")
    report = _end_of(workload)
    assert report.outcome is LoadOutcome.FAILED
    assert report.reason
    assert report.errors
    assert report.acknowledged >= ENOUGH
    assert 0 < report.events_sent < report.events
    loading_lab.restart("primary-1")
    for topic in report.topics:

        def whole(topic: TopicReport = topic) -> list[Seen] | None:
            """A coordinator ends what was left open, or committed without all markers; until then readers wait."""
            seen = read_log(cluster.bootstrap_servers, topic.topic, committed=transactional)
            on_log = Counter(each.partition for each in seen)
            there = all(on_log[part.partition] >= part.acknowledged for part in topic.partitions)
            return seen if there else None

        seen = wait_until(whole, 60, "what was acknowledged")
        for part in topic.partitions:
            if part.end_offset is not None:
                below = sum(r.partition == part.partition and r.offset < part.end_offset for r in seen)
                assert below == part.acknowledged
        surplus = len(seen) - topic.acknowledged
        assert 0 <= surplus <= topic.unacknowledged


def test_standing_still_the_load_ends_too(admin, client, loading_lab):
    workload = _start(admin, client, LoadOptions(rate=5000, delivery_timeout_seconds=IMPATIENT))
    _wait_for(workload)
    loading_lab.pause("primary-1")
    report = _end_of(workload)
    assert report.outcome is LoadOutcome.FAILED
    assert report.unacknowledged > 0


def test_a_cluster_that_comes_back_in_time_costs_nothing(admin, client, cluster, loading_lab):
    dataset = open_dataset("orders", count=8000)
    workload = _start(admin, client, LoadOptions(rate=5000, delivery_timeout_seconds=60), dataset)
    _wait_for(workload)
    loading_lab.kill("primary-1")
    loading_lab.restart("primary-1")
    report = _end_of(workload)
    assert (report.outcome, report.unacknowledged) == (LoadOutcome.COMPLETE, 0)
    seen = read_log(cluster.bootstrap_servers, "orders.orders", committed=False)
    assert Counter(r.key for r in seen) == Counter(event[0].key for event in dataset.events(0))


@pytest.mark.parametrize("transactional", sampled("a load told to stop", [False, True], 1))
def test_told_to_stop_it_accounts_for_everything_it_sent(admin, client, cluster, transactional):
    dataset = open_dataset("flights", topics=["flights", "weather"])
    workload = _start(admin, client, LoadOptions(rate=5000, transactional=transactional), dataset)
    _wait_for(workload)
    workload.stop()
    report = _end_of(workload)
    assert (report.outcome, report.unacknowledged, report.errors) == (LoadOutcome.INTERRUPTED, 0, {})
    committed = [r for t in dataset.topics for r in read_log(cluster.bootstrap_servers, t.name, committed=True)]
    assert len(committed) == report.acknowledged == report.events_sent  # one record an event on these topics
    wanted = []
    for event in dataset.events(0):
        wanted.extend(r.value for r in event)
        if len(wanted) == len(committed):
            break
    assert Counter(r.value for r in committed) == Counter(wanted)


def test_told_to_give_up_it_does_not_wait_for_a_cluster_that_stands_still(admin, client, loading_lab):
    workload = _start(admin, client, LoadOptions(rate=5000, delivery_timeout_seconds=600))
    _wait_for(workload)
    loading_lab.pause("primary-1")
    workload.stop(give_up=True)
    report = _end_of(workload)
    assert report.outcome is LoadOutcome.INTERRUPTED
    assert report.acknowledged + report.unacknowledged == sum(topic.sent for topic in report.topics)


def test_no_cluster_no_load(client, admin, loading_lab):
    dataset = open_dataset("orders", count=10)
    prepare_topics(admin, dataset.topics)
    loading_lab.kill("primary-1")
    transactional = DatasetWorkload(dataset, client, LoadOptions(transactional=True, delivery_timeout_seconds=1))
    transactional.start()
    with pytest.raises(Unreachable):
        _end_of(transactional)
    plain = DatasetWorkload(dataset, client, LoadOptions(delivery_timeout_seconds=1))
    plain.start()
    report = _end_of(plain)
    assert (report.outcome, report.acknowledged) == (LoadOutcome.FAILED, 0)
    assert report.unacknowledged == sum(topic.sent for topic in report.topics) > 0


@pytest.mark.parametrize("how", sampled("readers of a dead cluster", ["kill", "pause"], 1))
def test_readers_of_a_dead_cluster_can_be_stopped(admin, client, loading_lab, how):
    dataset = open_dataset("flights", limit=3000)
    load(dataset, client, admin, groups=False)
    readers = readers_for("flights", [spec.name for spec in dataset.topics], client)
    for reader in readers:
        reader.start()
    for reader in readers:
        wait_until(lambda reader=reader: reader.report().committed, what=f"a commit of {reader.group}")
    if how == "kill":
        loading_lab.kill("primary-1")
        for reader in readers:
            wait_until(lambda reader=reader: reader.trouble, what=f"{reader.group} to notice")
    else:
        loading_lab.pause("primary-1")
    for reader in readers:
        reader.request_stop(catch_up_seconds=0)
    for reader in readers:
        wait_until(lambda reader=reader: reader.join(0) or reader.overdue, what=f"the end of {reader.group}")
        if not reader.ended:
            assert reader.report().problem
    if how == "kill":
        assert all(reader.ended for reader in readers)


def test_a_reader_goes_on_when_its_cluster_comes_back(admin, client, loading_lab):
    dataset = open_dataset("orders", count=300)
    load(dataset, client, admin, groups=False)
    read = []
    reader = GroupReader(
        "orders-live",
        [spec.name for spec in dataset.topics],
        client,
        Behaviour.LIVE,
        commit_interval_seconds=0.2,
        on_messages=read.extend,
    )
    reader.start()
    wait_until(lambda: reader.report().committed, what="a commit")
    loading_lab.kill("primary-1")
    wait_until(lambda: reader.trouble, what="the reader to notice")
    loading_lab.restart("primary-1")
    again = load(dataset, client, admin, groups=False).report
    wait_until(lambda: reader.trouble is None, what="the reader to be well again")
    assert reader.stop(catch_up_seconds=60)
    report = reader.report()
    assert report.problem is None
    ends = admin.end_offsets(
        [TopicPartition(t.topic, p.partition) for t in again.topics for p in t.partitions], committed=True
    )
    assert {tp: report.committed[tp] for tp in ends} == ends
    seen = {(m.topic(), m.partition(), m.offset()) for m in read}
    assert len(seen) == sum(ends.values())


def test_two_readers_of_a_group_share_the_work_and_miss_nothing(admin, client):
    dataset = open_dataset("orders", count=500)
    load(dataset, client, admin, groups=False)
    topics = [spec.name for spec in dataset.topics]
    read = []
    first, second = (
        GroupReader("orders-live", topics, client, Behaviour.LIVE, commit_interval_seconds=0.2, on_messages=read.extend)
        for _ in range(2)
    )
    first.start()
    wait_until(lambda: first.report().committed, what="a commit of the first")
    second.start()
    wait_until(lambda: second._assigned and first._assigned and not first._assigned & second._assigned, what="sharing")
    load(dataset, client, admin, groups=False)
    ends = admin.end_offsets(
        [TopicPartition(s.name, n) for s in dataset.topics for n in range(s.partitions)], committed=True
    )
    wait_until(
        lambda: len({(m.topic(), m.partition(), m.offset()) for m in list(read)}) == sum(ends.values()),
        what="everything",
    )
    assert first.stop(catch_up_seconds=30)
    assert second.stop(catch_up_seconds=30)
    committed = {tp: max(r.report().committed.get(tp, 0) for r in (first, second)) for tp in ends}
    assert committed == ends


def test_a_callback_that_fails_ends_the_reader_and_is_said(admin, client):
    dataset = open_dataset("orders", count=50)
    load(dataset, client, admin, groups=False)

    def broken(_messages):
        raise ValueError("out of paper")

    reader = GroupReader("orders-live", ["orders.orders"], client, Behaviour.LIVE, on_messages=broken)
    reader.start()
    wait_until(lambda: reader.ended, what="the reader's end")
    assert reader.report().problem == "stopped reading: ValueError: out of paper"
    assert not reader.report().committed

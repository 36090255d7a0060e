"""What a load leaves on the log, read by another client."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime

import pytest
from kafka.partitioner.default import murmur2

from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab.datasets import open_dataset
from drkit.lab.datasets.events import TimestampMode
from drkit.lab.datasets.flights import TOPICS
from drkit.lab.datasets.report import LoadOutcome
from drkit.lab.datasets.workload import LoadOptions, load, prepare_topics
from drkit.model.clock import now, to_millis
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.log_reader import read_log
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("loads", 4)]

PARTITIONS = {
    "flights": 6,
    "flights.archive": 4,
    "weather": 2,
    "aircraft.latest": 3,
    "orders.orders": 4,
    "orders.items": 6,
}


def _wanted(dataset, topic):
    """(key, value) of every record of a topic, in event order."""
    return [(r.key, r.value) for event in dataset.events(0) for r in event if r.topic == topic]


def _by_partition(records, partitions):
    """As a Java producer places them."""
    placed = {number: [] for number in range(partitions)}
    for key, value in records:
        placed[(murmur2(key.encode()) & 0x7FFFFFFF) % partitions].append((key, value))
    return placed


def _group_positions(cluster, group):
    with GroupAdmin("primary", cluster) as admin:
        return {row.tp: row.offset for row in admin.committed([group])}


def test_everything_is_there_once_in_event_order_where_java_would_put_it(admin, client, cluster):
    dataset = open_dataset("flights", limit=3000)
    stamps = {}
    result = load(dataset, client, admin, groups=False)
    assert result.report.outcome is LoadOutcome.COMPLETE
    assert (result.report.events_sent, result.report.unacknowledged, result.report.errors) == (3000, 0, {})
    for topic in result.report.topics:
        seen = read_log(cluster.bootstrap_servers, topic.topic, committed=False)
        placed = _by_partition(_wanted(dataset, topic.topic), PARTITIONS[topic.topic])
        for number, wanted in placed.items():
            assert [(r.key, r.value) for r in seen if r.partition == number] == wanted
        assert {part.partition: (part.acknowledged, part.end_offset) for part in topic.partitions} == {
            number: (len(wanted), len(wanted)) for number, wanted in placed.items() if wanted
        }
        assert {r.headers["drkit-lab-load"] for r in seen} == {result.report.load}
        stamps[topic.topic] = [r.timestamp for r in seen]
    assert {datetime.fromtimestamp(stamp / 1000, UTC).year for stamp in stamps["flights.archive"]} == {2013}
    assert max(stamps["flights"] + stamps["weather"]) == to_millis(result.report.started_at)


def test_the_topics_differ_in_partitions_and_configuration(admin):
    prepare_topics(admin, TOPICS)
    prepare_topics(admin, open_dataset("orders", count=1).topics)
    assert {name: topic.partitions for name, topic in admin.topics(PARTITIONS).items()} == PARTITIONS
    configs = admin.topic_configs(PARTITIONS)
    assert configs["flights.archive"]["retention.ms"] == "-1"
    assert configs["aircraft.latest"]["cleanup.policy"] == "compact"
    assert configs["weather"]["compression.type"] == "zstd"
    year = 365 * 24 * 3600 * 1000
    for name in ("flights", "weather", "orders.orders", "orders.items"):
        assert int(configs[name]["retention.ms"]) > year
    assert len({tuple(sorted(config.items())) for config in configs.values()}) >= 5


def test_loading_again_appends_and_says_so(admin, client, cluster):
    dataset = open_dataset("orders", count=100)
    first = load(dataset, client, admin, groups=False)
    assert not first.remarks
    second = load(dataset, client, admin, groups=False)
    assert second.remarks == ("appending to what exists: orders.orders, orders.items",)
    seen = read_log(cluster.bootstrap_servers, "orders.orders", committed=True)
    assert Counter(r.headers["drkit-lab-load"] for r in seen) == {first.report.load: 100, second.report.load: 100}


def test_a_topic_with_another_number_of_partitions_is_refused_and_nothing_is_made(admin, client):
    admin.create_topic("orders.items", partitions=1, replication_factor=1)
    with pytest.raises(Refused, match=r"orders\.items has 1 partition, the data set needs 6"):
        load(open_dataset("orders", count=10), client, admin)
    assert "orders.orders" not in admin.topics(["orders.orders"])


def test_a_topic_with_other_settings_is_appended_to_and_the_difference_is_said(admin, client):
    admin.create_topic("weather", partitions=2, replication_factor=1, config={"retention.ms": "604800000"})
    result = load(open_dataset("flights", limit=5, topics=["weather"]), client, admin, groups=False)
    assert "weather: retention.ms is 604800000, the data set is made for 157680000000" in result.remarks


def test_readers_of_committed_records_see_every_event_once_whatever_was_aborted(admin, client, cluster):
    dataset = open_dataset("orders", count=1500)
    options = LoadOptions(transactional=True, transaction_size=200, abort_share=0.3, seed=5)
    report = load(dataset, client, admin, options, groups=False).report
    assert report.outcome is LoadOutcome.COMPLETE
    assert report.transactions.aborted > 3
    assert report.transactions.unknown == 0
    for topic in report.topics:
        committed = read_log(cluster.bootstrap_servers, topic.topic, committed=True)
        everything = read_log(cluster.bootstrap_servers, topic.topic, committed=False)
        for number, wanted in _by_partition(_wanted(dataset, topic.topic), PARTITIONS[topic.topic]).items():
            assert [(r.key, r.value) for r in committed if r.partition == number] == wanted
        assert {r.headers["drkit-lab-txn"] for r in committed} == {"committed"}
        seen_by_nobody = {(r.partition, r.offset) for r in everything} - {(r.partition, r.offset) for r in committed}
        marked = {(r.partition, r.offset) for r in everything if r.headers["drkit-lab-txn"] == "aborted"}
        assert seen_by_nobody == marked
        assert len(marked) == topic.aborted > 0
        assert len(committed) == topic.acknowledged
    assert report.aborted == sum(topic.sent - topic.acknowledged for topic in report.topics)


def test_what_is_committed_of_orders_and_items_agrees_although_they_lie_apart(admin, client, cluster):
    load(open_dataset("orders", count=400), client, admin, LoadOptions(transactional=True), groups=False)
    orders = [json.loads(r.value) for r in read_log(cluster.bootstrap_servers, "orders.orders", committed=True)]
    items = [json.loads(r.value) for r in read_log(cluster.bootstrap_servers, "orders.items", committed=True)]
    totals = Counter()
    for item in items:
        totals[item["order_id"]] += item["quantity"] * item["unit_price_cents"]
    assert totals == {order["order_id"]: order["total_cents"] for order in orders}
    assert len(orders) == 400


def test_compaction_leaves_holes_and_the_latest_of_each_aircraft(admin, client, cluster):
    dataset = open_dataset("flights", limit=20_000, topics=["aircraft.latest"])
    load(dataset, client, admin, groups=False)
    wanted = _wanted(dataset, "aircraft.latest")

    def compacted():
        seen = read_log(cluster.bootstrap_servers, "aircraft.latest", committed=True)
        return seen if len(seen) < len(wanted) * 0.8 else None

    seen = wait_until(compacted, timeout=60, what="compaction")
    latest = {r.key: r.value for r in seen}
    assert {key: value for key, value in latest.items() if value} == {key: v for key, v in dict(wanted).items() if v}
    ends = admin.end_offsets([TopicPartition("aircraft.latest", number) for number in range(3)], committed=True)
    assert sum(ends.values()) == len(wanted)


@pytest.mark.parametrize("transactional", sampled("positions that a load leaves", [False, True], 1))
def test_groups_leave_their_positions_behind(admin, client, cluster, transactional):
    dataset = open_dataset("flights", limit=4000)
    result = load(dataset, client, admin, LoadOptions(transactional=transactional))
    assert result.report.outcome is LoadOutcome.COMPLETE
    assert not result.remarks
    tps = [TopicPartition(spec.name, number) for spec in TOPICS for number in range(spec.partitions)]
    ends = admin.end_offsets(tps, committed=True)
    live, lagging, ahead = result.groups

    assert _group_positions(cluster, "flights-live") == ends == live.committed == live.positions
    assert live.read == result.report.acknowledged

    assert _group_positions(cluster, "flights-ahead") == ends == ahead.committed
    assert 0 < ahead.read < live.read / 3
    assert all(ahead.positions[tp] < end for tp, end in ends.items() if tp in ahead.positions)

    positions = _group_positions(cluster, "flights-lagging")
    assert positions == lagging.committed
    assert 0 < lagging.read < live.read / 3
    for tp, offset in positions.items():
        assert offset <= math.ceil(ends[tp] * 0.1)
    if not transactional:  # else the share may end among records that nobody sees
        assert positions == {tp: math.ceil(end * 0.1) for tp, end in ends.items() if end}

    with GroupAdmin("primary", cluster) as groups:
        assert set(groups.members([group.group for group in result.groups]).values()) == {0}


def test_live_stamps_are_the_moments_of_writing_except_in_the_archive(admin, client, cluster):
    begun = to_millis(now())
    dataset = open_dataset("flights", limit=200, timestamps=TimestampMode.LIVE)
    load(dataset, client, admin, groups=False)
    ended = to_millis(now())
    seen = read_log(cluster.bootstrap_servers, "weather", committed=True)
    assert seen
    assert all(begun <= r.timestamp <= ended for r in seen)
    archived = read_log(cluster.bootstrap_servers, "flights.archive", committed=True)
    assert {datetime.fromtimestamp(r.timestamp / 1000, UTC).year for r in archived} == {2013}


def test_a_paced_load_sends_the_same(admin, client, cluster):
    dataset = open_dataset("orders", count=40)
    report = load(dataset, client, admin, LoadOptions(rate=150, transactional=True), groups=False).report
    sent = sum(topic.sent for topic in report.topics)
    assert report.seconds >= (sent - 150) / 150  # never faster than the pace: the last second's worth aside
    seen = read_log(cluster.bootstrap_servers, "orders.orders", committed=True)
    assert Counter((r.key, r.value) for r in seen) == Counter(_wanted(dataset, "orders.orders"))


def test_events_without_a_record_on_the_chosen_topics_are_counted_too(admin, client):
    dataset = open_dataset("flights", limit=700, topics=["weather"])
    report = load(dataset, client, admin, LoadOptions(transactional=True, transaction_size=50), groups=False).report
    assert (report.outcome, report.events_sent) == (LoadOutcome.COMPLETE, 700)
    assert report.acknowledged == len(_wanted(dataset, "weather"))

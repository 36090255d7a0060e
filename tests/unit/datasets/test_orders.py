from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from drkit.lab.datasets.events import WHEN_PRODUCED, TimestampMode
from drkit.lab.datasets.orders import MAX_ORDERS, OrdersDataset

END_MS = 1_700_000_000_000

PINNED_ORDER = (
    '{"order_id":"O-00000001","customer":"C-11942","placed_at":"2013-01-01T00:00:01.283Z",'
    '"lines":3,"total_cents":147141}'
)
PINNED_ITEMS = [
    '{"item_id":"O-00000001/1","order_id":"O-00000001","line":1,"sku":"SKU-0036","quantity":1,"unit_price_cents":41569}',
    '{"item_id":"O-00000001/2","order_id":"O-00000001","line":2,"sku":"SKU-0719","quantity":2,"unit_price_cents":12617}',
    '{"item_id":"O-00000001/3","order_id":"O-00000001","line":3,"sku":"SKU-0439","quantity":2,"unit_price_cents":40169}',
]


def _contents(dataset):
    return [[(r.topic, r.key, r.value) for r in event] for event in dataset.events(END_MS)]


def test_the_same_seed_and_count_give_the_same_orders_and_another_seed_others():
    assert _contents(OrdersDataset(seed=7, count=300)) == _contents(OrdersDataset(seed=7, count=300))
    assert _contents(OrdersDataset(seed=7, count=300)) != _contents(OrdersDataset(seed=8, count=300))


def test_what_a_seed_gives_does_not_change_between_versions():
    """Written down once: whoever holds data of an earlier drkit can generate it again."""
    order, *items = list(OrdersDataset(seed=42, count=10).events(END_MS))[1]
    assert order.value == PINNED_ORDER
    assert [item.value for item in items] == PINNED_ITEMS


def test_orders_and_items_agree():
    orders, items = {}, {}
    for event in OrdersDataset(seed=1, count=2000).events(END_MS):
        order, *lines = event
        assert order.topic == "orders.orders"
        parsed = json.loads(order.value)
        assert order.key == parsed["order_id"]
        orders[parsed["order_id"]] = parsed
        for line in lines:
            assert line.topic == "orders.items"
            item = json.loads(line.value)
            assert line.key == item["sku"]
            assert line.timestamp == order.timestamp
            items.setdefault(item["order_id"], []).append(item)
    assert len(orders) == 2000
    assert items.keys() == orders.keys()
    for order_id, order in orders.items():
        lines = items[order_id]
        assert [item["line"] for item in lines] == list(range(1, order["lines"] + 1))
        assert sum(item["quantity"] * item["unit_price_cents"] for item in lines) == order["total_cents"]
    sizes = Counter(order["lines"] for order in orders.values())
    assert set(sizes) == set(range(1, 7))


def test_articles_are_chosen_unevenly_and_have_one_price():
    events = list(OrdersDataset(seed=1, count=5000).events(END_MS))
    items = [json.loads(r.value) for event in events for r in event[1:]]
    by_article = Counter(item["sku"] for item in items)
    top = sum(count for _, count in by_article.most_common(100))
    assert 0.25 < top / len(items) < 0.45
    assert len({(item["sku"], item["unit_price_cents"]) for item in items}) == len(by_article)


def test_stamps_never_go_back_and_the_last_is_the_end():
    stamps = [event[0].timestamp for event in OrdersDataset(seed=3, count=1000).events(END_MS)]
    assert all(before <= after for before, after in pairwise(stamps))
    assert stamps[-1] == END_MS
    assert len(set(stamps)) > 900


def test_what_was_placed_when_does_not_depend_on_the_load():
    first = [r.value for event in OrdersDataset(count=50).events(END_MS) for r in event]
    later = [r.value for event in OrdersDataset(count=50).events(END_MS + 10**9) for r in event]
    assert first == later


def test_live_stamps_leave_the_time_to_the_producer():
    records = [r for event in OrdersDataset(count=20, timestamps=TimestampMode.LIVE).events(END_MS) for r in event]
    assert {r.timestamp for r in records} == {WHEN_PRODUCED}


def test_count_repeat_and_limit():
    assert OrdersDataset(count=10, repeat=3).size == 30
    assert OrdersDataset(count=10, repeat=3, limit=12).size == 12
    assert len(_contents(OrdersDataset(count=10, repeat=3))) == 30
    ids = [event[0][1] for event in _contents(OrdersDataset(count=10, repeat=3))]
    assert len(set(ids)) == 30


def test_one_of_the_topics_alone():
    events = _contents(OrdersDataset(count=20, topics=["orders.items"]))
    assert {topic for event in events for topic, _, _ in event} == {"orders.items"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"count": 0}, "count must be at least 1"),
        ({"count": -3}, "count must be at least 1"),
        ({"repeat": 0}, "repeat must be at least 1"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"count": MAX_ORDERS, "repeat": 2}, "more than the topics' retention can hold"),
        ({"topics": ["flights"]}, "flights is not a topic"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        OrdersDataset(**arguments)

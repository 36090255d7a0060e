"""The data set orders: orders and their line items, generated from a seed, on two topics that must agree.

Each order is written before its items. A reader of both topics can check that they agree: every item's `order_id` is an
order's; an order has `lines` items, numbered from 1; and `total_cents` is the sum of quantity x unit_price_cents over
them.

| topic | partitions | key | one record for |
|---|---|---|---|
| orders.orders | 4 | order id | each order |
| orders.items | 6 | article (sku) | each line of an order |

An order and its items have different keys, so they are on different partitions. The choice of articles is
uneven, as in a shop: a tenth of them is in about a third of all lines.

The same seed and count give the same keys and values on every machine. `placed_at` begins at the start of 2013, with
one order every two seconds on average; the records' timestamps follow it, moved so that the last order is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from drkit.lab.datasets.events import (
    WHEN_PRODUCED,
    DatasetRecord,
    Event,
    TimestampMode,
    TopicSpec,
    iso_millis,
    select_topics,
)

ORDERS = "orders.orders"
ITEMS = "orders.items"

_DAY_MS = 24 * 60 * 60 * 1000
_GAP_MS = 2000
_FIRST_PLACED_MS = 1_356_998_400_000  # 2013-01-01T00:00:00Z
_RETENTION_MS = 3 * 365 * _DAY_MS
_CUSTOMERS = 20_000
_ARTICLES = 1000
_MOST_LINES = 6

MAX_ORDERS = 40_000_000
"""With more, the timestamps of the first orders would be before the topics' retention."""

TOPICS = (
    # each order, by its id
    TopicSpec(ORDERS, 4, {"retention.ms": str(_RETENTION_MS)}),
    # each line of an order, by article
    TopicSpec(
        ITEMS,
        6,
        {"retention.ms": str(_RETENTION_MS), "segment.bytes": "67108864"},
    ),
)


class OrdersDataset:
    """Orders with their line items; one event is one order with all its items.

    Args:
        seed: determines all content.
        count: how many orders, at least 1.
        repeat: multiplies `count`; the ids continue.
        limit: the most orders.
        timestamps: moved, so that the last order is now, or live.
        topics: only these of its topics; None: both.
    """

    name = "orders"

    def __init__(
        self,
        *,
        seed: int = 13,
        count: int = 50_000,
        repeat: int = 1,
        limit: int | None = None,
        timestamps: TimestampMode = TimestampMode.MOVED,
        topics: Sequence[str] | None = None,
    ) -> None:
        for name, value in (("count", count), ("repeat", repeat), ("limit", limit)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.topics = select_topics(TOPICS, topics)
        self.size = count * repeat if limit is None else min(limit, count * repeat)
        if self.size > MAX_ORDERS:
            raise ValueError(f"{self.size} orders are more than the topics' retention can hold ({MAX_ORDERS})")
        self._seed = seed
        self._timestamps = timestamps

    def events(self, end_ms: int) -> Iterator[Event]:
        """The orders in the order of `placed_at`. If timestamps are moved, the last one has `end_ms`."""
        random = Random(self._seed)  # noqa: S311  # reproducible data, not a secret
        prices = [99 + int(random.random() * 50_000) for _ in range(_ARTICLES)]
        wanted = {spec.name for spec in self.topics}
        live = self._timestamps is TimestampMode.LIVE
        last = self.size - 1
        for number in range(self.size):
            # Up to one gap early, so that intervals vary while order and end are known in advance.
            offset = number * _GAP_MS - (int(random.random() * _GAP_MS) if 0 < number < last else 0)
            timestamp = WHEN_PRODUCED if live else end_ms - last * _GAP_MS + offset
            yield [r for r in _order(random, number, offset, timestamp, prices) if r.topic in wanted]


def _order(random: Random, number: int, offset: int, timestamp: int, prices: Sequence[int]) -> list[DatasetRecord]:
    # Only Random.random(): its sequence for a seed is the same in every version of Python.
    draw = random.random
    order_id = f"O-{number:08d}"
    items = []
    total = 0
    lines = 1 + int(draw() * _MOST_LINES)
    for line in range(1, lines + 1):
        article = int(draw() ** 2 * _ARTICLES)
        quantity = 1 + int(draw() * 3)
        price = prices[article]
        total += quantity * price
        sku = f"SKU-{article:04d}"
        items.append(
            DatasetRecord(
                ITEMS,
                sku,
                f'{{"item_id":"{order_id}/{line}","order_id":"{order_id}","line":{line},"sku":"{sku}",'
                f'"quantity":{quantity},"unit_price_cents":{price}}}',
                timestamp,
            )
        )
    order = (
        f'{{"order_id":"{order_id}","customer":"C-{int(draw() * _CUSTOMERS):05d}",'
        f'"placed_at":"{iso_millis(_FIRST_PLACED_MS + offset)}","lines":{lines},"total_cents":{total}}}'
    )
    return [DatasetRecord(ORDERS, order_id, order, timestamp), *items]

"""Data for the lab: flights and orders as Kafka records, and groups that read and commit them.

    dataset = open_dataset("flights", limit=10_000)
    result = load(dataset, confluent_config(cluster), ClusterAdmin("primary", cluster), LoadOptions(rate=2000))

`DatasetWorkload` only writes, in its own thread; `GroupReader` is one reading group.
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.config.extras import Extra, require
from drkit.lab.datasets.events import Dataset, TimestampMode
from drkit.lab.datasets.orders import OrdersDataset

DATASETS = ("flights", "orders")
DEFAULT_SEED = 13
DEFAULT_ORDERS = 50_000


def open_dataset(
    name: str,
    *,
    seed: int = DEFAULT_SEED,
    count: int | None = None,
    limit: int | None = None,
    repeat: int = 1,
    timestamps: TimestampMode = TimestampMode.MOVED,
    topics: Sequence[str] | None = None,
) -> Dataset:
    """The data set of this name. `seed` and `count` are only for orders.

    Raises:
        ValueError: no such data set, a number out of range, an unknown topic, or `count` for flights.
        ExtraMissing: the package of the flights is not installed.
    """
    if name == "orders":
        orders = DEFAULT_ORDERS if count is None else count
        return OrdersDataset(seed=seed, count=orders, limit=limit, repeat=repeat, timestamps=timestamps, topics=topics)
    if name != "flights":
        raise ValueError(f"there is no data set {name!r}; there are {' and '.join(DATASETS)}")
    if count is not None:
        raise ValueError("count is only for orders; limit takes the first so many flights and hours of weather")
    require(Extra.LAB, "the data set flights")
    from drkit.lab.datasets.flights import FlightsDataset  # noqa: PLC0415  # pandas takes a third of a second

    return FlightsDataset(limit=limit, repeat=repeat, timestamps=timestamps, topics=topics)

"""Which producer ids a link's mirrors use, used, and may still be sending by."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.engine.producer_id import LinkProducer
from drkit.model.clock import now
from drkit.model.topology import LinkId
from drkit.store.api import Store
from drkit.store.producers import (
    employ_producer,
    retire_noted_producers,
    retire_producer,
    retired_producers,
    use_producer,
    used_producer,
)
from drkit.store.workers import lose_workers, lost_workers

LINK = LinkId("primary", "dr")


def next_id(store: Store, proposed: int) -> int:
    """What the next mirror uses."""
    target: Any = SimpleNamespace(cluster_id=lambda: "c")
    producers: Any = SimpleNamespace(new_producer_id=lambda: proposed)
    return LinkProducer(LINK, target, producers, store).id()


def test_the_first_proposal_is_used_until_it_is_retired(store: Store) -> None:
    assert (next_id(store, 7), next_id(store, 8)) == (7, 7)
    retire_producer(store, LINK, "c", 7, refused=True)
    assert (next_id(store, 9), next_id(store, 10)) == (9, 9)
    assert retired_producers(store, LINK, "c") == {7: True}
    assert retired_producers(store, LINK, "another") == {}


@pytest.mark.parametrize("refused", [True, False])
def test_a_lost_worker_is_forgotten_once_all_partitions_refuse_what_it_sends(store: Store, refused: bool) -> None:
    next_id(store, 7)
    lose_workers(store, LINK, ["w"], store.time())
    retire_producer(store, LINK, "c", 7, refused=refused)
    next_id(store, 9)
    assert lost_workers(store, LINK, store.time()) == ([] if refused else ["w"])


def test_an_id_that_no_partition_refuses_stays_in_use(store: Store) -> None:
    next_id(store, 7)
    retire_producer(store, LINK, "c", 7)
    employ_producer(store, LINK, "c", 7)
    assert next_id(store, 9) == 7


def test_a_store_that_was_filled_again_retires_what_was_noted(store: Store) -> None:
    use_producer(store, LINK, "c", 7)
    store.break_lease("producer:primary->dr:c", "7")  # leases are in no copy
    assert used_producer(store, LINK, "c") is None
    retire_noted_producers(store, LINK)
    retire_noted_producers(store, LINK)
    assert retired_producers(store, LINK, "c") == {7: False}
    assert next_id(store, 9) == 9


def test_a_lost_worker_is_one_of_a_day(store: Store) -> None:
    lose_workers(store, LINK, ["w"], now() - timedelta(days=2))
    assert lost_workers(store, LINK, now()) == []

"""Range digests: kept, replaced, forgotten, and a late writer changes nothing, on either backend."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from drkit.model.digests import DIGEST_MASK, RangeDigest
from drkit.model.errors import Fenced
from drkit.model.topology import TopicPartition

TP = TopicPartition("flüge-✈", 7)
OTHER = TopicPartition("flights", 0)


def digest(start: int, tp: TopicPartition = TP, epoch: int = 1, **more: int) -> RangeDigest:
    return replace(
        RangeDigest(*tp, epoch, start, start + 10, start + 2**40, 3, 9, DIGEST_MASK - start, 2**32 - 1), **more
    )


def take(store, link, *tps: TopicPartition, epoch: int = 1) -> dict[TopicPartition, int]:
    generation = store.next_generation(link)
    store.claim(link, [(tp, epoch) for tp in tps], generation)
    return dict.fromkeys(tps, generation)


def kept(store, link, tp: TopicPartition = TP, epoch: int = 1) -> list[RangeDigest]:
    return [replace(each, generation=0) for each in store.range_digests(link, tp, epoch)]


def test_digests_come_back_in_order_by_partition_and_epoch(store, link):
    claims = take(store, link, TP, OTHER)
    later = take(store, link, TP, epoch=2)
    store.put_range_digests(link, [], claims)
    store.put_range_digests(link, [digest(30), digest(10), digest(20), digest(5, OTHER)], claims)
    store.put_range_digests(link, [digest(7, epoch=2)], later)
    store.put_range_digests(link, [digest(30, target_end=50, records=20, digest=1)], claims)
    assert kept(store, link) == [digest(10), digest(20), digest(30, target_end=50, records=20, digest=1)]
    assert kept(store, link, OTHER) == [digest(5, OTHER)]
    assert kept(store, link, epoch=2) == [digest(7, epoch=2)]
    assert {each.generation for each in store.range_digests(link, TP, 1)} == {claims[TP]}
    assert kept(store, link.reversed()) == []


def test_what_an_older_generation_writes_late_replaces_nothing(store, link):
    first = take(store, link, TP, OTHER)
    store.put_range_digests(link, [digest(10), digest(10, OTHER)], first)
    second = take(store, link, TP)
    store.put_range_digests(link, [digest(10, records=5)], second)
    with suppress(Fenced):  # a backend may leave it at not replacing
        store.put_range_digests(link, [digest(10, records=8)], first)
    with suppress(Fenced):
        store.put_range_digests(link, [digest(14)], first)
    with suppress(Fenced):
        store.forget_range_digests(link, TP, 1, 100, first)
    newest = [each for each in store.range_digests(link, TP, 1) if each.generation == second[TP]]
    assert newest == [digest(10, records=5, generation=second[TP])]
    store.put_range_digests(link, [digest(10, OTHER, records=4)], first)
    assert kept(store, link, OTHER) == [digest(10, OTHER, records=4)]


def test_what_is_not_claimed_can_not_be_written(store, link):
    with pytest.raises(Fenced):
        store.put_range_digests(link, [digest(0)], {})
    with pytest.raises(Fenced):
        store.forget_range_digests(link, TP, 1, 0, {})
    assert kept(store, link) == []


def test_a_writer_without_claims_takes_the_partition_over(store, link):
    claims = take(store, link, TP)
    store.put_range_digests(link, [digest(0)])
    with suppress(Fenced):
        store.put_range_digests(link, [digest(0, records=1)], claims)
    assert kept(store, link) == [digest(0)]


def test_digests_below_the_logs_start_and_of_earlier_topics_are_removed(store, link):
    for epoch in (1, 2):
        claims = take(store, link, TP, epoch=epoch)
        store.put_range_digests(link, [digest(start, epoch=epoch) for start in (0, 10, 20)], claims)
    store.forget_range_digests(link, TP, 2, 11, claims)
    assert kept(store, link, epoch=1) == []
    assert kept(store, link, epoch=2) == [digest(20, epoch=2)]


@pytest.mark.parametrize("whole", [True, False], ids=["link", "topic"])
def test_what_was_forgotten_stays_so_whatever_its_holder_writes_later(store, link, whole):
    claims = take(store, link, TP, OTHER)
    store.put_range_digests(link, [digest(0), digest(0, OTHER)], claims)
    if whole:
        store.forget_link_data(link)
    else:
        store.forget_topic(link, TP.topic)
    with suppress(Fenced):
        store.put_range_digests(link, [digest(10)], claims)
    assert kept(store, link) == []
    assert kept(store, link, OTHER) == ([] if whole else [digest(0, OTHER)])
    again = take(store, link, TP)
    store.put_range_digests(link, [digest(3)], again)
    assert kept(store, link) == [digest(3)]

"""Who holds a partition: a writer whose partition was taken changes nothing, on either backend."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.model.errors import Fenced
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import TopicPartition
from drkit.store import open_store
from tests.support.collection.sampling import sampled

AT = datetime(2026, 11, 20, 4, 3, 10, 123457, UTC)
TP = TopicPartition("flüge-✈", 7)
OTHER = TopicPartition("flights", 0)
BACKENDS = [pytest.param("sqlite", id="sqlite"), pytest.param("cassandra", id="cassandra", marks=pytest.mark.cassandra)]


def row(tp: TopicPartition, source: int, target: int, epoch: int = 1) -> OffsetMapping:
    return OffsetMapping(*tp, epoch, source, target)


def mark(tp: TopicPartition, through: int, epoch: int = 1) -> Watermark:
    return Watermark(*tp, epoch, through, through + 5, 1, through + 9, 2, AT)


def take(store, link, *tps: TopicPartition, epoch: int = 1) -> dict[TopicPartition, int]:
    generation = store.next_generation(link)
    store.claim(link, [(tp, epoch) for tp in tps], generation)
    return dict.fromkeys(tps, generation)


def test_generations_grow_over_threads_and_links_apart(store, link):
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda _: store.next_generation(link), range(12)))
    assert len(set(given)) == len(given)
    assert store.next_generation(link) > max(given)
    store.next_generation(link.reversed())
    assert store.next_generation(link) > max(given)


def test_the_holder_writes_and_the_one_before_it_no_more(store, link):
    first = take(store, link, TP, OTHER)
    store.append_mappings(link, [row(TP, 0, 0), row(OTHER, 0, 0)], first)
    store.put_watermarks(link, [mark(TP, 10), mark(OTHER, 10)], first)
    second = take(store, link, TP)
    with pytest.raises(Fenced) as fenced:
        store.append_mappings(link, [row(TP, 10, 9)], first)
    assert fenced.value.partitions == (TP,)
    with pytest.raises(Fenced):
        store.supersede_mappings(link, TP, 1, -1, first)
    assert store.mappings(link, TP, 1) == [row(TP, 0, 0)]
    store.append_mappings(link, [row(TP, 20, 19)], second)
    store.append_mappings(link, [row(OTHER, 20, 19)], first)
    assert store.mappings(link, TP, 1) == [row(TP, 0, 0), row(TP, 20, 19)]
    assert store.mappings(link, OTHER, 1) == [row(OTHER, 0, 0), row(OTHER, 20, 19)]
    assert store.supersede_mappings(link, TP, 1, 5, second) == 1
    assert store.mappings(link, TP, 1) == [row(TP, 0, 0)]


def test_rows_of_a_partition_are_refused_as_a_whole(store, link):
    first = take(store, link, TP)
    take(store, link, TP)
    with pytest.raises(Fenced):
        store.append_mappings(link, [row(TP, number, number) for number in range(250)], first)
    assert store.mappings(link, TP, 1) == []


def test_an_older_watermark_never_replaces_a_newer_generations(store, link):
    first = take(store, link, TP, OTHER)
    store.put_watermarks(link, [mark(TP, 10), mark(OTHER, 10)], first)
    second = take(store, link, TP)
    store.put_watermarks(link, [mark(TP, 7)], second)
    for through in range(20, 25):
        with suppress(Fenced):
            store.put_watermarks(link, [mark(TP, through)], first)
    assert store.watermarks(link)[TP] == mark(TP, 7)
    store.put_watermarks(link, [mark(OTHER, 30)], first)
    store.put_watermarks(link, [mark(TP, 8)], second)
    store.put_watermarks(link, [replace(mark(TP, 6), behind_since=AT)], second)
    assert store.watermarks(link) == {TP: replace(mark(TP, 6), behind_since=AT), OTHER: mark(OTHER, 30)}


def test_claims_go_only_upwards(store, link):
    older, newer = store.next_generation(link), store.next_generation(link)
    store.claim(link, [(TP, 1)], newer)
    store.claim(link, [(TP, 1)], newer)
    with pytest.raises(Fenced) as fenced:
        store.claim(link, [(OTHER, 1), (TP, 1)], older)
    assert fenced.value.partitions == (TP,)
    store.append_mappings(link, [row(TP, 1, 1)], {TP: newer})
    store.append_mappings(link, [row(OTHER, 1, 1)], {OTHER: older})
    assert (len(store.mappings(link, TP, 1)), len(store.mappings(link, OTHER, 1))) == (1, 1)


def test_a_claim_is_of_one_epoch_and_one_link(store, link):
    first = take(store, link, TP, epoch=1)
    second = take(store, link, TP, epoch=2)
    take(store, link.reversed(), TP, epoch=1)
    store.append_mappings(link, [row(TP, 1, 1, epoch=1)], first)
    store.append_mappings(link, [row(TP, 2, 2, epoch=2)], second)
    with pytest.raises(Fenced):
        store.append_mappings(link, [row(TP, 3, 3, epoch=2)], first)
    assert store.mappings(link, TP, 2) == [row(TP, 2, 2, epoch=2)]


def test_what_is_not_claimed_can_not_be_written_with_claims(store, link):
    with pytest.raises(Fenced):
        store.append_mappings(link, [row(TP, 0, 0)], {})
    with pytest.raises(Fenced):
        store.put_watermarks(link, [mark(TP, 1)], {OTHER: store.next_generation(link)})
    with pytest.raises(Fenced):
        store.supersede_mappings(link, TP, 1, 0, {})
    assert store.mappings(link, TP, 1) == []
    assert store.watermarks(link) == {}


def test_a_partition_that_is_only_claimed_has_no_rows(store, link):
    claims = take(store, link, TP)
    assert store.mappings(link, TP, 1) == []
    assert store.floor_mapping(link, TP, 1, 5) is None
    assert store.next_mapping(link, TP, 1, -1) is None
    assert store.last_valid_mapping(link, TP, 1, 5) is None
    assert store.supersede_mappings(link, TP, 1, 5, claims) == 0


def test_a_writer_without_claims_takes_the_partition_over(store, link):
    claims = take(store, link, TP, OTHER)
    store.append_mappings(link, [row(TP, 0, 0), row(OTHER, 0, 0)], claims)
    store.append_mappings(link, [row(TP, 5, 4)])
    with pytest.raises(Fenced):
        store.append_mappings(link, [row(TP, 6, 4)], claims)
    store.append_mappings(link, [row(OTHER, 6, 4)], claims)
    store.put_watermarks(link, [mark(OTHER, 6)], claims)
    store.put_watermarks(link, [mark(OTHER, 3)])
    with suppress(Fenced):
        store.put_watermarks(link, [mark(OTHER, 7)], claims)
    assert store.watermarks(link)[OTHER] == mark(OTHER, 3)
    assert store.mappings(link, TP, 1) == [row(TP, 0, 0), row(TP, 5, 4)]


@pytest.mark.parametrize("whole", [True, False], ids=["link", "topic"])
def test_what_was_forgotten_stays_so_whatever_its_holder_writes_later(store, link, whole):
    claims = take(store, link, TP)
    store.append_mappings(link, [row(TP, 0, 0)], claims)
    store.put_watermarks(link, [mark(TP, 10)], claims)
    if whole:
        store.forget_link_data(link)
    else:
        store.forget_topic(link, TP.topic)
    with pytest.raises(Fenced):
        store.append_mappings(link, [row(TP, 5, 5)], claims)
    with suppress(Fenced):
        store.put_watermarks(link, [mark(TP, 11)], claims)
    assert store.mappings(link, TP, 1) == []
    assert store.watermarks(link) == {}
    again = take(store, link, TP)
    store.append_mappings(link, [row(TP, 3, 0)], again)
    store.put_watermarks(link, [mark(TP, 3)], again)
    assert store.mappings(link, TP, 1) == [row(TP, 3, 0)]
    assert store.watermarks(link) == {TP: mark(TP, 3)}


def test_of_two_who_claim_at_once_one_holds_the_partition(store, store_url, link):
    """Each takes it and writes, again and again; a row is never kept of a writer that was overtaken before."""

    def work(worker: int) -> list[int]:
        kept = []
        with closing(open_store(store_url)) as own:
            for number in range(15):
                generation = own.next_generation(link)
                with suppress(Fenced):
                    own.claim(link, [(TP, 1)], generation)
                    offset = generation * 10 + worker
                    own.append_mappings(link, [row(TP, offset, number)], {TP: generation})
                    kept.append(offset)
        return kept

    with ThreadPoolExecutor(2) as pool:
        kept = sorted(offset for offsets in pool.map(work, range(2)) for offset in offsets)
    assert [each.source_offset for each in store.mappings(link, TP, 1)] == kept
    assert kept


@pytest.mark.parametrize("store_url", sampled("ten thousand claims", BACKENDS, 1), indirect=True)
def test_ten_thousand_partitions_are_claimed_at_once(store, link):
    tps = [TopicPartition(f"topic-{number % 100}", number // 100) for number in range(10_000)]
    begun = time.perf_counter()
    claims = take(store, link, *tps)
    print(f"10,000 partitions claimed in {time.perf_counter() - begun:.1f} s")  # noqa: T201 - a figure for people
    store.append_mappings(link, [row(tp, 0, 0) for tp in tps[::1000]], claims)
    take(store, link, tps[1000])
    with pytest.raises(Fenced) as fenced:
        store.append_mappings(link, [row(tps[1000], 1, 0)], claims)
    assert fenced.value.partitions == (tps[1000],)

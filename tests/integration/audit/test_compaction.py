"""Compacted topics: what the cleaner removed is no loss, what a faulty mirror dropped is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from drkit.model.audit import Counts
from tests.support.damage import STAMP, Bench, Record, Stored, damaged, dense, records, seeded
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.ms": "100",
    "delete.retention.ms": "0",
}


def found(result):
    return {(each.kind.value, each.source_offset, each.target_offset) for each in result.findings}


def compacted(bench: Bench, alias: str, topic: str, written: Sequence[Record]) -> list[Stored]:
    """Produce, and wait until the broker's cleaner has taken all that it may, tombstones too.

    What is written to close segments has the key `tail`.
    """
    bench.produce(alias, topic, 0, written)
    newest = {record.key: record for record in written}
    staying = sum(record.value is not None for record in newest.values())
    # A segment closes when a record comes in whose stamp is segment.ms later; the cleaner takes closed ones.
    tail = 1

    def cleaned() -> list[Stored] | None:
        nonlocal tail
        bench.produce(alias, topic, 0, [Record(b"tail", b"%d" % tail, STAMP + tail * 3_600_000)])
        tail += 1
        left = bench.read(alias, topic, 0)
        kept = [each for each in left if each.record.key != b"tail"]
        return left if len(kept) == staying else None

    return wait_until(cleaned, timeout=90, what=f"{alias} to compact {topic}")


def test_what_the_source_compacted_after_it_was_mirrored_is_retired(bench, audit, unique_name):
    topic = bench.create(unique_name, on=["primary"], config=COMPACT)
    bench.create(topic, on=["dr"])
    written = records(60, rng=seeded(1), keys=12)
    bench.produce("dr", topic, 0, written)
    source = compacted(bench, "primary", topic, written)
    bench.remember(topic, {0: {offset: offset for offset in range(60)}})
    there = {each.offset for each in source if each.offset < 60}
    stranger = Record(b"nobody", b"knows this key", STAMP)
    bench.produce("dr", topic, 0, [stranger])

    result = audit(topic)

    assert len(there) < 60
    # What is on the source beyond offset 60 was written to close its segments and never mirrored.
    assert found(result) == {("foreign", None, 60)} | {
        ("unseen", each.offset, None) for each in source if each.offset >= 60
    }
    assert result.counts.source_retired == 60 - len(there)
    assert result.counts.matched == len(there)


def test_what_the_target_compacted_is_retired_and_the_newest_of_a_key_must_be_there(bench, audit, unique_name):
    topic = bench.create(unique_name, on=["dr"], config=COMPACT)
    bench.create(topic, on=["primary"])
    rng = seeded(2)
    written = [replace(each, value=each.value or b"v") for each in records(60, rng=rng, keys=12)]
    gone = [Record(b"gone", b"1", STAMP), Record(b"gone", b"2", STAMP), Record(b"gone", None, STAMP)]
    written = [*written[:20], *gone[:2], *written[20:40], gone[2], *written[40:]]
    bench.produce("primary", topic, 0, written)
    # The mirror's places are one to one, and the record at `dropped`, the newest of its key, was never written.
    newest = {record.key: offset for offset, record in enumerate(written)}
    dropped = min(offset for key, offset in newest.items() if key != b"gone")
    target = compacted(bench, "dr", topic, [*written[:dropped], *written[dropped + 1 :]])
    bench.remember(topic, {0: {offset: offset for offset in range(len(written))}}, target_end={0: len(written) - 1})
    kept = [each for each in target if each.record.key not in {b"tail", b"gone"}]

    result = audit(topic)

    assert {kind for kind in found(result) if kind[0] != "foreign"} == {("lost", dropped, None)}
    assert result.counts.matched == len(kept)
    assert result.counts.foreign == len([each for each in target if each.record.key == b"tail"])
    assert result.counts.target_retired == len(written) - len(kept) - 1


def test_damage_of_a_compacted_topic_is_found_although_later_records_have_the_same_keys(bench, audit, unique_name):
    rng = seeded(3)
    topic = bench.create(unique_name, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
    bench.produce("primary", topic, 0, records(300, rng=rng, keys=20))
    source = bench.read("primary", topic, 0)
    acts = {"lost": 6, "duplicated": 4, "swapped": 3, "moved": 3}
    damage = damaged(source, acts, rng)
    bench.produce("dr", topic, 0, damage.target)
    bench.remember(topic, {0: dense(source)})

    result = audit(topic)

    damage.explains((each.kind.value, each.source_offset, each.target_offset) for each in result.findings)


def test_a_compacted_source_mirrored_after_its_compaction_is_damaged_and_all_is_found(bench, audit, unique_name):
    rng = seeded(4)
    topic = bench.create(unique_name, on=["primary"], config=COMPACT)
    bench.create(topic, on=["dr"], config={"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
    source = compacted(bench, "primary", topic, records(500, rng=rng, keys=150))
    assert any(later.offset - each.offset > 1 for each, later in pairwise(source))
    damage = damaged(source, {"lost": 3, "duplicated": 2, "swapped": 2, "moved": 2}, rng)
    bench.produce("dr", topic, 0, damage.target)
    bench.remember(topic, {0: dense(source)})

    result = audit(topic)

    damage.explains((each.kind.value, each.source_offset, each.target_offset) for each in result.findings)
    assert result.counts.source_retired == result.counts.target_retired == 0
    assert result.counts != Counts()

"""Seeded damage: the audit finds all of it, names the records, and invents nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pyarrow.parquet as pq
import pytest

from drkit.audit.abreast import MOST_LEFT
from drkit.model.audit import AuditResult, Basis, Verdict
from tests.support.damage import (
    STAMP,
    Damaged,
    Expected,
    Record,
    damaged,
    damaged_here_and_there,
    dense,
    records,
    seeded,
)

pytestmark = [pytest.mark.lab, pytest.mark.spark]

ACTS = {"lost": 4, "corrupted": 7, "duplicated": 4, "foreign": 4, "swapped": 3, "moved": 3}


def found(result: AuditResult, topic: str, partition: int) -> list[Expected]:
    return [
        (each.kind.value, each.source_offset, each.target_offset)
        for each in result.findings
        if (each.topic, each.partition) == (topic, partition)
    ]


def test_all_damage_of_reproduced_topics_is_found_and_nothing_else(bench, audit, unique_name):
    expected: dict[tuple[str, int], Damaged] = {}
    for seed, transactions in product((1, 2), ("", "cac")):
        rng = seeded(seed)
        topic = bench.create(f"{unique_name}.{seed}{transactions}", partitions=2)
        places = {}
        for partition in range(2):
            bench.produce("primary", topic, partition, records(400, rng=rng), transactions=transactions)
            source = bench.read("primary", topic, partition)
            damage = damaged(source, ACTS, rng)
            bench.produce("dr", topic, partition, damage.target)
            expected[topic, partition] = damage
            places[partition] = dense(source)
        bench.remember(topic, places)

    result = audit(*dict.fromkeys(topic for topic, _ in expected))

    assert result.verdict is Verdict.DEVIATED
    assert result.basis is Basis.MAPPING
    for (topic, partition), damage in expected.items():
        damage.explains(found(result, topic, partition))
    kinds = Counter(each.kind.value for each in result.findings)
    assert kinds["reordered"] == result.counts.reordered == len(expected) * (ACTS["swapped"] + ACTS["moved"])
    table = pq.read_table(result.findings_path)
    assert table.num_rows == result.findings_total == len(result.findings)
    assert Counter(table["kind"].to_pylist()) == kinds


def test_batches_first_finds_what_decoding_all_finds(bench, audit, unique_name):
    shapes = {
        "plain": ({}, {"batched": 20}, None),
        "transactional": ({}, {"transactions": "cac"}, None),
        "compacted": ({"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}, {"batched": 20}, 40),
    }
    expected: dict[tuple[str, int], Damaged] = {}
    for shape, (config, how, keys) in shapes.items():
        rng = seeded(shape)
        topic = bench.create(f"{unique_name}.{shape}", partitions=2, config=config)
        places = {}
        for partition in range(2):
            bench.produce("primary", topic, partition, records(700, rng=rng, keys=keys), **how)
            source = bench.read("primary", topic, partition)
            damage = damaged_here_and_there(source, rng)
            bench.forward(topic, partition, source, damage.target)
            expected[topic, partition] = damage
            places[partition] = dense(source)
        bench.remember(topic, places)
    topics = list(dict.fromkeys(topic for topic, _ in expected))
    said: list[str] = []

    first = audit(*topics, progress=said.append)
    full = audit(*topics, full=True)

    for (topic, partition), damage in expected.items():
        damage.explains(found(first, topic, partition))
        damage.explains(found(full, topic, partition))
    assert first.partitions == full.partitions
    assert set(first.findings) == set(full.findings)
    equal = next(int(text.split()[0].replace(",", "")) for text in said if "batches are equal" in text)
    assert equal > 60


def test_altered_unseen_and_foreign_records_alone_need_no_joins(bench, audit, unique_name, monkeypatch):
    rng = seeded(7)
    topic = bench.create(unique_name, partitions=2)
    expected: dict[int, set[Expected]] = {}
    places, through = {}, {}
    for partition in range(2):
        bench.produce("primary", topic, partition, records(700, rng=rng), batched=20)
        source = bench.read("primary", topic, partition)
        places[partition] = dense(source)
        damage = damaged(source, {"corrupted": 5}, rng)
        if partition == 0:
            strangers = [replace(each, key=b"stranger") for each in records(2, rng=rng, first=900)]
            bench.forward(topic, partition, source, damage.target + strangers)
            expected[partition] = damage.findings | {("foreign", None, 700), ("foreign", None, 701)}
        else:
            bench.forward(topic, partition, source, damage.target[:640])
            through[partition] = source[640].offset
            reached = {each for each in damage.findings if each[1] < source[640].offset}
            expected[partition] = reached | {("unseen", each.offset, None) for each in source[640:]}
    bench.remember(topic, places, through=through)

    with monkeypatch.context() as patch:
        patch.delattr("drkit.audit.judge._Court")
        first = audit(topic)
    full = audit(topic, full=True)

    for partition, findings in expected.items():
        assert set(found(first, topic, partition)) == findings
    assert first.partitions == full.partitions
    assert first.findings == full.findings
    tables = [pq.read_table(each.findings_path) for each in (first, full)]
    rows = [sorted(table.drop_columns(["observed_at"]).to_pylist(), key=str) for table in tables]
    assert rows[0] == rows[1]
    assert tables[0].schema.names == tables[1].schema.names


def test_where_much_differs_tasks_leave_the_rest_to_joins(bench, audit, unique_name):
    """The first record is lost and all others stand one place too low: beyond what a task hands over itself."""
    topic = bench.create(unique_name, partitions=2)
    places = {}
    for partition, size in enumerate((MOST_LEFT * 13 // 10, MOST_LEFT * 5 // 2)):  # a rest below half, one above
        made = [Record(b"k%d" % number, b"v", STAMP + number) for number in range(size)]
        bench.produce("primary", topic, partition, made, batched=500)
        bench.produce("dr", topic, partition, made[1:], batched=500)
        places[partition] = {number: number for number in range(size)}
    bench.remember(topic, places)
    said: list[str] = []

    first = audit(topic, progress=said.append)
    full = audit(topic, full=True)

    assert any("joining what is left" in text for text in said)
    for partition in places:
        assert found(first, topic, partition) == [("lost", 0, None)]
    assert first.findings == full.findings
    assert first.partitions == full.partitions

"""Seeded damage: the audit finds all of it, names the records, and invents nothing."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from drkit.audit.spark.session import spark_session
from drkit.model.audit.audit_result import AuditResult, Counts, PlacementBasis, Verdict
from tests.support.audits.audit_ways import in_tasks, rows
from tests.support.audits.damage import (
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
from tests.support.collection.sampling import some_of

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("kinds of damage", 2)]

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
    assert result.basis is PlacementBasis.MAPPING
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


def test_damage_of_every_kind_costs_a_few_jobs_and_tasks_find_what_the_driver_finds(bench, audit, spark, unique_name):
    """However much is damaged: what a classification asks for is read in one job for all partitions."""
    rng = seeded(7)
    expected: dict[tuple[str, int], Damaged] = {}
    for shape, keys in (("plain", None), ("compacted", 40)):
        policy = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"} if keys else {}
        topic = bench.create(f"{unique_name}.{shape}", partitions=2, config=policy)
        places = {}
        for partition in range(2):
            bench.produce("primary", topic, partition, records(700, rng=rng, keys=keys), batched=20)
            source = bench.read("primary", topic, partition)
            damage = damaged(source, ACTS, rng)
            bench.forward(topic, partition, source, damage.target)
            expected[topic, partition] = damage
            places[partition] = dense(source)
        bench.remember(topic, places)
    topics = list(dict.fromkeys(topic for topic, _ in expected))
    context = spark_session(spark).sparkContext
    context.setJobGroup(unique_name, "counted")

    on_driver = audit(*topics)
    jobs = len(context.statusTracker().getJobIdsForGroup(unique_name))
    with in_tasks():
        by_tasks = audit(*topics)
    jobs_in_tasks = len(context.statusTracker().getJobIdsForGroup(unique_name)) - jobs

    for (topic, partition), damage in expected.items():
        damage.explains(found(on_driver, topic, partition))
    assert on_driver.partitions == by_tasks.partitions
    assert rows(on_driver) == rows(by_tasks)
    assert pq.read_schema(parts(on_driver)[0]).names == pq.read_schema(parts(by_tasks)[0]).names
    assert jobs <= 6
    assert jobs_in_tasks <= 16


def parts(result: AuditResult) -> list[Path]:
    return sorted(Path(result.findings_path).rglob("*.parquet"))


def test_a_wholly_displaced_partition_lacks_one_record(bench, audit, unique_name, monkeypatch):
    """The first record is lost and all others stand one place too low; on the driver, and where it has no room."""
    topic = bench.create(unique_name, partitions=2)
    places = {}
    for partition, size in enumerate((6_500, 12_500)):
        made = [Record(b"k%d" % number, b"v", STAMP + number) for number in range(size)]
        bench.produce("primary", topic, partition, made, batched=500)
        bench.produce("dr", topic, partition, made[1:], batched=500)
        places[partition] = {number: number for number in range(size)}
    bench.remember(topic, places)
    said: list[str] = []

    first = audit(topic)
    monkeypatch.setattr("drkit.audit.compare.first_pass.MEMORY_BUDGET", 4 << 20)
    in_tasks = audit(topic, progress=said.append)
    full = audit(topic, full=True)

    assert any("stay in Spark" in text for text in said)
    for partition in places:
        assert found(first, topic, partition) == [("lost", 0, None)]
    assert first.findings == in_tasks.findings == full.findings
    assert first.partitions == in_tasks.partitions == full.partitions


def test_records_out_of_order_at_their_place_are_named_by_tasks_where_they_are_many(
    bench, audit, unique_name, monkeypatch
):
    """The two ends of a partition changed places: its middle stands where it should, between the wrong records."""
    topic = bench.create(unique_name)
    made = records(250, rng=seeded(11))
    bench.produce("primary", topic, 0, made, batched=50)
    bench.produce("dr", topic, 0, [*made[150:], *made[100:150], *made[:100]], batched=50)
    bench.remember(topic, {0: {number: number for number in range(250)}})

    on_driver = audit(topic)
    monkeypatch.setattr("drkit.audit.classify.run_classification._MOST_ASIDE", 0)
    in_tasks = audit(topic)

    middle = [("reordered", number, number) for number in range(100, 150)]
    assert set(middle) < set(found(on_driver, topic, 0))
    assert on_driver.counts == Counts(source_records=250, target_records=250, matched=250, reordered=150)
    assert on_driver.partitions == in_tasks.partitions
    assert rows(on_driver) == rows(in_tasks)

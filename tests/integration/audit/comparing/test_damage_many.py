"""Seeded damage in volume: a fixed number of acts of each kind among many records, found to the last, in both modes.

    TEST_DAMAGE_RECORDS=5000000 python -m pytest tests/integration/audit/comparing/test_damage_many.py

is the size of issue 6: 1,000 of each kind among 5 million; some 10 minutes and 6 GB.
"""

from __future__ import annotations

import os

import pyarrow.parquet as pq
import pytest

from drkit.model.audit.audit_result import AuditResult
from tests.support.audits.damage import Damaged, Expected, damaged, dense, records, seeded

pytestmark = [pytest.mark.lab, pytest.mark.spark, pytest.mark.long]

RECORDS = int(os.environ.get("TEST_DAMAGE_RECORDS", "60000"))
ACTS = 1_000 if RECORDS >= 1_000_000 else 100
"""Of each kind, over all shapes together."""
KINDS = ("lost", "corrupted", "duplicated", "foreign", "swapped", "moved")
PARTITIONS = 2
SHAPES = {
    "plain": ({}, {"batched": 200}, False),
    "transactional": ({}, {"transactions": "cac", "batched": 200}, False),
    "compacted": ({"cleanup.policy": "compact", "min.compaction.lag.ms": "36000000"}, {"batched": 200}, True),
}


def findings(result: AuditResult, partition: int) -> list[Expected]:
    """All of them, from the table: the document shows the first only."""
    rows = pq.read_table(result.findings_path).to_pylist()
    return [(r["kind"], r["source_offset"], r["target_offset"]) for r in rows if r["partition"] == partition]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", list(SHAPES))
def test_all_of_it_is_found_and_nothing_else(bench, audit, unique_name, shape):
    config, how, keyed = SHAPES[shape]
    rng = seeded(shape)
    size = RECORDS // len(SHAPES) // PARTITIONS
    acts = dict.fromkeys(KINDS, -(-ACTS // (len(SHAPES) * PARTITIONS)))
    topic = bench.create(unique_name, partitions=PARTITIONS, config=config)
    expected: dict[int, Damaged] = {}
    places = {}
    for partition in range(PARTITIONS):
        made = records(size, rng=rng, keys=size // 20 if keyed else None)
        bench.produce("primary", topic, partition, made, **how, transaction=max(7, size // 200))
        source = bench.read("primary", topic, partition)
        expected[partition] = damaged(source, acts, rng)
        bench.forward(topic, partition, source, expected[partition].target)
        expected[partition].target.clear()
        places[partition] = dense(source)
    bench.remember(topic, places)
    del places, source, made

    for full in (False, True):
        result = audit(topic, full=full)
        assert result.counts.reordered == (acts["swapped"] + acts["moved"]) * PARTITIONS
        for partition, damage in expected.items():
            damage.explains(findings(result, partition))

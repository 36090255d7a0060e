"""Seeded damage: the audit finds all of it, names the records, and invents nothing."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from drkit.model.audit import AuditResult, Basis, Verdict
from tests.support.damage import Expected, damaged, dense, records, seeded

pytestmark = [pytest.mark.lab, pytest.mark.spark]

ACTS = {"lost": 4, "corrupted": 7, "duplicated": 4, "foreign": 4, "swapped": 3, "moved": 3}


def found(result: AuditResult, partition: int | None = None) -> list[Expected]:
    return [
        (each.kind.value, each.source_offset, each.target_offset)
        for each in result.findings
        if partition in {None, each.partition}
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("transactions", ["", "cac"])
def test_all_damage_of_a_reproduced_topic_is_found_and_nothing_else(bench, audit, unique_name, seed, transactions):
    rng = seeded(seed)
    topic = bench.create(unique_name, partitions=2)
    expected, places = {}, {}
    for partition in range(2):
        bench.produce("primary", topic, partition, records(400, rng=rng), transactions=transactions)
        source = bench.read("primary", topic, partition)
        expected[partition] = damaged(source, ACTS, rng)
        bench.produce("dr", topic, partition, expected[partition].target)
        places[partition] = dense(source)
    bench.remember(topic, places)

    result = audit(topic)

    assert result.verdict is Verdict.DEVIATED
    assert result.basis is Basis.MAPPING
    for partition, damage in expected.items():
        damage.explains(found(result, partition))
    kinds = Counter(kind for kind, _, _ in found(result))
    assert kinds["reordered"] == result.counts.reordered == 2 * (ACTS["swapped"] + ACTS["moved"])
    table = pq.read_table(result.findings_path)
    assert table.num_rows == result.findings_total == len(result.findings)
    assert Counter(table["kind"].to_pylist()) == kinds

"""What drkit's own mirror makes is audited clean, by its own mapping, whatever the source looks like."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.audit.audit_result import Counts, PlacementBasis, Verdict
from drkit.model.topology import TopicPartition
from tests.support.audits.damage import records, seeded
from tests.support.collection.sampling import sampled

pytestmark = [pytest.mark.lab, pytest.mark.spark]


@pytest.mark.parametrize("interrupted", sampled("an audit of what the mirror wrote", [False, True], 1))
def test_mirrored_topics_are_clean_by_the_mapping(bench, audit, unique_name, interrupted):
    prefix = unique_name
    plain, transactional, retained = (f"{prefix}.{name}" for name in ("plain", "transactional", "retained"))
    link = replace(bench.link, topics=(re.escape(prefix) + "[.].*",))
    for topic in (plain, transactional, retained):
        bench.create(topic, partitions=2, on=["primary"])
        for partition in range(2):
            pattern = "cacca" if topic == transactional else ""
            written = records(150, rng=seeded(f"{topic}{partition}"))
            bench.produce("primary", topic, partition, written, transactions=pattern)
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(retained, 0): 40, TopicPartition(retained, 1): 150})
    runtime = MirrorRuntime(bench.config, link, bench.store)
    assert runtime.run(until_caught_up=True).caught_up
    if interrupted:
        for topic in (plain, transactional):
            bench.produce("primary", topic, 0, records(60, rng=seeded(topic), first=500), transactions="ac")
        assert MirrorRuntime(bench.config, link, bench.store).run(until_caught_up=True).caught_up
        bench.produce("primary", plain, 1, records(7, rng=seeded(7), first=900))

    result = audit(plain, transactional, retained, link=link)

    unseen = 7 if interrupted else 0
    assert result.verdict is Verdict.CLEAN
    assert result.basis is PlacementBasis.MAPPING
    counts = Counts.total(each.counts for each in result.partitions)
    assert counts == Counts(
        source_records=counts.matched + unseen,
        target_records=counts.matched,
        matched=counts.matched,
        unseen=unseen,
    )
    committed = {topic: sum(len(bench.read("primary", topic, n)) for n in range(2)) for topic in (plain, transactional)}
    assert counts.source_records == sum(committed.values()) + 110

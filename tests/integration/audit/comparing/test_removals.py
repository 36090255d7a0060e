"""What somebody removed from the target is lost, also once the link is failed over and the target is its clients'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.audit.run import run_audit
from drkit.audit.spark.session import SparkRuntime
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.lab import Lab
from drkit.model.audit.audit_result import AuditRequest, AuditResult, Counts, Verdict
from drkit.model.topology import TopicPartition
from tests.support.links.estates import OwnLink, mirror, own_link, texts

pytestmark = [pytest.mark.lab, pytest.mark.spark]


@pytest.fixture
def own(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    mine = own_link(lab, tmp_path, unique_name)
    yield mine
    mine.store.close()


def test_what_was_removed_before_a_failover_stays_lost_and_what_clients_remove_after_it_does_not_count(
    own: OwnLink, spark: SparkRuntime, tmp_path: Path
) -> None:
    topic = own.create("primary", "t", partitions=1, retention_ms="-1")
    own.produce("primary", topic, texts("before", 100, [0]))
    mirror(own)

    def audited(name: str) -> AuditResult:
        return run_audit(AuditRequest(own.link, str(tmp_path / name)), own.store, own.config, spark)

    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 50})
        before = audited("before")
        plan = make_plan(estate, PlanRequest("dr"))
        assert run_failover(estate, plan, accept_unfenced=True).error is None
        failed_over = audited("failed over")
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 60})
    purged = Counts(source_records=100, target_records=50, matched=50, lost=50)
    assert (before.counts, before.verdict) == (purged, Verdict.DEVIATED)
    assert (failed_over.counts, failed_over.verdict) == (purged, Verdict.DEVIATED)
    after = Counts(source_records=90, target_records=40, matched=40, lost=50, target_retired=10)
    assert audited("after").counts == after

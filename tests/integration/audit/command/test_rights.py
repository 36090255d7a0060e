"""An audit and a salvage as a principal that has exactly the rights that `drkit acls` prints for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drkit.audit.run import run_audit
from drkit.audit.salvage.replay import replay
from drkit.audit.salvage.salvage import salvage
from drkit.audit.spark.session import SparkRuntime
from drkit.lab import Lab
from drkit.model.audit.audit_result import AuditRequest, Verdict
from tests.support.commands.rights import Grants, as_exact, printed
from tests.support.links.estates import mirror, own_link, texts
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]


def test_an_audit_and_a_salvage_need_no_more(
    secure_lab: Lab, tmp_path: Path, unique_name: str, spark: SparkRuntime
) -> None:
    own = own_link(secure_lab, tmp_path, unique_name)
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 1))
    exact, grants = as_exact(own, secure_lab), Grants(secure_lab)
    try:
        grants.give(printed(exact, "--command", "audit", "--command", "salvage"))
        result = run_audit(AuditRequest(exact.link, str(tmp_path / "audit")), exact.store, exact.config, spark)
        assert (result.verdict, result.counts.matched, result.counts.unseen) == (Verdict.CLEAN, 40, 2)
        kept = salvage(AuditRequest(exact.link, str(tmp_path / "kept")), exact.store, exact.config, spark)
        assert kept.total == 2
        onto = replace(own, name=f"x{own.name}").create(
            "dr", "replayed"
        )  # no topic of the link, whose rights it would have
        grants.clear()
        grants.give(printed(exact, "--command", "salvage", "--replay-to", onto))
        written = replay(Path(kept.path), onto, exact.link.id, exact.config, exact.store)
        assert written.written == 2
        both = {"never-mirrored-0-0", "never-mirrored-1-0"}
        wait_until(
            lambda: {value for values in own.values("dr", onto).values() for value in values} == both,
            what="the end of the transaction in both partitions",  # its producer is told before
        )
    finally:
        grants.clear()
        exact.store.close()
        own.store.close()

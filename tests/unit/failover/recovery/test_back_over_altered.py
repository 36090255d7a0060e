"""A link that alters records and was failed over: what refuses to bring it back names what does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.runs import RunSummary
from drkit.model.topology import Link, LinkId
from drkit.observe.link_status import LinkStatus, RecoveryPoint
from drkit.observe.readiness.readiness import _left_behind, _mirror
from drkit.store import open_store

AT = datetime(2026, 11, 28, tzinfo=UTC)
NAME = LinkId("primary", "dr")
LIFT = "drkit fence --lift --cluster primary --yes --link 'primary->dr'"
FILTER = [{"source": "primary", "target": "dr", "topics": ["t"], "filter": "json:loads"}]
BOTH_WAYS = [
    {"source": source, "target": target, "topics": ["t"], "provenance": True}
    for source, target in (("primary", "dr"), ("dr", "primary"))
]


@pytest.fixture(params=[FILTER, BOTH_WAYS], ids=["filter", "active-active"])
def estate(request: pytest.FixtureRequest) -> Iterator[ClusterContext]:
    config = Config.model_validate(
        {
            "clusters": {"primary": {"bootstrap_servers": "127.0.0.1:9"}, "dr": {"bootstrap_servers": "127.0.0.1:10"}},
            "store": {"url": "sqlite:///:memory:"},
            "links": request.param,
        }
    )
    with closing(open_store("sqlite:///:memory:")) as store:
        store.set_link_control(LinkControl(NAME, Direction.SEALED, 1, AT, "", "RUN"), expected_version=None)
        store.put_run(RunSummary("RUN", "failover", "abandoned", AT, AT, f"{NAME} unplanned"))
        with ClusterContext(config, store, patience_seconds=0.05) as context:
            yield context


@pytest.mark.parametrize("for_good", [False, True])
def test_a_refused_failback_names_the_command_that_leads_on(estate: ClusterContext, for_good: bool) -> None:
    """Of active-active under one name it first named a store of its own, where it refused as well."""
    with pytest.raises(Refused, match="alters what it carries") as told:
        make_failback_plan(estate, "primary", for_good=for_good)
    assert LIFT in told.value.remedy
    assert "reprotect" in told.value.what if for_good else "failback" in told.value.what


def test_so_does_the_end_of_a_run_that_is_over(estate: ClusterContext) -> None:
    with pytest.raises(Refused, match="nothing to abandon") as told:
        abandon_run(estate, "RUN", lambda _: None)
    assert LIFT in told.value.remedy


@pytest.mark.parametrize("alters", [{}, {"transform": "m:t"}])
def test_doctor_names_a_failback_only_where_there_is_one(alters: dict[str, Any]) -> None:
    link = Link(NAME, ("t",), **alters)
    status = LinkStatus(
        link=link,
        state="sealed",
        reason=None,
        source_reachable=True,
        target_reachable=True,
        worker=None,
        observed_at=AT,
        partitions=(),
        groups=(),
        problems=(),
        recovery_point=RecoveryPoint(3, 1.0),
    )
    for remedy in (_mirror(status).remedy, _left_behind(status).remedy):
        assert (LIFT in remedy, "drkit failback" in remedy) == (link.alters, not link.alters)

"""`failback --engine spark` where Spark can't seed: refused before anything is touched; a run that goes on mirrors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from drkit.cli.context import Invocation
from drkit.cli.failback import _check_seed
from drkit.cli.rooms import _Mirror, _Seeder, _Spark
from drkit.failover.failback_plan import FailbackPlan
from drkit.failover.ports import CaughtUp
from drkit.model.errors import ConfigError, Refused
from drkit.model.topology import EngineChoice, Link, LinkId

BY_RECORD = Link(LinkId("a", "b"), (".*",), engine=EngineChoice.RECORD)
BY_BATCH = Link(LinkId("a", "b"), (".*",))


def check(link: Link, *properties: str) -> None:
    other = Link(LinkId("c", "d"), (".*",), engine=EngineChoice.RECORD)
    links = [SimpleNamespace(link=lambda each=each: each) for each in (other, link)]
    run = SimpleNamespace(config=SimpleNamespace(links=links))
    _check_seed(cast("Invocation", run), cast("FailbackPlan", SimpleNamespace(link=link.id)), list(properties))


def test_a_plan_that_spark_can_not_carry_out_is_refused() -> None:
    with pytest.raises(Refused, match=r"b->a can't be seeded by Spark"):
        check(BY_RECORD)
    check(BY_BATCH)
    check(BY_BATCH, "spark.speculation=false", "spark.drkit.seed.port=7078")
    with pytest.raises(ConfigError, match="speculation"):
        check(BY_BATCH, "spark.speculation=true")
    with pytest.raises(ConfigError, match="port"):
        check(BY_BATCH, "spark.drkit.seed.port=any")


def test_a_run_whose_link_spark_can_not_seed_any_more_is_seeded_by_the_mirror() -> None:
    """The plan is frozen, the configuration isn't: a resumed run must not be stuck with its old primary scrubbed."""
    said: list[str] = []
    mirror = SimpleNamespace(catch_up=lambda link, _: CaughtUp(7, f"7 records brought over {link.id}"))
    seeder = _Seeder(cast("_Mirror", mirror), cast("_Spark", None))
    found = seeder.catch_up(BY_RECORD.reversed(), said.append)
    assert found.records == 7
    assert "not by Spark: record engine" in found.reason
    assert "so the mirror does" in said[0]

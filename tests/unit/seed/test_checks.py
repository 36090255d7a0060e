"""What speaks against a seed by Spark is known before anything is removed for it."""

from __future__ import annotations

import pytest

from drkit.model.errors import ConfigError, Refused
from drkit.model.topology import Link, LinkId
from drkit.seed.checks import check_seedable, seed_port


def test_a_link_that_alters_records_is_refused() -> None:
    link = Link(LinkId("a", "b"), (".*",), transform="m:f")
    with pytest.raises(
        Refused, match=r"can't be seeded by Spark: every batch is rebuilt: transform alters the records"
    ):
        check_seedable(link)
    check_seedable(link.reversed())  # the way back alters nothing
    check_seedable(Link(LinkId("a", "b"), (".*",)))


def test_properties_that_do_not_go_with_a_seed_are_named() -> None:
    assert seed_port({}) == 0
    assert seed_port({"spark.drkit.seed.port": "7078", "spark.speculation": "false"}) == 7078
    for value in ("true", "TRUE"):
        with pytest.raises(ConfigError, match=r"spark\.speculation is true"):
            seed_port({"spark.speculation": value})
    for port in ("x", "-1", "65536", "\N{SUPERSCRIPT TWO}"):
        with pytest.raises(ConfigError, match=r"spark\.drkit\.seed\.port is "):
            seed_port({"spark.drkit.seed.port": port})

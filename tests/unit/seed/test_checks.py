"""What speaks against a seed by Spark is known before anything is removed for it."""

from __future__ import annotations

import pytest

from drkit.model.errors import ConfigError, Refused
from drkit.model.topology import EngineChoice, Link, LinkId
from drkit.seed.checks import check_seedable, seed_port


def test_a_link_that_works_record_by_record_is_refused_in_either_direction() -> None:
    link = Link(LinkId("a", "b"), (".*",), engine=EngineChoice.RECORD)
    for each in (link, link.reversed()):
        with pytest.raises(Refused, match=r"can't be seeded by Spark: record engine: the configuration asks"):
            check_seedable(each)
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

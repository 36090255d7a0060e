"""`--group`, with and without a place."""

import pytest

from drkit.cli.wiring.selection import one_edge, select
from drkit.failover.snapshot.selection import Edge, TopicSelector
from drkit.model.errors import ConfigError


def chosen(*groups, all_groups=False, edge=None):
    return select(groups, ["t:0"], all_groups=all_groups, edge=edge, timezone="UTC")


def test_a_place_belongs_to_its_group_and_selects_it():
    found = chosen("plain", "billing=-5m", "a=b", "reports=earliest", "x=y=latest")
    assert found.groups == ("plain", "a=b", "billing", "reports", "x=y")
    assert found.topics == (TopicSelector("t", (0,)),)
    assert [place.group for place in found.places] == ["billing", "reports", "x=y"]
    assert found.places[0].where.text == "-5m"
    assert [place.where for place in found.places[1:]] == [Edge.EARLIEST, Edge.LATEST]


def test_with_all_groups_the_others_are_moved_too():
    found = chosen("billing=2026-11-20T04:03:00Z", all_groups=True, edge=Edge.LATEST)
    assert found.groups == ()
    assert found.named == ("billing",)
    assert found.moments == {1795147380000}
    assert found.edge is Edge.LATEST


@pytest.mark.parametrize(
    ("groups", "all_groups", "said"),
    [
        (("plain",), True, "--all-groups and --group plain exclude"),
        (("a=-5m", "a=earliest"), False, "--group a is given two positions"),
        (("a=-5x",), False, "--group a '-5x' is not a time"),
        (("a=2999-01-01T00:00:00Z",), False, "in the future"),
    ],
)
def test_what_contradicts_itself_is_refused(groups, all_groups, said):
    with pytest.raises(ConfigError, match=said):
        chosen(*groups, all_groups=all_groups)


def test_one_end_of_the_log():
    assert [one_edge(to_earliest=a, to_latest=b) for a, b in ((False, False), (True, False), (False, True))] == [
        None,
        Edge.EARLIEST,
        Edge.LATEST,
    ]
    with pytest.raises(ConfigError):
        one_edge(to_earliest=True, to_latest=True)

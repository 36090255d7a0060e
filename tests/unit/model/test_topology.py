"""Which topics a link carries, under which names."""

import pytest

from drkit.model.topology import CatchUpPolicy, Link, LinkId, TopicPolicy


def test_a_link_id_reads_as_it_is_written():
    assert LinkId.parse(str(LinkId("primary", "dr"))) == LinkId("primary", "dr")


@pytest.mark.parametrize("text", ["primary", "->dr", "primary->", ""])
def test_what_is_no_link_is_refused(text):
    with pytest.raises(ValueError, match="source->target"):
        LinkId.parse(text)


def test_prefix_names_go_there_and_back():
    link = Link(LinkId("eu", "us"), topics=("orders",), policy=TopicPolicy.PREFIX)
    assert link.target_topic("orders") == "eu.orders"
    assert link.source_topic("eu.orders") == "orders"
    assert link.source_topic("orders") is None
    back = link.reversed()
    assert back.id == LinkId("us", "eu")
    assert back.covers_topic("eu.orders")
    assert not back.covers_topic("orders")
    assert back.target_topic("eu.orders") == "orders"
    assert back.source_topic("orders") == "eu.orders"
    assert back.reversed() == link


def test_the_way_back_has_the_link_s_limits():
    limits = {"catch_up": CatchUpPolicy(max_bytes_per_second=5), "max_bytes_per_second": 7, "buffer_bytes": 9}
    back = Link(LinkId("eu", "us"), topics=("orders",), **limits).reversed()
    assert {name: getattr(back, name) for name in limits} == limits


def test_prefix_does_not_mirror_what_came_from_the_target():
    link = Link(LinkId("eu", "us"), topics=(".*",), policy=TopicPolicy.PREFIX)
    assert not link.covers_topic("us.orders")


def test_names_match_whole():
    link = Link(LinkId("a", "b"), topics=("orders",), exclude_topics=("orders[.]tmp",))
    assert link.covers_topic("orders")
    assert not link.covers_topic("orders2")

"""The canary is carried, and is nobody's data: not covered, not on the way back, not by another link."""

from __future__ import annotations

import pytest

from drkit.model.topology import Link, LinkId, TopicPolicy, is_canary


def test_only_its_own_canary_is_mirrored_and_none_is_covered() -> None:
    link = Link(LinkId("a", "b"), (".*",), canary=True)
    assert link.canary_topic == "drkit.canary.a.b"
    assert link.mirrors_topic("drkit.canary.a.b")
    assert not link.covers_topic("drkit.canary.a.b")
    assert not link.mirrors_topic("drkit.canary.c.a")
    assert link.mirrors_topic("orders")


def test_without_one_or_on_the_way_back_there_is_none() -> None:
    link = Link(LinkId("a", "b"), (".*",))
    assert link.canary_topic is None
    assert not link.mirrors_topic("drkit.canary.a.b")
    back = Link(LinkId("a", "b"), (".*",), canary=True).reversed()
    assert back.canary_topic is None
    assert not back.mirrors_topic("drkit.canary.a.b")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("drkit.canary.a.b", True), ("a.drkit.canary.a.b", True), ("drkit.canaries", False), ("xdrkit.canary.a", False)],
)
def test_a_canary_is_known_by_its_name(topic: str, expected: bool) -> None:
    assert is_canary(topic) is expected
    link = Link(LinkId("a", "b"), (".*",), policy=TopicPolicy.PREFIX)
    assert link.covers_topic(topic) is (not expected and not topic.startswith("b."))

"""Which sets of links would carry records round or write one topic twice, and which would not."""

from __future__ import annotations

import time

import pytest

from drkit.model.topics.cycles import cycle_error, find_clash, find_cycle, names_to_try, sharing
from drkit.model.topics.name_patterns import examples
from drkit.model.topology import Link, LinkId, TopicPolicy

PREFIX = {"policy": TopicPolicy.PREFIX}
MARKED = {"provenance": True}


def link(source: str, target: str, *topics: str, **more: object) -> Link:
    return Link(LinkId(source, target), topics=topics or (".*",), aliases=("a", "b", "c"), **more)


def judge(links: list[Link], same: dict[str, str] | None = None) -> tuple[str | None, tuple[str, str] | None]:
    clusters = {alias: alias for each in links for alias in (each.id.source, each.id.target)} | (same or {})
    names = names_to_try(links)
    cycle, clash = find_cycle(links, clusters, names), find_clash(links, clusters, names)
    return (
        None if cycle is None else str(cycle),
        None if clash is None else (str(clash.links[0].id), str(clash.links[1].id)),
    )


@pytest.mark.parametrize(
    ("links", "cycle"),
    [
        ([link("a", "b"), link("b", "a")], "a -> b -> a"),
        ([link("a", "b"), link("b", "c"), link("c", "a")], "a -> b -> c -> a"),
        ([link("a", "b", "x.*"), link("b", "a", "y.*")], None),
        ([link("a", "b", "x.*"), link("b", "a", ".*y")], "a -> b -> a"),
        ([link("a", "b", exclude_topics=("own-.*",)), link("b", "a", "own-.*")], None),
        ([link("a", "b", "x", "y"), link("b", "a", "y", "z")], "a -> b -> a"),
        ([link("a", "b", **PREFIX), link("b", "a", **PREFIX)], None),
        ([link("a", "b", **PREFIX), link("b", "c", **PREFIX), link("c", "a", **PREFIX)], None),
        ([link("a", "b"), link("b", "a", **PREFIX)], "a -> b -> a"),
        ([link("a", "b", "x"), link("b", "a", "x", **PREFIX)], None),
        ([link("a", "b", **MARKED), link("b", "a", **MARKED)], None),
        ([link("a", "b", **MARKED), link("b", "a")], "a -> b -> a"),
        ([link("a", "b", **MARKED), link("b", "c", **MARKED), link("c", "a")], "a -> b -> c -> a"),
        ([link("a", "b", **MARKED), link("b", "c", **MARKED), link("c", "a", **MARKED)], None),
        ([link("a", "b", "x", renames=(("x", "y"),)), link("b", "a", "y")], None),
        ([link("a", "b", "x", renames=(("x", "y"),)), link("b", "a", "y", renames=(("y", "x"),))], "a -> b -> a"),
        ([link("a", "b"), link("b", "c")], None),
        ([link("a", "b"), link("a", "c")], None),
    ],
)
def test_cycles(links: list[Link], cycle: str | None) -> None:
    assert judge(links)[0] == cycle


@pytest.mark.parametrize(
    ("links", "clash"),
    [
        ([link("a", "c"), link("b", "c")], ("a->c", "b->c")),
        ([link("a", "c", **PREFIX), link("b", "c", **PREFIX)], None),
        ([link("a", "c", "x.*"), link("b", "c", "y.*")], None),
        ([link("a", "b"), link("b", "c"), link("a", "c")], ("b->c", "a->c")),
        ([link("a", "c", "x", **PREFIX), link("b", "c", "a[.].*")], ("a->c", "b->c")),
        ([link("a", "c", "x", renames=(("x", "y"),)), link("b", "c", "y")], ("a->c", "b->c")),
    ],
)
def test_second_writers(links: list[Link], clash: tuple[str, str] | None) -> None:
    assert judge(links)[1] == clash


def test_two_aliases_of_one_cluster() -> None:
    assert judge([link("a", "b"), link("b2", "a")]) == (None, None)
    assert judge([link("a", "b"), link("b2", "a")], {"b2": "b"})[0] == "a -> b -> a"
    both = [link("a", "b", exclude_topics=("s.*",)), link("a2", "b2", "s.*")]
    assert judge(both, {"a2": "a", "b2": "b"}) == (None, None)
    assert judge([link("a", "b"), link("a2", "b2", "s.*")], {"a2": "a", "b2": "b"})[1] == ("a->b", "a2->b2")
    prefixed = [link("a", "b", **PREFIX), link("b2", "a2", **PREFIX)]
    assert judge(prefixed, {"a2": "a", "b2": "b"})[0] is not None, "names can't tell two aliases of one cluster"
    itself = [link("a", "a2")]
    cycle = find_cycle(itself, {"a": "id", "a2": "id"}, ["x"])
    assert cycle is not None
    assert "into itself" in cycle_error(cycle)[0]


def test_the_way_back_of_a_link_stands_for_it() -> None:
    back = link("a", "b").reversed()
    assert judge([back, link("a", "c")]) == (None, None)


def test_links_that_share_their_targets_with_other_writers() -> None:
    ring = [link("a", "b", **MARKED), link("b", "a", **MARKED), link("a", "c", "x", **MARKED)]
    clusters = {name: name for name in "abc"}
    assert sharing(ring, clusters, names_to_try(ring)) == set(ring[:2])


def test_a_mesh_and_long_lists_take_no_time_to_speak_of() -> None:
    """Work is bounded: ten clusters in a full mesh, and a hub of twenty with fifty topics each."""
    names = "abcdefghij"
    mesh = [Link(LinkId(x, y), topics=(".*",), aliases=tuple(names), **PREFIX) for x in names for y in names if x != y]
    hub = [Link(LinkId(f"s{x}", "hub"), topics=tuple(f"t{x}[.]{n}" for n in range(50))) for x in range(20)]
    begun = time.process_time()
    assert judge(mesh) == (None, None)
    assert judge(hub) == (None, None)
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("pattern", "example"),
    [
        ("orders", "orders"),
        (".*", "x"),
        (r"orders\..*", "orders.x"),
        ("orders[.](eu|us)", "orders.eu"),
        ("a|b+", "a"),
        (r"x(y|z)\d", "xy0"),
        ("^t-[^a-z]+$", "t-0"),
        ("(?:ab)*c?", "abc"),
        ("(?P<n>a)b", "ab"),
        (r"v(?:1|2)?\.[A-Z]{1,3}", "v1.A"),
        ("x{3}", None),
        (r"(a)\1", None),
        ("a(?=b).*", None),
    ],
)
def test_an_example_of_a_pattern(pattern: str, example: str | None) -> None:
    assert examples([pattern]) == ([] if example is None else [example])


def test_patterns_that_are_alike_have_one_example() -> None:
    assert examples(["a.*", "ax", "b"]) == ["ax", "b"]

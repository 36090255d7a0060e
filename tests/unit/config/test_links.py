"""Keys of links that alter records, name topics again or limit what a link takes; links that don't go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from drkit.config import Config, load_config
from drkit.model.errors import ConfigError, ExitCode
from drkit.model.topology import CatchUpPolicy, Link

CLUSTERS = "".join(f'[clusters.{alias}]\nbootstrap_servers = "{alias}-1:9092,{alias}-2:9092"\n' for alias in "abc")
Read = Callable[[str], Config]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def _read(text: str) -> Config:
        path = tmp_path / "drkit.toml"
        path.write_text(CLUSTERS + text)
        return load_config(path)

    return _read


def link(source: str, target: str, *lines: str) -> str:
    return "\n".join(["[[links]]", f'source = "{source}"', f'target = "{target}"', *lines, ""])


def one(config: Config) -> Link:
    return config.links[0].link()


def test_all_keys_reach_the_link(read: Read, tmp_path: Path) -> None:
    config = read(
        link(
            "a",
            "b",
            'filter = "my.module:keeps"',
            'transform = "my_module:redacts"',
            "provenance = true",
            "max_bytes_per_second = 1000",
            "buffer_bytes = 2097152",
            'rename = { "x" = "y" }',
            'exclude_topics = ["y"]',
            "catch_up = { adaptive = false, max_bytes_per_second = 7, max_latency_ms = 25, latency_factor = 3 }",
        )
    )
    found = one(config)
    assert found.catch_up == CatchUpPolicy(False, 7, 0.025, 3)
    assert (found.filter, found.transform, found.provenance) == ("my.module:keeps", "my_module:redacts", True)
    assert (found.max_bytes_per_second, found.buffer_bytes) == (1000, 2097152)
    assert found.alters
    assert not found.shares_target
    assert found.aliases == ("a", "b", "c")
    assert config.file == tmp_path / "drkit.toml"


def test_without_them_nothing_is_altered(read: Read) -> None:
    found = one(read(link("a", "b")))
    assert not found.alters
    assert found.max_bytes_per_second is None
    assert found.catch_up == CatchUpPolicy(True, None, 0.01, 2)


def test_renamed_topics_both_ways(read: Read) -> None:
    found = one(read(link("a", "b", 'topics = ["o.*"]', 'rename = { "orders" = "eu" }')))
    assert found.target_topic("orders") == "eu"
    assert found.target_topic("other") == "other"
    assert (found.source_topic("eu"), found.source_topic("other"), found.source_topic("orders")) == (
        "orders",
        "other",
        None,
    )
    back = found.reversed()
    assert back.covers_topic("eu")
    assert back.target_topic("eu") == "orders"
    assert not back.covers_topic("orders"), "a topic of the target's own with that name"
    assert back.source_topic("orders") == "eu"
    assert back.reversed() == found


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['filter = "module.function"'], ["links.0.filter", "module:function"]),
        (['transform = "m:f()"'], ["links.0.transform", "module:function"]),
        (["max_bytes_per_second = 0"], ["links.0.max_bytes_per_second", "greater than"]),
        (["buffer_bytes = 1000"], ["links.0.buffer_bytes", "greater than"]),
        (['rename = { "x" = "y" }', 'policy = "prefix"'], ["rename works with policy"]),
        (['rename = { "x" = "y" }'], ["'y'", "a topic of that name", "exclude_topics"]),
        (['topics = ["a"]', 'rename = { "x" = "y" }'], ["doesn't mirror 'x'"]),
        (['topics = ["x", "z"]', 'rename = { "x" = "y", "z" = "y" }'], ["two topics", "'y'"]),
        (['topics = ["x"]', 'rename = { "x" = "a/b" }'], ["links.0.rename", "'a/b'"]),
        (['topics = ["x"]', 'rename = { "x" = "__x" }'], ["links.0.rename", "'__x'"]),
    ],
)
def test_what_is_wrong_is_named(read: Read, tmp_path: Path, lines: list[str], says: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        read(link("a", "b", *lines))
    assert raised.value.exit_code is ExitCode.USAGE
    assert str(tmp_path / "drkit.toml") in str(raised.value)
    for each in says:
        assert each in str(raised.value)


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ([("a", "b"), ("b", "a")], ["a -> b -> a", "a->b, b->a", 'policy = "prefix"', "provenance = true"]),
        ([("a", "b"), ("b", "c"), ("c", "a")], ["a -> b -> c -> a"]),
        ([("a", "c"), ("b", "c")], ["a->c and b->c", "one writer"]),
    ],
)
def test_cycles_and_second_writers_are_configuration_errors(
    read: Read, links: list[tuple[str, str]], says: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        read("".join(link(*pair) for pair in links))
    for each in says:
        assert each in str(raised.value)


def test_what_does_not_go_round_is_read(read: Read) -> None:
    read(link("a", "b", 'topics = ["x.*"]') + link("b", "a", 'topics = ["y.*"]'))
    read(link("a", "b", 'policy = "prefix"') + link("b", "a", 'policy = "prefix"'))
    read(link("a", "b") + link("b", "c", 'topics = ["o.*"]') + link("a", "c", 'policy = "prefix"'))


def test_active_active_by_provenance_shares_its_targets(read: Read) -> None:
    config = read(
        link("a", "b", "provenance = true", 'topics = ["x"]')
        + link("b", "a", "provenance = true", 'topics = ["x"]')
        + link("a", "c", "provenance = true", 'topics = ["x"]')
    )
    assert [each.link().shares_target for each in config.links] == [True, True, False]


def test_aliases_that_share_an_address_are_one_cluster(read: Read) -> None:
    again = '[clusters.b-safe]\nbootstrap_servers = "B-2:9092"\n'
    with pytest.raises(ConfigError, match="a -> b -> a"):
        read(again + link("a", "b") + link("b-safe", "a"))
    with pytest.raises(ConfigError, match="would both write"):
        read(again + link("a", "b") + link("a", "b-safe", 'topics = ["secret.*"]'))
    read(again + link("a", "b", 'exclude_topics = ["secret.*"]') + link("a", "b-safe", 'topics = ["secret.*"]'))


def test_a_name_that_passed_through_the_target_is_not_sent_there(read: Read) -> None:
    config = read(link("a", "b", 'policy = "prefix"') + link("c", "a", 'policy = "prefix"'))
    found = one(config)
    assert not found.covers_topic("b.x")
    assert not found.covers_topic("c.b.x")
    assert found.covers_topic("c.x")
    assert found.covers_topic("orders.b.x"), "no prefix of a cluster stands before it: it is a name like any"

"""Callables are checked when they are loaded, asked one record at a time, and never believed blindly."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Message

from drkit.config import Config, load_config
from drkit.mirror.transforms import Alteration, AlterationFailed, as_record, load
from drkit.model.errors import ConfigError
from drkit.model.record import Record
from drkit.model.topology import Link, LinkId
from tests.support import callables

LINK = Link(LinkId("a", "b"), topics=(".*",), filter="m:f", transform="m:t")


def message(value: bytes | None = b"v", headers: list[tuple[str, bytes | None]] | None = None) -> Message:
    return Message(
        topic="t", partition=1, offset=7, key=b"k", value=value, headers=headers or [("h", b"1")], timestamp=(1, 99)
    )


def test_a_record_holds_what_the_message_holds() -> None:
    assert as_record(message()) == Record("t", 1, 7, 99, b"k", b"v", (("h", b"1"),))


def test_replace_tells_none_from_unchanged() -> None:
    record = as_record(message())
    assert record.replace(value=None) == record._replace(value=None)
    assert record.replace(key=b"x", headers=()) == record._replace(key=b"x", headers=())
    assert record.replace() == record


def test_filter_then_transform() -> None:
    asked: list[Record] = []

    def transform(record: Record) -> Record:
        asked.append(record)
        return record.replace(key=None, value=b"new", headers=(("x", None),))

    alteration = Alteration(LINK, lambda record: record.value == b"v", transform)
    kept, dropped = message(), message(b"other")
    assert alteration.apply(kept)
    assert not alteration.apply(dropped)
    assert asked == [as_record(message())]
    assert (kept.key(), kept.value(), kept.headers(), kept.offset(), kept.timestamp()) == (
        None,
        b"new",
        [("x", None)],
        7,
        (1, 99),
    )


def test_a_record_that_was_on_the_target_is_not_sent_back() -> None:
    link = Link(LinkId("a", "b"), topics=(".*",), provenance=True)
    alteration = Alteration(link)
    alteration.identify("id-a", "id-b")
    assert not alteration.apply(message(headers=[("drkit.source", b"id-b")]))
    assert not alteration.apply(message(headers=[("drkit.source", b"id-x"), ("drkit.via", b"id-b/t/0/1,id-c/t/0/1")]))
    ours = message(headers=[("drkit.source", b"id-c")])
    assert alteration.apply(ours)
    assert ("drkit.via", b"id-a/t/1/7") in (ours.headers() or [])


def test_callables_don_t_see_the_canary() -> None:
    link = Link(LinkId("a", "b"), topics=(".*",), filter="m:f", canary=True)
    canary = Message(topic=str(link.canary_topic), partition=0, offset=0, value=b"v", timestamp=(1, 0))
    alteration = Alteration(link, lambda _: False)
    assert alteration.apply(canary)
    assert not alteration.apply(message())


@pytest.mark.parametrize(
    ("filter_", "transform", "says"),
    [
        (lambda _: 1, None, "int instead of True or False"),
        (lambda _: 1 / 0, None, "ZeroDivisionError"),
        (None, lambda _: "x", "str instead of a Record"),
        (None, callables.moves, "rename"),
        (None, lambda r: r._replace(partition=0), "partition"),
        (None, lambda r: r._replace(timestamp=0), "timestamp"),
        (None, callables.answers_text, "bytes or None"),
        (None, lambda r: r.replace(headers=(("h",),)), "headers"),
        (None, lambda r: r.replace(headers=(("h", "text"),)), "headers"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(filter_, transform, says: str) -> None:
    with pytest.raises(AlterationFailed, match=says) as raised:
        Alteration(LINK, filter_, transform).apply(message())
    assert "source offset 7 of t:1" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such.module:f", "can't be imported: ModuleNotFoundError"),
        ("tests.support.callables:missing", "has no missing"),
        ("tests.support.callables:NO_FUNCTION", "no function"),
        ("tests.support.callables:Record", "no function"),
        ("tests.support.callables:takes_two", "can't be called with one record"),
        ("tests.support.callables:waits", "asynchronous"),
    ],
)
def test_a_callable_that_can_t_be_used_is_a_configuration_error(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        load(name, "key")
    path = tmp_path / "drkit.toml"
    path.write_text(
        '[clusters.a]\nbootstrap_servers = "h:1"\n[clusters.b]\nbootstrap_servers = "h:2"\n'
        f'[[links]]\nsource = "a"\ntarget = "b"\ntransform = "{name}"\n'
    )
    config = load_config(path)
    with pytest.raises(ConfigError) as raised:
        Alteration.of(config, config.links[0].link())
    assert f"{path}: links.0.transform = '{name}'" in raised.value.what
    assert raised.value.remedy


def test_callables_take_no_part_in_the_way_back() -> None:
    config = load_like("transform = 'tests.support.callables:redacts'")
    assert Alteration.of(config, config.links[0].link()) is not None
    assert Alteration.of(config, config.links[0].link().reversed()) is None


def load_like(lines: str):
    return Config.model_validate(
        tomllib.loads(
            '[clusters.a]\nbootstrap_servers = "h:1"\n[clusters.b]\nbootstrap_servers = "h:2"\n'
            f'[[links]]\nsource = "a"\ntarget = "b"\n{lines}\n'
        )
    )

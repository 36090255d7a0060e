"""Callables are checked when they are loaded, asked one record at a time, and never believed blindly."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Message

from drkit.config import Config, load_config
from drkit.kafka.protocol import record_body
from drkit.kafka.protocol.records import RawRecord as Encoded
from drkit.kafka.transform.provenance import Hop, origin
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed, as_record, load
from drkit.model.errors import ConfigError
from drkit.model.record import Record
from drkit.model.topology import Link, LinkId, TopicPartition
from tests.support.links import callables

LINK = Link(LinkId("a", "b"), topics=(".*",), filter="m:f", transform="m:t")


TP = TopicPartition("t", 1)
Headers = tuple[tuple[str, bytes | None], ...]


def made(value: bytes | None = b"v", headers: Headers = (("h", b"1"),)) -> Record:
    return Record("t", 1, 7, 99, b"k", value, headers)


def carried(alteration: Alteration, record: Record, *, topic: str = "t") -> Record | None:
    """What a record becomes, the same way whether it is asked about as a record or as it is encoded."""
    body = record_body.encode(record.key, record.value, record.headers)
    place = TopicPartition(topic, record.partition)
    found = list(alteration.records(place, [Encoded(record.offset, record.timestamp, memoryview(body))]))
    plain = alteration.apply(record)
    if not found:
        assert plain is None
        return None
    (encoded,) = found
    assert plain is not None
    assert (encoded.offset, encoded.timestamp) == (record.offset, record.timestamp)
    key, value, headers = record_body.decode(bytes(encoded.body))
    assert (key, value, tuple(headers)) == (plain.key, plain.value, tuple(plain.headers))
    return plain


def test_a_record_holds_what_the_message_holds() -> None:
    message = Message(topic="t", partition=1, offset=7, key=b"k", value=b"v", headers=[("h", b"1")], timestamp=(1, 99))
    assert as_record(message) == made()


def test_replace_tells_none_from_unchanged() -> None:
    record = made()
    assert record.replace(value=None) == record._replace(value=None)
    assert record.replace(key=b"x", headers=()) == record._replace(key=b"x", headers=())
    assert record.replace() == record


def test_filter_then_transform() -> None:
    asked: list[Record] = []

    def transform(record: Record) -> Record:
        asked.append(record)
        return record.replace(key=None, value=b"new", headers=(("x", None),))

    alteration = Alteration(LINK, lambda record: record.value == b"v", transform)
    assert carried(alteration, made(b"other")) is None
    assert asked == []
    assert carried(alteration, made()) == Record("t", 1, 7, 99, None, b"new", (("x", None),))
    assert asked == [made(), made()]


def test_what_no_callable_changes_stays_as_it_was_encoded() -> None:
    body = b"\x02k\x02v\x02\x04\xff\xfe\x01"  # a header whose name isn't UTF-8
    record = Encoded(7, 99, body)
    for transform in (None, lambda record: record):
        assert list(Alteration(LINK, lambda _: True, transform).records(TP, [record])) == [record]
    renamed = Alteration(LINK, None, lambda record: record.replace(value=b"w"))
    assert [each.body for each in renamed.records(TP, [record])] == [body.replace(b"v", b"w")]


@pytest.mark.parametrize("value", [None, b"", b"v", b"x" * 5_000, b"drkit. is no header"])
@pytest.mark.parametrize("headers", [(), (("h", None), ("h", b"")), tuple((f"h{n}", b"x" * n) for n in range(70))])
def test_provenance_comes_behind_a_record_s_own_headers(value: bytes | None, headers: Headers) -> None:
    alteration = Alteration(Link(LinkId("a", "b"), topics=(".*",), provenance=True))
    alteration.identify("id-a", "id-b")
    marked = carried(alteration, made(value, headers))
    assert marked is not None
    assert marked == made(value, (*headers, *origin(Hop("id-a", "t", 1, 7))))


def test_a_record_that_was_on_the_target_is_not_sent_back() -> None:
    link = Link(LinkId("a", "b"), topics=(".*",), provenance=True)
    alteration = Alteration(link)
    alteration.identify("id-a", "id-b")
    assert carried(alteration, made(headers=(("drkit.source", b"id-b"),))) is None
    passed_b = (("drkit.source", b"id-x"), ("drkit.via", b"id-b/t/0/1,id-c/t/0/1"))
    assert carried(alteration, made(headers=passed_b)) is None
    marked = carried(alteration, made(headers=(("drkit.source", b"id-c"),)))
    assert marked is not None
    assert ("drkit.via", b"id-a/t/1/7") in marked.headers


def test_a_transform_can_t_take_the_origin_away() -> None:
    link = Link(LinkId("a", "b"), topics=(".*",), transform="m:t", provenance=True)
    alteration = Alteration(link, None, callables.strips_headers)
    alteration.identify("id-a", "id-b")
    marked = carried(alteration, made(headers=(("drkit.source", b"id-c"), ("h", b"1"))))
    assert marked is not None
    assert marked.headers == (("drkit.source", b"id-c"), ("drkit.via", b"id-a/t/1/7"))


def test_callables_don_t_see_the_canary() -> None:
    link = Link(LinkId("a", "b"), topics=(".*",), filter="m:f", canary=True)
    canary = made()._replace(topic=str(link.canary_topic))
    alteration = Alteration(link, lambda _: False)
    assert carried(alteration, canary, topic=canary.topic) == canary
    assert carried(alteration, made()) is None


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
        (None, lambda r: r.replace(headers=(("\ud800", b""),)), "headers"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(filter_, transform, says: str) -> None:
    with pytest.raises(AlterationFailed, match=says) as raised:
        Alteration(LINK, filter_, transform).apply(made())
    assert "source offset 7 of t:1" in str(raised.value)
    assert raised.value.offset == 7


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such.module:f", "can't be imported: ModuleNotFoundError"),
        ("tests.support.links.callables:missing", "has no missing"),
        ("tests.support.links.callables:NO_FUNCTION", "not a function"),
        ("tests.support.links.callables:Record", "not a function"),
        ("tests.support.links.callables:takes_two", "can't be called with one record"),
        ("tests.support.links.callables:waits", "asynchronous"),
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
    config = load_like("transform = 'tests.support.links.callables:redacts'")
    assert Alteration.of(config, config.links[0].link()) is not None
    assert Alteration.of(config, config.links[0].link().reversed()) is None


def load_like(lines: str):
    return Config.model_validate(
        tomllib.loads(
            '[clusters.a]\nbootstrap_servers = "h:1"\n[clusters.b]\nbootstrap_servers = "h:2"\n'
            f'[[links]]\nsource = "a"\ntarget = "b"\n{lines}\n'
        )
    )

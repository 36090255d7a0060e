"""A topic of an active-active link under one name that was recreated or cut, and accepted: provenance doesn't say of
which topic with the name a record is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.lab import Lab
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.link_notes import newest_own, put_newest_own
from tests.support.clusters.topologies import Net, write
from tests.support.collection.sampling import some_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("topics accepted anew", 1)]

MakeNet = Callable[..., Net]
FORTH, BACK = "a->b", "b->a"


def both_ways(net: MakeNet, topic: str) -> Net:
    """Links in both directions under one name."""
    sides = (("a", "b"), ("b", "a"))
    return net(
        "".join(
            f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{topic}"]\nprovenance = true\n'
            for source, target in sides
        )
    )


def accept(world: Net, topic: str, *links: str) -> None:
    for name in links:
        done = world.drkit("link", "resume", name, "--topic", topic, "--accept-recreated")
        assert done.returncode == 0, done.stderr


def on(world: Net, alias: str, topic: str, word: str) -> list[str]:
    """The records of a side that begin with a word, in their order."""
    found = [(record.value or b"").decode() for record in world.sides[alias].read(topic)]
    return [value for value in found if value.startswith(word)]


def named(word: str, first: int, end: int) -> list[str]:
    return [f"{word} {number}" for number in range(first, end)]


def caught_up(world: Net, *links: str) -> None:
    for report in world.catch_up(*links):
        assert (report.caught_up, report.halted) == (True, ())


def test_a_recreated_topic_that_others_write_too_is_mirrored_from_its_start(net: MakeNet, unique_name: str) -> None:
    world, name = both_ways(net, unique_name), LinkId.parse(FORTH)
    a, b = world.sides["a"], world.sides["b"]
    for side in (a, b):
        side.create(unique_name)
    write(b, unique_name, named("theirs", 0, 10))
    write(a, unique_name, named("former", 0, 100))
    caught_up(world, FORTH, BACK)
    a.delete(unique_name)
    a.create(unique_name)
    write(a, unique_name, named("new", 0, 30))
    assert [each.kind for report in world.catch_up(FORTH) for each in report.halted] == ["topic_recreated"]
    accept(world, unique_name, FORTH, BACK)
    caught_up(world, FORTH, BACK)
    assert on(world, "b", unique_name, "new") == named("new", 0, 30)
    assert on(world, "b", unique_name, "former") == named("former", 0, 100), "they stay"
    assert on(world, "a", unique_name, "theirs") == named("theirs", 0, 10)
    assert on(world, "a", unique_name, "former") == []

    # a mirror that dies before its watermark finds its own records of this topic, and none of the former one
    before = world.store.watermarks(name)[TopicPartition(unique_name, 0)]
    newest = newest_own(world.store, name)
    write(a, unique_name, named("new", 30, 50))
    caught_up(world, FORTH)
    world.store.put_watermarks(name, [replace(before, source_through=0, target_end=newest[before.tp].begin)])
    put_newest_own(world.store, name, newest)
    write(a, unique_name, named("new", 50, 60))
    caught_up(world, FORTH)
    assert on(world, "b", unique_name, "new") == named("new", 0, 60)
    assert world.problems(FORTH) == world.problems(BACK) == []


def test_a_cut_topic_that_others_write_too_is_mirrored_again_once_accepted(
    net: MakeNet, three: Lab, unique_name: str
) -> None:
    world = both_ways(net, unique_name)
    a, b = world.sides["a"], world.sides["b"]
    for side in (a, b):
        side.create(unique_name)
    write(b, unique_name, named("theirs", 0, 10))
    for first in range(0, 100, 20):  # batches, so that the log can be cut between them
        write(a, unique_name, named("ours", first, first + 20))
        caught_up(world, FORTH)
    with stopped(three, "a-1") as disk:
        assert disk.cut(unique_name, 0, 60) == 60
    assert [each.kind for report in world.catch_up(FORTH) for each in report.halted] == ["source_truncated"]
    accept(world, unique_name, FORTH)
    write(a, unique_name, named("later", 0, 5))
    caught_up(world, FORTH)
    assert on(world, "b", unique_name, "ours") == [*named("ours", 0, 100), *named("ours", 0, 60)]
    assert on(world, "b", unique_name, "later") == named("later", 0, 5)


def test_a_recreated_compacted_topic_that_others_write_too_loses_nothing(net: MakeNet, unique_name: str) -> None:
    """The new topic holds nothing at the offset of the former one's last record: its cleaner removed it."""
    world = both_ways(net, unique_name)
    a, b = world.sides["a"], world.sides["b"]
    for side in (a, b):
        side.create(unique_name, cleanup_policy="compact")
    write(a, unique_name, named("former", 0, 100))
    caught_up(world, FORTH)
    a.delete(unique_name)
    a.create(unique_name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.0001")
    write(a, unique_name, named("new", 0, 99))  # keys k0 to k98
    producer = a.producer()
    producer.produce(unique_name, key=b"again", value=b"at the place of the former one's last", partition=0)
    assert producer.flush(30) == 0
    assert a.end(unique_name) == 100

    def cleaned() -> bool:
        producer.produce(unique_name, key=b"again", value=b"x", partition=0)  # rolls the segment
        assert producer.flush(30) == 0
        return 99 not in {record.offset for record in a.read(unique_name)}

    wait_until(cleaned, 90, "the cleaner")
    assert [each.kind for report in world.catch_up(FORTH) for each in report.halted] == ["topic_recreated"]
    accept(world, unique_name, FORTH)
    caught_up(world, FORTH)
    assert on(world, "b", unique_name, "new") == named("new", 0, 99)

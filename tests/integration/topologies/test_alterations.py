"""Filters and transforms on real brokers: what is left out is a hole, what fails stops, nothing is guessed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drkit.model.topology import LinkId
from drkit.model.topology import TopicPartition as Place
from tests.support.clusters.topologies import Net, write
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.log_reader import Record
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("altering links", 2)]

MakeNet = Callable[..., Net]
CALLABLES = "tests.support.links.callables"


def link(topic: str, *lines: str) -> str:
    more = "\n".join(lines)
    return f'[[links]]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}.*"]\ngroups = ["{topic}.*"]\n{more}\n'


def test_filtered_transformed_and_translated(net: MakeNet, unique_name: str) -> None:
    world = net(link(unique_name, f'filter = "{CALLABLES}:keeps_two_of_three"', f'transform = "{CALLABLES}:redacts"'))
    source, target = world.sides["a"], world.sides["b"]
    source.create(unique_name)
    write(source, unique_name, [f"secret {n}" if n % 10 in {4, 5} else f"value {n}" for n in range(200)])
    assert world.catch_up()[0].caught_up
    ours = source.read(unique_name)
    kept = [r for r in ours if r.offset % 3 != 1 and not (r.value or b"").startswith(b"secret")]
    theirs = target.read(unique_name, committed=False)
    assert [record.content for record in theirs] == [
        (b"k-" + (r.key or b""), (r.value or b"").upper(), (*r.headers, ("by", b"test")), r.timestamp) for r in kept
    ]
    assert world.through("a->b", unique_name) == 200, "records left out at the end are mirrored through"
    world.assert_translates("a->b", unique_name, kept)
    rows = world.store.mappings(LinkId("a", "b"), Place(unique_name, 0), 1)
    changes = sum(1 for one, other in itertools.pairwise(kept) if other.offset != one.offset + 1)
    assert len(rows) == changes + 1 + (kept[0].offset != 0), "a row where the delta changes, and only there"
    assert_told(world, unique_name, kept, theirs)


@pytest.mark.spark
def test_what_a_mirror_altered_and_marked_is_audited_as_clean(net: MakeNet, unique_name: str, tmp_path: Path) -> None:
    lines = (f'filter = "{CALLABLES}:keeps_two_of_three"', f'transform = "{CALLABLES}:redacts"', "provenance = true")
    world = net(link(unique_name, *lines))
    world.sides["a"].create(unique_name)
    write(world.sides["a"], unique_name, [f"secret {n}" if n % 10 in {4, 5} else f"value {n}" for n in range(200)])
    assert world.catch_up()[0].caught_up
    write(world.sides["b"], unique_name, ["from nowhere"])

    told = world.drkit("audit", "--out", str(tmp_path / "found"), "--output", "json")

    assert told.returncode == 5, told.stderr
    document = json.loads(told.stdout)
    kept = len(world.sides["b"].read(unique_name)) - 1
    assert kept < 140
    assert [(each["kind"], each["target_offset"] is not None) for each in document["findings"]] == [("foreign", True)]
    assert (document["totals"]["source_records"], document["totals"]["matched"]) == (kept, kept)
    assert document["incomplete"] == []


def assert_told(world: Net, topic: str, kept: list[Record], theirs: list[Record]) -> None:
    """What `drkit translate` and `drkit status` say."""
    for commit in (0, 1, 50, 104, 105, 199):
        told = world.drkit(
            "translate", "--topic", topic, "--partition", "0", "--offset", str(commit), "--output", "json"
        )
        assert told.returncode == 0, told.stderr
        position = json.loads(told.stdout)["positions"][0]
        following = next((n for n, record in enumerate(kept) if record.offset >= commit), None)
        expected = world.sides["b"].end(topic) if following is None else theirs[following].offset
        assert (position["target_offset"], position["translation"]) == (expected, "exact")
    status = json.loads(world.drkit("status", "--output", "json").stdout)
    partition = next(p for p in status["links"][0]["partitions"] if p["topic"] == topic)
    assert "every batch is rebuilt: filter and transform alter the records" in partition["engine_reason"]


def test_everything_left_out(net: MakeNet, unique_name: str) -> None:
    world = net(link(unique_name, f'filter = "{CALLABLES}:keeps_none"'))
    world.sides["a"].create(unique_name)
    write(world.sides["a"], unique_name, ["x"] * 30)
    assert world.catch_up()[0].caught_up
    assert world.sides["b"].read(unique_name) == []
    world.assert_translates("a->b", unique_name, [])


def test_a_callable_that_raises_stops_its_partition_before_the_record(
    net: MakeNet, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = tmp_path / "fixed"
    monkeypatch.setenv("TEST_MENDED", str(mended))
    world = net(link(unique_name, f'filter = "{CALLABLES}:fails_on_poison"'))
    source, target = world.sides["a"], world.sides["b"]
    source.create(unique_name, 2)
    write(source, unique_name, [*"abcde", "poison", *"fgh"])
    write(source, unique_name, list("uvw"), partition=1)
    with world.running():
        wait_until(lambda: world.problems("a->b"), what="a problem")
        world.wait_through("a->b", unique_name, 1)
        wait_until(lambda: world.through("a->b", unique_name) == 5, what="what stands before it is mirrored")
        problem = world.problems("a->b")[0]
        assert (problem.kind, problem.topic, problem.partition, problem.halted) == (
            "record_rejected",
            unique_name,
            0,
            True,
        )
        assert "offset 5" in problem.reason
        assert "ValueError: can't read this" in problem.reason
        assert f"{CALLABLES}:fails_on_poison" in problem.reason
        assert [record.value for record in target.read(unique_name)] == [b"a", b"b", b"c", b"d", b"e"]
        mended.touch()
        assert world.drkit("link", "resume", "a->b", "--topic", unique_name).returncode == 0
        world.wait_through("a->b", unique_name)
    assert [r.content for r in target.read(unique_name)] == [r.content for r in source.read(unique_name)]
    world.assert_translates("a->b", unique_name, source.read(unique_name))


@pytest.mark.parametrize(
    ("key", "function", "says"),
    [("filter", "answers_none", "NoneType"), ("transform", "moves", "rename"), ("transform", "answers_text", "bytes")],
)
def test_an_answer_that_makes_no_sense_stops_it(
    net: MakeNet, unique_name: str, key: str, function: str, says: str
) -> None:
    world = net(link(unique_name, f'{key} = "{CALLABLES}:{function}"'))
    world.sides["a"].create(unique_name)
    write(world.sides["a"], unique_name, ["x"])
    report = world.catch_up()[0]
    assert report.halted != ()
    assert says in report.halted[0].reason
    assert world.sides["b"].read(unique_name) == []


@pytest.mark.parametrize(
    "lines",
    sampled("an altering mirror killed", [("provenance = true",), (f'transform = "{CALLABLES}:redacts"',)], 1),
)
def test_killed_again_and_again_every_kept_record_is_there_once(
    net: MakeNet, unique_name: str, lines: tuple[str, ...]
) -> None:
    world = net(link(unique_name, f'filter = "{CALLABLES}:keeps_two_of_three"', *lines))
    source, target = world.sides["a"], world.sides["b"]
    source.create(unique_name)
    for round_ in range(3):
        process = world.process()
        before = target.end(unique_name) if target.partitions(unique_name) else 0
        write(source, unique_name, [f"value {round_} {n}" for n in range(5_000)])
        wait_until(lambda: target.partitions(unique_name) and target.end(unique_name) > before, 60, "some records")  # noqa: B023 - used within the round
        world.kill(process)
    assert world.catch_up()[0].caught_up
    assert world.problems("a->b") == []
    kept = [record for record in source.read(unique_name) if record.offset % 3 != 1]
    theirs = target.read(unique_name, committed=False)
    plain = [(record.value or b"").upper() for record in kept]
    assert [(record.value or b"").upper() for record in theirs] == plain
    world.assert_translates("a->b", unique_name, kept)


def test_renamed_topics(net: MakeNet, unique_name: str) -> None:
    world = net(link(unique_name, f'rename = {{ "{unique_name}-x" = "eu-{unique_name}" }}'))
    source, target = world.sides["a"], world.sides["b"]
    for name in (f"{unique_name}-x", f"{unique_name}-y"):
        source.create(name)
        write(source, name, ["1", "2", "3"])
    assert world.catch_up()[0].caught_up
    assert target.partitions(f"{unique_name}-x") == 0
    assert [r.value for r in target.read(f"eu-{unique_name}")] == [b"1", b"2", b"3"]
    assert [r.value for r in target.read(f"{unique_name}-y")] == [b"1", b"2", b"3"]
    world.assert_translates("a->b", f"{unique_name}-x", source.read(f"{unique_name}-x"), f"eu-{unique_name}")


def test_a_bandwidth_limit_holds_and_loses_nothing(net: MakeNet, unique_name: str) -> None:
    world = net(link(unique_name, "max_bytes_per_second = 100000", "buffer_bytes = 1048576"))
    source, target = world.sides["a"], world.sides["b"]
    source.create(unique_name)
    for _ in range(4):
        write(source, unique_name, ["x" * 1_000] * 100)
    begun = time.monotonic()
    with world.running():
        world.wait_through("a->b", unique_name)
    # 400 kB at 100 kB/s, one second's worth at once, the last batch paid for afterwards: a slow machine takes longer
    assert time.monotonic() - begun > 1.5
    assert [r.content for r in target.read(unique_name)] == [r.content for r in source.read(unique_name)]


def test_a_record_that_outgrows_the_target_s_limit_is_named(net: MakeNet, unique_name: str) -> None:
    world = net(link(unique_name, f'transform = "{CALLABLES}:swells"'))
    source, target = world.sides["a"], world.sides["b"]
    source.create(unique_name, max_message_bytes="10000")
    write(source, unique_name, ["small", "small", "x" * 9_000, "small"])
    report = world.catch_up()[0]
    assert "offset 2 needs a batch of" in report.halted[0].reason
    assert "max.message.bytes" in report.halted[0].remedy
    assert [len(record.value or b"") for record in target.read(unique_name)] == [10, 10]


def test_a_callable_that_is_not_there_ends_the_mirror_before_it_begins(net: MakeNet, unique_name: str) -> None:
    world = net(link(unique_name, f'filter = "{CALLABLES}:missing"'))
    told = world.drkit("mirror", "--until-caught-up")
    assert told.returncode == 2, told.stderr
    plain = " ".join(told.stderr.split())
    assert f"links.0.filter = '{CALLABLES}:missing'" in plain
    assert "has no missing" in plain
    assert "Traceback" not in plain

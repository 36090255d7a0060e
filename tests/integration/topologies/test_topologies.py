"""Hub and spoke, aggregation, active-active, chains: on three real clusters; what would go round is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import stopped
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import LinkId, TopicPartition
from drkit.observe.status import link_statuses
from drkit.store.link_notes import judged_start, newest_own, put_newest_own
from tests.support.clusters.topologies import Net, configuration, write
from tests.support.collection.sampling import sampled, some_of
from tests.support.commands.running import Commands
from tests.support.links.log_reader import Record
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("topologies", 2)]

MakeNet = Callable[..., Net]


def link(source: str, target: str, topics: str, *lines: str) -> str:
    more = "\n".join(lines)
    return (
        f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{topics}"]\ngroups = ["{topics}"]\n{more}\n'
    )


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_hub_and_spoke(net: MakeNet, unique_name: str) -> None:
    world = net(link("a", "b", unique_name) + link("a", "c", unique_name))
    world.sides["a"].create(unique_name)
    with world.running():
        write(world.sides["a"], unique_name, [f"v{n}" for n in range(100)])
        for name in ("a->b", "a->c"):
            world.wait_through(name, unique_name)
    ours = [record.content for record in world.sides["a"].read(unique_name)]
    assert [record.content for record in world.sides["b"].read(unique_name)] == ours
    assert [record.content for record in world.sides["c"].read(unique_name)] == ours


def test_aggregation_by_prefix(net: MakeNet, unique_name: str) -> None:
    prefix = 'policy = "prefix"'
    world = net(link("a", "c", unique_name, prefix) + link("b", "c", unique_name, prefix))
    for alias in ("a", "b"):
        world.sides[alias].create(unique_name)
        write(world.sides[alias], unique_name, [f"{alias} {n}" for n in range(50)])
    assert all(report.caught_up for report in world.catch_up())
    for alias in ("a", "b"):
        there = f"{alias}.{unique_name}"
        ours = world.sides[alias].read(unique_name)
        assert [r.content for r in world.sides["c"].read(there)] == [r.content for r in ours]
        world.assert_translates(f"{alias}->c", unique_name, ours, there)


def test_active_active_by_prefix(net: MakeNet, unique_name: str) -> None:
    prefix = 'policy = "prefix"'
    pattern = f"(?:[a-c][.])*{unique_name}"
    world = net(link("a", "b", pattern, prefix) + link("b", "a", pattern, prefix))
    for alias in ("a", "b"):
        world.sides[alias].create(unique_name)
    with world.running():
        for round_ in range(3):
            for alias in ("a", "b"):
                write(world.sides[alias], unique_name, [f"{alias} {round_} {n}" for n in range(20)])
        world.wait_through("a->b", unique_name)
        world.wait_through("b->a", unique_name)
    for alias, other in (("a", "b"), ("b", "a")):
        assert values(world.sides[other].read(f"{alias}.{unique_name}")) == values(world.sides[alias].read(unique_name))
        assert world.sides[alias].partitions(f"{other}.{alias}.{unique_name}") == 0, "its own did not come back"


def test_a_ring_by_prefix_ends(net: MakeNet, unique_name: str) -> None:
    prefix = 'policy = "prefix"'
    pattern = f"(?:[a-c][.])*{unique_name}"
    world = net(link("a", "b", pattern, prefix) + link("b", "c", pattern, prefix) + link("c", "a", pattern, prefix))
    world.sides["a"].create(unique_name)
    write(world.sides["a"], unique_name, ["x", "y"])
    world.catch_up("a->b", "b->c", "c->a", "a->b")
    assert values(world.sides["c"].read(f"b.a.{unique_name}")) == [b"x", b"y"]
    assert world.sides["a"].partitions(f"c.b.a.{unique_name}") == 0


BOTH_WAYS = "provenance = true"


def test_active_active_by_provenance(net: MakeNet, unique_name: str) -> None:
    """One name on both sides, written on both sides; each record is on each side once, also after SIGKILL."""
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS))
    sides = {alias: world.sides[alias] for alias in ("a", "b")}
    for side in sides.values():
        side.create(unique_name)
    expected: set[bytes] = set()
    for round_ in range(3):
        process = world.process()
        for part in range(4):
            for alias, side in sides.items():
                batch = [f"{alias} {round_} {part} {n}" for n in range(500)]
                expected |= {value.encode() for value in batch}
                write(side, unique_name, batch)
        wait_until(lambda: sides["b"].end(unique_name) > 0 and sides["a"].end(unique_name) > 2_000, what="some records")
        world.kill(process)
    with world.running():
        wait_until(lambda: all(side.end(unique_name) >= len(expected) for side in sides.values()), 60, "all records")
        for name in ("a->b", "b->a"):
            world.wait_through(name, unique_name)
    for alias, side in sides.items():
        found = values(side.read(unique_name, committed=False))
        assert len(found) == len(set(found)) == len(expected), f"on {alias}"
        assert set(found) == expected
    assert world.problems("a->b") == world.problems("b->a") == []
    told = world.drkit(
        "translate", "--topic", unique_name, "--partition", "0", "--offset", "5", "--link", "a->b", "-o", "json"
    )
    assert '"unavailable"' in told.stdout, "positions on a topic with other writers are not guessed"


def test_a_purge_of_a_target_that_has_other_writers_is_told(net: MakeNet, unique_name: str) -> None:
    """Both sides hold the other's records: only what a link carries itself can be missing on its target."""
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS))
    name, place = LinkId("a", "b"), TopicPartition(unique_name, 0)
    for side in ("a", "b"):
        world.sides[side].create(unique_name)
    write(world.sides["b"], unique_name, [f"b {n}" for n in range(10)])
    world.catch_up("b->a")
    write(world.sides["a"], unique_name, [f"a {n}" for n in range(60)])
    world.catch_up("a->b", "b->a")
    assert world.sides["a"].end(unique_name) == world.sides["b"].end(unique_name) == 70

    def judged(start: int) -> bool:
        return world.store.watermarks(name)[place].target_start == start and bool(
            world.store.notes(name, "shared_target_start").get(str(place), "").startswith(f"1:{start}:")
        )

    with world.running():
        world.sides["b"].purge(unique_name, 10)
        wait_until(lambda: judged(10), 30, "a purge of what is b's own")
        assert world.problems("a->b") == []
        world.sides["b"].purge(unique_name, 35)
        (problem,) = wait_until(lambda: world.problems("a->b"), 30, "a purge of what came from a")
        assert (problem.kind, problem.halted) == ("target_purged", False)
        assert (problem.unsure_from, problem.unsure_until) == (10, 35)
        (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
        assert [each.lag_records for each in status.partitions] == [25]
        assert world.problems("b->a") == []
    world.sides["b"].purge(unique_name, 40)
    (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
    (partition,) = status.partitions
    assert partition.lag_records is None
    assert "has lost target offsets 35 to 39 since a mirror last checked its beginning" in (partition.lag_reason or "")
    world.catch_up("a->b")
    (problem,) = world.problems("a->b")
    assert (problem.unsure_from, problem.unsure_until) == (10, 40), "seen at its next start"


def test_a_source_that_was_set_back_under_a_target_that_has_other_writers_is_seen(
    net: MakeNet, three: Lab, unique_name: str, tmp_path: Path
) -> None:
    """No record on the target stands at a known offset: only the source's last mirrored batch tells."""
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS))
    for side in ("a", "b"):
        world.sides[side].create(unique_name)
    write(world.sides["b"], unique_name, [f"b {n}" for n in range(10)])
    write(world.sides["a"], unique_name, [f"a {n}" for n in range(20)])
    world.catch_up("a->b", "b->a")
    with stopped(three, "a-1") as disk:
        disk.copy_to(tmp_path / "copy")
    write(world.sides["a"], unique_name, [f"a lost {n}" for n in range(40)])
    world.catch_up("a->b")
    (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
    assert [each.lag_records for each in status.partitions] == [0]
    with stopped(three, "a-1") as disk:
        disk.set_back(tmp_path / "copy")
    write(world.sides["a"], unique_name, [f"a other {n}" for n in range(40)])
    for _ in ("status alone", "behind a mirror"):
        (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
        assert [each.lag_records for each in status.partitions] == [world.sides["a"].end(unique_name)]
        assert [(each.kind, each.halted) for each in status.problems] == [("foreign_writer", True)]
        assert "holds another batch at source offset" in status.problems[0].reason
        assert world.drkit("mirror", "--link", "a->b", "--until-caught-up").returncode == 1


def test_a_purge_of_a_compacted_target_that_has_other_writers_is_told(net: MakeNet, unique_name: str) -> None:
    """What newer records of their keys have replaced isn't missing, whoever wrote these; all else that is gone is."""
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS))
    name, place = LinkId("a", "b"), TopicPartition(unique_name, 0)
    for side in ("a", "b"):
        world.sides[side].create(unique_name, cleanup_policy="compact")
    write(world.sides["b"], unique_name, [f"b {n}" for n in range(10)])
    world.catch_up("b->a")
    write(world.sides["a"], unique_name, [f"a {n}" for n in range(60)])
    world.catch_up("a->b", "b->a")
    write(world.sides["b"], unique_name, [f"later {n}" for n in range(5)])  # the first five keys

    def purge(before: int) -> None:
        """A compacted topic lets nobody purge it."""
        with ClusterAdmin("b", ClusterConfig(bootstrap_servers=world.sides["b"].bootstrap)) as admin:
            admin.set_topic_configs(unique_name, {"cleanup.policy": "compact,delete"})
            admin.delete_records({place: before})
            admin.set_topic_configs(unique_name, {"cleanup.policy": "compact"})

    def judged(start: int) -> bool:
        found = judged_start(world.store, name, place)
        return found is not None and found.target_start == start

    def seen() -> tuple[str, list[int | None]]:
        (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
        return status.state, [each.lag_records for each in status.partitions]

    with world.running():
        world.wait_through("b->a", unique_name)
        purge(15)
        wait_until(lambda: judged(15), 30, "a purge of what others replaced")
        assert world.problems("a->b") == []
        purge(45)
        (problem,) = wait_until(lambda: world.problems("a->b"), 30, "a purge of what nobody replaced")
        assert (problem.kind, problem.unsure_from, problem.unsure_until) == ("target_purged", 15, 45)
        assert seen() == ("degraded", [30])
    purge(50)
    assert seen() == ("stopped", [None]), "how much of it was replaced isn't known before the mirror looks"
    world.catch_up("a->b")
    (problem,) = world.problems("a->b")
    assert (problem.unsure_from, problem.unsure_until) == (15, 50)
    assert seen() == ("stopped", [35])
    for each in world.store.problems(name):  # a mirror that died before it told what it had found
        world.store.clear_problem(name, each)
    assert seen() == ("stopped", [35])


def test_a_target_with_other_writers_that_was_cut_and_grew_again_gets_the_lost_records_anew(
    net: MakeNet, three: Lab, unique_name: str
) -> None:
    """Others write on at once, so no end tells: while no mirror runs, and under one that rests."""
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS))
    b = world.sides["b"]
    for side in ("a", "b"):
        world.sides[side].create(unique_name)
    written = [f"a {n}" for n in range(60)]
    with world.running("a->b"):
        for first in range(0, 60, 10):  # at least a batch each, so that the log can be cut between them
            write(world.sides["a"], unique_name, written[first : first + 10])
            world.wait_through("a->b", unique_name)

    def cut(kept: int, count: int) -> None:
        before = b.end(unique_name)
        with stopped(three, "b-1") as disk:
            disk.cut(unique_name, 0, kept)
        write(b, unique_name, [f"b's own {n}" for n in range(count)])
        assert b.end(unique_name) > before, "its end tells nothing"

    def on_b() -> list[bytes | None]:
        return [value for value in values(b.read(unique_name)) if value and value.startswith(b"a ")]

    def told() -> list[str]:
        return [problem.reason for problem in world.problems("a->b") if problem.kind == "target_lost_data"]

    def all_there() -> bool:
        return sorted(on_b()) == sorted(each.encode() for each in written)

    cut(40, 90)
    (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
    (partition,) = status.partitions
    assert partition.lag_records is None
    assert "has lost its end" in (partition.lag_reason or "")
    with world.running("a->b"):
        wait_until(told, 30, "the loss told")
        wait_until(all_there, 60, "the lost records")
        world.wait_through("a->b", unique_name)
        cut(100, 150)
        wait_until(lambda: len(told()[0].split("; then ")) > 1, 60, "the second loss told")
        wait_until(all_there, 60, "the lost records")
    assert "no mirrored record above source offset 39 is left" in told()[0]


def test_provenance_survives_a_lost_store(net: MakeNet, unique_name: str) -> None:
    links = link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS)
    first = net(links)
    first.sides["a"].create(unique_name)
    write(first.sides["a"], unique_name, [f"v{n}" for n in range(50)])
    first.catch_up("a->b", "b->a")
    write(first.sides["b"], unique_name, ["b's own"])
    write(first.sides["a"], unique_name, ["late"])
    second = net(links)  # another store, that knows nothing
    second.catch_up("a->b", "b->a")
    for alias in ("a", "b"):
        found = values(second.sides[alias].read(unique_name))
        assert sorted(found) == sorted([*(b"v%d" % n for n in range(50)), b"b's own", b"late"])


def test_a_chain_carries_the_first_origin_on(net: MakeNet, three: Lab, unique_name: str) -> None:
    strips = 'transform = "tests.support.links.callables:strips_headers"'
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "c", unique_name, BOTH_WAYS, strips))
    world.sides["a"].create(unique_name, 2)
    write(world.sides["a"], unique_name, ["0", "1", "2"], partition=1)
    world.catch_up("a->b", "b->c")
    here, there = three.cluster_id("a").encode(), three.cluster_id("b").encode()
    name = unique_name.encode()
    for offset, record in enumerate(world.sides["c"].read(unique_name, 1)):
        assert dict(record.headers) == {
            "drkit.source": here,
            "drkit.topic": name,
            "drkit.partition": b"1",
            "drkit.offset": b"%d" % offset,
            "drkit.via": b"%s/%s/1/%d" % (there, name, offset),
        }
    on_b = world.sides["b"].read(unique_name, 1)[2]
    assert dict(on_b.headers) == {
        "h": b"1",
        "drkit.source": here,
        "drkit.topic": name,
        "drkit.partition": b"1",
        "drkit.offset": b"2",
    }


def test_sensitive_topics_travel_alone(net: MakeNet, three: Lab, unique_name: str) -> None:
    """Two links between the same clusters, by other aliases with their own client settings and limit."""
    clusters = "".join(
        f'[clusters.{alias}-safe]\nbootstrap_servers = "{three.bootstrap(alias)}"\n'
        f'[clusters.{alias}-safe.client]\n"client.id" = "drkit-safe"\n'
        for alias in ("a", "b")
    )
    plain = link("a", "b", f"{unique_name}-.*", f'exclude_topics = ["{unique_name}-secret.*"]')
    safe = link("a-safe", "b-safe", f"{unique_name}-secret.*", "max_bytes_per_second = 1000000")
    world = net(plain + safe, clusters)
    for topic in ("open", "secret"):
        world.sides["a"].create(f"{unique_name}-{topic}")
        write(world.sides["a"], f"{unique_name}-{topic}", [topic] * 5)
    assert all(report.caught_up for report in world.catch_up())
    assert set(world.store.topic_states(LinkId("a", "b"))) == {f"{unique_name}-open"}
    assert set(world.store.topic_states(LinkId("a-safe", "b-safe"))) == {f"{unique_name}-secret"}
    assert values(world.sides["b"].read(f"{unique_name}-secret")) == [b"secret"] * 5


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ([("a", "b"), ("b", "a")], "a -> b -> a"),
        ([("a", "b"), ("b", "c"), ("c", "a")], "a -> b -> c -> a"),
        ([("a", "c"), ("b", "c")], "one writer"),
        ([("a", "b"), ("a", "b-again")], "exclude_topics"),
        ([("a", "b"), ("b-again", "a")], "a -> b -> a"),
    ],
)
def test_refused_in_the_configuration(
    three: Lab, tmp_path: Path, unique_name: str, links: list[tuple[str, str]], says: str
) -> None:
    more = f'[clusters.b-again]\nbootstrap_servers = "{three.bootstrap("b")}"\n'
    path = configuration(three, tmp_path, "".join(link(*pair, unique_name) for pair in links), more)
    told = Commands(path).drkit("mirror", "--until-caught-up")
    assert told.returncode == 2, told.stderr
    plain = " ".join(told.stderr.split())
    assert says in plain
    assert str(path) in plain.replace(" ", "")
    assert unique_name in plain


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ([("a", "b"), ("b2", "a")], "would circulate"),
        ([("a", "b"), ("a2", "b2")], "would both write"),
        ([("a", "a2")], "into itself"),
    ],
)
def test_refused_by_cluster_ids(
    net: MakeNet, three: Lab, unique_name: str, links: list[tuple[str, str]], says: str
) -> None:
    """Other addresses of the same clusters: only Kafka's ids tell."""
    aliases = {f"{alias}2": three.bootstrap(alias).replace("127.0.0.1", "localhost") for alias in ("a", "b")}
    clusters = "".join(f'[clusters.{alias}]\nbootstrap_servers = "{at}"\n' for alias, at in aliases.items())
    world = net("".join(link(*pair, unique_name) for pair in links), clusters)
    world.sides["a"].create(unique_name)
    write(world.sides["a"], unique_name, ["x"])
    for each in links:
        with pytest.raises(Refused, match=says):
            world.catch_up("->".join(each))
    told = world.drkit("mirror", "--until-caught-up")
    assert told.returncode == 3, told.stderr
    assert values(world.sides["a"].read(unique_name)) == [b"x"], "nothing was moved"
    assert world.sides["b"].partitions(unique_name) == 0


def test_both_ways_behind_another_alias_needs_one_alias(net: MakeNet, three: Lab, unique_name: str) -> None:
    clusters = f'[clusters.b2]\nbootstrap_servers = "{three.bootstrap("b").replace("127.0.0.1", "localhost")}"\n'
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b2", "a", unique_name, BOTH_WAYS), clusters)
    world.sides["a"].create(unique_name)
    with pytest.raises(Refused, match="another alias"):
        world.catch_up("a->b")


def test_the_way_back_of_a_link_is_no_cycle(net: MakeNet, unique_name: str) -> None:
    world = net(link("a", "b", unique_name))
    world.sides["a"].create(unique_name)
    write(world.sides["a"], unique_name, ["1", "2"])
    assert world.catch_up()[0].caught_up
    world.sides["a"].delete(unique_name)
    reversed_ = LinkControl(LinkId("a", "b"), Direction.REVERSED, 1, now(), reason="a test")
    kept = world.store.link_control(LinkId("a", "b"))
    assert world.store.set_link_control(reversed_, expected_version=None if kept is None else kept.version)
    write(world.sides["b"], unique_name, ["3"])
    assert world.catch_up()[0].caught_up
    assert values(world.sides["a"].read(unique_name)) == [b"1", b"2", b"3"]


def test_both_sides_keep_their_own_settings(net: MakeNet, unique_name: str) -> None:
    """Two links that each followed the other's source would change them for ever."""
    world = net(link("a", "b", unique_name, BOTH_WAYS) + link("b", "a", unique_name, BOTH_WAYS))
    own = {"a": "2000000", "b": "3000000"}
    for alias, size in own.items():
        world.sides[alias].create(unique_name, segment_bytes=size)
        write(world.sides[alias], unique_name, [alias])
    world.catch_up("a->b", "b->a", "a->b")
    for alias, size in own.items():
        assert setting(world, alias, unique_name, "segment.bytes") == size
        assert setting(world, alias, unique_name, "message.timestamp.type") == "CreateTime"
        assert sorted(values(world.sides[alias].read(unique_name)), key=str) == [b"a", b"b"]


def setting(world: Net, alias: str, topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = world.sides[alias].admin.describe_configs([resource])[resource].result(20)
    return described[name].value


@pytest.mark.parametrize(
    "both_ways", sampled("a source cut unrecorded", [False, True], 1), ids=["one way", "both ways"]
)
def test_what_landed_unrecorded_of_a_source_that_was_cut_since_is_told(
    net: MakeNet, three: Lab, unique_name: str, both_ways: bool
) -> None:
    """A mirror dies before its first watermark; its source loses what was mirrored, and grows beyond it."""
    links = link("a", "b", unique_name, BOTH_WAYS) + (link("b", "a", unique_name, BOTH_WAYS) if both_ways else "")
    world, link_id = net(links), LinkId("a", "b")
    a, b = world.sides["a"], world.sides["b"]
    a.create(unique_name)
    if both_ways:
        b.create(unique_name)
    world.catch_up("a->b")
    before = world.store.watermarks(link_id)[TopicPartition(unique_name, 0)]
    newest = newest_own(world.store, link_id)
    for first in range(0, 200, 50):
        write(a, unique_name, [f"first {n}" for n in range(first, first + 50)])
    world.catch_up("a->b")
    world.store.put_watermarks(link_id, [replace(before, leader_epoch=None, observed_at=now())])
    put_newest_own(world.store, link_id, newest)
    with stopped(three, "a-1") as disk:
        assert disk.cut(unique_name, 0, 150) == 150
    write(a, unique_name, [f"other {n}" for n in range(150, 260)])

    (report,) = world.catch_up("a->b")

    (halted,) = report.halted
    assert halted.kind == ("source_truncated" if both_ways else "foreign_writer")
    assert "its value" in halted.reason
    assert [r.value for r in b.read(unique_name)] == [b"first %d" % n for n in range(200)]
    (report,) = world.catch_up("a->b")
    assert [each.kind for each in report.halted] == [halted.kind], "trying again doesn't accept it"
    if both_ways and halted.differs_from:
        (status,) = link_statuses(world.config, world.store, [world.link("a->b")])
        (partition,) = (each for each in status.partitions if each.topic == unique_name)
        assert partition.lag_records is None, "it may have been set back further, and no records tell"
        assert "others write to b, too" in (partition.lag_reason or "")


def test_what_landed_unrecorded_of_an_aborted_transaction_is_continued_behind(net: MakeNet, unique_name: str) -> None:
    """A mirror that also reads what isn't committed dies before its next watermark."""
    lines = (BOTH_WAYS, 'isolation = "read_uncommitted"')
    world = net(link("a", "b", unique_name, *lines) + link("b", "a", unique_name, *lines))
    a, b, link_id = world.sides["a"], world.sides["b"], LinkId("a", "b")
    for side in (a, b):
        side.create(unique_name)
    write(a, unique_name, ["first"])
    world.catch_up("a->b")
    before, newest = list(world.store.watermarks(link_id).values()), newest_own(world.store, link_id)
    producer = a.producer(transactional_id=unique_name)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(unique_name, value=b"taken back", partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    world.catch_up("a->b")
    assert values(b.read(unique_name, committed=False)) == [b"first", b"taken back"]
    world.store.put_watermarks(link_id, before)
    put_newest_own(world.store, link_id, newest)

    (report,) = world.catch_up("a->b")

    assert report.caught_up
    assert report.halted == ()
    assert values(b.read(unique_name, committed=False)) == [b"first", b"taken back"]

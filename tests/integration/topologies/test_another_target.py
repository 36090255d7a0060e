"""Another cluster answers at the target's address, or the target has lost all its topics: nothing of what was mirrored
is there. That is said by name, no failover goes there unless an operator says so, and one command begins anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drkit.audit.compare.scope import observe_scope
from drkit.config import load_config
from drkit.kafka.admin.clusters import Clusters
from drkit.lab import Lab
from drkit.model.audit.audit_result import AuditRequest
from drkit.model.errors import NotShown, Refused
from drkit.model.topology import TopicPartition
from tests.support.clusters.topologies import Net, write
from tests.support.collection.sampling import some_of
from tests.support.recovery.cell_faults import format_anew

pytestmark = [pytest.mark.lab, some_of("other clusters at an address", 2)]


class World:
    """A link a->b that mirrored 30 records and a group's position of `topic`."""

    def __init__(self, net: Net, lab: Lab, name: str) -> None:
        self.net, self.lab, self.topic, self.group = net, lab, f"{name}.t", f"{name}.g"
        net.sides["a"].create(self.topic)
        write(net.sides["a"], self.topic, [f"v{n}" for n in range(30)])
        with Clusters(net.config.clusters) as clusters:
            committed = {self.group: {TopicPartition(self.topic, 0): (20, "")}}
            assert not clusters.groups("a").commit_many(committed)
            self.ids = {alias: clusters.admin(alias).cluster_id() for alias in ("a", "b", "c")}
        self.why = (
            f"b is another cluster than the one that was mirrored to: its id is {self.ids['c']}, was {self.ids['b']}"
        )
        net.catch_up()

    def point(self, alias: str, address: str) -> None:
        """Another address for a cluster, as a moved name or a mistake in the configuration gives it."""
        text = self.net.path.read_text()
        before = self.lab.bootstrap(alias)
        assert before in text
        self.net.path.write_text(text.replace(before, address, 1))

    def told(self, *words: str, code: int) -> dict[str, Any]:
        done = self.net.drkit(*words, "--output", "json")
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def status(self) -> dict[str, Any]:
        (link,) = self.told("status", code=0)["links"]
        assert isinstance(link, dict)
        return link

    def topics_of(self, alias: str) -> set[str]:
        with Clusters(self.net.config.clusters) as clusters:
            return {name for name, info in clusters.admin(alias).topics().items() if not info.internal}

    def obstacles(self, *words: str, code: int = 3) -> str:
        document = self.told("failover", "--to", "b", "--unplanned", "--dry-run", *words, code=code)
        return json.dumps(document)


@pytest.fixture
def world(net: Callable[..., Net], three: Lab, unique_name: str) -> World:
    links = f'[[links]]\nsource = "a"\ntarget = "b"\ntopics = ["{unique_name}.*"]\ngroups = ["{unique_name}.*"]\n'
    return World(net(links), three, unique_name)


def test_an_empty_cluster_is_not_taken_for_the_target_and_one_command_begins_anew(world: World) -> None:
    world.point("b", world.lab.bootstrap("c"))
    before = world.topics_of("c")

    done = world.net.drkit("mirror", "--until-caught-up")
    assert done.returncode == 3, done.stderr
    assert world.why in " ".join(done.stderr.split())

    link = world.status()
    replaced = next(each for each in link["problems"] if each["kind"] == "target_replaced")
    assert (replaced["reason"], replaced["halted"]) == (world.why, True)
    assert link["recovery_point"]["records"] == 30
    assert [each["translation"] for each in link["groups"]] == ["unavailable"]
    human = " ".join(world.net.drkit("status").stdout.split())
    assert world.why in human
    (answer,) = world.told("translate", "--group", world.group, code=0)["positions"]
    assert (answer["translation"], answer["reason"]) == ("unavailable", world.why)
    assert world.why in json.dumps(world.told("doctor", code=3))
    with pytest.raises(NotShown) as unread:
        observe_scope(AuditRequest(world.net.link("a->b"), out=""), world.net.store, load_config(world.net.path))
    assert unread.value.what == world.why

    assert world.why in world.obstacles()
    assert world.why in world.obstacles("--accept-loss", "unknown"), "no flag takes another cluster for the target"
    refused = world.told("failover", "--to", "b", "--unplanned", "--accept-unfenced", "--yes", code=3)
    assert world.why in json.dumps(refused)
    assert world.topics_of("c") == before, "nothing was written to the other cluster"

    accept = ("link", "resume", "a->b", "--accept-recreated", "--cluster-id")
    world.told(*accept, world.ids["b"], code=3)
    assert f"drkit link resume 'a->b' --accept-recreated --cluster-id {world.ids['c']}" in replaced["remedy"]
    accepted = world.told(*accept, world.ids["c"], code=0)["accepted_topics"]
    assert [(each["topic"], each["offsets_that_stay"]) for each in accepted] == [(world.topic, 0)]
    done = world.net.drkit("mirror", "--until-caught-up")
    assert done.returncode == 0, done.stderr
    theirs, ours = (world.net.sides[alias].read(world.topic) for alias in ("c", "a"))
    assert [(each.offset, each.value) for each in theirs] == [(each.offset, each.value) for each in ours]
    link = world.status()
    assert link["recovery_point"]["records"] == 0
    assert [(each["target_offset"], each["translation"]) for each in link["groups"]] == [(20, "exact")]
    assert not [each for each in link["problems"] if each["halted"]]
    moved = world.told("failover", "--to", "b", "--unplanned", "--accept-unfenced", "--yes", code=0)
    assert [each["target_offset"] for each in moved["groups"]] == [20]


def test_a_cluster_that_has_a_topic_of_the_same_name_is_not_taken_for_the_target(world: World) -> None:
    world.net.sides["c"].create(world.topic)
    write(world.net.sides["c"], world.topic, [f"other{n}" for n in range(40)])
    world.point("b", world.lab.bootstrap("c"))
    link = world.status()
    assert world.why in [each["reason"] for each in link["problems"]]
    assert link["recovery_point"]["records"] == 30
    assert world.why in world.obstacles()
    accept = ("link", "resume", "a->b", "--accept-recreated", "--cluster-id", world.ids["c"])
    (accepted,) = world.told(*accept, code=0)["accepted_topics"]
    assert accepted["offsets_that_stay"] == 40
    assert world.net.drkit("mirror", "--until-caught-up").returncode == 0
    assert [each.value for each in world.net.sides["c"].read(world.topic)][40:] == [b"v%d" % n for n in range(30)]


@pytest.fixture
def another_b(three: Lab, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Brings b back on a new disk, as another cluster; the old disk is there again for the next test."""
    data, kept = three.dir / "nodes" / "b-1" / "data", tmp_path / "disk-of-b"

    def on_a_new_disk() -> None:
        three.kill("b")
        shutil.copytree(data, kept)
        format_anew(data)
        three.restart("b-1")

    yield on_a_new_disk
    if kept.exists():
        three.kill("b")
        shutil.rmtree(data)
        shutil.copytree(kept, data)
        three.restart("b-1")


def test_a_running_mirror_ends_when_its_target_comes_back_as_another_cluster(
    world: World, another_b: Callable[[], None]
) -> None:
    with world.net.running() as runs:
        (running,) = runs.values()
        write(world.net.sides["a"], world.topic, ["later"])
        world.net.wait_through("a->b", world.topic)
        another_b()
        with pytest.raises(Refused, match="b is another cluster than the one that was mirrored to") as refused:
            running.result()
    assert refused.value.what.endswith(f"was {world.ids['b']}")
    assert world.topic not in world.topics_of("b")


def test_a_failback_from_another_cluster_than_was_failed_over_to_is_refused(world: World) -> None:
    world.told("failover", "--to", "b", "--unplanned", "--accept-unfenced", "--yes", code=0)
    world.point("b", world.lab.bootstrap("c"))
    document = json.dumps(world.told("failback", "--dry-run", code=3))
    assert world.why in document
    assert "drkit fence --lift --cluster a --yes --link 'a->b'" in document
    assert world.why in json.dumps(world.status()["problems"])
    assert world.why in json.dumps(world.told("doctor", code=3))
    opened = world.told("fence", "--lift", "--cluster", "a", "--yes", "--link", "a->b", code=0)
    assert opened
    world.told("link", "resume", "a->b", "--accept-recreated", "--cluster-id", world.ids["c"], code=0)
    assert world.net.drkit("mirror", "--until-caught-up").returncode == 0
    assert len(world.net.sides["c"].read(world.topic)) == 30


def test_a_target_without_any_of_its_topics_is_no_place_to_fail_over_to(world: World) -> None:
    world.net.sides["b"].delete(world.topic)
    world.point("a", "127.0.0.1:1")
    what = f"b has nothing of what {world.group} read: {world.topic} is not there as mirrored"
    assert what in world.obstacles()
    assert what in json.dumps(world.told("doctor", code=3))
    refused = world.told("failover", "--to", "b", "--unplanned", "--accept-unfenced", "--yes", code=3)
    assert what in json.dumps(refused)
    assert what not in world.obstacles("--accept-loss", "unknown", code=0), "an operator says so"


def test_with_the_source_dead_a_replaced_target_is_accepted_and_serves_what_it_is_told_to(world: World) -> None:
    world.point("b", world.lab.bootstrap("c"))
    world.point("a", "127.0.0.1:1")
    world.told("link", "resume", "a->b", "--accept-recreated", "--cluster-id", world.ids["c"], code=0)
    assert f"b has nothing of what {world.group} read" in world.obstacles()
    assert world.why not in world.obstacles("--accept-loss", "unknown", code=0)

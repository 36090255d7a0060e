"""Active-active by prefix: one region was failed away from and comes back; the other direction's link loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.failover.context.interfaces import AuditVerdict
from drkit.model.link_state import Direction
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store
from tests.integration.topologies.test_topologies import link, values
from tests.support.clusters.topologies import Net, write
from tests.support.links.estates import OwnLink, commit_once
from tests.support.recovery.failback_ports import reading_ports, salvaged
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

BACK = LinkId("b", "a")


@dataclass
class Deviating:
    """An audit that isn't clean."""

    def audit(self, link: Link, say: Callable[[str], None], /) -> AuditVerdict:
        say(f"reading {link.id}")
        return AuditVerdict("deviated", "a test")


def recorded(store: Store, name: LinkId) -> tuple[object, ...]:
    """What the store has of a link."""
    marks = store.watermarks(name)
    rows = [store.mappings(name, tp, mark.epoch) for tp, mark in marks.items()]
    positions = [(each.group, each.topic, each.offset) for each in store.group_positions(name)]
    return store.topic_states(name), marks, rows, positions, store.link_control(name)


def commit(net: Net, alias: str, group: str, topic: str, offset: int) -> None:
    settings = {"bootstrap.servers": net.sides[alias].bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        wait_until(lambda: commit_once(consumer, [ClientPartition(topic, 0, offset)]), 30, "a coordinator")
    finally:
        consumer.close()


def document(net: Net, *words: str) -> tuple[int, dict[str, Any]]:
    ended = net.drkit(*words, "--output", "json")
    return ended.returncode, json.loads(ended.stdout)


def in_process(net: Net, *words: str) -> tuple[int, dict[str, Any]]:
    """Like `document`, with what a test has replaced."""
    told = [*words, "--output", "json", "--config", str(net.path)]
    done = CliRunner().invoke(application((words[0],)), told)
    return done.exit_code, json.loads(done.stdout)


def configure(net: Net, links: str) -> None:
    text = net.path.read_text()
    net.path.write_text(text[: text.index("[[links]]")] + links)


@dataclass
class Regions:
    """Two regions, a and b, with a link each way; a was failed away from, more was written to b, and a is back."""

    name: str
    one: str
    both: str
    net: Net
    failover: str

    def side_by_side(self, net: Net) -> None:
        """Assert that each side has the other's records, each once, in order, and that all positions are exact."""
        for alias, other in (("a", "b"), ("b", "a")):
            ours = net.sides[alias].read(self.name)
            there = f"{alias}.{self.name}"
            assert values(net.sides[other].read(there)) == values(ours)
            net.assert_translates(f"{alias}->{other}", self.name, ours, there)


@pytest.fixture
def regions(net: Callable[..., Net], unique_name: str) -> Regions:
    prefix, pattern = 'policy = "prefix"', f"(?:[a-c][.])*{unique_name}.*"
    one = link("a", "b", pattern, prefix)
    both = one + link("b", "a", pattern, prefix)
    world = net(both)
    for alias in ("a", "b"):
        world.sides[alias].create(unique_name)
        write(world.sides[alias], unique_name, [f"{alias} {n}" for n in range(20)])
        commit(world, alias, f"{unique_name}-of-{alias}", unique_name, 7)
    assert all(report.caught_up for report in world.catch_up())
    write(world.sides["a"], unique_name, ["only a"])
    words = ("--to", "b", "--unplanned", "--accept-unfenced", "--accept-loss", "unknown", "--yes")
    code, moved = document(world, "failover", *words)
    assert (code, moved["state"]) == (0, "closed"), moved
    write(world.sides["b"], f"a.{unique_name}", ["a on b"])
    write(world.sides["b"], unique_name, ["b 20"])
    assert world.catch_up("b->a")[0].caught_up
    return Regions(unique_name, one, both, world, moved["run"])


def test_a_link_of_its_own_is_not_written_over_by_a_way_back(regions: Regions) -> None:
    """Also where it is out of the configuration: that had been the remedy, and it could never continue."""
    store = regions.net.store
    kept, sealed = recorded(store, BACK), store.link_control(BACK.reversed())
    for configured in (regions.both, regions.one):
        configure(regions.net, configured)
        for verb in ("failback", "reprotect"):
            for more in (("--dry-run",), ("--yes",)):
                code, refused = document(regions.net, verb, *more)
                assert code == 3, refused
                assert refused["error"]["what"].startswith("b->a is a link of its own (active-active)"), refused
    assert "drkit store recover --from b" in document(regions.net, "failback", "--dry-run")[1]["error"]["remedy"]
    assert (recorded(store, BACK), store.link_control(BACK.reversed())) == (kept, sealed)


def test_a_region_comes_back_as_the_refusal_says(
    regions: Regions, net: Callable[..., Net], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = net(regions.one)  # with an empty store
    assert alone.drkit("store", "recover", "--from", "b").returncode == 0
    code, refused = document(alone, "failback", "--dry-run")
    assert (code, f"drkit abandon {regions.failover}" in json.dumps(refused)) == (3, True), refused
    assert alone.drkit("abandon", regions.failover).returncode == 0
    ports = reading_ports(OwnLink(regions.name, alone.path, alone.config, alone.store), tmp_path / "salvage")
    for verb, used in (("failback", replace(ports, auditor=Deviating())), ("resume", ports)):
        monkeypatch.setattr(f"drkit.cli.verbs.failover.{verb}.failback_ports", lambda *_, used=used, **__: used)
    cluster_id = AdminClient({"bootstrap.servers": regions.net.sides["a"].bootstrap}).list_topics(timeout=30).cluster_id
    code, stopped = in_process(alone, "failback", "--yes", "--accept-unfenced", "--cluster-id", cluster_id)
    assert code != 0, stopped
    (run,) = [each.run for each in alone.store.runs() if each.kind == "failback"]

    configure(alone, regions.both)  # put back too early
    code, refused = in_process(alone, "resume", run, "--yes")
    assert code == 3, refused
    end = f"Take b->a out of the configuration until the run is over; then drkit resume {run}"
    assert (refused["error"]["what"], refused["error"]["remedy"]) == (
        "b->a is a link of its own (active-active)",
        end,
    )
    configure(alone, regions.one)
    code, done = in_process(alone, "resume", run, "--yes")
    assert (code, done["state"]) == (0, "closed"), done
    assert "only a" in salvaged(tmp_path)

    again = net(regions.both)  # with another empty store
    for cluster, name in (("b", "a->b"), ("a", "b->a")):
        assert again.drkit("store", "recover", "--from", cluster, "--link", name).returncode == 0
    for alias in ("a", "b"):
        write(again.sides[alias], regions.name, [f"{alias} at last"])
    assert all(report.caught_up for report in again.catch_up())
    regions.side_by_side(again)
    assert values(again.sides["a"].read(regions.name))[-2:] == [b"a on b", b"a at last"]
    controls = [again.store.link_control(each) for each in (BACK, BACK.reversed())]
    assert {Direction.ACTIVE if each is None else each.direction for each in controls} == {Direction.ACTIVE}

"""A link that alters records was failed over: by what the refused failback says, its source serves again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clusters.topologies import Net, write
from tests.support.collection.sampling import some_of

pytestmark = [pytest.mark.lab, some_of("back over altered", 2)]

MakeNet = Callable[..., Net]
KEEPS = 'filter = "tests.support.links.callables:keeps_most"'


def link(source: str, target: str, topic: str, *lines: str) -> str:
    more = "\n".join(lines)
    return f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{topic}"]\ngroups = ["{topic}"]\n{more}\n'


def failed_over(world: Net, topic: str) -> dict[str, Any]:
    """20 records of a, mirrored and failed over to b; the run's document."""
    world.sides["a"].create(topic)
    write(world.sides["a"], topic, [f"a {n}" for n in range(20)])
    world.catch_up("a->b")
    told = world.drkit(
        "failover", "--to", "b", "--link", "a->b", "--planned", "--accept-unfenced", "--yes", "--output", "json"
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def go_back(world: Net) -> None:
    """Does what the refused failback says."""
    told = world.drkit("failback", "--to", "a", "--yes", "--accept-unfenced", "--link", "a->b")
    assert told.returncode == 3
    (command,) = re.findall(r"`drkit (fence [^`]*)`", " ".join(told.stderr.split()))
    lifted = world.drkit(*shlex.split(command))
    assert lifted.returncode == 0, lifted.stderr


def lines(world: Net, alias: str, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in world.sides[alias].read(topic)]


def carried(world: Net, topic: str) -> list[str]:
    """What the link makes of a's records."""
    found = world.sides["a"].read(topic)
    return [(record.value or b"").decode() for record in found if record.offset % 1_000 != 7]


def test_where_nobody_wrote_to_the_target_the_mirror_goes_on_where_it_was(net: MakeNet, unique_name: str) -> None:
    world = net(link("a", "b", unique_name, KEEPS))
    plan = failed_over(world, unique_name)
    assert "no failback goes back along a->b" in json.dumps(plan["warnings"])
    write(world.sides["a"], unique_name, [f"later {n}" for n in range(10)])
    go_back(world)
    assert world.catch_up()[0].caught_up
    assert lines(world, "b", unique_name) == carried(world, unique_name)
    assert world.problems("a->b") == []
    again = world.drkit("failover", "--to", "b", "--planned", "--dry-run", "--accept-unfenced")
    assert again.returncode == 0, again.stderr


def test_what_clients_wrote_to_the_target_stops_the_mirror_until_the_topic_is_accepted(
    net: MakeNet, unique_name: str
) -> None:
    """It is never written behind, or over: an operator has to say that it may stay."""
    world = net(link("a", "b", unique_name, KEEPS))
    failed_over(world, unique_name)
    write(world.sides["b"], unique_name, ["of b's client"])
    write(world.sides["a"], unique_name, ["of b's client"])  # merged by hand
    before = lines(world, "b", unique_name)
    go_back(world)
    assert world.catch_up()[0].halted != ()
    (problem,) = world.problems("a->b")
    assert problem.kind == "foreign_writer"
    assert lines(world, "b", unique_name) == before
    told = world.drkit("link", "resume", "a->b", "--topic", unique_name, "--accept-recreated")
    assert told.returncode == 0, told.stderr
    assert world.catch_up()[0].caught_up
    assert lines(world, "b", unique_name) == before + carried(world, unique_name)


def test_active_active_under_one_name_has_each_record_once_on_both_sides(net: MakeNet, unique_name: str) -> None:
    both = "provenance = true"
    world = net(link("a", "b", unique_name, both) + link("b", "a", unique_name, both))
    world.sides["b"].create(unique_name)
    failed_over(world, unique_name)
    for alias in ("a", "b"):
        write(world.sides[alias], unique_name, [f"later on {alias} {n}" for n in range(10)])
    world.catch_up("b->a")
    go_back(world)
    for name in ("a->b", "b->a"):
        assert world.catch_up(name)[0].caught_up
    found = {alias: lines(world, alias, unique_name) for alias in ("a", "b")}
    assert sorted(found["a"]) == sorted(found["b"])
    assert len(set(found["a"])) == len(found["a"]) == 40
    assert world.problems("a->b") == world.problems("b->a") == []

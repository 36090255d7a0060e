"""Another cluster, and an empty one, answers at the source's address: nothing of the link is there, so nothing seems to
be missing on the target. Nobody may call that mirrored, and nothing is done to that cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from drkit.kafka.admin.clusters import Clusters
from drkit.lab import Lab
from drkit.model.topology import TopicPartition
from tests.support.clusters.topologies import Net, write

pytestmark = pytest.mark.lab


@pytest.fixture
def misled(net: Callable[..., Net], three: Lab, unique_name: str) -> Net:
    """A link a->b that mirrored 30 records and a group; since then 5 more were written, and c answers for a."""
    topic = f"{unique_name}.t"
    world = net(f'[[links]]\nsource = "a"\ntarget = "b"\ntopics = ["{unique_name}.*"]\ngroups = ["{unique_name}.*"]\n')
    world.sides["a"].create(topic)
    write(world.sides["a"], topic, [f"v{n}" for n in range(30)])
    with Clusters(world.config.clusters) as clusters:
        assert not clusters.groups("a").commit_many({f"{unique_name}.g": {TopicPartition(topic, 0): (20, "")}})
    world.catch_up()
    write(world.sides["a"], topic, [f"later{n}" for n in range(5)])
    text = world.path.read_text()
    world.path.write_text(text.replace(three.bootstrap("a"), three.bootstrap("c"), 1))
    return world


def told(world: Net, *words: str, code: int) -> dict[str, Any]:
    done = world.drkit(*words, "--output", "json")
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_nothing_is_called_mirrored_and_a_failover_keeps_its_hands_off_it(misled: Net, unique_name: str) -> None:
    with Clusters(misled.config.clusters) as clusters:
        ids = {alias: clusters.admin(alias).cluster_id() for alias in ("a", "c")}
    why = f"a is another cluster now: its id is {ids['c']}, a->b mirrors from {ids['a']}"

    done = misled.drkit("mirror", "--until-caught-up")
    assert done.returncode == 3, done.stderr
    assert why in " ".join(done.stderr.split())

    (link,) = told(misled, "status", code=0)["links"]
    assert (link["state"], link["source_reachable"]) == ("stopped", False)
    assert why in link["reason"]
    assert link["recovery_point"]["lower_bound"] is True

    error = told(misled, "failover", "--to", "b", "--planned", "--yes", code=3)
    assert why in json.dumps(error), error
    refused = told(misled, "failover", "--to", "b", "--unplanned", "--yes", code=3)
    assert why in json.dumps(refused), refused

    moved = told(misled, "failover", "--to", "b", "--unplanned", "--accept-unfenced", "--yes", code=0)
    assert moved["state"] == "closed"
    evidence = moved["evidence"]
    assert (evidence["fenced"], evidence["rpo_basis"]) == (False, "observed"), "a lower bound: 5 are on the real source"
    (fenced,) = told(misled, "fence", code=3)["links"]
    assert why in fenced["reason"], fenced
    with Clusters(misled.config.clusters) as clusters:
        (place,) = clusters.groups("b").committed([f"{unique_name}.g"])
    assert place.offset == 20

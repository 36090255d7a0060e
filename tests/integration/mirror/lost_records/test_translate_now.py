"""`drkit translate`, `status` and a plan call exact only what holds on both clusters now, while no mirror looks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.topology import TopicPartition
from tests.support.links.mirroring import Mirrored, Side

pytestmark = pytest.mark.lab


def write(side: Side, topic: str, count: int, what: str) -> None:
    producer = side.producer()
    for number in range(count):
        producer.produce(topic, value=b"%s-%d" % (what.encode(), number), partition=0)
    assert producer.flush(30) == 0


def said(mirrored: Mirrored, *arguments: str) -> dict[str, Any]:
    done = mirrored.drkit(*arguments, "--output", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def translated(mirrored: Mirrored, topic: str, offset: int) -> tuple[Any, ...]:
    (position,) = said(mirrored, "translate", "--topic", f"{topic}:0", "--offset", str(offset))["positions"]
    return position["translation"], position["target_offset"], position["reason"]


def a_group_of_a_mirrored_topic(mirrored: Mirrored) -> str:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 100, "first")
    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as groups:
        assert groups.commit_many({mirrored.name("billing"): {TopicPartition(topic, 0): (60, "")}}) == {}
    assert mirrored.catch_up().caught_up
    assert translated(mirrored, topic, 60) == ("exact", 60, None)
    return topic


def made_anew(side: Side, topic: str) -> None:
    """Another topic of the name, with as many records, so that no offset tells."""
    side.delete(topic)
    side.create(topic)
    write(side, topic, 120, "another")


def test_nothing_is_exact_on_a_target_topic_that_was_made_anew(mirrored: Mirrored) -> None:
    topic = a_group_of_a_mirrored_topic(mirrored)
    made_anew(mirrored.target, topic)
    certainty, offset, reason = translated(mirrored, topic, 60)
    assert (certainty, offset) == ("unavailable", None)
    assert f"{topic} on dr was deleted and recreated" in reason
    (position,) = said(mirrored, "translate", "--group", mirrored.name("billing"))["positions"]
    assert position["translation"] == "unavailable"
    (link,) = said(mirrored, "status")["links"]
    assert [each["translation"] for each in link["groups"]] == ["unavailable"]
    assert [(each["lag_records"], each["mirrored_through"]) for each in link["partitions"]] == [(100, None)]
    assert link["recovery_point"]["records"] == 100
    plan = said(mirrored, "failover", "--to", "dr", "--unplanned", "--dry-run")
    assert [(each["translation"], each["target_offset"]) for each in plan["groups"]] == [("unavailable", None)]
    assert "recreated" in plan["groups"][0]["reason"]


def test_nothing_is_exact_on_a_topic_that_dr_made_anew_after_a_failover(mirrored: Mirrored) -> None:
    """No fault, so no status tells; but the rows are of the topic before."""
    topic = a_group_of_a_mirrored_topic(mirrored)
    done = mirrored.drkit("failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced")
    assert done.returncode in {0, 6}, done.stderr
    assert translated(mirrored, topic, 60) == ("exact", 60, None)
    made_anew(mirrored.target, topic)
    assert translated(mirrored, topic, 60)[:2] == ("unavailable", None)


def test_nothing_is_exact_on_a_source_topic_that_was_made_anew(mirrored: Mirrored) -> None:
    topic = a_group_of_a_mirrored_topic(mirrored)
    made_anew(mirrored.source, topic)
    certainty, offset, reason = translated(mirrored, topic, 60)
    assert (certainty, offset) == ("unavailable", None)
    assert f"{topic} on primary is a new topic" in reason


def test_what_a_silent_target_holds_is_not_called_exact(mirrored: Mirrored) -> None:
    topic = a_group_of_a_mirrored_topic(mirrored)
    mirrored.lab.pause("dr")
    try:
        certainty, offset, reason = translated(mirrored, topic, 60)
        (link,) = said(mirrored, "status")["links"]
    finally:
        mirrored.lab.resume("dr")
    assert (certainty, offset) == ("conservative", 60)
    assert "exact when the mirror last saw the target" in reason
    assert [each["translation"] for each in link["groups"]] == ["conservative"]
    mirrored.lab.pause("primary")
    try:
        assert translated(mirrored, topic, 60) == ("exact", 60, None), "a dead source is what translating is for"
    finally:
        mirrored.lab.resume("primary")

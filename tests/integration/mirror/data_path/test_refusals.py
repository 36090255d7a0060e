"""What a cluster refuses (a size, a stamp, a right): the partition waits with the remedy, and continues by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drkit.config import ClusterConfig
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from drkit.mirror.engine.interface import NOT_MOVING, RECORD_REJECTED, SOURCE_UNREADABLE
from drkit.model.link_state import SOURCE_TOPIC_DENIED
from drkit.model.offsets import Certainty
from drkit.model.topics.acls import Acl
from drkit.model.topology import TopicPartition
from drkit.store.transactions import suspected_groups
from tests.support.collection.sampling import sampled
from tests.support.links.mirroring import Mirrored, Side, as_restricted
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

_IN_2013 = 1_370_000_000_000


def _set(side: Side, topic: str, **settings: str) -> None:
    with ClusterAdmin("side", ClusterConfig(bootstrap_servers=side.bootstrap)) as admin:
        admin.set_topic_configs(topic, {name.replace("_", "."): value for name, value in settings.items()})


def _write(side: Side, topic: str, count: int, *, size: int = 10, stamp: int = 0) -> None:
    producer = side.producer(message_max_bytes=5_000_000, batch_size=5_000_000, linger_ms=300)
    for _ in range(count):
        producer.produce(topic, value=os.urandom(size), partition=0, timestamp=stamp)
    assert producer.flush(30) == 0


def test_a_batch_beyond_the_targets_segment_is_sent_in_parts_and_a_record_beyond_it_waits(mirrored: Mirrored) -> None:
    """RECORD_LIST_TOO_LARGE: the limit is segment.bytes, which max.message.bytes doesn't tell."""
    mirrored.configure('topic_settings = { exclude = ["segment.bytes"] }')
    topic, other = mirrored.name("large"), mirrored.name("other")
    for name in (topic, other):
        mirrored.source.create(name, max_message_bytes="4000000")
        _write(mirrored.source, name, 3)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        _set(mirrored.target, topic, segment_bytes="1048576")
        _write(mirrored.source, topic, 12, size=200_000)
        mirrored.wait_through(topic)
        assert not mirrored.problems()
        _write(mirrored.source, topic, 1, size=1_500_000)
        (problem,) = wait_until(lambda: mirrored.problems(RECORD_REJECTED), what="the refusal")
        assert problem.halted
        assert "RECORD_LIST_TOO_LARGE" in problem.reason
        assert f"Raise segment.bytes of {topic}" in problem.remedy
        _write(mirrored.source, other, 5)
        mirrored.wait_through(other)
        _set(mirrored.target, topic, segment_bytes="10485760")
        mirrored.wait_through(topic)
        wait_until(lambda: not mirrored.problems(), what="the problem to clear by itself")
    assert running.error is None
    assert mirrored.target.read(topic, committed=False) == mirrored.source.read(topic)


@pytest.fixture
def restricted(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link whose mirror is the user `mirror`, with all rights on the link's topics but to configure the target's."""
    world = as_restricted(secure_lab, Mirrored(secure_lab, tmp_path, unique_name))
    for alias in ("primary", "dr"):
        operations = {"all"} if alias == "primary" else _ON_TARGET
        rules = [_rule("topic", unique_name, operation, "prefixed") for operation in sorted(operations)]
        rules.append(_rule("topic", "__drkit_state.", "all", "prefixed"))
        rules.append(_rule("group", unique_name if alias == "primary" else "drkit.mirror.", "all", "prefixed"))
        _put(world, alias, *rules)
    yield world
    world.close()


_ON_TARGET = {"create", "write", "read", "describe", "describe_configs", "alter", "delete"}


def _rule(
    resource: str, name: str, operation: str, pattern: str = "literal", permission: str = "allow", user: str = "mirror"
) -> Acl:
    return Acl(resource, name, pattern, f"User:{user}", "*", operation, permission)


def _put(world: Mirrored, alias: str, *rules: Acl, remove: bool = False) -> None:
    with ClusterAdmin(alias, ClusterConfig(bootstrap_servers=world.lab.bootstrap(alias))) as admin:
        assert (admin.delete_acls(rules) if remove else admin.create_acls(rules)) == {}
        wait_until(lambda: (set(rules) & admin.acls() == set()) is remove, what="the rules")


def test_a_stamp_that_the_target_refuses_waits_until_it_is_taken(restricted: Mirrored) -> None:
    """INVALID_TIMESTAMP: drkit opens the limits of its standbys, unless it has no right to."""
    topic = restricted.name("old")
    restricted.source.create(topic)
    restricted.target.create(topic, message_timestamp_before_max_ms="3600000")
    _write(restricted.source, topic, 5)
    with restricted.running() as running:
        restricted.wait_through(topic)
        _write(restricted.source, topic, 5, stamp=_IN_2013)
        (problem,) = wait_until(lambda: restricted.problems(RECORD_REJECTED), what="the refusal")
        assert problem.halted
        assert "INVALID_TIMESTAMP" in problem.reason
        assert "message.timestamp.before.max.ms" in problem.remedy
        (refused,) = restricted.problems("target_config_refused")
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.reason
        _put(restricted, "dr", _rule("topic", topic, "alter_configs"))
        restricted.wait_through(topic)
        wait_until(lambda: not restricted.problems(), what="the problems to clear by themselves")
    assert running.error is None
    ours = restricted.assert_same(topic)
    assert [record.timestamp for record in ours[5:]] == [_IN_2013] * 5


@pytest.mark.parametrize(
    ("alias", "operation", "kind", "right"),
    sampled(
        "a right that is taken",
        [
            pytest.param("dr", "write", RECORD_REJECTED, "WRITE"),
            pytest.param("dr", "describe", "target_topic_denied", "DESCRIBE"),
            pytest.param("primary", "read", SOURCE_UNREADABLE, "READ"),
            pytest.param("primary", "describe", SOURCE_TOPIC_DENIED, "DESCRIBE"),
            pytest.param("primary", "describe_configs", SOURCE_TOPIC_DENIED, "DESCRIBE_CONFIGS"),
            pytest.param("dr", "describe_configs", "target_topic_denied", "DESCRIBE_CONFIGS"),
        ],
        2,
    ),
)
def test_a_right_that_is_taken_on_one_topic_stops_that_topic_only_until_it_is_given_back(
    restricted: Mirrored, alias: str, operation: str, kind: str, right: str
) -> None:
    """Under a running mirror, and for one that begins; never is it taken for a topic that was deleted."""
    topic, other = restricted.name("denied"), restricted.name("other")
    _put(restricted, "dr", _rule("topic", restricted.prefix, "alter_configs", "prefixed"))
    for name in (topic, other):
        restricted.source.create(name)
        _write(restricted.source, name, 5)
    denial = _rule("topic", topic, operation, permission="deny")
    with restricted.running() as running:
        restricted.wait_through(topic)
        restricted.wait_through(other)
        _put(restricted, alias, denial)
        for name in (topic, other):
            _write(restricted.source, name, 5)
        (problem,) = wait_until(lambda: restricted.problems(kind), what="the problem")
        assert problem.halted
        assert right in problem.remedy
        _write(restricted.source, other, 5)
        restricted.wait_through(other)
        # its end isn't seen, or nobody can read whether it still holds what was mirrored
        hidden = (alias, operation) in {("primary", "describe"), ("primary", "read")}

        def waiting() -> Any:
            """The link, once records of the topic wait: those that were on their way as it was told may have passed."""
            _write(restricted.source, topic, 5)
            (link,) = json.loads(restricted.drkit("status", "--output", "json").stdout)["links"]
            lag = {each["topic"]: each["lag_records"] for each in link["partitions"]}[topic]
            return link if (lag is None if hidden else lag is not None and lag >= 5) else None

        link = wait_until(waiting, what="records that wait")
        assert link["state"] == "degraded"
        assert (link["recovery_point"]["records"] is None) == hidden
    assert running.error is None
    assert not restricted.problems("source_topic_deleted")
    assert not restricted.problems("target_recreated")
    _write(restricted.source, other, 5)
    stood = restricted.through(topic)
    with restricted.running() as running:
        restricted.wait_through(other)
        wait_until(lambda: [p for p in restricted.problems() if p.kind in {kind, NOT_MOVING}], what="the problem")
        assert restricted.through(topic) == stood < restricted.source.end(topic)
        _put(restricted, alias, denial, remove=True)
        restricted.wait_through(topic)
        wait_until(lambda: not restricted.problems(), what="the problems to clear by themselves")
    assert running.error is None
    for name in (topic, other):
        restricted.assert_same(name)


def test_what_cannot_be_seen_while_no_mirror_runs_has_no_known_lag(restricted: Mirrored) -> None:
    topic = restricted.name("hidden")
    restricted.source.create(topic)
    _write(restricted.source, topic, 5)
    _put(restricted, "dr", _rule("topic", restricted.prefix, "alter_configs", "prefixed"))
    assert restricted.catch_up().caught_up
    _put(restricted, "primary", _rule("topic", topic, "describe", permission="deny"))
    _write(restricted.source, topic, 5)
    (link,) = json.loads(restricted.drkit("status", "--output", "json").stdout)["links"]
    (partition,) = link["partitions"]
    assert partition["lag_records"] is None
    assert link["recovery_point"]["records"] is None
    assert f"drkit can't see {topic} on primary" in link["recovery_point"]["reason"]
    assert [problem["kind"] for problem in link["problems"]] == [SOURCE_TOPIC_DENIED]


def test_without_a_look_at_the_offsets_log_no_group_is_exact(restricted: Mirrored) -> None:
    """It may commit in transactions, and then its captured offset isn't where its output on dr ends."""
    topic, group = restricted.name("orders"), restricted.name("billing")
    restricted.source.create(topic)
    _write(restricted.source, topic, 5)
    _put(restricted, "dr", _rule("topic", restricted.prefix, "alter_configs", "prefixed"))
    _put(restricted, "primary", _rule("topic", "__consumer_offsets", "describe"))  # so that a listing is complete
    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=restricted.source.bootstrap)) as groups:
        assert groups.commit_many({group: {TopicPartition(topic, 0): (3, "")}}) == {}

    config = restricted.without_primary()
    target = ClusterConfig(bootstrap_servers=restricted.target.bootstrap)
    operators = config.model_copy(update={"clusters": {**config.clusters, "dr": target}})

    def planned() -> tuple[Certainty, str]:
        with ClusterContext(operators, restricted.store) as estate:
            (position,) = make_plan(estate, PlanRequest("dr")).positions
        assert position.source_offset == position.target_offset == 3
        return position.translation, position.reason or ""

    assert restricted.catch_up().caught_up
    certainty, reason = planned()
    assert certainty is Certainty.CONSERVATIVE
    assert "READ on __consumer_offsets" in reason
    granted = [_rule("topic", name, "read") for name in ("__consumer_offsets", "__transaction_state")]
    _put(restricted, "primary", *granted)
    try:
        with restricted.running():
            wait_until(lambda: not suspected_groups(restricted.store, restricted.link.id), 60, "the log read back")
    finally:
        _put(restricted, "primary", *granted, remove=True)
    assert planned()[0] is Certainty.EXACT


def test_groups_that_a_cluster_hides_are_not_taken_for_deleted(restricted: Mirrored) -> None:
    topic, group = restricted.name("orders"), restricted.name("billing")
    restricted.source.create(topic)
    _write(restricted.source, topic, 5)
    _put(restricted, "dr", _rule("topic", restricted.prefix, "alter_configs", "prefixed"))
    _put(restricted, "primary", _rule("topic", "__consumer_offsets", "describe"))  # so that a listing is complete
    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=restricted.source.bootstrap)) as groups:
        assert groups.commit_many({group: {TopicPartition(topic, 0): (3, "")}}) == {}

    def state() -> tuple[str, str]:
        (link,) = json.loads(restricted.drkit("status", "--output", "json").stdout)["links"]
        return link["state"], link["reason"] or ""

    def positions() -> list[tuple[str, int]]:
        return [(each.group, each.offset) for each in restricted.store.group_positions(restricted.link.id)]

    denial = _rule("group", group, "describe", permission="deny")
    with restricted.running() as running:
        wait_until(lambda: positions() == [(group, 3)], what="the position")
        _put(restricted, "primary", denial)
        why = f"positions of {group} can't be captured any more: GROUP_AUTHORIZATION_FAILED"
        wait_until(lambda: (found := state())[0] == "degraded" and why in found[1], 60, "the state")
        assert positions() == [(group, 3)]
        _put(restricted, "primary", denial, remove=True)
        wait_until(lambda: state()[0] == "mirroring", 30, "the group again")
    assert running.error is None
    assert positions() == [(group, 3)]

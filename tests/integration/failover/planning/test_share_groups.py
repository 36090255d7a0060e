"""A share group (KIP-932) can't be moved: it is named everywhere, with what an operator can do, and that works."""

import json
import subprocess
import sys
from contextlib import closing

import pytest
from confluent_kafka import ShareConsumer

from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.run_document import plan_document
from drkit.failover.run.service import run_failover
from drkit.failover.snapshot.selection import Selection
from drkit.kafka.admin.clusters import observing
from drkit.lab.toolchain import ensure
from drkit.model.offsets import Certainty
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.readiness import readiness
from tests.support.links.estates import failed_over, mirror, texts, without_primary
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def drkit(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "drkit", *arguments], capture_output=True, text=True, timeout=60, check=True
    )


def shared(own, topic, group, count, on="primary"):
    """A share group that has received some records of the topic; a new one begins at the topic's end."""
    consumer = ShareConsumer({**own.client(on), "group.id": group, "log_level": 0})
    got = []

    def received():
        own.produce(on, topic, {0: [f"shared-{len(got)}"]})
        got.extend(message.value() for message in consumer.poll(0.3) or () if message.error() is None)
        return len(got) >= count

    with closing(consumer):
        consumer.subscribe([topic])
        wait_until(received, 60, "records of the share group")


def test_a_share_group_is_in_plan_json_status_and_doctor(own):
    topic, group = own.create("primary", "orders", partitions=1), own.topic("sharers")
    own.produce("primary", topic, texts("early", 10, [0]))
    plain = own.commit("primary", "plain", topic, {0: 4})
    shared(own, topic, group, 3)
    mirror(own)
    for config in (own.config, without_primary(own)):
        with own.estate(config) as estate:
            plan = make_plan(estate, PlanRequest("dr"))
            alone = make_plan(estate, PlanRequest("dr", selection=Selection(groups=(group,))))
        found = {position.group: position for position in plan.positions}
        assert found[plain].translation is Certainty.EXACT
        row = found[group]
        assert (row.topic, row.partition, row.target_offset, row.translation) == (topic, 0, None, Certainty.UNAVAILABLE)
        assert "kafka-share-groups.sh" in row.reason
        assert any(text.startswith(f"{group} is not moved: a share group") for text in plan.warnings)
        assert [position.group for position in alone.positions] == [group], "it can be named"
        (json_row,) = [each for each in plan_document(plan)["groups"] if each["group"] == group]
        assert (json_row["translation"], json_row["target_offset"]) == ("unavailable", None)
    with observing(own.config.clusters, None) as clusters:
        checks = {check.name: check for check in readiness(own.config, own.store, own.link, clusters).checks}
    assert checks[f"share group {group}"].outcome is CheckOutcome.WARN
    assert "--reset-offsets" in checks[f"share group {group}"].remedy
    assert checks["group positions translatable"].outcome is CheckOutcome.OK
    shown = json.loads(drkit("status", "--config", str(own.config_path), "--output", "json").stdout)
    (row,) = [each for each in shown["links"][0]["groups"] if each["group"] == group]
    assert (row["topic"], row["type"], row["translation"]) == (topic, "share", "unavailable")


def test_a_failback_s_plan_names_share_groups_whose_place_goes_with_the_topics(own):
    topic, _ = failed_over(own, accept_unfenced=True)
    group, beside = own.topic("sharers"), own.topic("beside")
    shared(own, topic, group, 3)
    shared(own, own.create("primary", "alone", partitions=1), beside, 3)
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
    (warning,) = [each for each in plan.warnings if "share group" in each]
    assert f"that are deleted: {group} on {topic}. On the new ones share.auto.offset.reset decides" in warning


def test_what_the_plan_advises_brings_the_share_group_to_its_place(own):
    topic, group = own.create("primary", "orders", partitions=1), own.topic("sharers")
    own.produce("primary", topic, texts("early", 10, [0]))
    shared(own, topic, group, 3)
    mirror(own)
    reset = [
        str(ensure("mirrormaker").java),
        "-cp",
        ensure("mirrormaker").classpath("mirrormaker"),
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", own.client("dr")["bootstrap.servers"], "--group", group, "--topic", f"{topic}:0"),
        *("--reset-offsets", "--to-earliest", "--execute"),
    ]
    done = subprocess.run(reset, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    consumer = ShareConsumer({**own.client("dr"), "group.id": group, "log_level": 0})
    with closing(consumer):
        consumer.subscribe([topic])
        got, wanted = [], [value.encode() for value in own.values("dr", topic)[0]]

        def all_received():
            got.extend(message.value() for message in consumer.poll(0.5) or () if message.error() is None)
            return len(got) >= len(wanted)

        wait_until(all_received, 60, "all records on dr")
    assert sorted(got) == sorted(wanted)


def test_a_consumer_group_whose_id_became_a_share_groups_is_not_committed_to(own):
    """Its captured position was committed on dr as a consumer group's, so that no share consumer could join there."""
    topic = own.create("primary", "orders", partitions=1)
    own.produce("primary", topic, texts("early", 10, [0]))
    plain, group = own.commit("primary", "plain", topic, {0: 4}), own.commit("primary", "sharers", topic, {0: 6})
    mirror(own)
    with own.estate() as estate:
        estate.groups("primary").delete_groups([group])
        shared(own, topic, group, 3)
        plan = make_plan(estate, PlanRequest("dr"))
        result = run_failover(estate, plan, accept_unfenced=True)
        assert result.error is None
        assert group not in estate.groups("dr").list_groups()
    for positions in (plan.positions, result.positions):
        found = {position.group: position for position in positions}
        assert (found[group].target_offset, found[group].translation) == (None, Certainty.UNAVAILABLE)
        assert "on primary it is by now a share group (KIP-932)" in found[group].reason
    assert own.committed("dr", plain) == {(topic, 0): 4}


def test_a_consumer_group_whose_id_is_a_share_groups_on_dr_is_left_out(own):
    """The target refused its commit behind the fence."""
    topic = own.create("primary", "orders", partitions=1)
    own.produce("primary", topic, texts("early", 10, [0]))
    plain, group = own.commit("primary", "plain", topic, {0: 4}), own.commit("primary", "sharers", topic, {0: 6})
    mirror(own)
    beside = own.create("dr", "beside", partitions=1)
    shared(own, beside, group, 3, on="dr")
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        result = run_failover(estate, plan, accept_unfenced=True)
        assert result.error is None
        assert estate.groups("dr").list_groups()[group].type == "share"
    found = {position.group: position for position in result.positions}
    assert (found[group].target_offset, found[group].translation) == (None, Certainty.UNAVAILABLE)
    assert "on dr its id is that of a share group" in found[group].reason
    assert own.committed("dr", plain) == {(topic, 0): 4}

"""Each fault of the topic bites, on real brokers: seen by a reader of its own, not by what the fault says."""

import os

import pytest

from drkit.config import ClusterConfig, load_config
from drkit.drill.environment.child_processes import Child
from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import (
    AddPartitions,
    CorruptBatch,
    DeleteTopic,
    Disconnect,
    Flood,
    LoseTail,
    PurgeTopic,
    RecreateTopic,
    WriteForeign,
)
from drkit.drill.faults.inject import inject
from drkit.drill.steps import play
from drkit.drill.workload import reading
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.protocol.record_batch import parse
from drkit.model.errors import DrkitError, Refused
from tests.support.clusters import raw
from tests.support.collection.sampling import some_of
from tests.support.drills.drill_commands import link_of
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("faults of topics", 3)]

PARTITIONS = 2
WRITTEN = 100


@pytest.fixture
def env(lab, unique_name, tmp_path):
    """A topic on primary with records of nobody's, 50 a partition, some batches each."""
    experiment = Experiment.model_validate(
        {
            "title": "t",
            "hypothesis": "h",
            "steady_state": {"conditions": [{"condition": "answers", "cluster": "primary"}]},
            "method": [{"do": "workload", "topic": unique_name, "partitions": PARTITIONS, "group": unique_name}],
            "checks": ["duplicated"],
        }
    )
    found = DrillEnvironment.on(lab, "drill-test", experiment, tmp_path, lambda _: None)
    reading.create_topic(found.properties["primary"], unique_name, PARTITIONS, 1, 30)
    for _ in range(5):
        inject(found, WriteForeign(do="write_foreign", cluster="primary", records=WRITTEN // 5))
    return found


@pytest.fixture
def cluster(lab):
    found = LabCluster(lab, "primary")
    yield found
    found.close()


def topic(env):
    return link_of(env).workload.topic


def marks(env, cluster):
    """(log start, log end) of each partition."""
    return [cluster.ends(topic(env), partition, committed=False) for partition in range(PARTITIONS)]


def topic_id(env, lab):
    with ClusterAdmin("primary", load_config(lab.config_path).clusters["primary"]) as admin:
        return admin.topics([topic(env)])[topic(env)].topic_id


def test_foreign_records_are_there_and_none_of_the_drills(env, cluster):
    assert marks(env, cluster) == [(0, WRITTEN // 2)] * PARTITIONS
    landed = reading.read_all(env.properties["primary"], link_of(env).drill, topic(env), PARTITIONS, 30)
    assert len(landed) == WRITTEN
    assert {one.record for one in landed} == {None}


def test_a_topic_is_deleted(env, cluster):
    inject(env, DeleteTopic(do="delete_topic", cluster="primary"))
    assert cluster.partitions(topic(env)) == 0
    played = play(env, DeleteTopic(do="delete_topic", cluster="primary"))
    assert played.outcome == "unknown", "a fault that could not be made did not strike"


def test_a_topic_is_another_one_and_empty(env, cluster, lab):
    before = topic_id(env, lab)
    inject(env, RecreateTopic(do="recreate_topic", cluster="primary"))
    assert topic_id(env, lab) != before
    assert marks(env, cluster) == [(0, 0)] * PARTITIONS


def test_partitions_are_added(env, cluster):
    inject(env, AddPartitions(do="add_partitions", cluster="primary", by=3))
    assert cluster.partitions(topic(env)) == PARTITIONS + 3


def test_the_beginning_of_logs_is_removed(env, cluster):
    said = inject(env, PurgeTopic(do="purge_topic", cluster="primary", part=0.4))
    assert marks(env, cluster) == [(20, WRITTEN // 2)] * PARTITIONS
    assert said.startswith("40 offsets")
    inject(env, PurgeTopic(do="purge_topic", cluster="primary"))
    assert marks(env, cluster) == [(WRITTEN // 2, WRITTEN // 2)] * PARTITIONS
    with pytest.raises(Refused, match="holds nothing"):
        inject(env, PurgeTopic(do="purge_topic", cluster="primary"))


def test_the_end_of_logs_is_lost_and_a_newer_epoch_begins_there(env, cluster):
    before = reading.read_all(env.properties["primary"], link_of(env).drill, topic(env), PARTITIONS, 30)
    said = inject(env, LoseTail(do="lose_tail", cluster="primary", records=15))
    ends = [end for _, end in marks(env, cluster)]
    assert all(0 < end <= WRITTEN // 2 - 15 for end in ends), ends
    assert f"lost {WRITTEN - sum(ends)} acknowledged offsets" in said
    left = reading.read_all(env.properties["primary"], link_of(env).drill, topic(env), PARTITIONS, 30)
    assert sorted((one.partition, one.offset, one.digest) for one in left) == sorted(
        (one.partition, one.offset, one.digest) for one in before if one.offset < ends[one.partition]
    )
    inject(env, WriteForeign(do="write_foreign", cluster="primary", records=PARTITIONS))
    batches = list(parse(memoryview(raw.fetch(cluster.bootstrap, topic(env), 0))))
    assert batches[-1].base_offset == ends[0]
    assert batches[-1].leader_epoch > batches[-2].leader_epoch


def test_a_batch_can_not_be_read_any_more(env, cluster):
    whole = list(parse(memoryview(raw.fetch(cluster.bootstrap, topic(env), 1))))
    assert all(batch.intact() for batch in whole)
    said = inject(env, CorruptBatch(do="corrupt_batch", cluster="primary", partition=1))
    assert f"offsets {whole[-1].base_offset} to {whole[-1].last_offset} of {topic(env)}:1" in said
    damaged = list(parse(memoryview(raw.fetch(cluster.bootstrap, topic(env), 1))))
    assert [batch.intact() for batch in damaged] == [True] * (len(whole) - 1) + [False]
    other = list(parse(memoryview(raw.fetch(cluster.bootstrap, topic(env), 0))))
    cluster.delete(topic(env))
    assert all(batch.intact() for batch in other)


NAMED = {"checksum": "source_unreadable", "codec": "record_rejected", "oversized": "record_rejected"}
"""What the mirror says of each. A codec that it doesn't know it passes on: it may be newer than drkit, and the target's
brokers decide."""


@pytest.mark.parametrize("damage", NAMED)
def test_the_mirror_names_what_can_not_be_passed_on(env, lab, tmp_path, damage):
    """And passes everything before it, and all of the other partition."""
    (tmp_path / "link").mkdir()
    world = Mirrored(lab, tmp_path / "link", topic(env))
    last = list(parse(memoryview(raw.fetch(lab.bootstrap("primary"), topic(env), 1))))[-1]
    before = last.last_offset + 1 if damage == "oversized" else last.base_offset
    try:
        inject(env, CorruptBatch(do="corrupt_batch", cluster="primary", partition=1, damage=damage))
        inject(env, WriteForeign(do="write_foreign", cluster="primary", records=PARTITIONS))
        with world.running():
            world.wait_through(topic(env), 0)
            wait_until(lambda: world.problems(NAMED[damage]), 90, "the problem")
        (problem,) = world.problems()
        assert (problem.topic, problem.partition) == (topic(env), 1)
        if damage == "codec":
            assert "compressed by codec 7" in problem.reason
            assert f"from source offset {last.base_offset} of {topic(env)}:1" in problem.reason
            assert "kafka-delete-records" in problem.remedy
        assert len(world.target.read(topic(env), 1)) == before
        assert len(world.target.read(topic(env), 0)) == WRITTEN // PARTITIONS + 1
    finally:
        world.close()
        LabCluster(lab, "primary").delete(topic(env))


def test_a_batch_of_an_unknown_codec_has_a_checksum_that_fits_and_no_reader_takes_it(env, cluster):
    said = inject(env, CorruptBatch(do="corrupt_batch", cluster="primary", partition=1, damage="codec"))
    assert "the unknown compression codec 7" in said
    damaged = list(parse(memoryview(raw.fetch(cluster.bootstrap, topic(env), 1))))
    assert all(batch.intact() for batch in damaged)
    assert [batch.codec for batch in damaged] == [0] * (len(damaged) - 1) + [7]
    with pytest.raises(reading.NotRead):
        reading.read_all(env.properties["primary"], link_of(env).drill, topic(env), PARTITIONS, 10)
    cluster.delete(topic(env))


def test_an_oversized_batch_is_above_the_limit_that_the_topic_has_again(env, cluster):
    inject(env, CorruptBatch(do="corrupt_batch", cluster="primary", partition=1, damage="oversized"))
    assert marks(env, cluster) == [(0, WRITTEN // 2), (0, WRITTEN // 2 + 1)]
    (last,) = list(parse(memoryview(raw.fetch(cluster.bootstrap, topic(env), 1, WRITTEN // 2))))
    assert last.intact()
    assert len(last.whole) > 2_000_000
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=cluster.bootstrap)) as admin:
        wait_until(
            lambda: int(admin.topic_configs([topic(env)])[topic(env)]["max.message.bytes"]) < len(last.whole),
            what="the limit of before",
        )


def test_a_flood_is_beside_the_workloads_topic(env, cluster):
    before = marks(env, cluster)
    inject(env, Flood(do="flood", cluster="primary", records=1_000, value_bytes=10))
    beside = f"{topic(env)}.flood"
    assert sum(cluster.ends(beside, n, committed=False)[1] for n in range(cluster.partitions(beside))) == 1_000
    assert marks(env, cluster) == before


@pytest.mark.parametrize(
    "fault",
    [
        RecreateTopic(do="recreate_topic", cluster="dr"),
        AddPartitions(do="add_partitions", cluster="dr"),
        PurgeTopic(do="purge_topic", cluster="dr"),
        WriteForeign(do="write_foreign", cluster="dr"),
    ],
    ids=lambda fault: fault.do,
)
def test_what_is_not_there_can_not_be_struck(env, fault):
    """The topic isn't on dr: the step says so, and is unknown."""
    with pytest.raises(DrkitError, match=r"is not on dr|holds nothing on dr"):
        inject(env, fault)
    assert play(env, fault).outcome == "unknown"


HOLDS = """\
import socket, sys
held = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("connected", flush=True)
try:
    print("closed" if not held.recv(1) else "answered", flush=True)
except OSError:
    print("torn down", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="`ss -K` needs root")
def test_connections_are_torn_down(env, lab, tmp_path):
    """Of the process that stands for the mirror, and of no other."""
    host, port = lab.bootstrap("primary").split(":")
    logs = [tmp_path / "mirror.log", tmp_path / "other.log"]
    env.mirror, other = (Child(log.stem, ["-c", HOLDS, host, port], log, tmp_path) for log in logs)
    try:
        for log in logs:
            wait_until(lambda log=log: "connected" in log.read_text(), what="a connection")
        assert "1 connection of the mirror" in inject(env, Disconnect(do="disconnect"))
        wait_until(lambda: "torn down" in logs[0].read_text(), what="the end of the connection")
        assert other.exit_code() is None
        with pytest.raises(DrkitError):
            inject(env, Disconnect(do="disconnect"))
    finally:
        other.stop()
        env.mirror.stop()

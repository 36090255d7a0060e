import tomllib
from pathlib import Path

from bench.clusters import Cluster
from bench.mirrors import PROPERTIES, Job, effective_settings, job_toml, mirrormaker_properties, settings_not_in_force
from drkit.config.schema.config import Config


def job(topics: str = "bench-large", **changes) -> Job:
    source, target = Cluster("primary", "127.0.0.1:1001"), Cluster("dr", "127.0.0.1:1002")
    return Job(Path("/nowhere"), source, target, topics, "zstd", **changes)


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(" = ", 1) for line in lines)


def test_mirrormaker_is_tuned_as_the_issue_says():
    found = settings(mirrormaker_properties(job()))
    assert found["tasks.max"] == "4"
    assert found["primary.consumer.max.poll.records"] == "5000"
    assert found["primary.consumer.max.partition.fetch.bytes"] == str(4 << 20)
    assert found["dr.producer.batch.size"] == str(256 << 10)
    assert found["dr.producer.buffer.memory"] == str(128 << 20)
    assert found["dr.producer.linger.ms"] == "20"
    assert found["dr.producer.compression.type"] == "zstd"
    assert found["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert found["emit.offset-syncs.enabled"] == "true"
    assert found["primary->dr.topics"] == "bench-large"
    assert found["dr.bootstrap.servers"] == "127.0.0.1:1002"


def test_mirrormaker_does_not_linger_when_live():
    assert settings(mirrormaker_properties(job(live=True)))["dr.producer.linger.ms"] == "0"


def test_every_placeholder_is_filled_in():
    assert "${" in PROPERTIES.read_text()
    assert "$" not in mirrormaker_properties(job())


def test_drkit_gets_a_valid_configuration_for_just_these_topics():
    config = Config.model_validate(tomllib.loads(job_toml(job("bench-large-.*"))))
    (link,) = config.links
    assert link.link().covers_topic("bench-large-0")
    assert not link.link().covers_topic("bench-larger")
    assert config.clusters["primary"].bootstrap_servers == "127.0.0.1:1001"


LOG = """[x] INFO ProducerConfig values:
\tclient.id = connector-producer-MirrorSourceConnector-0
\tlinger.ms = 20
\tssl.key =
 (ProducerConfig)
[x] INFO ProducerConfig values:
\tclient.id = primary->dr|MirrorSourceConnector-0|offset-syncs-source-producer
\tlinger.ms = 5
 (ProducerConfig)
[x] INFO ConsumerConfig values:
\tclient.id = primary->dr|MirrorSourceConnector-0|replication-consumer
\tmax.poll.records = 5000
 (ConsumerConfig)
[x] INFO ConsumerConfig values:
\tclient.id = primary-mm2-primary->dr-offsets
\tmax.poll.records = 500
 (ConsumerConfig)
"""


def test_the_settings_in_force_are_those_of_the_data_path():
    found = effective_settings(LOG)
    assert found["producer.linger.ms"] == {"20"}
    assert found["consumer.max.poll.records"] == {"5000"}
    assert found["producer.ssl.key"] == {""}


def test_a_setting_that_is_not_in_force_is_named():
    properties = "primary.consumer.max.poll.records = 5000\ndr.producer.linger.ms = 0\ndr.producer.acks = all\n"
    assert settings_not_in_force(properties, LOG, job()) == [
        "dr.producer.linger.ms = 0, in force: 20",
        "dr.producer.acks = all, in force: nothing",
    ]

"""`drkit init` on real clusters: what it finds, what it proposes, and a file that a mirror can use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from drkit.config import load_config
from drkit.lab import Lab
from tests.support.commands.terminal import at_terminal


def verb(folder: Path, *words: str, code: int = 0) -> dict:
    command = [sys.executable, "-m", "drkit", *words, "--config", str(folder / "drkit.toml"), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def topic(lab: Lab, unique_name: str) -> str:
    """A topic with a record and a group on the primary."""
    client = {"bootstrap.servers": lab.bootstrap("primary")}
    admin = AdminClient(client)
    for future in admin.create_topics([NewTopic(unique_name, 2, 1)]).values():
        future.result(30)
    producer = Producer(client)
    producer.produce(unique_name, value="1", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer(client | {"group.id": f"{unique_name}-group"})
    consumer.commit(offsets=[TopicPartition(unique_name, 0, 1)], asynchronous=False)
    consumer.close()
    return unique_name


def test_it_proposes_what_is_there_and_the_file_works(lab: Lab, topic: str, tmp_path: Path):
    both = ("--source", lab.bootstrap("primary"), "--target", lab.bootstrap("dr"))
    found = verb(tmp_path, "init", *both, "--topic", topic)
    assert topic in found["topics"]
    assert f"{topic}-group" in found["groups"]
    assert "__consumer_offsets" not in found["topics"]
    assert load_config(tmp_path / "drkit.toml").links[0].topics == (topic,)
    checked = verb(tmp_path, "config", "check", "--connect")
    assert {each["outcome"] for each in checked["checks"] if each["check"] == "cluster answers"} == {"ok"}
    assert checked["outcome"] == "warn", "there is no store yet"

    twice = tmp_path / "twice"
    twice.mkdir()
    same = ("--source", lab.bootstrap("primary"), "--target", lab.bootstrap("primary"))
    told = verb(twice, "init", *same, code=2)
    assert "drkit.toml" not in [each.name for each in twice.iterdir()], told


def test_it_asks_at_a_terminal(lab: Lab, topic: str, tmp_path: Path):
    done = at_terminal(
        [sys.executable, "-m", "drkit", "init", "--config", str(tmp_path / "drkit.toml")],
        answers=[
            ("Bootstrap servers of the source", lab.bootstrap("primary")),
            ("security.protocol of primary", ""),
            ("Bootstrap servers of the target", f"standby={lab.bootstrap('dr')}"),
            ("security.protocol of standby", ""),
            ("Topics, as a regular expression", topic),
            ("Consumer groups, as a regular expression", ""),
        ],
        columns=120,
        seconds=60,
    )
    assert done.code == 0, done.screen
    (link,) = load_config(tmp_path / "drkit.toml").links
    assert (link.target, link.topics, link.groups) == ("standby", (topic,), (".*",))
    assert "Found" in (tmp_path / "drkit.toml").read_text()

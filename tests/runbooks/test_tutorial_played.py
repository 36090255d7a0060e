"""The tutorials' own commands, executed in their order on brokers that they start."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from drkit.drill.runbook import read_runbook
from drkit.lab import Lab
from tests.support.commands.runbooks import run_block
from tests.support.links.estates import commit_once
from tests.support.wait import wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs"
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


def play(book, name, cwd, codes=(0,)):
    """Execute a block; each of its drkit commands ends with one of these codes. What they wrote."""
    ran = run_block(book, name, cwd)
    assert ran, f"{book.file.name} has no drkit command in block {name}"
    for each in ran:
        assert each.done.returncode in codes, f"{each.command.place}: {each.done.stderr}\n{each.done.stdout}"
    return "\n".join(each.done.stdout for each in ran)


def test_the_first_failover(tmp_path, lab_guard):
    lab_guard.watch(tmp_path / "lab")
    book = read_runbook(DOCS / "tutorial-first-failover.md")
    play(book, "clusters", tmp_path)
    assert "all caught up" in play(book, "mirror", tmp_path)
    assert "--accept-unfenced" in play(book, "ask", tmp_path)
    play(book, "disaster", tmp_path)
    assert "0 records" in play(book, "failover", tmp_path, codes=(6,))
    assert "sealed" in play(book, "after", tmp_path)
    assert "delet" in play(book, "back", tmp_path)
    play(book, "down", tmp_path)
    assert not (tmp_path / "lab").exists()
    named = [block.name for block in book.blocks if block.language == "sh"]
    assert named == ["clusters", "mirror", "ask", "disaster", "failover", "after", "back", "down"]


def test_your_own_clusters(lab: Lab, tmp_path, unique_name):
    given = {
        "PRIMARY_BOOTSTRAP": lab.bootstrap("primary"),
        "DR_BOOTSTRAP": lab.bootstrap("dr"),
        "TOPICS": f"{unique_name}[.].*",
    }
    from drkit.drill.workload.reading import create_topic  # noqa: PLC0415 - the module's alone

    topic = f"{unique_name}.orders"
    primary = {"bootstrap.servers": lab.bootstrap("primary"), "log_level": 0}
    create_topic(primary, topic, 2, 1, 30)
    producer = Producer(primary)
    for number in range(20):
        producer.produce(topic, f"order {number}", partition=number % 2)
    assert producer.flush(30) == 0
    group = Consumer({**primary, "group.id": f"{unique_name}.billing", "enable.auto.commit": False})
    offsets = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 7)]
    wait_until(lambda: commit_once(group, offsets), 60, "a coordinator")
    group.close()
    book = read_runbook(DOCS / "tutorial-your-clusters.md", given)
    play(book, "init", tmp_path)
    assert "kafka-acls" in play(book, "rights", tmp_path)
    play(book, "mirror", tmp_path)
    play(book, "ask", tmp_path, codes=(0, 3))
    play(book, "rehearse", tmp_path)
    command = next(each for each in book.of_drkit() if each.block == "serve")
    page = subprocess.Popen(
        [sys.executable, "-m", *command.argv, "--config", str(tmp_path / "drkit.toml"), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert page.stdout is not None
        assert page.stdout.readline().startswith("http://127.0.0.1:")
        page.send_signal(signal.SIGTERM)
        assert page.wait(60) == 0
    finally:
        page.kill()
        page.communicate()

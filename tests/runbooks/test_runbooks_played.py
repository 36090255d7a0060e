"""The runbooks' own commands, executed in their order on a real lab whose primary really dies."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from drkit.drill.runbook import read_runbook
from drkit.drill.workload.reading import create_topic, group_positions, read_all
from drkit.lab import Lab
from tests.support.commands.runbooks import run_block
from tests.support.wait import wait_until

RUNBOOKS = Path(__file__).resolve().parents[2] / "runbooks"
TOPIC, GROUP, PARTITIONS, RECORDS = "orders", "billing", 3, 300
TAIL = 30  # acknowledged by the primary after the mirror's end
READ = {0: 40, 1: 50, 2: 60}
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def stricken(tmp_path_factory, lab_guard):
    """A lab of its own: records are mirrored, a group has read some of them."""
    folder = tmp_path_factory.mktemp("runbook-lab")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite")
    primary = {"bootstrap.servers": lab.bootstrap("primary"), "log_level": 0}
    create_topic(primary, TOPIC, PARTITIONS, 1, 30)
    write(primary, range(RECORDS))
    group = Consumer({**primary, "group.id": GROUP, "enable.auto.commit": False})
    offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in READ.items()]
    wait_until(lambda: _committed(group, offsets), 30, "the commit")
    group.close()
    yield lab
    lab.down()


def write(cluster, numbers):
    producer = Producer(cluster)
    for number in numbers:
        producer.produce(TOPIC, f"order {number}", f"customer {number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def _committed(group, offsets):
    """A coordinator that was just made may still be loading: the commit is tried again until it stands."""
    try:
        return group.commit(offsets=offsets, asynchronous=False)
    except Exception as error:  # the last one is shown if it never stands
        raise AssertionError(str(error)) from error


def play(book, name, cwd, codes=(0,)):
    """Execute a block; each of its drkit commands ends with one of these codes."""
    ran = run_block(book, name, cwd)
    assert ran, f"{book.file.name} has no drkit command in block {name}"
    for each in ran:
        assert each.done.returncode in codes, f"{each.command.place}: {each.done.stderr}\n{each.done.stdout}"
    return ran[-1].done.stdout


def test_unplanned_failover(stricken, tmp_path):
    lab = stricken
    given = {"DRKIT_CONFIG": str(lab.config_path), "PLAN": str(tmp_path / "plan.json")}
    book = read_runbook(RUNBOOKS / "unplanned-failover.md", given)
    mirrored = subprocess.run(
        [sys.executable, "-m", "drkit", "mirror", "--until-caught-up", "--config", str(lab.config_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert mirrored.returncode == 0, mirrored.stderr
    write({"bootstrap.servers": lab.bootstrap("primary"), "log_level": 0}, range(RECORDS, RECORDS + TAIL))
    lab.kill("primary")
    play(book, "look", tmp_path)
    play(book, "doctor-again", tmp_path)
    plan = play(book, "dry-run", tmp_path)
    assert "expected loss 0 records" in plan
    play(book, "go", tmp_path, codes=(0, 6))
    dr = {"bootstrap.servers": lab.bootstrap("dr"), "log_level": 0}
    assert group_positions(dr, GROUP, TOPIC, PARTITIONS, 20) == READ
    assert "sealed" in play(book, "verify", tmp_path)
    play(book, "go", tmp_path, codes=(4,))  # the plan is used up: the world has moved, by itself
    play(book, "dry-run", tmp_path, codes=(3,))


@pytest.mark.spark
def test_failback(stricken, tmp_path):
    """After the failover above: life continues on dr, then everything moves back."""
    lab = stricken
    clusters = {c: {"bootstrap.servers": lab.bootstrap(c), "log_level": 0} for c in ("primary", "dr")}
    write(clusters["dr"], range(1000, 1090))
    lab.restart("primary")
    given = {
        "DRKIT_CONFIG": str(lab.config_path),
        "SALVAGE": str(tmp_path / "salvage"),
        "CLUSTER_ID": lab.cluster_id("primary"),
    }
    book = read_runbook(RUNBOOKS / "failback.md", given)
    assert "sealed" in play(book, "look", tmp_path)
    assert f"{TAIL}" in play(book, "audit", tmp_path)
    play(book, "salvage", tmp_path)
    assert lab.cluster_id("primary") in play(book, "dry-run", tmp_path)
    play(book, "go", tmp_path, codes=(7,))
    write(clusters["dr"], range(1090, 1120))  # nothing is closed yet
    play(book, "resume", tmp_path, codes=(0, 6))
    play(book, "verify", tmp_path)
    assert group_positions(clusters["primary"], GROUP, TOPIC, PARTITIONS, 20) == READ
    both = [read_all(clusters[cluster], "none", TOPIC, PARTITIONS, 30) for cluster in ("primary", "dr")]
    assert len(both[0]) == len(both[1]) == RECORDS + 120
    assert {(one.partition, one.offset, one.digest) for one in both[0]} == {
        (one.partition, one.offset, one.digest) for one in both[1]
    }

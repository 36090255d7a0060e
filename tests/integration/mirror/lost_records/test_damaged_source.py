"""A batch that the source's broker can't read stops its own partition, and no command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drkit.drill.environment.log_surgery import flip
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

LENGTH_AT = 8


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(20) == 0


def test_a_length_that_the_broker_refuses_is_told_of_its_partition_by_every_command(mirrored: Mirrored) -> None:
    damaged, sound = mirrored.name("damaged"), mirrored.name("sound")
    for topic in (damaged, sound):
        mirrored.source.create(topic)
        write(mirrored, topic, 40)
    assert mirrored.catch_up().caught_up
    for topic in (damaged, sound):
        write(mirrored, topic, 10)
    folder = Path(mirrored.lab.dir) / "nodes" / "primary-1" / "data" / f"{damaged}-0"
    flip(folder, 40, LENGTH_AT, mask=0x80)  # negative: CORRUPT_MESSAGE
    with mirrored.running() as running:
        mirrored.wait_through(sound)
        (problem,) = wait_until(mirrored.problems, 90, "the problem")
        assert (problem.topic, problem.partition, problem.halted) == (damaged, 0, True)
        status = mirrored.drkit("status", "--output", "json")
        assert status.returncode == 0, status.stderr
        (link,) = json.loads(status.stdout)["links"]
        assert link["state"] == "degraded"
        assert damaged in {each["topic"] for each in link["problems"]}
    assert running.error is None
    doctor = mirrored.drkit("doctor", "--to", "dr", "--output", "json")
    assert json.loads(doctor.stdout)["links"][0]["checks"]
    at = ("--at", "2026-01-01T00:00:00Z")
    for how in ((), at):
        flags = ("--unplanned", "--accept-unfenced", "--accept-loss", "unknown", *how)
        plan = mirrored.drkit("failover", "--to", "dr", "--dry-run", "--output", "json", *flags)
        assert plan.returncode == 0, plan.stderr
        assert damaged in plan.stdout

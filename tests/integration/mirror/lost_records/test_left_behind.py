"""A former primary that comes back: what only it holds, and that its clients aren't kept out, is told or unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drkit.drill.environment.log_surgery import stopped
from tests.support.links.mirroring import Mirrored

pytestmark = pytest.mark.lab


def write(mirrored: Mirrored, topic: str, what: str, first: int, end: int) -> None:
    """Ten records a batch, so that the log can be cut between them."""
    producer = mirrored.source.producer()
    for number in range(first, end):
        producer.produce(topic, value=f"{what}-{number}".encode(), partition=0)
        if number % 10 == 9:
            assert producer.flush(20) == 0


def asked(mirrored: Mirrored, verb: str) -> dict[str, Any]:
    (link,) = json.loads(mirrored.drkit(verb, "--output", "json").stdout)["links"]
    return link


def left_behind(mirrored: Mirrored) -> tuple[str, str]:
    (check,) = (each for each in asked(mirrored, "doctor")["checks"] if each["check"] == "left behind")
    return check["outcome"], check["reason"]


def test_of_a_former_primary_that_lost_its_tail_nobody_knows_what_only_it_holds(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, "first", 0, 100)
    assert mirrored.catch_up().caught_up
    moved = mirrored.drkit("failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced")
    assert moved.returncode == 0, moved.stderr
    assert left_behind(mirrored)[0] == "ok"
    link = asked(mirrored, "status")
    assert [each["kind"] for each in link["problems"]] == ["unfenced"], "its clients may write there"
    with stopped(mirrored.lab, "primary-1") as disk:
        assert disk.cut(topic, 0, 60) == 60
    write(mirrored, topic, "lost", 60, 90)
    assert left_behind(mirrored)[0] == "unknown"
    (partition,) = asked(mirrored, "status")["partitions"]
    assert partition["lag_records"] is None
    assert "ends at 90, and was mirrored up to 100" in partition["lag_reason"]
    write(mirrored, topic, "lost", 90, 120)
    (partition,) = asked(mirrored, "status")["partitions"]
    assert partition["lag_records"] is None
    assert "holds another batch at source offset 99" in partition["lag_reason"]

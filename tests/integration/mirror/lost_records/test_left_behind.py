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


def test_what_a_former_primary_holds_since_it_lost_its_tail_counts(mirrored: Mirrored) -> None:
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
    for end in (90, 120):
        write(mirrored, topic, "lost", mirrored.source.end(topic), end)
        outcome, reason = left_behind(mirrored)
        assert (outcome, f"{end - 60} records" in reason) == ("warn", True)
        link = asked(mirrored, "status")
        assert sorted(each["kind"] for each in link["problems"]) == ["source_truncated", "unfenced"]
        (partition,) = link["partitions"]
        assert (partition["mirrored_through"], partition["lag_records"]) == (60, end - 60)

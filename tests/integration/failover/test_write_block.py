"""Between a scrub's last look and its deletion nobody can write to the old primary's topics, whoever they are, and the
block goes with the run that put it up, however that ends."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.run.journal.journal import INTENT
from drkit.failover.run.service import resume_run
from drkit.failover.run.state_machine import State
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.write_block import BLOCK, is_blocked
from drkit.lab import Lab
from drkit.model.runs.fence import write_block_kind
from tests.support.estates import TIMEOUT, OwnLink
from tests.support.failback_ports import reading_ports, salvaged
from tests.support.failed_over import failed_over
from tests.support.killing import frozen_at, killed
from tests.support.secured import verb
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

BEFORE_DELETION = ("scrub", "delete_exact", "before")
DEFAULT = {"max.message.bytes": "1048588", "compression.type": "producer"}
OWN = {"max.message.bytes": "2000000", "compression.type": "lz4"}


def write(own: OwnLink, topic: str, text: str, **client: str) -> str:
    """One record to each partition of the old primary; "written", or the error's name."""
    errors: list[KafkaError | None] = []
    producer = Producer({**own.client("primary"), "message.timeout.ms": 10_000, **client})
    for partition in (0, 1):
        producer.produce(topic, text, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT) == 0
    names = {"written" if error is None else error.name() for error in errors}
    assert len(names) == 1, names
    return names.pop()


def setting(own: OwnLink, topic: str) -> dict[str, str]:
    with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
        return admin.topic_configs([topic], keys=list(BLOCK))[topic]


def blocked_by_status(own: OwnLink) -> list[str]:
    """Topics that `drkit status` says take no writes."""
    (link,) = verb(own, "status", schema="status")["links"]
    reasons = [problem["reason"] for problem in link["problems"] if problem["kind"] == "writes_blocked"]
    return [reason.partition(" on primary")[0] for reason in reasons]


@pytest.fixture
def away(own: OwnLink) -> tuple[str, str]:
    """A link that was failed over; one of its topics has its own limit of a batch's size."""
    return failed_over(own, accept_unfenced=True)


def test_what_is_written_or_committed_after_the_last_look_is_refused_or_kept(
    lab: Lab, own, away, tmp_path: Path
) -> None:
    """The process stands still for longer than a look is valid; clients of an unfenced cluster go on meanwhile."""
    topic, _ = away
    with frozen_at(own, "failback", BEFORE_DELETION, tmp_path / "salvage") as sleeper:
        frozen = time.monotonic()
        for text in ("", "v", "late", "larger than a marker" * 9):
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                assert write(own, topic, text, **{"compression.type": codec}) == "MSG_SIZE_TOO_LARGE", (text, codec)
        group = own.commit("primary", "late", topic, {0: 2})
        wait_until(lambda: time.monotonic() > frozen + 1, what="a look that is too old")
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(120) == 0
    assert own.store.runs()[0].state == State.CLOSED
    kept = [json.loads(file.read_text()) for file in sorted((tmp_path / "salvage").rglob("positions.json"))]
    assert any(group in json.dumps(each) for each in kept), "committed after the last look: looked at again, and kept"
    assert setting(own, topic) == DEFAULT
    with stopped(lab, "primary-1"):
        pass
    assert setting(own, topic) == DEFAULT, "a deleted topic's settings don't come back from the metadata log"
    assert write(own, topic, "after") == "written"


@pytest.mark.parametrize("way", ["resumed", "abandoned", "lifted", "lifted without notes", "lifted on dr"])
def test_a_block_that_a_killed_run_left_goes(lab: Lab, own, away, tmp_path: Path, way: str) -> None:
    topic, _ = away
    with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
        admin.set_topic_configs(topic, OWN)
    killed(own, "failback", tmp_path / "salvage", BEFORE_DELETION)
    assert is_blocked(setting(own, topic))
    assert write(own, topic, "late") == "MSG_SIZE_TOO_LARGE"
    run = own.store.runs()[0].run
    assert blocked_by_status(own) == [topic]
    expected = OWN
    with own.estate() as estate:
        if way == "resumed":
            result = resume_run(estate, run, reading_ports(own, tmp_path / "salvage"), accept_unfenced=True)
            assert result.error is None, result.error
        elif way == "abandoned":
            report = abandon_run(estate, run, print)
            assert f"writes to {topic} on primary are let in again" in report.did
        else:
            if way == "lifted without notes":
                noted = own.store.notes(own.link.id, write_block_kind("primary"))
                own.store.forget_notes(own.link.id, write_block_kind("primary"), list(noted))
                expected = DEFAULT  # nobody knows what it was
            there = () if way == "lifted on dr" else ("--cluster", "primary", "--yes")
            (found,) = verb(own, "fence", "--lift", *there, schema="fence")["links"]
            assert f"writes to {topic} on primary are let in again" in found["reason"]
            assert ("is unknown: they have the default now" in found["reason"]) == (way == "lifted without notes")
    assert setting(own, topic) == expected
    assert blocked_by_status(own) == []
    with stopped(lab, "primary-1"):
        pass
    assert setting(own, topic) == expected
    assert write(own, topic, "after") == "written"


def test_a_scrub_that_stops_lets_writes_in(own, away, tmp_path: Path) -> None:
    """Something changes each time that it looks once more: it gives up, and leaves the topics as they were."""
    topic, _ = away
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    commits = 0

    with own.estate() as estate:
        admin = estate.admin("primary")
        real = admin.block_writes

        def blocked(partitions):
            nonlocal commits
            real(partitions)
            commits += 1
            own.commit("primary", "busy", topic, {0: commits})

        admin.block_writes = blocked
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is not None
    assert "4 times in a row" in result.error.what
    assert not is_blocked(setting(own, topic))
    assert write(own, topic, "after") == "written"


def test_a_transaction_that_is_committed_behind_the_block_is_kept_and_hangs_nowhere(own, away, tmp_path: Path) -> None:
    """Its marker passes: a coordinator that is refused one doesn't send it again until its broker restarts."""
    topic, _ = away
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    values = [f"committed-{number}" for number in range(3)]
    client = {**own.client("primary"), "transactional.id": own.topic("id"), "transaction.timeout.ms": 20_000}
    writer = Producer(client)
    with own.estate() as estate:
        admin = estate.admin("primary")
        real, rounds = admin.block_writes, []

        def blocked(partitions):
            rounds.append(partitions)
            if len(rounds) > 1:
                real(partitions)
                return
            writer.init_transactions(TIMEOUT)
            writer.begin_transaction()
            for value in values:
                writer.produce(topic, value, partition=0)
            writer.flush(TIMEOUT)
            real(partitions)
            writer.commit_transaction(TIMEOUT)

        admin.block_writes = blocked
        result = resume_run(
            estate, own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage"), accept_unfenced=True
        )
    assert result.error is None, result.error
    assert len(rounds) == 2
    assert set(values) <= salvaged(tmp_path / "salvage")
    again = Producer(client)
    again.init_transactions(TIMEOUT)

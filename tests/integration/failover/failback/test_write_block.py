"""Between a scrub's last look and its deletion nobody can write to the old primary's topics, whoever they are, and the
block goes with the run that put it up, however that ends."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import INTENT
from drkit.failover.journal.run_record import load_run
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.run.service import resume_run, run_failback
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.write_block import BLOCK, is_blocked
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.lab import Lab
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from drkit.model.runs import write_block_kind
from drkit.state_topic.recorded_store import StateRecording
from drkit.store.api import Store
from tests.support.clusters.secured import verb
from tests.support.collection.sampling import some_of
from tests.support.killing.killed_process import frozen_at, killed
from tests.support.links.estates import TIMEOUT, OwnLink, failed_over
from tests.support.recovery.failback_ports import reading_ports, salvaged
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("blocks of writes", 3)]

BEFORE_DELETION = ("scrub", "delete_exact", "before")
AT_DELETION = ("scrub", "DeleteTopics", "before")
DEFAULT = {"max.message.bytes": "1048588", "compression.type": "producer"}
OWN = {"max.message.bytes": "2000000", "compression.type": "lz4"}
ON_DR = {"max.message.bytes": "3000000", "compression.type": "zstd"}
KIND = write_block_kind("primary")


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


@contextmanager
def recorded(own: OwnLink) -> Iterator[Store]:
    """The link's store as commands use it; behind the body all changes are in the copy on dr."""
    recording = StateRecording(own.config, own.store)
    try:
        yield recording.store
    finally:
        recording.close()


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


@pytest.mark.parametrize(
    "way", ["resumed", "abandoned", "lifted", "lifted by the copy", "lifted without notes", "lifted on dr"]
)
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
            if way == "lifted by the copy":
                with recorded(own) as store:
                    store.put_notes(own.link.id, KIND, own.store.notes(own.link.id, KIND))
                own.store.forget_notes(own.link.id, KIND, [topic])
            elif way == "lifted without notes":
                with recorded(own) as store:
                    store.forget_notes(own.link.id, KIND, [topic])
                expected = ON_DR  # nobody knows what it was
                with ClusterAdmin("dr", own.config.clusters["dr"]) as admin:
                    admin.set_topic_configs(topic, ON_DR)
            there = () if way == "lifted on dr" else ("--cluster", "primary", "--yes")
            (found,) = verb(own, "fence", "--lift", *there, schema="fence")["links"]
            assert f"writes to {topic} on primary are let in again" in found["reason"]
            unknown = "is unknown: they have what they have on dr now" in found["reason"]
            assert unknown == (way == "lifted without notes"), found["reason"]
    assert setting(own, topic) == expected
    assert blocked_by_status(own) == []
    with stopped(lab, "primary-1"):
        pass
    assert setting(own, topic) == expected
    assert write(own, topic, "after") == "written"


def test_a_failback_from_a_store_that_knows_of_no_block_brings_large_records_back(own, away, tmp_path: Path) -> None:
    """The store is restored to before the scrub that was killed behind its block: what the topics had comes from dr."""
    topic, _ = away
    for alias in ("primary", "dr"):
        with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
            admin.set_topic_configs(topic, OWN)
    large = "v" * 1_500_000
    producer = Producer({**own.client("dr"), "message.max.bytes": 2_000_000})
    producer.produce(topic, large, partition=0)
    assert producer.flush(TIMEOUT) == 0
    blocks = own.config.store.plain_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(blocks)) as now, closing(sqlite3.connect(tmp_path / "older.db")) as older:
        now.backup(older)
        killed(own, "failback", tmp_path / "salvage", BEFORE_DELETION)
        with recorded(own) as store:
            store.forget_notes(own.link.id, KIND, [topic])
        older.backup(now)
    assert is_blocked(setting(own, topic))
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        ports = reading_ports(own, tmp_path / "salvage")
        result = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id, accept_unfenced=True)
    assert result.error is None, result.error
    assert setting(own, topic) == OWN
    assert large in own.values("primary", topic)[0]


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


def test_what_is_written_while_the_last_look_goes_on_is_kept_where_writes_can_t_be_blocked(
    own, away, tmp_path: Path
) -> None:
    topic, _ = away
    killed(own, "failback", tmp_path / "salvage", ("scrub", INTENT, "after"))
    run, ports = own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        groups, late = estate.groups("primary"), []
        real = groups.list_groups

        def not_allowed(_):
            late.append("")
            raise Refused("a managed cluster's policy")

        def listed(*args, **kwargs):
            if late == [""]:  # the last look has read the log ends by now
                late.append(write(own, topic, "written-late"))
            return real(*args, **kwargs)

        estate.admin("primary").block_writes = not_allowed
        groups.list_groups = listed
        result = resume_run(estate, run, ports, accept_unfenced=True)
    assert result.error is None, result.error
    assert late[:2] == ["", "written"]
    assert "written-late" in salvaged(tmp_path / "salvage")


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


def in_transaction(own: OwnLink, name: str, topic: str, offset: int, *, commit: bool) -> str:
    """A group of the old primary commits a position in a transaction, which ends as asked."""
    group = own.topic(name)
    client = own.client("primary")
    writer = Producer({**client, "transactional.id": group, "transaction.timeout.ms": 20_000})
    writer.init_transactions(TIMEOUT)
    writer.begin_transaction()
    consumer = Consumer({**client, "group.id": group})
    writer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT)
    if commit:
        writer.commit_transaction(TIMEOUT)
    else:
        writer.abort_transaction(TIMEOUT)
    consumer.close()
    return group


def carried_by(own: OwnLink) -> dict[str, int | None]:
    """Committed offsets of the old primary that the newest run carries over, by group, of partition 0."""
    run = load_run(own.store, own.store.runs()[0].run)
    return {each.group: each.existing for each in run.carried if each.partition == 0}


@pytest.mark.parametrize("then", ["goes on", "is killed and resumed", "is killed, abandoned and done again"])
def test_what_is_committed_at_the_very_moment_of_the_deletion_is_kept(own, away, tmp_path: Path, then: str) -> None:
    """Commits can't be blocked, and a coordinator forgets them with the topic: its log is read afterwards."""
    topic, known = away
    left_out = own.commit("primary", "left-out", topic, {0: 7})
    open_group = own.topic("open")
    hanging = Producer({**own.client("primary"), "transactional.id": open_group, "transaction.timeout.ms": 60_000})
    hanging.init_transactions(TIMEOUT)
    hanging.begin_transaction()  # commits behind it are above the log's last stable offset
    consumer = Consumer({**own.client("primary"), "group.id": open_group})
    elsewhere = replace(own, name=f"x{own.name}").create("primary", "elsewhere")
    hanging.send_offsets_to_transaction([TopicPartition(elsewhere, 0, 0)], consumer.consumer_group_metadata(), TIMEOUT)
    with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
        count = admin.topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].partitions

    def named(word: str, *, beside: bool) -> str:
        """A group of which the commits are behind the open transaction, or not."""
        part = partition_of(open_group, count)
        return next(
            name
            for number in range(10_000)
            if (partition_of(own.topic(name := f"{word}-{number}"), count) == part) == beside
        )

    with frozen_at(own, "failback", AT_DELETION, tmp_path / "salvage") as sleeper:
        late = own.commit("primary", named("late", beside=True), topic, {0: 2, 1: 1})
        again = own.commit("primary", known.removeprefix(f"{own.name}."), topic, {0: 4})
        booked = in_transaction(own, named("booked", beside=False), topic, 3, commit=True)
        aborted = in_transaction(own, named("aborted", beside=False), topic, 3, commit=False)
        if then == "goes on":
            sleeper.send_signal(signal.SIGCONT)
            assert sleeper.wait(120) == 0
        else:
            with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
                assert admin.delete_exact({topic: admin.topics([topic])[topic].topic_id}, wait=True) == {}
    with own.estate() as estate:
        run, ports = own.store.runs()[0].run, reading_ports(own, tmp_path / "salvage")
        error = None
        if then == "is killed and resumed":
            error = resume_run(estate, run, ports, accept_unfenced=True).error
        elif then != "goes on":
            assert f"{late} on {topic}:0 at 2" in json.dumps(abandon_run(estate, run, print).did)
            plan = make_failback_plan(estate, "primary")
            assert any(late in warning and left_out in warning for warning in plan.warnings), plan.warnings
            error = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id, accept_unfenced=True).error
        assert error is None, error
    consumer.close()
    hanging.abort_transaction(TIMEOUT)  # else nothing behind it is decided for a minute, in other tests either
    assert own.store.runs()[0].state == State.CLOSED
    found = carried_by(own)
    assert {group: found.get(group) for group in (late, again, booked, aborted)} == {
        late: 2,
        again: None if "abandoned" in then else 4,  # it has committed on dr, and goes by that
        booked: 3,
        aborted: None,
    }
    assert own.committed("primary", late) == {(topic, 0): 2, (topic, 1): 1}
    assert own.committed("primary", booked) == {(topic, 0): 3}
    assert own.committed("primary", left_out) == {(topic, 0): 7}
    said = verb(own, "runs", run, schema="runs")
    assert f"{late} on {topic}:0 at 2" in json.dumps(said)


def test_a_primary_whose_topics_a_scrub_has_deleted_is_not_opened_while_the_other_one_has_them(
    own, away, tmp_path: Path
) -> None:
    topic, _ = away
    killed(own, "failback", tmp_path / "salvage", ("scrub", "delete_exact", "after"))
    run = own.store.runs()[0].run
    words = ("fence", "--lift", "--cluster", "primary", "--yes")
    refused = verb(own, *words, code=3)["error"]
    assert f"{topic} is not on primary: run {run} deleted it" in refused["what"]
    assert f"drkit resume {run}" in refused["remedy"]
    with own.estate() as estate:
        abandon_run(estate, run, print)
    assert "drkit failback brings them to primary" in verb(own, *words, code=3)["error"]["remedy"]
    assert own.store.link_control(own.link.id).direction == Direction.SEALED

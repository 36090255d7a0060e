"""What would be a silent loss or a silent mix-up is named, kept, and where needed the partition stands still."""

from __future__ import annotations

import json
import re

import pytest

from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import stopped
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.topology import TopicPartition
from drkit.observe.link_status import LinkStatus
from drkit.observe.status import link_statuses
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("problems of a partition", 3)]


def write(side: Side, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = side.producer(message_max_bytes=5_000_000)
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    assert producer.flush(30) == 0


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def cut_below(mirrored: Mirrored, topic: str, offset: int) -> None:
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})


def test_a_retention_gap_while_stopped_is_named_and_survived(mirrored: Mirrored) -> None:
    topic = mirrored.name("gap")
    mirrored.source.create(topic)
    write(mirrored.source, topic, numbered(0, 30))
    assert mirrored.catch_up().caught_up
    write(mirrored.source, topic, numbered(30, 80))
    cut_below(mirrored, topic, 55)
    report = mirrored.catch_up()
    assert report.caught_up
    assert not report.halted
    (problem,) = mirrored.problems()
    assert problem.kind == "retention_gap"
    assert "offsets 30 to 54 (25 offsets)" in problem.reason
    assert not problem.halted
    values = [record.value for record in mirrored.target.read(topic)]
    assert values == numbered(0, 30) + numbered(55, 80)
    mirrored.assert_translates(topic, newest_only=True)
    write(mirrored.source, topic, numbered(80, 90))
    cut_below(mirrored, topic, 85)
    assert mirrored.catch_up().caught_up
    (problem,) = mirrored.problems()
    assert "offsets 30 to 54 (25 offsets)" in problem.reason, "the first loss is not forgotten over the second"
    assert "offsets 80 to 84 (5 offsets)" in problem.reason
    told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "retention_gap", "--topic", topic)
    assert told.returncode == 0, told.stderr
    assert not mirrored.problems()


def test_records_that_were_lost_to_a_purge_and_come_back_are_named_though_that_was_acknowledged(
    mirrored: Mirrored,
) -> None:
    topic = mirrored.name("back")
    mirrored.source.create(topic)
    for first in range(0, 80, 10):  # a batch each: the log can begin between them
        write(mirrored.source, topic, numbered(first, first + 10))
    cut_below(mirrored, topic, 0)
    assert mirrored.catch_up().caught_up
    write(mirrored.source, topic, numbered(80, 120))
    cut_below(mirrored, topic, 100)
    assert mirrored.catch_up().caught_up
    told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "retention_gap", "--topic", topic)
    assert told.returncode == 0, told.stderr
    (link,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    assert not link.problems

    write(mirrored.source, topic, numbered(120, 160))
    cut_below(mirrored, topic, 140)
    assert mirrored.catch_up().caught_up, "a second time, not acknowledged"

    with stopped(mirrored.lab, "primary-1") as disk:
        disk.forget_start(topic, 0)
    assert len(mirrored.source.read(topic)) == 160, "all are there again"
    told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "records_returned", "--topic", topic)
    assert told.returncode == 3
    assert "once `drkit mirror" in told.stderr, "no mirror has seen them yet"
    for _ in ("only status sees it", "a mirror has recorded it"):
        assert again(mirrored) == (["offsets 80 to 99 again", "offsets 120 to 139 again"], 40)
        for offset in (90, 130):
            said = mirrored.drkit(
                "translate", "--topic", topic, "--partition", "0", "--offset", f"{offset}", "--output", "json"
            )
            assert json.loads(said.stdout)["positions"][0]["translation"] != "exact"
        plan = json.loads(mirrored.drkit("failover", "--to", "dr", "--dry-run", "--output", "json").stdout)
        assert plan["evidence"]["rpo_records"] == 40
        ended = mirrored.drkit("mirror", "--until-caught-up")
        assert ended.returncode == 1, "they aren't on the target"
        assert "offsets 80 to 99, 120 to 139 again" in ended.stderr

    cut_below(mirrored, topic, 100)
    assert again(mirrored) == (["offsets 120 to 139 again"], 20)
    assert mirrored.drkit("mirror", "--until-caught-up").returncode == 1
    (problem,) = mirrored.problems("records_returned")
    assert "offsets 120 to 139 again" in problem.reason
    cut_below(mirrored, topic, 140)
    assert again(mirrored) == ([], 0), "retention took them again"


def test_what_a_source_has_again_while_a_mirror_runs_is_told_and_can_be_given_up(mirrored: Mirrored) -> None:
    topic = mirrored.name("given-up")
    mirrored.source.create(topic)
    for first in range(0, 60, 10):
        write(mirrored.source, topic, numbered(first, first + 10))
    assert mirrored.catch_up().caught_up
    write(mirrored.source, topic, numbered(60, 100))
    cut_below(mirrored, topic, 80)
    assert mirrored.catch_up().caught_up
    acknowledged(mirrored, "retention_gap", topic)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.forget_start(topic, 0)
        wait_until(lambda: bool(mirrored.problems("records_returned")), 60, "what is there again is recorded")
        assert again(mirrored, recorded=0) == (["offsets 60 to 79 again"], 20)
        acknowledged(mirrored, "records_returned", topic)
        wait_until(lambda: link_status(mirrored).state == "mirroring", 30, "given up")
        assert again(mirrored, recorded=0) == ([], 0)
        write(mirrored.source, topic, numbered(100, 110))
        mirrored.wait_through(topic, offset=110)
        assert again(mirrored, recorded=0) == ([], 0), "looked at again, and not told again"
        for offset, certainty in ((59, "exact"), (60, "conservative"), (79, "conservative"), (80, "exact")):
            said = mirrored.drkit(
                "translate", "--topic", topic, "--partition", "0", "--offset", f"{offset}", "--output", "json"
            )
            assert json.loads(said.stdout)["positions"][0]["translation"] == certainty, offset
        told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "records_given_up", "--topic", topic)
        assert told.returncode == 3
        assert "nothing is left to decide" in told.stderr
    assert running.error is None


def acknowledged(mirrored: Mirrored, kind: str, topic: str) -> None:
    told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), kind, "--topic", topic)
    assert told.returncode == 0, told.stderr


def link_status(mirrored: Mirrored) -> LinkStatus:
    (link,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    return link


def again(mirrored: Mirrored, *, recorded: int = 1) -> tuple[list[str], int | None]:
    """What status says that the source has again, and the lag; beside so many recorded losses there is nothing else."""
    link = link_status(mirrored)
    others = [each.kind for each in link.problems if each.kind not in {"records_returned", "records_given_up"}]
    assert others == ["retention_gap"] * recorded
    places = (re.search(r"offsets \d+ to \d+ again", each.reason) for each in link.problems)
    told = [found.group() for found in places if found is not None]
    assert link.recovery_point is not None
    return told, link.recovery_point.records


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_was_deleted_is_not_caught_up(mirrored: Mirrored, side: str) -> None:
    """Even the first run ends so, though a topic that isn't listed may be there for a moment."""
    topics = [mirrored.name(f"gone-{number}") for number in range(3)]
    for topic in topics:
        mirrored.source.create(topic)
        write(mirrored.source, topic, numbered(0, 60))
    assert mirrored.drkit("mirror", "--until-caught-up").returncode == 0
    gone = mirrored.target if side == "target" else mirrored.source
    gone.delete(topics[0])
    if side == "source":  # made anew: else it holds nothing that could be missing
        mirrored.source.create(topics[0])
        write(mirrored.source, topics[0], numbered(0, 30))
    for _ in range(2):
        ended = mirrored.drkit("mirror", "--until-caught-up")
        assert ended.returncode == 1, ended.stderr
        said = " ".join(ended.stderr.split())
        assert f"{topics[0]} on dr was deleted" in said or f"{topics[0]} on primary" in said


def test_what_lies_behind_an_open_transaction_is_said_at_the_end(mirrored: Mirrored) -> None:
    topic = mirrored.name("open")
    mirrored.source.create(topic)
    write(mirrored.source, topic, numbered(0, 10))
    producer = mirrored.source.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"open", partition=0)
    assert producer.flush(30) == 0
    write(mirrored.source, topic, numbered(10, 15))
    ended = mirrored.drkit("mirror", "--until-caught-up")
    assert ended.returncode == 0
    assert "6 offsets of primary lie behind an open transaction" in ended.stderr
    producer.commit_transaction(30)
    ended = mirrored.drkit("mirror", "--until-caught-up")
    assert (ended.returncode, "open transaction" in ended.stderr) == (0, False)
    assert len(mirrored.target.read(topic)) == 16


def test_a_retention_gap_under_a_held_mirror(mirrored: Mirrored) -> None:
    topic = mirrored.name("live")
    mirrored.source.create(topic)
    write(mirrored.source, topic, numbered(0, 10))
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        mirrored.hold(topic)
        first = mirrored.through(topic)
        write(mirrored.source, topic, numbered(0, 40))
        end = mirrored.source.end(topic)
        cut_below(mirrored, topic, end - 15)
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
        mirrored.wait_through(topic)
    assert running.error is None
    (problem,) = mirrored.problems("retention_gap")
    assert f"offsets {first} to {end - 16} " in problem.reason
    assert [r.value for r in mirrored.target.read(topic)][first:] == numbered(25, 40)


def test_a_foreign_writer_halts_its_partition_only(mirrored: Mirrored) -> None:
    topic = mirrored.name("foreign")
    mirrored.source.create(topic, 2)
    write(mirrored.source, topic, numbered(0, 10), 0)
    write(mirrored.source, topic, numbered(0, 10), 1)
    with mirrored.running() as running:
        mirrored.wait_through(topic, 0)
        mirrored.wait_through(topic, 1)
        write(mirrored.target, topic, [b"not from the source"], 0)
        write(mirrored.source, topic, numbered(10, 20), 0)
        write(mirrored.source, topic, numbered(10, 20), 1)
        wait_until(lambda: mirrored.problems("foreign_writer"), what="the problem")
        mirrored.wait_through(topic, 1)
    (problem,) = mirrored.problems()
    assert (problem.partition, problem.halted) == (0, True)
    assert running.report is not None
    assert [p.kind for p in running.report.halted] == ["foreign_writer"]
    mirrored.assert_same(topic, 1)
    report = mirrored.catch_up()
    assert [p.kind for p in report.halted] == ["foreign_writer"], "a restart doesn't forget it"


def test_a_foreign_record_while_the_mirror_is_down(mirrored: Mirrored) -> None:
    topic = mirrored.name("down")
    mirrored.source.create(topic)
    write(mirrored.source, topic, numbered(0, 10))
    assert mirrored.catch_up().caught_up
    write(mirrored.target, topic, [b"not from the source"])
    write(mirrored.source, topic, numbered(10, 20))
    (problem,) = mirrored.catch_up().halted
    assert problem.kind == "foreign_writer"
    assert "target offset 10" in problem.reason
    assert len(mirrored.target.read(topic)) == 11, "nothing is written behind it"


def test_a_target_that_lost_acknowledged_records_gets_them_again(mirrored: Mirrored) -> None:
    """As after an unclean leader election there: the log ends below what was acknowledged."""
    topic = mirrored.name("lost")
    mirrored.source.create(topic)
    write(mirrored.source, topic, numbered(0, 30))
    assert mirrored.catch_up().caught_up
    link, place = mirrored.link.id, TopicPartition(topic, 0)
    state = mirrored.store.topic_states(link)[topic]
    mirrored.target.delete(topic)
    mirrored.target.create(topic)
    kept = mirrored.target.producer()
    for record in mirrored.source.read(topic)[:20]:
        kept.produce(topic, record.value, partition=0, timestamp=record.timestamp)
    assert kept.flush(30) == 0
    with ClusterAdmin("dr", ClusterConfig(bootstrap_servers=mirrored.target.bootstrap)) as admin:
        seen = admin.topics([topic])[topic]
    mirrored.store.put_topic_states(link, [state.__class__(**{**fields(state), "target_topic_id": seen.topic_id})])
    report = mirrored.catch_up()
    assert report.caught_up
    (problem,) = mirrored.problems()
    assert problem.kind == "target_lost_data"
    assert "lost 10 acknowledged offsets" in problem.reason
    assert [record.value for record in mirrored.target.read(topic)] == numbered(0, 30)
    assert mirrored.store.watermarks(link)[place].target_end == 30


def fields(state: object) -> dict[str, object]:
    return {name: getattr(state, name) for name in state.__class__.__slots__}  # type: ignore[attr-defined]


def test_a_truncated_source_stands_still(mirrored: Mirrored) -> None:
    topic = mirrored.name("truncated")
    mirrored.source.create(topic)
    write(mirrored.source, topic, numbered(0, 30))
    assert mirrored.catch_up().caught_up
    link = mirrored.link.id
    mark = mirrored.store.watermarks(link)[TopicPartition(topic, 0)]
    beyond = {name: getattr(mark, name) for name in mark.__class__.__slots__}
    mirrored.store.put_watermarks(link, [mark.__class__(**{**beyond, "source_through": 45, "source_end": 45})])
    (problem,) = mirrored.catch_up().halted
    assert problem.kind == "source_truncated"
    assert "lost" in problem.reason
    assert len(mirrored.target.read(topic)) == 30


def test_a_record_too_large_for_the_target(mirrored: Mirrored) -> None:
    topic, other = mirrored.name("large"), mirrored.name("other")
    mirrored.source.create(topic, max_message_bytes="4000000")
    mirrored.source.create(other)
    write(mirrored.source, topic, [*numbered(0, 20), bytes(i % 251 for i in range(2_000_000)), *numbered(20, 40)])
    write(mirrored.source, other, numbered(0, 50))
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.set_topic_configs(topic, {"max.message.bytes": "1000000"})  # so the target's limit is lower, too
    with mirrored.running() as running:
        (problem,) = wait_until(lambda: mirrored.problems("record_rejected"), 60, "the problem")
        assert problem.halted
        assert "offset 20 needs a batch of 2000" in problem.reason
        assert "max.message.bytes" in problem.remedy
        mirrored.wait_through(other)
        mirrored.wait_through(topic, offset=20)
        assert [r.value for r in mirrored.target.read(topic)] == numbered(0, 20), "nothing lands behind the gap"
        with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
            admin.set_topic_configs(topic, {"max.message.bytes": "4000000"})
        wait_until(lambda: limit(mirrored, topic) == "4000000", what="the raised limit on the target")
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
        mirrored.wait_through(topic)
    assert running.error is None
    mirrored.assert_same(topic)
    mirrored.assert_same(other)
    mirrored.assert_translates(topic)
    assert not mirrored.problems()


def limit(mirrored: Mirrored, topic: str) -> str:
    with ClusterAdmin("dr", ClusterConfig(bootstrap_servers=mirrored.target.bootstrap)) as admin:
        return admin.topic_configs([topic])[topic]["max.message.bytes"]

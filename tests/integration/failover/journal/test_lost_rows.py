"""A store that lost some of its mapping rows: nothing that they told is guessed from those that are left."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.service import run_failback
from drkit.lab.lab import Lab
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import Refused, Unreachable
from drkit.model.link_state import RECORDS_UNMAPPED, STATE_TOPIC_FAILED
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from drkit.state_topic import recorder
from drkit.state_topic.link_copy import read_copy
from drkit.state_topic.records import state_topic
from drkit.store.workers import live_workers
from tests.support.links.estates import OwnLink, mirror, mirroring, open_link, own_link, texts
from tests.support.links.log_reader import read_partition
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def aborted(own: OwnLink, topic: str, count: int, partitions: Sequence[int] = (0,)) -> None:
    """A transaction of so many records that is aborted, and its marker."""
    producer = Producer({**own.client("primary"), "transactional.id": f"{own.name}.tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        for partition in partitions:
            producer.produce(topic, f"aborted {number}".encode(), partition=partition)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def with_gaps(own: OwnLink, partitions: int = 1) -> str:
    """A topic with three aborted transactions in each partition, so four mapping rows on a link that translates."""
    topic, numbers = own.create("primary", "t", partitions=partitions), list(range(partitions))
    for batch in "abc":
        own.produce("primary", topic, texts(batch, 20, numbers))
        aborted(own, topic, 5, numbers)
    own.produce("primary", topic, texts("d", 5, numbers))
    return topic


def run(own: OwnLink, *words: str, code: int) -> dict[str, Any]:
    done = CliRunner().invoke(application(words[:1]), [*words, "--output", "json", "--config", str(own.config_path)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def translated(own: OwnLink, topic: str, offset: int) -> tuple[str, int | None]:
    (position,) = run(own, "translate", "--topic", f"{topic}:0", "--offset", str(offset), code=0)["positions"]
    return position["translation"], position["target_offset"]


def lose_rows(own: OwnLink, topic: str, numbers: list[int]) -> list[int]:
    """The source offsets of these rows, which the store has no longer."""
    with closing(sqlite3.connect(own.config_path.with_name("drkit.db"))) as store, store:
        rows = [
            row for (row,) in store.execute("SELECT source_offset FROM mapping WHERE topic = ? ORDER BY 1", [topic])
        ]
        assert len(rows) == 4
        for number in numbers:
            store.execute("DELETE FROM mapping WHERE topic = ? AND source_offset = ?", [topic, rows[number]])
    return [rows[number] for number in numbers]


@pytest.mark.parametrize("numbers", [[0], [1], [1, 2], [3]], ids=str)
def test_no_answer_skips_what_lost_rows_placed(lab: Lab, tmp_path: Path, unique_name: str, numbers: list[int]) -> None:
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own)
    groups = {own.commit("primary", f"g{at}", topic, {0: at}): at for at in (1, 21, 27, 55, 79)}
    mirror(own)
    source, target = (own.records(cluster, topic)[0] for cluster in ("primary", "dr"))
    places = {value: offset for offset, value in target.items()}

    def check(at: int, answer: dict[str, Any]) -> str:
        """The answer's certainty; it skips nothing."""
        first = min(offset for offset in source if offset >= at)  # the next record to read
        place = places[source[first]]
        assert answer["target_offset"] <= place, (at, place, answer)
        assert answer["target_offset"] == place or answer["translation"] == "conservative", (at, place, answer)
        return str(answer["translation"])

    for at in lose_rows(own, topic, numbers):
        for near in (at - 1, at, at + 1):
            if near >= 0:
                (answer,) = run(own, "translate", "--topic", f"{topic}:0", "--offset", str(near), code=0)["positions"]
                assert check(near, answer) == "conservative" or near < at
    (link,) = run(own, "status", code=0)["links"]
    assert [problem["kind"] for problem in link["problems"]] == ["store_older"], "and nothing that isn't so"
    plan = run(own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--dry-run", code=3)
    for positions in (link["groups"], plan["groups"]):
        assert {each["group"] for each in positions} == set(groups)
        for each in positions:
            check(groups[each["group"]], each)
    own.store.close()


@pytest.mark.parametrize("last", [False, True], ids=["one within", "the last one"])
def test_what_a_lost_row_told_is_not_guessed_from_the_others(
    lab: Lab, tmp_path: Path, unique_name: str, last: bool
) -> None:
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own)
    value = "d-0-3" if last else "b-0-3"
    at = next(offset for offset, each in own.records("primary", topic)[0].items() if each == value)
    group = own.commit("primary", "g", topic, {0: at})
    mirror(own)
    place = next(offset for offset, each in own.records("dr", topic)[0].items() if each == value)
    assert translated(own, topic, at) == ("exact", place)
    lose_rows(own, topic, [3 if last else 1])

    assert translated(own, topic, at)[0] != "exact"
    (position,) = run(own, "status", code=0)["links"][0]["groups"]
    assert position["translation"] != "exact"
    refused = run(own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", code=3)
    assert f"mapping rows of {topic}:0" in json.dumps(refused)
    with pytest.raises(Refused, match="would map wrongly"):  # and it doesn't write the rest over the copy
        mirror(own)
    own.store.close()

    own.config_path.with_name("drkit.db").rename(tmp_path / "damaged.db")
    run(own, "store", "recover", "--from", "dr", "--link", "primary->dr", code=0)
    recovered = open_link(own.config_path, own.name)
    assert translated(recovered, topic, at) == ("exact", place)
    run(recovered, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", code=0)
    assert recovered.committed("dr", group) == {(topic, 0): place}
    recovered.store.close()


def test_rows_that_the_copy_does_not_prove_place_no_group_exactly_in_a_plan_or_its_run(
    lab: Lab, tmp_path: Path, unique_name: str
) -> None:
    """A late writer has replaced the copy's rows, and the store has lost one: nobody knows that it has. Status and
    translate said so, and the failover's plan called the same positions exact."""
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own, partitions=2)
    group = own.commit("primary", "g", topic, {0: 58, 1: 58})
    mirror(own)
    places = {value: offset for offset, value in own.records("dr", topic)[0].items()}
    unread = next(value for offset, value in own.records("primary", topic)[0].items() if offset >= 58)
    unprove(own, topic)
    unproven = "the copy doesn't prove this partition's mapping rows"

    def check(positions: list[dict[str, Any]], what: str) -> None:
        found = {each["partition"]: each for each in positions if each["group"] == group}
        assert (found[0]["translation"], found[1]["translation"]) == ("conservative", "exact"), what
        assert unproven in found[0]["reason"], what
        assert found[0]["target_offset"] <= places[unread], f"{what}: it skips nothing"
        assert found[0].get("skipped", 0) == 0, what

    check(run(own, "status", code=0)["links"][0]["groups"], "status")
    check(run(own, "translate", "--group", group, code=0)["positions"], "translate")
    words = ("failover", "--to", "dr", "--unplanned", "--accept-unfenced")
    plan = run(own, *words, "--dry-run", code=0)
    check(plan["groups"], "plan")
    assert [each for each in plan["warnings"] if each.startswith(f"{topic}:0: ") and unproven in each]
    check(run(own, *words, "--rehearse", code=0)["groups"], "rehearsal")
    human = CliRunner().invoke(application(["failover"]), [*words, "--dry-run", "--config", str(own.config_path)])
    assert unproven in " ".join(human.stdout.split())
    check(run(own, *words, "--yes", code=0)["groups"], "run")
    check(run(own, "translate", "--group", group, code=0)["positions"], "translate, once the run wrote to the copy")
    own.store.close()


def test_rows_that_a_mirror_wrote_to_the_copy_anew_stay_in_doubt_until_an_operator_vouches_for_them(
    lab: Lab, tmp_path: Path, unique_name: str
) -> None:
    """The copy then proves what the store has left, and every position was exact; the one that the lost row placed
    skipped five records."""
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own, partitions=2)
    at = next(offset for offset, value in own.records("primary", topic)[0].items() if value == "b-0-3")
    group = own.commit("primary", "g", topic, {0: at, 1: at})
    mirror(own)
    place = next(offset for offset, value in own.records("dr", topic)[0].items() if value == "b-0-3")
    unprove(own, topic)
    own.produce("primary", topic, texts("e", 5, [0, 1]))
    mirror(own)
    assert proven(own) == [TopicPartition(topic, 0), TopicPartition(topic, 1)], "of what the store has left"

    def check(positions: list[dict[str, Any]], what: str) -> None:
        found = {each["partition"]: each for each in positions if each["group"] == group}
        assert (found[0]["translation"], found[1]["translation"]) == ("conservative", "exact"), what
        assert found[0]["target_offset"] <= place, f"{what}: it skips nothing"

    (link,) = run(own, "status", code=0)["links"]
    check(link["groups"], "status")
    (told,) = link["problems"]
    assert (told["kind"], told["partition"]) == ("rows_unproven", 0)
    check(run(own, "translate", "--group", group, code=0)["positions"], "translate")
    words = ("failover", "--to", "dr", "--unplanned", "--accept-unfenced")
    check(run(own, *words, "--dry-run", code=0)["groups"], "plan")
    check(run(own, *words, "--rehearse", code=0)["groups"], "rehearsal")
    run(own, "link", "acknowledge", "primary->dr", "rows_unproven", code=3)
    run(own, "link", "acknowledge", "primary->dr", "rows_unproven", "--topic", topic, code=0)
    assert translated(own, topic, at)[0] == "exact", "the operator's word"
    own.store.close()


def unprove(own: OwnLink, topic: str) -> None:
    """The store has no longer the second row of partition 0, and the copy has other rows there than it counts."""
    with closing(sqlite3.connect(own.config_path.with_name("drkit.db"))) as store, store:
        rows = store.execute("SELECT source_offset FROM mapping WHERE topic = ? AND partition = 0", [topic]).fetchall()
        (lost,) = sorted(rows)[1]
        store.execute("DELETE FROM mapping WHERE topic = ? AND partition = 0 AND source_offset = ?", [topic, lost])
    producer = Producer(own.client("dr"))
    for record in read_partition(own.client("dr"), state_topic(own.link)):
        if json.loads(record.key or b"[]")[:3] == ["rows", topic, 0]:
            producer.produce(state_topic(own.link), key=record.key, value=b"[[0,1]]", partition=0)
    assert producer.flush(30) == 0


def test_an_offset_that_a_failback_carries_by_unproven_rows_is_exact_neither_in_its_plan_nor_in_its_run(
    lab: Lab, tmp_path: Path, unique_name: str
) -> None:
    """A group that was left out of the failover goes by the mapping, there and back."""
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = own.create("primary", "t", partitions=2)
    for batch in "ab":
        own.produce("primary", topic, texts(batch, 20, [0, 1]))
        aborted(own, topic, 5, [0, 1])
    own.produce("primary", topic, texts("c", 5, [0, 1]))
    moved = own.commit("primary", "moved", topic, {0: 58, 1: 58})
    left = own.commit("primary", "left", topic, {0: 50, 1: 50})
    mirror(own)
    unread = next(value for offset, value in own.records("primary", topic)[0].items() if offset >= 50)
    place = next(offset for offset, value in own.records("dr", topic)[0].items() if value == unread)
    own.produce("primary", topic, texts("only-here", 2, [0, 1]))
    run(own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--group", moved, "--yes", code=0)
    unprove(own, topic)

    def check(positions: Sequence[PlannedPosition], what: str) -> None:
        found = {each.partition: each for each in positions if each.group == left}
        assert found[0].translation is Certainty.CONSERVATIVE, what
        assert "the copy doesn't prove this partition's mapping rows" in (found[0].reason or ""), what
        assert found[0].source_offset is not None, what
        assert found[0].source_offset <= place, f"{what}: it skips nothing"
        assert found[0].skipped in {None, 0}, what
        assert found[1].translation is Certainty.EXACT, what

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        check(plan.positions, "plan")
        assert [each for each in plan.warnings if each.startswith(f"{topic}:0: ")]
        ports, old = reading_ports(own, tmp_path / "salvage"), plan.target.cluster_id or ""
        done = run_failback(estate, plan, ports, cluster_id=old, accept_unfenced=True)
        assert done.error is None
        check(done.positions, "run")
    own.store.close()


@pytest.mark.parametrize("copy_too", [False, True], ids=["the copy is there", "the copy is gone, too"])
@pytest.mark.parametrize("offsets", ["preserve", "translate"])
def test_a_partition_whose_only_row_is_lost_is_not_copied_a_second_time(
    lab: Lab, tmp_path: Path, unique_name: str, offsets: str, copy_too: bool
) -> None:
    own = own_link(lab, tmp_path, unique_name, extra=f'offsets = "{offsets}"')
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, texts("a", 20, [0]))
    mirror(own)
    before = own.records("dr", topic)
    with closing(sqlite3.connect(own.config_path.with_name("drkit.db"))) as store, store:
        assert store.execute("DELETE FROM mapping WHERE topic = ?", [topic]).rowcount == 1
    own.produce("primary", topic, texts("b", 5, [0]))
    if copy_too:
        copy = state_topic(own.link)
        client = AdminClient(own.client("dr"))
        client.delete_topics([copy])[copy].result(30)
        with own.estate() as estate:
            wait_until(lambda: not estate.admin("dr").topics([copy]), what="the copy to be deleted")
        report = MirrorRuntime(own.config, own.link, own.store).run(until_caught_up=True)
        assert report.halted
        assert [(each.kind, each.halted) for each in own.store.problems(own.link.id)] == [(RECORDS_UNMAPPED, True)]
    else:
        with pytest.raises(Refused, match="would map wrongly"):
            mirror(own)
    assert own.records("dr", topic) == before
    own.store.close()


def test_rows_that_are_lost_while_the_mirror_runs_are_lost_in_the_copy_at_no_time(
    lab: Lab, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own)
    at = next(offset for offset, each in own.records("primary", topic)[0].items() if each == "b-0-3")
    group = own.commit("primary", "g", topic, {0: at})
    mirror(own)
    place = next(offset for offset, each in own.records("dr", topic)[0].items() if each == "b-0-3")
    with mirroring(own):
        wait_until(lambda: bool(live_workers(own.store, own.link.id, own.store.time())), what="a running mirror")
        lose_rows(own, topic, [1])
        assert translated(own, topic, at)[0] != "exact", "before the mirror has noticed"
        (link,) = run(own, "status", code=0)["links"]
        assert [each["translation"] for each in link["groups"] if each["group"] == group] == ["conservative"]
        assert link["store_compared_at"] is not None
        monkeypatch.setattr(recorder, "REOPEN_SECONDS", 0.0)
        own.produce("primary", topic, texts("e", 5, [0]))

        def halted() -> bool:
            found = [each for each in own.store.problems(own.link.id) if each.kind == STATE_TOPIC_FAILED]
            return any(f"mapping rows of {topic}:0" in each.reason and "store recover" in each.remedy for each in found)

        wait_until(halted, timeout=60, what="the recorder to halt")
        assert translated(own, topic, at)[0] != "exact", "also while the mirror runs"
        refused = run(own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", code=3)
        assert f"mapping rows of {topic}:0" in json.dumps(refused)
    own.store.close()

    own.config_path.with_name("drkit.db").rename(tmp_path / "damaged.db")
    run(own, "store", "recover", "--from", "dr", "--link", "primary->dr", code=0)
    recovered = open_link(own.config_path, own.name)
    assert translated(recovered, topic, at) == ("exact", place)
    run(recovered, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", code=0)
    assert recovered.committed("dr", group) == {(topic, 0): place}
    recovered.store.close()


def test_rows_that_are_lost_after_a_failover_place_nothing_exactly(lab: Lab, tmp_path: Path, unique_name: str) -> None:
    """The link is sealed, clients write to dr, and no mirror runs that could tell."""
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own)
    at = next(offset for offset, each in own.records("primary", topic)[0].items() if each == "b-0-3")
    own.commit("primary", "g", topic, {0: at})
    mirror(own)
    place = next(offset for offset, each in own.records("dr", topic)[0].items() if each == "b-0-3")
    run(own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", code=0)
    own.produce("dr", topic, texts("new", 5, [0]))
    assert translated(own, topic, at) == ("exact", place)

    lose_rows(own, topic, [1])
    certainty, offset = translated(own, topic, at)
    assert (certainty, offset is not None and offset <= place) == ("conservative", True)
    (link,) = run(own, "status", code=0)["links"]
    assert link["state"] == "sealed"
    assert [each["translation"] for each in link["groups"]] == ["conservative"]
    (older,) = [each for each in link["problems"] if each["kind"] == "store_older"]
    assert older["partition"] == 0
    assert "drkit store recover" in older["remedy"]
    own.store.close()


def cut(own: OwnLink) -> None:
    """Delete all that the copy holds now: `cleanup.policy=delete` for a while, and DeleteRecords or retention."""
    place = TopicPartition(state_topic(own.link), 0)
    with own.estate() as estate:
        admin = estate.admin("dr")
        (end,) = admin.log_ends([place]).values()
        admin.set_topic_configs(place.topic, {"cleanup.policy": "delete"})

        def removed() -> bool:
            with suppress(Refused):  # the broker hasn't taken the policy over yet
                admin.delete_records({place: end})
            return admin.start_offsets([place])[place] == end

        wait_until(removed, what="the records to be deleted")


def test_a_store_is_not_compared_with_what_is_left_of_a_copy(
    lab: Lab, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the store had lost by then would have been in what was deleted: an empty copy knew no better."""
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = with_gaps(own)
    at = next(offset for offset, each in own.records("primary", topic)[0].items() if each == "b-0-3")
    mirror(own)
    exact = translated(own, topic, at)
    assert exact[0] == "exact"
    cut(own)
    assert translated(own, topic, at)[0] != "exact"
    plan = run(own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--dry-run", code=0)
    assert any(f"its records of {topic}:0" in warning for warning in plan["warnings"]), plan["warnings"]

    monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 1.0)
    with mirroring(own):  # it writes the copy anew at its opening, and when it is cut meanwhile
        wait_until(lambda: bool(live_workers(own.store, own.link.id, own.store.time())), what="a running mirror")
        wait_until(lambda: proven(own) == [TopicPartition(topic, 0)], 60, "a whole copy")
        cut(own)
        wait_until(lambda: proven(own) == [TopicPartition(topic, 0)], 60, "a whole copy again")
    assert translated(own, topic, at)[0] == "conservative", "nobody has proven what the mirror wrote anew"
    run(own, "link", "acknowledge", "primary->dr", "rows_unproven", "--topic", topic, code=0)
    assert translated(own, topic, at) == exact
    own.store.close()


def proven(own: OwnLink) -> list[TopicPartition]:
    """The partitions of which the copy proves everything."""
    with own.estate() as estate:
        found = read_copy(own.link, own.store, own.config.clusters["dr"], estate.admin("dr"))
    return [] if found is None else list(found.partitions)


def hang(node: Lab, own: OwnLink) -> None:
    """Freeze the store's only node until a request has waited for it in vain."""

    def unanswered() -> bool:
        try:
            own.store.watermarks(own.link.id)
        except Unreachable:
            return True
        return False

    node.pause("cassandra-1")
    try:
        wait_until(unanswered, 60, "a request that isn't answered")
    finally:
        node.resume("cassandra-1")


@pytest.mark.parametrize("backend", ["sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def test_workers_that_come_and_go_are_not_taken_for_a_loss(
    lab: Lab,
    tmp_path: Path,
    unique_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
    backend: str,
) -> None:
    """Each compares at every moment what the other one writes: store and copy are read one after the other; the node
    of Cassandra hangs meanwhile."""
    url = f"{request.getfixturevalue('cassandra_url')}&timeout=5" if backend == "cassandra" else None
    own = own_link(lab, tmp_path, unique_name, url, extra='offsets = "translate"')
    topic, partitions = own.create("primary", "t", partitions=4), range(4)
    places = [TopicPartition(topic, number) for number in partitions]
    for name in ("REOPEN_SECONDS", "PAUSE_TIMES"):
        monkeypatch.setattr(recorder, name, 0.0)
    other = open_link(own.config_path, own.name)

    def more(batch: str) -> None:
        own.produce("primary", topic, texts(batch, 10, partitions))
        aborted(own, topic, 3, partitions)

    def caught_up() -> bool:
        try:
            marks = own.store.watermarks(own.link.id)
        except Unreachable:
            return False
        with own.estate() as estate:
            ends = estate.admin("primary").log_ends(places)
        return all(tp in marks and marks[tp].source_through == end for tp, end in ends.items())

    def sharing() -> bool:
        workers = live_workers(own.store, own.link.id, own.store.time())
        return len(workers) == 2 and all(worker.partitions == 2 for worker in workers)

    with mirroring(own):
        for times in range(2):
            more(f"alone-{times}")
            with mirroring(other):
                wait_until(sharing, 120, "two workers with a half each")
                more(f"shared-{times}")
                if backend == "cassandra":
                    hang(request.getfixturevalue("cassandra_lab"), own)
                wait_until(caught_up, 120, "both to catch up")
        more("last")
        wait_until(caught_up, 120, "the last one to catch up")
        wait_until(lambda: proven(own) == places, 60, "a whole copy")
    with own.estate() as estate:
        copy = read_copy(own.link, own.store, own.config.clusters["dr"], estate.admin("dr"))
    assert copy is not None
    for tp, (mark, rows) in copy.partitions.items():
        assert rows == own.store.mappings(own.link.id, tp, mark.epoch)
        assert len(rows) == 5, "each marker moved what follows it"
    assert "older than its copy" not in caplog.text
    other.store.close()
    own.store.close()

"""The store is lost, with the primary or alone: nothing is created, and the copy on dr leads on."""

from __future__ import annotations

import json
import shlex
import sqlite3
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.drill.runbook import read_runbook
from drkit.failover.plan.preconditions import ACCEPT_UNFENCED
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.run.service import run_failback, standing_obstacles
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.lab import Lab
from drkit.mirror.runtime import mirror_runtime
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import DrkitError, Refused, StoreMissing
from drkit.model.link_state import COPY_CUT, RECORDS_UNMAPPED, STORE_OLDER, STORE_RECOVERED, Direction
from drkit.model.topology import TopicPartition
from drkit.state_topic.recorded_store import StateRecording
from drkit.state_topic.records import state_topic
from drkit.store import open_store
from drkit.store.sqlite.backend import SqliteStore
from tests.support.clusters.secured import killed_at
from tests.support.collection.sampling import sampled, some_of
from tests.support.commands.runbooks import run_block
from tests.support.links.estates import OwnLink, mirror, mirroring, open_link, own_link, texts, without_primary
from tests.support.links.log_reader import read_partition
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("ways to lose a store", 3)]

CALLABLES = "tests.support.links.callables"
SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"
FAIL_OVER = ("failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes")


def run(own: OwnLink, *words: str, code: int = 0, schema: str = "store-recover") -> dict[str, Any]:
    """A verb with `--output json`; its document, valid by its schema."""
    done = CliRunner().invoke(application((words[0],)), [*words, "--output", "json", "--config", str(own.config_path)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    name = "error" if "error" in found else schema
    Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text())).validate(found)
    return found


def burn(own: OwnLink, *, primary: bool = True) -> None:
    """Delete the store's files; `primary`: nothing answers at its address any more, either."""
    own.store.close()
    for file in store_files(own):
        file.unlink()
    if primary:
        burn_primary(own)


def burn_primary(own: OwnLink) -> None:
    """Nothing answers at its address any more."""
    own.store.close()
    gone = without_primary(own)
    text = own.config_path.read_text()
    was, now = (each.clusters["primary"].bootstrap_servers for each in (own.config, gone))
    own.config_path.write_text(text.replace(f'"{was}"', f'"{now}"'))


def store_files(own: OwnLink) -> list[Path]:
    return sorted(own.config_path.parent.glob("drkit.db*"))


def reopened(own: OwnLink) -> None:
    own.store = open_store(own.config.store.plain_url, create=False)


@pytest.fixture
def mirrored(own: OwnLink) -> tuple[OwnLink, str, str]:
    """A topic that is on both sides, and a group in its middle."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    group = own.commit("primary", "g", topic, {0: 30, 1: 12})
    mirror(own)
    return own, topic, group


def test_the_store_burns_with_the_primary_and_groups_move_all_the_same(mirrored):
    own, topic, group = mirrored
    burn(own)
    for words in (FAIL_OVER, ("status",), ("fence", "--lift"), ("resume",), ("link", "pause", str(own.link.id))):
        refused = run(own, *words, code=3)["error"]
        assert "drkit store recover --from dr" in refused["remedy"], refused
        assert refused["kind"] == "StoreMissing"
    assert store_files(own) == []

    found = run(own, "store", "recover", "--from", "dr")
    (link,) = found["links"]
    assert (link["topics"], link["partitions"], link["groups"], link["positions"]) == (1, 2, 1, 2)
    assert (link["basis"], link["left_out"], link["conservative"]) == ("state_topic", [], [])
    assert link["next"]["commands"] == [f"drkit failover --to dr --unplanned --accept-unfenced --link '{own.link.id}'"]
    again = run(own, "store", "recover", "--from", "dr", code=3)["error"]
    assert "holds data" in again["what"]

    moved = run(own, *FAIL_OVER, schema="failover")
    assert moved["evidence"]["rpo_lower_bound"]
    assert {(p["partition"], p["target_offset"], p["translation"]) for p in moved["groups"]} == {
        (0, 30, "exact"),
        (1, 12, "exact"),
    }
    assert own.unread("dr", group, topic) == {0: [], 1: [f"x-1-{number}" for number in range(12, 30)]}
    reopened(own)
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.SEALED


def test_a_failback_follows_where_the_store_was_lost_in_the_middle_of_one(mirrored, tmp_path):
    own, topic, group = mirrored
    run(own, "failover", "--to", "dr", "--accept-unfenced", "--yes", schema="failover")
    own.produce("dr", topic, texts("on-dr", 5))
    own.commit("dr", "g", topic, {0: 33, 1: 30})
    killed_at(own, "failback", ("reverse", "outcome", "after"), str(tmp_path / "salvage"))
    burn(own, primary=False)
    run(own, "store", "recover", "--from", "dr")
    reopened(own)
    lost = own.store.link_control(own.link.id).run
    assert all("drkit mirror" not in problem.remedy for problem in own.store.problems(own.link.id))
    refused = run(own, "failback", "--to", "primary", "--yes", code=3)["error"]
    assert f"drkit abandon {lost}" in refused["remedy"]

    done = run(own, "abandon", lost, schema="abandon")
    assert (done["serves"], done["open"], done["journal_problem"]) == ("dr", True, "it was lost with the store")

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        assert not standing_obstacles(plan, waived=frozenset({ACCEPT_UNFENCED}))
        ports = reading_ports(own, tmp_path / "salvage-2")
        result = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True)
    assert result.error is None
    assert own.records("primary", topic) == own.records("dr", topic)
    assert own.committed("primary", group) == {(topic, 0): 33, (topic, 1): 30}


def test_a_mirror_does_not_begin_anew_where_the_store_has_forgotten_the_link(mirrored):
    own, _, _ = mirrored
    burn(own, primary=False)
    own.store = open_store(own.config.store.plain_url)
    with pytest.raises(Refused, match="has a copy of its state") as told:
        mirror(own)
    assert "drkit store recover --from dr" in told.value.remedy

    (link,) = run(own, "store", "recover", "--from", "dr")["links"]  # an empty store is filled
    assert link["next"]["commands"] == [f"drkit mirror --link '{own.link.id}'"]
    assert mirror(own) == 0  # and continues exactly where it was
    assert own.store.problems(own.link.id) == []


def test_a_store_that_is_removed_under_a_mirror_ends_it(mirrored):
    own, _, _ = mirrored
    for file in store_files(own):
        file.unlink()
    with pytest.raises(StoreMissing, match="was removed"):
        MirrorRuntime(own.config, own.link, own.store).run()


def aborted(own: OwnLink, topic: str, partition: int, records: int) -> None:
    """A transaction that is aborted: offsets of the source that nothing stands for on dr."""
    producer = Producer({**own.client("primary"), "transactional.id": f"{own.name}.tx", "linger.ms": 5})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, f"aborted-{number}".encode(), partition=partition)
    producer.flush(30)
    begun = source_end(own, topic, partition)
    producer.abort_transaction(30)
    wait_until(lambda: source_end(own, topic, partition) == begun + 1, what="its marker, which comes after the answer")


def source_end(own: OwnLink, topic: str, partition: int) -> int:
    place = TopicPartition(topic, partition)
    with own.estate() as estate:
        return estate.admin("primary").end_offsets([place], committed=False)[place]


class NotRecording:
    """A recorder that is stuck: the copy stays as it is."""

    def __init__(self, _config: object, store: object, *_: object) -> None:
        self.store = store

    def close(self) -> None:
        """Nothing to write."""


@pytest.fixture
def lagging(lab: Lab, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[OwnLink, str, str]:
    """The copy ends at 30; the store has 20 records more, behind a hole that shifts them, and a group beyond it."""
    own = own_link(lab, tmp_path, unique_name)
    own.config_path.write_text(own.config_path.read_text().replace("groups = [", 'offsets = "translate"\ngroups = ['))
    own = own_link_again(own)
    topic = own.create("primary", "t", 1)
    own.produce("primary", topic, texts("early", 30, [0]))
    mirror(own)
    with monkeypatch.context() as patched:
        patched.setattr(mirror_runtime, "StateRecording", NotRecording)
        aborted(own, topic, 0, 7)
        own.produce("primary", topic, texts("late", 20, [0]))
        mirror(own)
    return own, topic, own.name


def own_link_again(own: OwnLink) -> OwnLink:
    own.store.close()
    return open_link(own.config_path, own.name)


def test_beyond_what_a_lagging_copy_proves_a_group_goes_back_and_skips_nothing(lagging):
    own, topic, _ = lagging
    group = own.commit("primary", "g", topic, {0: 48})  # ten of the twenty late records: 30 + 8 of the abort + 10
    burn(own, primary=False)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    (doubt,) = link["conservative"]
    assert (doubt["source_offset"], doubt["target_offset"], doubt["target_end"]) == (30, 30, 50)
    assert "20 offsets landed on dr" in doubt["reason"]

    moved = run(own, *FAIL_OVER, schema="failover")
    (position,) = moved["groups"]
    assert (position["target_offset"], position["translation"], position["reread"]) == (30, "conservative", None)
    assert "recovered from a copy" in position["reason"]
    assert moved["evidence"]["rpo_records"] is None
    assert "isn't known" in moved["evidence"]["rpo_reason"]
    assert own.unread("dr", group, topic) == {0: [f"late-0-{number}" for number in range(20)]}

    reopened(own)
    own.produce("dr", topic, texts("written on dr", 5, [0]))
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
    assert (loss.records, loss.lower_bound, loss.upper_bound, loss.basis) == (20, False, True, "audited")
    assert "how much had landed on the target since its copy was written isn't known" in loss.reason


def test_a_mirror_settles_by_the_logs_what_a_lagging_copy_did_not_prove(lagging):
    own, topic, _ = lagging
    burn(own, primary=False)
    run(own, "store", "recover", "--from", "dr")
    reopened(own)
    assert [problem.kind for problem in own.store.problems(own.link.id)] == [STORE_RECOVERED]
    own.produce("primary", topic, texts("after", 5, [0]))
    mirror(own)
    assert [problem.kind for problem in own.store.problems(own.link.id)] == []
    expected = [
        f"{word}-0-{number}" for word, count in (("early", 30), ("late", 20), ("after", 5)) for number in range(count)
    ]
    assert own.values("dr", topic) == {0: expected}
    found = run(own, "translate", "--topic", f"{topic}:0", "--offset", "48", schema="translate")["positions"][0]
    assert (found["target_offset"], found["translation"]) == (40, "exact")


def test_of_an_old_copy_nothing_is_taken_for_a_topic_that_was_made_anew(mirrored):
    own, topic, group = mirrored
    with own.estate() as estate:
        estate.admin("dr").delete_topics([topic])
    own.create("dr", "t")
    own.produce("dr", topic, texts("foreign", 50))
    burn(own)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert link["left_out"] == [
        {"topic": topic, "partition": None, "reason": f"{topic} on dr is another topic of the name now"}
    ]
    assert (link["partitions"], link["positions"]) == (0, 2)
    run(own, *FAIL_OVER, code=3)
    assert own.committed("dr", group) == {}


def test_burned_after_a_failover_the_link_stays_sealed_and_groups_can_be_moved_again(mirrored):
    own, topic, group = mirrored
    first = run(own, *FAIL_OVER, schema="failover")
    burn(own)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert (link["direction"], link["run"]) == ("sealed", first["run"])
    typed = shlex.split(link["next"]["commands"][0])
    assert typed[:4] == ["drkit", "failover", "--to", "dr"]
    assert typed[-2:] == ["--group", group]
    assert "journal is lost" in link["next"]["costs"]
    listed = run(own, "runs", schema="runs")
    assert listed["missing"] == [first["run"]]
    assert list(listed["store_recovered"]) == [str(own.link.id)], "nobody is told of tampering alone"
    reopened(own)
    with pytest.raises(Refused, match="is sealed"):
        mirror(own)
    moved = run(own, *typed[1:], "--yes", schema="failover")
    assert {(p["partition"], p["target_offset"]) for p in moved["groups"]} == {(0, 30), (1, 12)}
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}


def test_without_a_copy_the_logs_of_both_sides_lead_on_conservatively(mirrored):
    own, topic, group = mirrored
    with own.estate() as estate:
        estate.admin("dr").delete_topics([state_topic(own.link)])
    burn(own, primary=False)
    refused = run(own, "store", "recover", "--from", "dr", code=3)["error"]
    assert "--from-logs" in refused["remedy"]
    assert store_files(own) == []
    (link,) = run(own, "store", "recover", "--from", "dr", "--from-logs")["links"]
    assert (link["basis"], link["copy"], link["partitions"], link["left_out"]) == ("logs", None, 2, [])
    moved = run(own, *FAIL_OVER, schema="failover")
    assert {(p["partition"], p["target_offset"], p["translation"]) for p in moved["groups"]} == {
        (0, 30, "conservative"),
        (1, 12, "conservative"),
    }
    assert "the configuration says" in moved["groups"][0]["reason"]
    assert own.unread("dr", group, topic)[1] == [f"x-1-{number}" for number in range(12, 30)]


def test_logs_that_differ_are_left_out(mirrored):
    own, topic, _ = mirrored
    own.produce("dr", topic, texts("foreign", 1, [1]))
    own.produce("primary", topic, texts("other", 1, [1]))
    with own.estate() as estate:
        estate.admin("dr").delete_topics([state_topic(own.link)])
    burn(own, primary=False)
    (link,) = run(own, "store", "recover", "--from", "dr", "--from-logs")["links"]
    (out,) = link["left_out"]
    assert (out["topic"], out["partition"]) == (topic, 1)
    assert "offset 30 is not the same on both sides" in out["reason"]
    assert link["partitions"] == 1


@pytest.mark.long
def test_a_keyspace_that_was_dropped_is_not_created_and_filled_anew(lab, tmp_path, unique_name, cassandra_url):
    own = own_link(lab, tmp_path, unique_name, cassandra_url)
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    group = own.commit("primary", "g", topic, {0: 30, 1: 12})
    mirror(own)
    keyspace = own.store._session.location.keyspace  # type: ignore[attr-defined]  # the store has no verb for it
    own.store._session.change_schema(f"DROP KEYSPACE {keyspace}")  # type: ignore[attr-defined]
    burn(own)

    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert refused["kind"] == "StoreMissing"
    with pytest.raises(StoreMissing):
        open_store(cassandra_url, create=False)
    run(own, "store", "recover", "--from", "dr")
    run(own, *FAIL_OVER, schema="failover")
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}


def test_doctor_says_where_the_store_stands_and_how_good_its_copy_is(mirrored):
    own, _, _ = mirrored
    (link,) = run(own, "doctor", schema="doctor")["links"]
    checks = {check["check"]: check for check in link["checks"]}
    assert checks["copy of the store"]["outcome"] == "ok", checks["copy of the store"]
    assert "0 offsets behind" in checks["copy of the store"]["reason"]
    assert checks["store placement"]["outcome"] == "warn"
    assert "shares a host with primary" in checks["store placement"]["reason"]
    with sqlite3.connect(own.config_path.with_name("drkit.db")) as store:
        store.execute("DELETE FROM mapping")
    (link,) = run(own, "doctor", code=3, schema="doctor")["links"]
    checks = {check["check"]: check for check in link["checks"]}
    assert checks["copy of the store"]["outcome"] == "fail"
    assert "the store is older than its copy on dr, which has mapping rows of" in checks["copy of the store"]["reason"]
    with own.estate() as estate:
        estate.admin("dr").delete_topics([state_topic(own.link)])
    (link,) = run(own, "doctor", schema="doctor")["links"]
    checks = {check["check"]: check for check in link["checks"]}
    told = [checks[name]["outcome"] for name in ("copy of the store", "group positions translatable")]
    assert told == ["warn", "warn"], "a failover would be accepted without the mapping, and move no position"
    assert "no copy" in checks["copy of the store"]["reason"]


@pytest.mark.parametrize(
    "place",
    sampled("a store lost in a failover", [("fence", "intent", "after"), ("commit", "outcome", "after")], 1),
    ids="-".join,
)
def test_burned_in_the_middle_of_a_failover_the_next_one_ends_it(mirrored, place, tmp_path):
    own, topic, group = mirrored
    killed_at(own, "failover", place, str(tmp_path / "salvage"))
    burn(own)
    run(own, "resume", code=3)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert link["conservative"] == []
    words = FAIL_OVER if link["direction"] == "active" else (*FAIL_OVER, "--group", group)
    moved = run(own, *words, schema="failover")
    assert moved["state"] == "closed"
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}


@pytest.mark.parametrize("last", sampled("a recovery killed", ["append_mappings", "put_watermarks"], 1))
def test_a_recovery_that_was_killed_is_run_again_and_nothing_is_said_to_be_exact_before(mirrored, monkeypatch, last):
    own, topic, group = mirrored
    burn(own, primary=False)
    real = getattr(SqliteStore, last)

    def killed(*given: Any) -> None:
        real(*given)
        raise DrkitError("the machine went away")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, last, killed)
        run(own, "store", "recover", "--from", "dr", code=1)
    (seen,) = run(own, "status", schema="status")["links"]
    assert (seen["state"], seen["recovery_point"]["records"]) == ("degraded", None)
    assert "was interrupted" in seen["reason"]
    assert "drkit store recover --from dr" in seen["reason"]
    assert all(each["lag_records"] is None and each["mirrored_through"] is None for each in seen["partitions"])
    assert len(seen["groups"]) == {"append_mappings": 0, "put_watermarks": 2}[last]
    assert {each["translation"] for each in seen["groups"]} <= {"unavailable"}
    for words in (("--group", group), ("--topic", topic, "--partition", "0", "--offset", "3")):
        told = run(own, "translate", *words, code=3)["error"]
        assert "was interrupted" in told["what"]
    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert "was interrupted" in refused["what"]
    assert "drkit store recover --from dr" in refused["remedy"]
    reopened(own)
    with pytest.raises(Refused, match="was interrupted"):
        mirror(own)
    own.store.close()
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert (link["partitions"], link["positions"]) == (2, 2)
    run(own, *FAIL_OVER, schema="failover")
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}


# -- a copy, or a store, that is not what it seems ----------------------------------------------------


def state_records(own: OwnLink) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record of the link's state topic, as a plain consumer reads them."""
    records = read_partition(own.client("dr"), state_topic(own.link))
    return [(each.offset, each.key or b"", each.value) for each in records]


def backed_up(own: OwnLink) -> dict[Path, bytes]:
    """The store as it is now, for `brought_back`."""
    own.store.close()
    kept = {file: file.read_bytes() for file in store_files(own)}
    reopened(own)
    return kept


def brought_back(own: OwnLink, kept: dict[Path, bytes]) -> None:
    own.store.close()
    for file in store_files(own):
        file.unlink()
    for file, content in kept.items():
        file.write_bytes(content)
    reopened(own)


def test_a_decision_that_a_late_writer_brings_is_not_taken_for_the_last(mirrored):
    own, _, _ = mirrored
    run(own, "link", "pause", str(own.link.id), schema="link")
    mine = [record for record in state_records(own) if json.loads(record[1])[0] == "control"]
    late = mine[-1]
    assert late[2] is not None
    run(own, "link", "resume", str(own.link.id), schema="link")
    moved = run(own, *FAIL_OVER, schema="failover")
    producer = Producer(own.client("dr"))  # it was stopped with this in its hands, and woke up after the failover
    producer.produce(state_topic(own.link), key=late[1], value=late[2], partition=0)
    assert producer.flush(30) == 0
    burn(own)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert (link["direction"], link["run"]) == ("sealed", moved["run"])


def cut_copy(own: OwnLink, end: int) -> None:
    """Remove what the copy holds below this offset."""
    with own.estate() as estate:
        admin, place = estate.admin("dr"), TopicPartition(state_topic(own.link), 0)
        admin.set_topic_configs(place.topic, {"cleanup.policy": "delete"})

        def removed() -> bool:
            with suppress(Refused):  # the broker hasn't taken the policy over yet
                admin.delete_records({place: end})
            return admin.start_offsets([place])[place] == end

        wait_until(removed, what="the records to be deleted")


def test_a_copy_that_somebody_has_cut_is_not_taken_for_a_whole_one(mirrored):
    """DeleteRecords, or `cleanup.policy=delete` for a while: topics and groups vanish from it without a trace."""
    own, topic, _ = mirrored
    end = state_records(own)[-1][0] + 1
    second = own.create("primary", "second", 1)
    own.produce("primary", second, texts("y", 10, [0]))
    mirror(own)
    cut_copy(own, end)
    burn(own)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    out = {(each["topic"], each["partition"]): each["reason"] for each in link["left_out"]}
    assert "were deleted" in out["*", None]
    assert link["topics"] == 1, f"of {topic} nothing is left, not even its name"
    moved = run(own, *FAIL_OVER, "--dry-run", schema="failover")
    assert any("not whole" in warning for warning in moved["warnings"]), moved["warnings"]
    reopened(own)
    assert COPY_CUT in {problem.kind for problem in own.store.problems(own.link.id)}


def test_what_makes_no_sense_in_a_copy_is_left_out_and_said(mirrored):
    own, topic, _ = mirrored
    producer = Producer(own.client("dr"))
    for key, value in ((["watermark", topic, 1], b"{}"), (["positions", "g", "t", 0], b"null"), (["link"], b"\xff")):
        producer.produce(state_topic(own.link), key=json.dumps(key, separators=(",", ":")).encode(), value=value)
    assert producer.flush(30) == 0
    burn(own)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    out = {(each["topic"], each["partition"]): each["reason"] for each in link["left_out"]}
    assert "3 records" in out["*", None]
    assert "no watermark" in out[topic, 1]
    assert link["partitions"] == 1


def halted(own: OwnLink) -> dict[tuple[str, int | None], str]:
    """A mirror of this store, until it has caught up; the kinds of the problems that halt something, by place."""
    reopened(own)
    assert MirrorRuntime(own.config, own.link, own.store).run(until_caught_up=True).halted
    return {(each.topic, each.partition): each.kind for each in own.store.problems(own.link.id) if each.halted}


def test_no_mirror_begins_behind_a_partition_that_a_recovery_left_out(mirrored):
    """It copied the partition a second time, with lag 0, and a failover meanwhile skipped what a group had not read."""
    own, topic, group = mirrored
    producer = Producer(own.client("dr"))
    key = json.dumps(["watermark", topic, 1], separators=(",", ":")).encode()
    producer.produce(state_topic(own.link), key=key, value=b"{}", partition=0)
    assert producer.flush(30) == 0
    burn(own, primary=False)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert {(each["topic"], each["partition"]) for each in link["left_out"]} == {("*", None), (topic, 1)}
    assert "1 partition that was left out" in link["next"]["costs"]
    own.produce("primary", topic, texts("after", 5, [0]))
    before = own.values("dr", topic)
    assert halted(own) == {(topic, 1): RECORDS_UNMAPPED}
    after = own.values("dr", topic)
    assert after == {0: before[0] + [f"after-0-{number}" for number in range(5)], 1: before[1]}
    plan = run(own, "failover", "--to", "dr", "--dry-run", code=3, schema="failover")
    (refused,) = plan["refusals"]
    assert "an unknown number of records" in refused["what"]
    assert "--accept-recreated" in refused["remedy"]
    found = {each["partition"]: each for each in plan["groups"]}
    assert (found[0]["target_offset"], found[0]["translation"]) == (30, "exact")
    assert (found[1]["target_offset"], found[1]["translation"]) == (None, "unavailable")

    run(own, "link", "resume", str(own.link.id), "--topic", topic, "--accept-recreated", schema="link")
    reopened(own)
    rows = own.store.mappings(own.link.id, TopicPartition(topic, 1), 1)
    assert [(row.source_offset, row.target_offset) for row in rows] == [(0, 0), (30, 30)]
    mirror(own)
    assert own.values("dr", topic) == {0: after[0] * 2, 1: after[1] * 2}
    assert RECORDS_UNMAPPED not in [each.kind for each in own.store.problems(own.link.id)]
    moved = run(own, "failover", "--to", "dr", "--accept-unfenced", "--yes", schema="failover")
    assert {(each["partition"], each["target_offset"]) for each in moved["groups"]} == {(0, 65), (1, 42)}
    assert own.unread("dr", group, topic) == {0: after[0][30:], 1: after[1][12:]}


def test_a_topic_that_the_copy_never_had_is_not_mirrored_a_second_time(mirrored, monkeypatch):
    """It was mirrored first while the copy could not be written."""
    own, topic, _ = mirrored
    with monkeypatch.context() as patched:
        patched.setattr(mirror_runtime, "StateRecording", NotRecording)
        new = own.create("primary", "new")
        own.produce("primary", new, texts("new", 10))
        mirror(own)
    before = own.values("dr", new)
    burn(own, primary=False)
    run(own, "store", "recover", "--from", "dr")
    assert halted(own) == {(new, 0): RECORDS_UNMAPPED, (new, 1): RECORDS_UNMAPPED}
    assert own.values("dr", new) == before
    assert own.values("dr", topic) == own.values("primary", topic)


def test_no_new_store_begins_behind_what_another_ones_mirror_left_beside_an_empty_copy(mirrored):
    """Both died before the copy had a record; all was copied a second time, `mirroring`."""
    own, topic, _ = mirrored
    cut_copy(own, state_records(own)[-1][0] + 1)
    before = own.values("dr", topic)
    burn(own, primary=False)
    assert "there is no record in topic" in run(own, "store", "recover", "--from", "dr", code=3)["error"]["what"]
    open_store(own.config.store.plain_url).close()
    assert halted(own) == {(topic, 0): RECORDS_UNMAPPED, (topic, 1): RECORDS_UNMAPPED}
    assert own.values("dr", topic) == before
    assert halted(own) == {(topic, 0): RECORDS_UNMAPPED, (topic, 1): RECORDS_UNMAPPED}, "whoever starts it again"


def test_one_partition_whose_rows_are_damaged_in_the_copy_keeps_no_other_from_a_failover(mirrored):
    """Refused: the copy had a partition that was unknown to the store; a recovery led to the same place."""
    own, topic, _ = mirrored
    rows_damaged(own, topic)
    burn(own, primary=False)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    ((place, why),) = [((each["topic"], each["partition"]), each["reason"]) for each in link["left_out"]]
    assert place == (topic, 0)
    assert "not those that its watermark counts" in why
    before = own.values("dr", topic)
    assert halted(own) == {(topic, 0): RECORDS_UNMAPPED}
    assert own.values("dr", topic) == before
    burn_primary(own)
    (seen,) = run(own, "status", schema="status")["links"]
    assert seen["recovery_point"]["records"] is None
    moved = run(own, *FAIL_OVER, schema="failover")
    found = {each["partition"]: each for each in moved["groups"]}
    assert (found[1]["target_offset"], found[1]["translation"]) == (12, "exact")
    assert (found[0]["target_offset"], found[0]["translation"]) == (None, "unavailable")
    assert "left it out" in found[0]["reason"]


def test_no_second_store_is_filled_beside_the_one_that_a_mirror_uses(mirrored, tmp_path):
    """The operator's configuration names another store: after a failover the mirror would continue with its own."""
    own, topic, _ = mirrored
    other = tmp_path / "other"
    other.mkdir()
    elsewhere = OwnLink(own.name, other / "drkit.toml", own.config, own.store)
    text = own.config_path.read_text()
    elsewhere.config_path.write_text(text.replace(str(own.config_path.parent), str(other)))
    with mirroring(own):
        own.produce("primary", topic, texts("more", 5))
        wait_until(
            lambda: all(m.source_through >= 35 for m in own.store.watermarks(own.link.id).values()), what="it runs"
        )
        refused = run(elsewhere, "store", "recover", "--from", "dr", code=3)["error"]
    assert "is running" in refused["what"]
    assert store_files(elsewhere) == []
    run(elsewhere, "store", "recover", "--from", "dr")


def test_a_backup_that_is_brought_back_after_a_failover_opens_nothing(mirrored):
    own, topic, group = mirrored
    kept = backed_up(own)
    run(own, *FAIL_OVER, schema="failover")
    own.produce("primary", topic, texts("tail", 5))
    brought_back(own, kept)
    with pytest.raises(Refused, match="is older than the copy of its state"):
        mirror(own)
    assert own.values("dr", topic)[0] == [f"x-0-{number}" for number in range(30)]
    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert "is older than its copy on dr" in refused["what"]
    (link,) = run(own, "doctor", code=3, schema="doctor")["links"]
    checks = {check["check"]: check for check in link["checks"]}
    assert checks["copy of the store"]["outcome"] == "fail"
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}
    burn(own, primary=False)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert link["direction"] == "sealed"


def test_with_an_older_store_and_a_dead_primary_doctor_names_the_recovery_before_a_failover(mirrored):
    """It named a failover, which was refused: the store is older than its copy."""
    own, topic, _ = mirrored
    kept = backed_up(own)
    own.produce("primary", topic, texts("more", 5))
    mirror(own)
    brought_back(own, kept)
    servers = own.config.clusters["primary"].bootstrap_servers
    own.config_path.write_text(own.config_path.read_text().replace(servers, "127.0.0.1:1"))
    (link,) = run(own, "doctor", code=3, schema="doctor")["links"]
    (way,) = [check for check in link["checks"] if check["check"] == "way out"]
    assert "the store is older than its copy on dr" in way["reason"]
    before, _, then = way["remedy"].partition("Only where that can't be done: ")
    assert "drkit store recover --from dr" in before
    assert then.startswith("drkit failover --to dr")


def damaged(own: OwnLink) -> None:
    """A record of the copy can't be read any more."""
    producer = Producer(own.client("dr"))
    producer.produce(state_topic(own.link), key=b'["control"]', value=b"{}")
    assert producer.flush(30) == 0


def test_no_failback_rests_on_a_copy_that_can_t_be_read(mirrored):
    """A damaged record may be a later decision: then the live cluster would be scrubbed."""
    own, _, _ = mirrored
    damaged(own)
    plan = run(own, "failover", "--to", "dr", "--dry-run", schema="failover")
    assert [each for each in plan["warnings"] if "whether the store is older than its copy on dr isn't known" in each]
    run(own, "failover", "--to", "dr", "--accept-unfenced", "--yes", schema="failover")
    damaged(own)
    (refused,) = run(own, "failback", "--to", "primary", "--dry-run", code=3, schema="failover")["refusals"]
    assert "isn't known: 1 record of it can't be read" in refused["what"]
    assert "delete the topic on dr" in refused["remedy"]
    with own.estate() as estate:
        estate.admin("dr").delete_topics([state_topic(own.link)])
    run(own, "failback", "--to", "primary", "--dry-run", schema="failover")


def test_a_backup_from_before_a_failback_leads_to_no_second_one_and_closes_nothing(mirrored, tmp_path):
    """By it dr still serves, and the primary, whose topics are those that it knows, holds what is to be scrubbed: what
    clients have written since they are back."""
    own, topic, group = mirrored
    run(own, "failover", "--to", "dr", "--accept-unfenced", "--yes", schema="failover")
    kept = backed_up(own)
    with (
        closing(StateRecording(own.config, own.store)) as recording,
        replace(own, store=recording.store).estate() as estate,
    ):
        plan = make_failback_plan(estate, "primary")
        assert plan.level, "nothing is deleted: the topics stay what they are"
        ports = reading_ports(own, tmp_path / "salvage")
        done = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True)
    assert done.error is None
    own.produce("primary", topic, texts("since", 5))
    own.commit("primary", "g", topic, {0: 35, 1: 35})
    before = own.records("primary", topic)
    brought_back(own, kept)

    for words in (("failback", "--to", "primary", "--dry-run"), ("reprotect", "--dry-run")):
        (refused,) = run(own, *words, code=3, schema="failover")["refusals"]
        assert "is older than its copy on dr" in refused["what"]
        assert "store recover --from dr" in refused["remedy"]
    for words in (("fence",), ("fence", "--lift", "--cluster", "primary", "--yes")):
        refused = run(own, *words, code=3)["error"]
        assert "is older than its copy on dr" in refused["what"], words
    assert own.records("primary", topic) == before
    assert own.committed("primary", group) == {(topic, 0): 35, (topic, 1): 35}
    burn(own, primary=False)
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert link["direction"] == "active"


def rows_damaged(own: OwnLink, topic: str) -> None:
    """The copy doesn't prove the rows of the first partition any more."""
    producer = Producer(own.client("dr"))
    for _, key, _ in state_records(own):
        if json.loads(key)[:3] == ["rows", topic, 0]:
            producer.produce(state_topic(own.link), key=key, value=b"[[0,1]]", partition=0)
    assert producer.flush(30) == 0


def clock_ahead(own: OwnLink, _topic: str) -> None:
    """The backup is of a time at which the mirror's clock was ahead: it was set back since."""
    marks = own.store.watermarks(own.link.id).values()
    ahead = [replace(mark, observed_at=mark.observed_at + timedelta(hours=1)) for mark in marks]
    own.store.put_watermarks(own.link.id, ahead)


@pytest.mark.parametrize("unseen", [lambda *_: None, rows_damaged, clock_ahead])
def test_rows_that_a_backup_has_not_are_no_reason_for_an_exact_position(own, unseen):
    """A backup lacks the row behind an aborted transaction: by its rows a group would skip what it has not read."""
    own.config_path.write_text(own.config_path.read_text().replace("groups = [", 'offsets = "translate"\ngroups = ['))
    own = own_link_again(own)
    topic = own.create("primary", "t", 1)
    own.produce("primary", topic, texts("early", 30, [0]))
    mirror(own)
    kept = backed_up(own)
    aborted(own, topic, 0, 7)
    own.produce("primary", topic, texts("late", 20, [0]))
    group = own.commit("primary", "g", topic, {0: 48})
    mirror(own)
    brought_back(own, kept)
    unseen(own, topic)
    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert "newer watermarks" in refused["what"]
    mirror(own)  # it compares both logs
    run(own, *FAIL_OVER, schema="failover")
    assert own.unread("dr", group, topic) == {0: [f"late-0-{number}" for number in range(10, 20)]}
    own.store.close()


LOOKED_UP = (25, 29, 30, 31, 40, 48, 60)


def translations(own: OwnLink, topic: str, offsets: Iterable[int]) -> dict[int, tuple[int, str]]:
    """Where these source offsets are on dr, and how surely, by `drkit translate`."""
    found = {}
    for offset in offsets:
        words = ("translate", "--topic", f"{topic}:0", "--offset", str(offset))
        (answer,) = run(own, *words, schema="translate")["positions"]
        found[offset] = answer["target_offset"], answer["translation"]
    return found


@pytest.mark.parametrize("compared", [True, False], ids=["compared", "unreadable"])
def test_with_the_primary_gone_nothing_beyond_an_older_watermark_is_exact_where_rows_are_missing(
    lab, tmp_path, unique_name, compared
):
    """A SQLite file of before is put back, which had seen the source's end further up: two of three records are kept,
    and the rows that it has say otherwise of what came later. No mirror begins with it, either."""
    own = own_link(lab, tmp_path, unique_name, extra=f'filter = "{CALLABLES}:keeps_two_of_three"')
    topic = own.create("primary", "t", 1)
    own.produce("primary", topic, texts("early", 30, [0]))
    place = TopicPartition(topic, 0)
    mirror(own)
    with mirroring(own):
        run(own, "link", "pause", str(own.link.id), "--topic", topic, schema="link")
        own.produce("primary", topic, texts("late", 30, [0]))
        wait_until(lambda: own.store.watermarks(own.link.id)[place].source_end == 60, what="their end to be seen")
    kept = backed_up(own)
    run(own, "link", "resume", str(own.link.id), "--topic", topic, schema="link")
    reopened(own)
    group = own.commit("primary", "g", topic, {0: 48})
    mirror(own)
    exact = translations(own, topic, LOOKED_UP)
    assert {certainty for _, certainty in exact.values()} == {"exact"}
    brought_back(own, kept)
    with pytest.raises(Refused, match="newer watermarks") as told:
        started(own)
    assert "drkit store recover --from dr" in told.value.remedy
    if not compared:
        damaged(own)
    burn_primary(own)
    found = translations(own, topic, LOOKED_UP)
    below = "exact" if compared else "conservative"  # the store may have lost rows there, too
    assert {offset: answer for offset, answer in found.items() if offset < 30} == {
        offset: (there, below) for offset, (there, _) in exact.items() if offset < 30
    }
    assert {answer for offset, answer in found.items() if offset >= 30} == {(exact[30][0], "conservative")}
    (link,) = run(own, "status", schema="status")["links"]
    (told_of,) = [each for each in link["problems"] if each["kind"] == STORE_OLDER]
    assert ("isn't known: " in told_of["reason"]) is not compared
    assert link["recovery_point"]["records"] is None
    assert "older than its copy" in link["recovery_point"]["reason"]
    if not compared:
        return
    for file in store_files(own):
        file.rename(file.with_name(f"old-{file.name}"))
    run(own, "store", "recover", "--from", "dr")
    assert translations(own, topic, LOOKED_UP) == exact
    moved = run(own, *FAIL_OVER, schema="failover")
    assert [(each["group"], each["translation"]) for each in moved["groups"]] == [(group, "exact")]


# ---- a backup ------------------------------------------------------------------------------------------


def copied(own: OwnLink, file: Path) -> Path:
    run(own, "store", "backup", "--out", str(file), schema="store-backup")
    return file


def restored(own: OwnLink, file: Path) -> None:
    burn(own, primary=False)
    (link,) = run(own, "store", "restore", "--from", str(file), schema="store-restore")["restored"]
    assert link["direction"] == "paused"


def test_after_an_older_backup_nothing_is_copied_twice_and_every_position_is_exact_again(lagging, tmp_path):
    """As `lagging`: the store is ahead of the backup by an aborted transaction and 20 records, which shift offsets."""
    own, topic, _ = lagging
    file = copied(own, tmp_path / "copy.gz")
    aborted(own, topic, 0, 5)
    own.produce("primary", topic, texts("later", 20, [0]))
    group = own.commit("primary", "g", topic, {0: 30 + 8 + 20 + 6 + 4})
    mirror(own)
    restored(own, file)
    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert "newer watermarks" in refused["what"], refused
    run(own, "link", "resume", str(own.link.id), schema="link")
    reopened(own)
    assert STORE_RECOVERED in [problem.kind for problem in own.store.problems(own.link.id)]
    mirror(own)
    assert [problem.kind for problem in own.store.problems(own.link.id)] == []
    words = (("early", 30), ("late", 20), ("later", 20))
    expected = [f"{word}-0-{number}" for word, count in words for number in range(count)]
    assert own.values("dr", topic) == {0: expected}
    moved = run(own, *FAIL_OVER, schema="failover")
    assert [(each["target_offset"], each["translation"]) for each in moved["groups"]] == [(54, "exact")]
    assert own.unread("dr", group, topic) == {0: expected[54:]}


def test_a_backup_from_before_a_failover_starts_no_mirror_below_the_clients(mirrored, tmp_path):
    own, topic, _ = mirrored
    file = copied(own, tmp_path / "copy.gz")
    first = run(own, *FAIL_OVER, schema="failover")
    own.produce("dr", topic, texts("by-clients", 3))
    restored(own, file)
    (link,) = run(own, "doctor", code=3, schema="doctor")["links"]
    checks = {check["check"]: check for check in link["checks"]}
    assert "which has a later decision about the link (1)" in checks["copy of the store"]["reason"]
    for words in (("resume", str(own.link.id)), ("pause", str(own.link.id)), ("recover", str(own.link.id))):
        refused = run(own, "link", *words, code=3)["error"]
        assert f"is sealed by run {first['run']}" in refused["what"]
        assert "drkit store recover --from dr" in refused["remedy"]
    reopened(own)
    with pytest.raises(Refused):
        mirror(own)
    own.store.close()
    for file in store_files(own):
        file.rename(file.with_name(f"old-{file.name}"))
    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert (link["direction"], link["run"]) == ("sealed", first["run"])


def without_this_topic(own: OwnLink, file: Path) -> tuple[str, str]:
    """A store that is restored from a backup which lacks a topic with a group, mirrored wholly since."""
    copied(own, file)
    new = own.create("primary", "new")
    own.produce("primary", new, texts("new", 10))
    group = own.commit("primary", "h", new, {0: 0, 1: 5})
    mirror(own)
    restored(own, file)
    return new, group


def started(own: OwnLink) -> None:
    """A mirror that is started, until it ends by itself."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            pool.submit(MirrorRuntime(own.config, own.link, own.store).run, False, stop).result(timeout=30)
        finally:
            stop.set()


def recovered_instead(own: OwnLink) -> None:
    """What the refusals advise."""
    for file in store_files(own):
        file.rename(file.with_name(f"old-{file.name}"))
    run(own, "store", "recover", "--from", "dr")


def test_a_topic_that_a_backup_lacks_is_not_mirrored_a_second_time(mirrored, tmp_path):
    """Started while the restore holds the link, and resumed: nothing is changed, neither on dr nor in the copy."""
    own, topic, _ = mirrored
    new, _ = without_this_topic(own, tmp_path / "copy.gz")
    before = own.values("dr", new)
    reopened(own)
    with pytest.raises(Refused, match=f"topic {new}, unknown to the store") as told:
        started(own)
    assert "drkit store recover --from dr" in told.value.remedy
    own.store.close()
    for words in (("link", "resume", str(own.link.id)), FAIL_OVER):
        refused = run(own, *words, code=3)["error"]
        assert f"topic {new}, unknown to the store" in refused["what"]
        assert "store recover --from dr" in refused["remedy"]
        assert "drkit mirror" not in refused["remedy"]
    (link,) = run(own, "doctor", code=3, schema="doctor")["links"]
    checks = {check["check"]: check for check in link["checks"]}
    assert checks["copy of the store"]["outcome"] == "fail"
    assert new in checks["copy of the store"]["reason"]

    recovered_instead(own)
    reopened(own)
    mirror(own)
    assert own.values("dr", new) == before == own.values("primary", new)
    assert own.values("dr", topic) == own.values("primary", topic)


def test_with_the_primary_gone_groups_of_a_topic_that_a_backup_lacks_skip_nothing(mirrored, tmp_path):
    own, _, _ = mirrored
    new, group = without_this_topic(own, tmp_path / "copy.gz")
    reopened(own)
    with pytest.raises(Refused, match="unknown to the store"):
        started(own)
    burn_primary(own)
    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert f"topic {new}, unknown to the store" in refused["what"]
    recovered_instead(own)
    moved = run(own, *FAIL_OVER, schema="failover")
    found = {each["partition"]: each for each in moved["groups"] if each["topic"] == new}
    assert [(found[p]["target_offset"], found[p]["translation"]) for p in (0, 1)] == [(0, "exact"), (5, "exact")]
    assert own.unread("dr", group, new) == {0: own.values("dr", new)[0], 1: own.values("dr", new)[1][5:]}
    own.store.close()


def test_what_else_a_backup_lacks_is_not_settled_by_a_mirror(mirrored):
    """A partition that was added since, a topic that was accepted as another one, and a committed position."""
    own, topic, group = mirrored
    kept = backed_up(own)
    own.commit("primary", "g", topic, {0: 30, 1: 20})
    mirror(own)
    later = backed_up(own)
    brought_back(own, kept)
    refused = run(own, *FAIL_OVER, code=3)["error"]
    assert f"newer positions of {group}" in refused["what"]
    brought_back(own, later)

    with own.estate() as estate:
        estate.admin("primary").add_partitions(topic, 3)
    own.produce("primary", topic, texts("third", 4, [2]))
    mirror(own)
    later = backed_up(own)
    brought_back(own, kept)
    with pytest.raises(Refused, match=f"partition {topic}:2, unknown to the store"):
        mirror(own)
    assert own.values("dr", topic) == own.values("primary", topic)
    brought_back(own, later)

    with own.estate() as estate:
        estate.admin("primary").delete_topics([topic])
    own.create("primary", "t")
    own.produce("primary", topic, texts("again", 3))
    assert MirrorRuntime(own.config, own.link, own.store).run(until_caught_up=True).halted
    run(own, "link", "resume", str(own.link.id), "--topic", topic, "--accept-recreated", schema="link")
    mirror(own)
    brought_back(own, kept)
    with pytest.raises(Refused, match=f"epoch 2 of topic {topic}") as told:
        mirror(own)
    assert "drkit store recover" in told.value.remedy
    own.store.close()


def test_the_runbook_of_a_lost_store(mirrored, tmp_path):
    own, topic, _ = mirrored
    given = {
        "DRKIT_CONFIG": str(own.config_path),
        "BACKUP": str(tmp_path / "copy.gz"),
        "KEEP": str(tmp_path / "after.gz"),
    }
    book = read_runbook(Path(__file__).parents[4] / "runbooks" / "store-lost.md", given)

    def play(name: str, *codes: int) -> str:
        ran = run_block(book, name, tmp_path)
        assert tuple(each.done.returncode for each in ran) == codes, [each.done.stderr for each in ran]
        return ran[-1].done.stdout

    copied(own, tmp_path / "copy.gz")
    burn(own, primary=False)
    play("look", 0, 3)
    assert "drkit mirror" in play("recover", 0)
    own.produce("primary", topic, texts("after", 5))
    play("mirror", 0)
    play("verify", 0, 0)
    play("keep", 0)
    for file in store_files(own):
        file.unlink()
    play("restore-look", 0)
    assert "paused" in play("restore", 0, 0)
    play("resume", 0)
    play("mirror", 0)
    assert own.values("dr", topic) == own.values("primary", topic)
    with own.estate() as estate:
        estate.admin("dr").delete_topics([state_topic(own.link)])
    for file in store_files(own):
        file.unlink()
    play("recover", 3)
    play("from-logs", 0)
    play("mirror", 0)
    assert own.values("dr", topic) == own.values("primary", topic)

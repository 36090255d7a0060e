"""Failback on real clusters: there and back again, and nothing outside the link is touched."""

import json
import threading
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from drkit.directory import open_directories
from drkit.drill.environment.log_surgery import flip
from drkit.failover.context.interfaces import AuditVerdict
from drkit.failover.context.state_machine import StageOutcome, State
from drkit.failover.journal.journal import INTENT
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.positions.positions import Strategy
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.run.service import cancel_run, resume_run, run_failback, run_failover, standing_obstacles
from drkit.failover.stages import scrub_stage
from drkit.failover.stages.audit_stage import AuditFailed
from drkit.kafka.admin.write_block import is_blocked
from drkit.kafka.client.filler import FillerTrimmer
from drkit.mirror.control import accept_recreated, resume_link
from drkit.model.clock import now, to_millis
from drkit.model.errors import ExitCode, PartlyDone, Refused
from drkit.model.link_state import Direction
from drkit.model.topics.standby import ALIGNING, OWN_SETTINGS
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from tests.support.collection.sampling import sampled, some_of
from tests.support.killing.killed_process import killed
from tests.support.links.estates import TIMEOUT, mirror, open_link, own_link, texts
from tests.support.recovery.failback_ports import ReadingSalvager, reading_ports, salvaged
from tests.support.recovery.failbacks import fail_over
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("failbacks", 3)]

MAGIC_AT = 16
"""Where a batch has its format (KIP-98): a broker can serve none whose format it does not know."""

UNFENCED = frozenset({"--accept-unfenced"})
"""What the lab's clusters, which keep no access rules, can't be moved away from without."""


def cluster_id(own, alias):
    with own.estate() as estate:
        return estate.admin(alias).cluster_id()


def fail_back(own, tmp_path, ports=None, *, accept_salvage_only=False):
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        return plan, run_failback(
            estate,
            plan,
            ports or reading_ports(own, tmp_path / "salvage"),
            cluster_id=cluster_id(own, "primary"),
            accept_unfenced=True,
            accept_salvage_only=accept_salvage_only,
        )


@pytest.fixture
def away(own):
    """Failed over, with records that only the primary holds, and new ones on dr."""
    topic = own.create("primary", "orders", partitions=2, retention_ms="123456789", compression_type="producer")
    own.produce("primary", topic, texts("before", 50))
    names = {
        "live": own.commit("primary", "live", topic, {0: 50, 1: 50}),
        "lagging": own.commit("primary", "lagging", topic, {0: 5, 1: 0}),
    }
    mirror(own)
    own.produce("primary", topic, texts("never-mirrored", 7))
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 30))
    own.commit("dr", "live", topic, {0: 80, 1: 71})
    return topic, names


def topic_setting(own, alias, topic, key):
    admin = AdminClient(own.client(alias))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(TIMEOUT)[key].value


def test_there_and_back_again(own, away, tmp_path):
    topic, names = away
    outside = f"x{own.topic('outside')}"  # the link's pattern doesn't match it
    neighbour = replace(own, name=f"x{own.name}")
    neighbour.create("primary", "outside")
    neighbour.produce("primary", outside, texts("untouched", 3))
    bystander = neighbour.commit("primary", "bystander", outside, {0: 1})
    own.commit("primary", "lagging", outside, {0: 2})  # a group of the link, outside its topics
    on_dr = own.values("dr", topic)
    unread = {name: own.unread("dr", name, topic) for name in names.values()}

    plan, result = fail_back(own, tmp_path)

    assert result.error is None
    assert result.machine.state is State.CLOSED
    assert plan.only_here == 14
    assert result.machine.facts.salvaged == 14
    kept = (tmp_path / "salvage" / result.run / "records.jsonl").read_text().splitlines()
    assert len(kept) == 14
    assert all("never-mirrored" in line for line in kept)
    assert own.values("primary", topic) == on_dr
    assert {name: own.unread("primary", name, topic) for name in names.values()} == unread
    assert topic_setting(own, "primary", topic, "retention.ms") == "123456789"
    assert topic_setting(own, "primary", topic, "compression.type") == "producer"
    assert result.evidence.rpo_records == 0
    assert {stage.outcome for stage in result.stages} == {StageOutcome.OK}

    assert neighbour.values("primary", outside) == texts("untouched", 3)
    assert neighbour.committed("primary", bystander) == {(outside, 0): 1}
    assert neighbour.committed("primary", names["lagging"]) == {(outside, 0): 2}

    control = own.store.link_control(own.link.id)
    assert (control.direction, control.run) == (Direction.ACTIVE, result.run)
    assert own.store.link_control(own.link.id.reversed()).direction is Direction.SEALED


def test_the_link_flows_on_afterwards_without_loss_or_copy_and_can_fail_over_again(own, away, tmp_path):
    topic, names = away
    _plan, result = fail_back(own, tmp_path)
    assert result.error is None
    own.produce("primary", topic, texts("after", 20))
    own.commit("primary", "live", topic, {0: 90, 1: 95})
    assert mirror(own) == 40
    assert own.values("dr", topic) == own.values("primary", topic)
    unread = {name: own.unread("primary", name, topic) for name in names.values()}
    again = fail_over(own)
    assert {name: own.unread("dr", name, topic) for name in names.values()} == unread
    assert all(p.skipped == 0 and p.reread == 0 for p in again.positions)
    plan, back = fail_back(own, tmp_path)
    assert back.error is None
    assert back.machine.facts.salvaged == 0
    assert plan.level, "all of the primary was mirrored before it was left"


@pytest.mark.parametrize("lagging", [True, False])
def test_what_a_group_has_not_read_is_not_removed_by_the_settings_of_before(own, away, tmp_path, lagging):
    """In the incident dr was made to keep more."""
    topic, names = away
    with own.estate() as estate:
        estate.admin("dr").set_topic_configs(topic, {"retention.ms": "-1"})
    if not lagging:
        for group in names:
            own.commit("dr", group, topic, {0: 80, 1: 80})
    plan, result = fail_back(own, tmp_path)
    assert f"{topic} (retention.ms 123456789, on dr -1)" in " ".join(plan.warnings)
    assert result.error is None
    (switch,) = [stage.reason for stage in result.stages if stage.name == "switch"]
    assert (f"{topic} keeps retention.ms -1 ({names['lagging']} has not read" in switch) is lagging
    assert topic_setting(own, "primary", topic, "retention.ms") == ("-1" if lagging else "123456789")


@pytest.mark.parametrize(("partitions", "records"), [(1, 0), (3, 0), (2, 3)])
def test_a_topic_that_a_client_makes_before_it_is_recreated_is_not_taken_for_the_run_s(
    own, away, tmp_path, monkeypatch, partitions, records
):
    """Brokers with auto.create.topics.enable do so when a client asks for it."""
    topic, _names = away
    delete = scrub_stage._delete

    def and_made_by_a_client(*arguments):
        delete(*arguments)
        own.create("primary", "orders", partitions=partitions)
        own.produce("primary", topic, texts("stranger", records))

    with monkeypatch.context() as patched:
        patched.setattr(scrub_stage, "_delete", first_time(and_made_by_a_client, delete))
        _plan, result = fail_back(own, tmp_path)
    if records:
        assert "on primary holds 3 offsets, but it is not the topic that the plan saw" in result.error.what
        assert own.values("primary", topic) == texts("stranger", records), "nothing is seeded beside them"
        with own.estate() as estate:
            estate.admin("primary").delete_topics([topic])
            result = resume_run(estate, result.run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


def first_time(this, then):
    """A function that does this when it is called first, and something else from then on."""
    acts = iter([this])

    def act(*arguments):
        return next(acts, then)(*arguments)

    return act


def test_records_that_a_client_writes_before_the_seed_are_found_though_no_audit_compares_them(
    own, away, tmp_path, monkeypatch
):
    topic, _names = away
    recreate = scrub_stage.recreate

    def and_written(*arguments):
        made = recreate(*arguments)
        own.produce("primary", topic, {1: ["stranger"] * 3})
        return made

    with monkeypatch.context() as patched:
        patched.setattr(scrub_stage, "recreate", and_written)
        _plan, result = fail_back(own, tmp_path)
    assert isinstance(result.error, AuditFailed)
    assert f"{topic}:1 (offsets 0 to 2) on primary hold records from before they were seeded" in result.error.what
    with own.estate() as estate:
        estate.admin("primary").delete_records({TopicPartition(topic, 1): 3})
        result = resume_run(estate, result.run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


def test_what_was_aborted_on_the_live_cluster_is_no_foreign_record_to_the_mirror_after_a_failback(own, away, tmp_path):
    """dr's log keeps it, at its end and further down; the re-seeded primary has a marker there."""
    topic, _names = away
    producer = Producer({**own.client("dr"), "transactional.id": f"{topic}-on-dr"})
    producer.init_transactions(TIMEOUT)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, value=b"in transaction %d" % number, partition=0)
        producer.flush(TIMEOUT)
        if number % 2:
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)
    _plan, result = fail_back(own, tmp_path)
    assert result.error is None
    own.produce("primary", topic, texts("after", 20))
    assert mirror(own) == 40
    assert own.values("dr", topic) == own.values("primary", topic)


def test_what_no_salvage_has_looked_at_is_not_deleted(own, away, tmp_path):
    """A broker that has just started doesn't list all topics: the salvage of one of them has nothing."""
    topic, _names = away
    ports = reading_ports(own, tmp_path / "salvage")

    class Blind(type(ports.salvager)):
        def salvage(self, *arguments):
            return replace(super().salvage(*arguments), incomplete=(f"primary lists no topic {topic}",))

    _plan, result = fail_back(own, tmp_path, replace(ports, salvager=Blind(own)))
    assert result.error.what == f"primary lists no topic {topic}"
    with own.estate() as estate:
        assert topic in estate.admin("primary").topics([topic])


def test_a_failback_over_a_purged_live_cluster_is_refused_and_names_what_only_the_old_primary_holds(own, tmp_path):
    """Nothing else is only there: so it would delete nothing, and put groups behind what they have not read."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 50))
    group = own.commit("primary", "g", topic, {0: 10, 1: 50})
    mirror(own)
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 30})
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 5))
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
    assert not plan.level
    obstacle = next(each for each in plan.obstacles if each.waived_by == "--accept-salvage-only")
    assert f"{topic} starts later than what was mirrored (30 offsets)" in obstacle.what
    assert f"{topic}:0 on dr begins later than on primary" in " ".join(plan.warnings)
    _plan, result = fail_back(own, tmp_path, accept_salvage_only=True)
    assert result.error is None
    assert result.machine.facts.salvaged == 30
    assert own.records("primary", topic) == own.records("dr", topic), "by offset"
    assert own.unread("primary", group, topic) == own.unread("dr", group, topic)


def test_a_failback_after_a_topic_was_accepted_seeds_the_old_primary_with_what_dr_has_from_before(own, tmp_path):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("former", 20))
    mirror(own)
    with own.estate() as estate:
        accept_recreated(own.store, own.link, topic, source=estate.admin("primary"), target=estate.admin("dr"))
    mirror(own)
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 5))
    plan, result = fail_back(own, tmp_path)
    assert not plan.level
    assert "from before it was mirrored as it is now" in " ".join(plan.warnings)
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


@pytest.mark.parametrize("explained", [True, False], ids=["by retention", "by hand"])
def test_an_old_primary_that_begins_later_is_seeded_again_unless_its_retention_explains_that(own, tmp_path, explained):
    topic = own.create("primary", "t", retention_ms="3600000" if explained else "-1")
    own.produce("primary", topic, texts("x", 50), to_millis(now()) - 7_200_000)
    group = own.commit("primary", "g", topic, {0: 10, 1: 50})
    mirror(own)
    fail_over(own)
    with own.estate() as estate:
        assert not [each for each in make_failback_plan(estate, "primary").warnings if "later than" in each]
        estate.admin("primary").delete_records({TopicPartition(topic, 0): 30})
    unread = own.unread("dr", group, topic)
    plan, result = fail_back(own, tmp_path)
    assert plan.level is explained
    (said,) = [each for each in plan.warnings if "later than" in each]
    if explained:
        assert f"30 offsets that dr still holds were removed there by its retention, most of {topic}:0 (30)" in said
        return
    assert f"{topic}:0 on primary begins later than on dr, and no retention explains it (offsets 0 to 29 there)" in said
    assert said.endswith(": all is seeded again")
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.unread("primary", group, topic) == unread


def test_an_idle_topic_that_the_old_primarys_retention_has_emptied_stops_no_failback(own, tmp_path):
    """Nothing of it is read on the way back, and the old primary holds no record of it to compare: dr's log is the one
    that it was when the record was reversed."""
    topic, idle = own.create("primary", "t"), own.create("primary", "idle", retention_ms="3600000")
    own.produce("primary", topic, texts("x", 10))
    own.produce("primary", idle, texts("old", 50), to_millis(now()) - 7_200_000)
    mirror(own)
    fail_over(own)
    with own.estate() as estate:
        estate.admin("primary").delete_records({TopicPartition(idle, number): 50 for number in (0, 1)})
    own.produce("dr", topic, texts("on-dr", 5))
    plan, result = fail_back(own, tmp_path)
    assert plan.level
    assert result.error is None, result.error
    assert own.values("primary", topic) == own.values("dr", topic)


def test_an_old_primary_whose_beginning_can_t_be_compared_is_seeded_again(lab, own):
    topic = own.create("primary", "t", retention_ms="-1")
    own.produce("primary", topic, texts("first", 30))
    for _ in range(3):  # far enough that the index has an entry between the first batch and the last
        own.produce("primary", topic, texts("then" * 100, 20))
    mirror(own)
    fail_over(own)
    flip(lab.dir / "nodes" / "dr-1" / "data" / f"{topic}-0", 0, MAGIC_AT, mask=0x03)
    with own.estate() as estate:
        estate.admin("primary").delete_records({TopicPartition(topic, 0): 30})
        plan = make_failback_plan(estate, "primary")
    assert not plan.level
    (said,) = [each for each in plan.warnings if "later than" in each]
    assert f"{topic}:0 on primary begins later than on dr, and whether retention explains it can't be told" in said


@pytest.mark.parametrize("cleanup", sampled("a scrubbed primary", ["delete", "compact,delete"], 1))
def test_a_scrubbed_primary_has_the_offsets_of_the_live_cluster_also_where_its_log_starts_later(own, tmp_path, cleanup):
    topic = own.create("primary", "t", partitions=3, cleanup_policy=cleanup, retention_ms="123456789")  # 2 stays empty
    own.produce("primary", topic, texts("before", 50))
    group = own.commit("primary", "g", topic, {0: 30, 1: 50})
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2))
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 5))
    own.commit("dr", "g", topic, {0: 45, 1: 55})
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 40})
    unread = own.unread("dr", group, topic)
    with own.estate() as estate:
        (obstacle, unfenced) = make_failback_plan(estate, "primary").obstacles
    assert f"{topic} starts later than what was mirrored (44 offsets)" in obstacle.what
    assert (obstacle.waived_by, unfenced.waived_by) == ("--accept-salvage-only", "--accept-unfenced")
    _plan, result = fail_back(own, tmp_path, accept_salvage_only=True)
    assert result.error is None
    assert result.machine.facts.salvaged == 44, "what dr's log start cut off, too"
    assert own.records("primary", topic) == own.records("dr", topic), "by offset"
    assert min(own.records("primary", topic)[0]) == 40
    assert own.unread("primary", group, topic) == unread
    assert {position.strategy for position in result.positions} == {Strategy.PRESERVED}
    settings = {key: topic_setting(own, "primary", topic, key) for key in ("cleanup.policy", "retention.ms")}
    assert settings == {"cleanup.policy": cleanup, "retention.ms": "123456789"}
    own.produce("primary", topic, texts("after", 5))
    assert mirror(own) == 10
    assert own.records("primary", topic) == own.records("dr", topic)


def rewritten(own, topic, partition, count, stamp):
    """A key that is written so many times on dr."""
    producer = Producer({**own.client("dr"), "linger.ms": 50})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"often", partition=partition, timestamp=stamp)
    assert producer.flush(TIMEOUT) == 0


class SlowSalvager(ReadingSalvager):
    """A salvage during which clients of dr write; `meanwhile` waits until that has its effect."""

    def __init__(self, own, meanwhile):
        super().__init__(own)
        self.meanwhile = meanwhile
        self.times = 0

    def salvage(self, *arguments):
        done = super().salvage(*arguments)
        self.times += 1
        self.meanwhile()
        return done


SOON_COMPACTED = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.0001"}


def write_keys(own, topic, keys, text):
    producer = Producer({**own.client("dr"), "linger.ms": 0})
    for number, key in enumerate(keys):
        producer.produce(topic, f"{text}-{number}".encode(), key=key.encode(), partition=0)
    assert producer.flush(TIMEOUT) == 0


def test_a_compacted_topic_that_clients_of_dr_write_to_is_scrubbed_while_dr_s_last_record_is_there(own, tmp_path):
    """The cleaner takes the records before it as their keys are written again."""
    topic = own.create("primary", "t", partitions=1, **SOON_COMPACTED)
    own.produce("primary", topic, texts("x", 3, (0,)))
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2, (0,)))
    fail_over(own)
    write_keys(own, topic, ["hot", "hot", "cold"], "on-dr")

    def cleaned():
        write_keys(own, topic, ["hot", "hot"], f"during-{salvager.times}")
        wait_until(lambda: "on-dr-1" not in own.values("dr", topic)[0] or rolled(own, topic), what="dr's cleaner")

    salvager = SlowSalvager(own, cleaned)
    _plan, result = fail_back(own, tmp_path, replace(reading_ports(own, tmp_path / "salvage"), salvager=salvager))
    assert result.error is None
    assert salvager.times == 1
    assert set(own.values("dr", topic)[0]) <= set(own.values("primary", topic)[0])


def rolled(own, topic):
    """Let dr close its segment, as the cleaner leaves the last one alone."""
    write_keys(own, topic, ["hot"], f"roll-{uuid4()}")
    return False


def test_a_failback_says_at_once_how_it_passes_a_cleaner_that_is_faster_than_its_salvage(own, tmp_path):
    topic = own.create("primary", "t", partitions=1, **SOON_COMPACTED)
    own.produce("primary", topic, texts("x", 3, (0,)))
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2, (0,)))
    fail_over(own)
    write_keys(own, topic, ["hot", "hot"], "on-dr")

    def cleaned():
        last = own.values("dr", topic)[0][-1]
        wait_until(lambda: last not in own.values("dr", topic)[0] or rolled(own, topic), what="dr's cleaner")

    salvager = SlowSalvager(own, cleaned)
    ports = replace(reading_ports(own, tmp_path / "salvage"), salvager=salvager)
    _plan, result = fail_back(own, tmp_path, ports)
    assert f"the cleaner of dr removes the last records of {topic} faster than they are salvaged" in result.error.what
    assert f"Raise min.compaction.lag.ms of {topic} on dr" in result.error.remedy
    assert salvager.times == 2
    with own.estate() as estate:
        estate.admin("dr").set_topic_configs(topic, {"min.compaction.lag.ms": "86400000"})
        salvager.meanwhile = lambda: rolled(own, topic)
        result = resume_run(estate, result.run, ports)
    assert result.error is None
    assert set(own.values("dr", topic)[0]) <= set(own.values("primary", topic)[0])


def test_transactional_clients_of_dr_may_write_while_the_old_primary_is_scrubbed(own, away, tmp_path):
    """A log's last offset is a transaction's marker."""
    topic, _names = away
    producer = Producer({**own.client("dr"), "transactional.id": f"{topic}-on-dr"})
    producer.init_transactions(TIMEOUT)

    def write():
        producer.begin_transaction()
        producer.produce(topic, value=b"in transaction", partition=0)
        producer.flush(TIMEOUT)
        producer.commit_transaction(TIMEOUT)

    write()
    salvager = SlowSalvager(own, write)
    _plan, result = fail_back(own, tmp_path, replace(reading_ports(own, tmp_path / "salvage"), salvager=salvager))
    assert result.error is None
    assert salvager.times == 1
    assert own.values("primary", topic) == own.values("dr", topic)


def test_behind_a_large_hole_of_a_compacted_topic_offsets_differ_and_positions_go_by_the_mapping(own, tmp_path):
    """What status says meanwhile, too: records that are brought back are none that a failover would lose."""
    begun = to_millis(now()) - 3_600_000
    topic = own.create("primary", "t", **SOON_COMPACTED)
    own.produce("primary", topic, texts("before", 3), begun)
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2), begun)
    fail_over(own)
    for partition, count in ((0, 1_500), (1, 300)):
        rewritten(own, topic, partition, count, begun + 1_000_000)
    own.produce("dr", topic, texts("newest", 1))  # closes their segments
    wait_until(lambda: sum(map(len, own.records("dr", topic).values())) == 2 * 5, what="dr's cleaner")
    at_the_end = own.commit("dr", "at-the-end", topic, {0: 1_503, 1: 303})
    in_a_hole = own.commit("dr", "in-a-hole", topic, {0: 700, 1: 200})
    unread = {group: own.unread("dr", group, topic) for group in (at_the_end, in_a_hole)}
    on_dr = own.records("dr", topic)
    seen = {}

    def look(_stage, record, _text):
        if record is not None:
            (found, *_back) = link_statuses(own.config, own.store, [own.link])
            lags = {each.lag_records for each in found.partitions}
            seen.setdefault(found.state, set()).add((found.recovery_point.records, *lags))

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        ports = reading_ports(own, tmp_path / "salvage")
        result = run_failback(
            estate, plan, ports, cluster_id=cluster_id(own, "primary"), accept_unfenced=True, watch=look
        )

    assert result.error is None
    assert seen.keys() == {"sealed", "reversed", "stopped"}
    assert seen["reversed"] == {(None, None)}
    # what only the primary holds, until it is scrubbed; unknown where cleaners leave nothing to compare
    assert {records for records, *_ in seen["sealed"]} <= {0, 4, None}
    assert seen["stopped"] == {(0, 0)}
    on_primary = own.records("primary", topic)
    assert own.values("primary", topic) == own.values("dr", topic)
    assert on_primary[1] == on_dr[1], "by offset: the hole is matched"
    differ = {partition: max(on_dr[partition]) - max(on_primary[partition]) for partition in (0, 1)}
    assert differ == {0: 1_499, 1: 0}
    (status,) = link_statuses(own.config, own.store, [own.link])
    assert {each.partition: each.delta for each in status.partitions} == differ
    assert {group: own.unread("primary", group, topic) for group in unread} == unread
    own.produce("primary", topic, texts("after", 1))
    assert mirror(own) == 2
    assert [values[-1] for values in own.values("dr", topic).values()] == ["after-0-0", "after-1-0"]


def test_a_reseed_that_can_not_be_aligned_stops_and_says_why_and_what_it_would_have_destroyed_is_kept(
    own, tmp_path, monkeypatch
):
    """A producer that nobody stopped writes to the new topic of the old primary while it is aligned."""
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, texts("before", 50, [0]))
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2, [0]))
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 5, [0]))
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 40})
    live, only_there = own.values("dr", topic), own.values("primary", topic)[0][:40] + texts("only-here", 2, [0])[0]
    trim = FillerTrimmer.trim
    guests = []

    def comes(trimmer, target, producer_id, begin, below):
        if not guests:  # before the first filler
            guests.append(target)
            own.produce("primary", topic, texts("guest", 3, [0]))
        trim(trimmer, target, producer_id, begin, below)

    monkeypatch.setattr(FillerTrimmer, "trim", comes)
    _plan, result = fail_back(own, tmp_path, accept_salvage_only=True)
    assert isinstance(result.error, PartlyDone)
    assert "that drkit did not write as filler" in str(result.error)
    assert result.machine.state is State.REVERSED
    assert own.values("dr", topic) == live, "the cluster that serves is as it was"
    assert own.values("primary", topic) == texts("guest", 3, [0]), "nobody's records are removed"
    (salvage,) = (tmp_path / "salvage").glob("*/records.jsonl")
    assert [json.loads(line)[3] for line in salvage.read_text().splitlines()] == only_there
    back = own.link.reversed()
    with own.estate() as estate:
        estate.admin("primary").delete_records({TopicPartition(topic, 0): 3})  # whose they were has them elsewhere
        resume_link(own.store, back, topic)
        resumed = resume_run(estate, result.run, reading_ports(own, tmp_path / "salvage"))
    assert resumed.error is None
    assert own.records("primary", topic) == own.records("dr", topic), "by offset"


def test_a_primary_that_holds_nothing_of_its_own_is_not_scrubbed(own, tmp_path):
    topic = own.create("primary", "t", partitions=2)
    own.produce("primary", topic, texts("before", 50))
    names = {
        "read-on": own.commit("primary", "read-on", topic, {0: 20, 1: 50}),
        "put-back": own.commit("primary", "put-back", topic, {0: 40, 1: 40}),
    }
    mirror(own)
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 30))
    own.commit("dr", "read-on", topic, {0: 70, 1: 61})
    own.commit("dr", "put-back", topic, {0: 5, 1: 1})  # before where it had committed on the primary
    later = own.create("dr", "later")
    own.produce("dr", later, texts("new", 3))
    unread = {name: own.unread("dr", name, topic) for name in names.values()}
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        before = estate.admin("primary").topics([topic])[topic].topic_id
        plan = make_failback_plan(estate, "primary")
        assert (plan.level, plan.offsets, plan.only_here) == (True, {}, 0)
        elsewhere = replace(plan, topics=(replace(plan.topics[0], ends={0: 49, 1: 50}),))
        stopped = run_failback(estate, elsewhere, ports, cluster_id=cluster_id(own, "primary"), accept_unfenced=True)
        assert isinstance(stopped.error, Refused)
        assert "is not as planned" in stopped.error.what
        assert stopped.machine.state is State.CANCELLED

        result = run_failback(
            estate,
            make_failback_plan(estate, "primary"),
            ports,
            cluster_id=cluster_id(own, "primary"),
            accept_unfenced=True,
        )
        assert result.error is None
        assert estate.admin("primary").topics([topic])[topic].topic_id == before, "it was never deleted"
    outcomes = {stage.name: stage.outcome for stage in result.stages}
    assert (outcomes["salvage"], outcomes["scrub"]) == (StageOutcome.SKIPPED, StageOutcome.SKIPPED)
    said = next(stage.reason for stage in result.stages if stage.name == "reseed")
    assert said.startswith(f"{2 * 30 + 2 * 3} records"), "only what is new was copied"
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.values("primary", later) == own.values("dr", later)
    assert {name: own.unread("primary", name, topic) for name in names.values()} == unread
    assert own.store.link_control(own.link.id).direction is Direction.ACTIVE
    own.produce("primary", topic, texts("after", 5))
    assert mirror(own) == 10
    assert own.values("primary", topic) == own.values("dr", topic)


def test_the_cluster_failed_over_to_is_kept_as_the_primary_for_good(lab, tmp_path, unique_name):
    extra = f'[directory]\nurl = "file://{tmp_path}/active.json"'
    own = own_link(lab, tmp_path, unique_name, extra=extra)
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    group = own.commit("primary", "g", topic, {0: 3, 1: 20})
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2))
    fail_over(own)
    own.produce("dr", topic, texts("on-dr", 10))
    own.commit("dr", "g", topic, {0: 25, 1: 30})
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary", for_good=True)
        assert [stage.name for stage in plan.stages][-2:] == ["audit", "close"]
        result = run_failback(estate, plan, ports, cluster_id=cluster_id(own, "primary"), accept_unfenced=True)
        assert result.error is None
        assert (result.machine.state, result.machine.facts.salvaged) == (State.CLOSED, 4)
        obstacle = make_failback_plan(estate, "primary").obstacles[0]
    assert "was made the primary for good" in obstacle.what
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.committed("primary", group) == {}
    text = own.config_path.read_text()
    text = text.replace('source = "primary"\ntarget = "dr"', 'source = "dr"\ntarget = "primary"')
    own.config_path.write_text(text)
    own.store.close()
    turned = open_link(own.config_path, own.name)
    try:
        assert turned.link.id == own.link.id.reversed()
        own.produce("dr", topic, texts("for-good", 5))
        assert mirror(turned) == 10
        unread = own.unread("dr", group, topic)
        with turned.estate() as estate:
            moved = run_failover(estate, make_plan(estate, PlanRequest("primary")), accept_unfenced=True)
        assert moved.error is None
        assert own.unread("primary", group, topic) == unread
        (directory,) = open_directories(turned.config, turned.link.id)
        assert directory.read().active == "primary", "above the epoch that the other direction had published"
    finally:
        turned.store.close()


@pytest.mark.parametrize(
    ("excluded", "settled"),
    sampled(
        "settings of a standby for good",
        [pytest.param(["cleanup.policy", "retention[.].*"], True), pytest.param(["retention[.].*"], False)],
        1,
    ),
)
def test_a_compacted_topic_that_stays_a_standby_for_good_gets_its_own_settings_back(
    lab, tmp_path, unique_name, excluded, settled
):
    """What the policy doesn't let follow is nobody else's to put back."""
    own = own_link(lab, tmp_path, unique_name, extra=f"[links.topic_settings]\nexclude = {json.dumps(excluded)}")
    config = {"cleanup_policy": "compact,delete", "retention_ms": "123456789", "retention_bytes": "987654321"}
    topic = own.create("primary", "t", partitions=3, **config)  # 2 stays empty
    own.produce("primary", topic, texts("before", 20))
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2))
    fail_over(own)
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary", for_good=True)
        ports = reading_ports(own, tmp_path / "salvage")
        assert (
            run_failback(estate, plan, ports, cluster_id=cluster_id(own, "primary"), accept_unfenced=True).error is None
        )
    if settled:  # aligned before the configuration names this direction: until then all follows the live cluster
        mirror(own, own.link.reversed())
        mirror(own, own.link.reversed())
        assert own.store.notes(own.link.id.reversed(), ALIGNING) == {}
    text = own.config_path.read_text().replace('source = "primary"\ntarget = "dr"', 'source = "dr"\ntarget = "primary"')
    own.config_path.write_text(text)
    own.store.close()
    turned = open_link(own.config_path, own.name)
    try:
        mirror(turned)
        assert [turned.store.notes(turned.link.id, kind) for kind in (ALIGNING, OWN_SETTINGS)] == [{}, {}]
    finally:
        turned.store.close()
    wanted = {name.replace("_", "."): value for name, value in config.items()}
    assert {key: topic_setting(own, "primary", topic, key) for key in wanted} == wanted


def test_another_clusters_id_is_refused(own, away, tmp_path):
    topic, _names = away
    before = own.values("primary", topic)
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        for wrong in (cluster_id(own, "dr"), "", "typo"):
            with pytest.raises(Refused, match="is not the id of primary"):
                run_failback(estate, plan, reading_ports(own, tmp_path), cluster_id=wrong)
    assert own.values("primary", topic) == before


def test_the_dry_run_says_what_would_be_deleted(own, away):
    topic, names = away
    with own.estate() as estate:
        plan = make_failback_plan(estate, None)
    (scrubbed,) = plan.topics
    assert (scrubbed.topic, scrubbed.partitions, scrubbed.records, scrubbed.only_here) == (topic, 2, 114, 14)
    assert plan.offsets == dict.fromkeys(names.values(), 2)
    assert plan.target.cluster_id == cluster_id(own, "primary")
    assert [obstacle.waived_by for obstacle in plan.obstacles] == ["--accept-unfenced"]
    assert any("delete and recreate 1 topic (114 offsets)" in stage.explanation for stage in plan.stages)
    assert {(p.group, p.partition, p.source_offset) for p in plan.positions if p.group == names["live"]} == {
        (names["live"], 0, 80),
        (names["live"], 1, 71),
    }


def test_without_a_failover_there_is_nothing_to_go_back_from(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 3))
    mirror(own)
    with own.estate() as estate, pytest.raises(Refused, match="was not failed away from"):
        make_failback_plan(estate, "primary")


def test_a_group_that_reads_on_the_old_primary_is_refused(own, away):
    topic, names = away
    consumer = Consumer({**own.client("primary"), "group.id": names["live"], "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="the consumer's assignment")
        with own.estate() as estate:
            (obstacle,) = standing_obstacles(make_failback_plan(estate, "primary"), waived=UNFENCED)
    finally:
        consumer.close()
    assert f"{names['live']} is active on primary" in obstacle.what


def test_a_group_that_begins_to_read_on_the_old_primary_during_the_salvage_stops_the_run_before_its_scrub(
    own, away, tmp_path
):
    """Each obstacle of the plan is asked for again: a salvage takes hours."""
    topic, names = away
    consumer = Consumer({**own.client("primary"), "group.id": names["live"], "enable.auto.commit": False})

    def begins_to_read():
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="the consumer's assignment")

    salvager = SlowSalvager(own, begins_to_read)
    ports = replace(reading_ports(own, tmp_path / "salvage"), salvager=salvager)
    before = own.values("primary", topic)
    try:
        _plan, result = fail_back(own, tmp_path, ports)
    finally:
        consumer.close()
    assert isinstance(result.error, PartlyDone)
    assert f"{names['live']} is active on primary" in result.error.what
    assert f"then drkit resume {result.run}" in result.error.remedy
    assert own.values("primary", topic) == before
    salvager.meanwhile = lambda: None
    with own.estate() as estate:
        result = resume_run(estate, result.run, ports)
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


def test_a_failback_whose_scrub_was_refused_before_it_deleted_anything_is_cancelled(own, away, tmp_path, monkeypatch):
    """`drkit resume --cancel` said that the scrub had begun, and only abandoning led on."""
    topic, _names = away
    before = own.values("primary", topic)

    def refused(*_asked):
        raise Refused("primary deletes nothing now", remedy="Allow it")

    with monkeypatch.context() as patched:
        patched.setattr(scrub_stage, "_delete", refused)
        _plan, result = fail_back(own, tmp_path)
    assert isinstance(result.error, PartlyDone)
    assert result.machine.state is State.SALVAGED, "it isn't cancelled by itself: a salvage takes hours"
    with own.estate() as estate:
        cancelled = cancel_run(estate, result.run)
        assert (cancelled.error, cancelled.machine.state) == (None, State.CANCELLED)
        assert not is_blocked(estate.admin("primary").topic_configs([topic])[topic])
    assert own.values("primary", topic) == before
    assert own.store.link_control(own.link.id).direction is Direction.SEALED, "clients stay on dr"
    _plan, result = fail_back(own, tmp_path)
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


def test_a_topic_that_somebody_recreated_is_not_deleted(own, away):
    topic, _names = away
    with own.estate() as estate:
        estate.admin("primary").delete_topics([topic])
    own.create("primary", "orders")
    own.produce("primary", topic, texts("somebody's", 2))
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
    assert plan.topics == ()
    assert f"topic {topic} on primary was recreated since it was mirrored" in plan.obstacles[0].what


def without(own, topic):
    """The configuration with a topic taken out of the link."""
    link = own.config.links[0]
    return own.config.model_copy(update={"links": (link.model_copy(update={"exclude_topics": (topic,)}),)})


def test_a_topic_that_left_the_link_is_neither_deleted_nor_forgotten(own, away, tmp_path):
    topic, _names = away
    with own.estate(without(own, topic)) as estate:
        plan = make_failback_plan(estate, "primary")
        (obstacle,) = standing_obstacles(plan, waived=UNFENCED)
        assert obstacle.what == f"{topic}, mirrored by primary->dr, is no longer among its topics"
        assert "Put it back" in obstacle.remedy
        with pytest.raises(Refused, match="no longer among its topics"):
            run_failback(
                estate,
                plan,
                reading_ports(own, tmp_path / "salvage"),
                cluster_id=cluster_id(own, "primary"),
                accept_unfenced=True,
            )
    assert own.store.link_control(own.link.id).direction is Direction.SEALED


def test_late_writes_to_the_old_primary_are_salvaged_too(own, away, tmp_path):
    topic, _names = away
    ports = reading_ports(own, tmp_path / "salvage")

    class WritesAfterwards:
        """Somebody continues writing to the old primary while the first salvage is made."""

        def check(self, path):
            ports.salvager.check(path)

        def salvage(self, link, topics, positions, out, say):
            kept = ports.salvager.salvage(link, topics, positions, out, say)
            if not wrote:
                wrote.append(True)
                own.produce("primary", topic, texts("late", 3))
            return kept

    wrote = []
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        meddled = replace(ports, salvager=WritesAfterwards())
        first = run_failback(estate, plan, meddled, cluster_id=cluster_id(own, "primary"), accept_unfenced=True)
        assert isinstance(first.error, Refused)
        assert "clients still write to primary" in first.error.what
        assert first.machine.state is State.CANCELLED
        second = run_failback(
            estate,
            make_failback_plan(estate, "primary"),
            ports,
            cluster_id=cluster_id(own, "primary"),
            accept_unfenced=True,
        )
    assert second.error is None
    assert second.machine.facts.salvaged == 20


def test_a_live_cluster_that_is_still_written_leaves_the_move_to_be_resumed(own, away, tmp_path):
    topic, names = away
    ports = reading_ports(own, tmp_path / "salvage")

    class Writes:
        """Producers on dr continue while the audit runs, and for some time after."""

        def audit(self, link, say):
            verdict = ports.auditor.audit(link, say)
            own.produce("dr", topic, texts("during-the-audit", 5))
            return verdict

    _plan, result = fail_back(own, tmp_path, replace(ports, auditor=Writes()))
    assert result.error is None  # what came meanwhile was brought over before the move
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.unread("primary", names["live"], topic) == own.unread("dr", names["live"], topic)


def test_producers_that_go_on_stop_the_move_which_resume_completes(own, away, tmp_path):
    topic, names = away
    ports = reading_ports(own, tmp_path / "salvage")
    stop, wrote = threading.Event(), threading.Event()

    def write():
        count = 0
        while not stop.is_set():
            own.produce("dr", topic, texts(f"live-{count}", 1))
            count += 1
            wrote.set()

    class StartsWriting:
        def audit(self, link, say):
            verdict = ports.auditor.audit(link, say)
            writer.start()
            assert wrote.wait(TIMEOUT)
            return verdict

    writer = threading.Thread(target=write)
    try:
        _plan, result = fail_back(own, tmp_path, replace(ports, auditor=StartsWriting()))
    finally:
        stop.set()
        writer.join()
    assert isinstance(result.error, PartlyDone)
    assert result.error.exit_code is ExitCode.PARTLY_DONE
    assert "clients still write to dr" in result.error.what
    assert result.machine.state is State.AUDITED
    with own.estate() as estate:
        resumed = resume_run(estate, result.run, ports)
    assert resumed.error is None
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.unread("primary", names["live"], topic) == own.unread("dr", names["live"], topic)


def test_an_audit_that_deviates_stops_the_move_and_resume_goes_on(own, away, tmp_path):
    topic, names = away
    ports = reading_ports(own, tmp_path / "salvage")

    class Deviates:
        def audit(self, link, _say):
            assert link.id == own.link.id.reversed()
            return AuditVerdict("deviated", "2 lost", "findings.parquet")

    _plan, result = fail_back(own, tmp_path, replace(ports, auditor=Deviates()))
    assert isinstance(result.error, PartlyDone)
    assert result.error.exit_code is ExitCode.DEVIATION
    assert "deviated: 2 lost; findings: findings.parquet" in result.error.what
    assert result.machine.state is State.RESEEDED
    assert own.store.link_control(own.link.id).direction is Direction.REVERSED
    assert own.committed("primary", names["live"]) == {}
    with own.estate() as estate:
        assert "is in progress" in make_failback_plan(estate, "primary").obstacles[0].what
        resumed = resume_run(estate, result.run, ports)
    assert resumed.error is None
    assert own.values("primary", topic) == own.values("dr", topic)


def test_where_the_old_primary_deviates_after_it_was_seeded_a_new_failback_seeds_it_again(own, away, tmp_path):
    """As the stage's remedy says: somebody wrote to it meanwhile, so it isn't what the live cluster holds."""
    topic, _ = away
    salvage = tmp_path / "salvage"
    killed(own, "failback", salvage, ("audit", INTENT, "after"))
    own.produce("primary", topic, {0: ["foreign"]})
    run, ports = own.store.runs()[0].run, reading_ports(own, salvage)
    with own.estate() as estate:
        result = resume_run(estate, run, ports, accept_unfenced=True)
        assert isinstance(result.error, AuditFailed), result.error
        assert f"drkit abandon {run}, then drkit failback" in result.error.remedy
        abandon_run(estate, run, print)
        plan = make_failback_plan(estate, "primary")
        again = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id, accept_unfenced=True)
    assert again.error is None, again.error
    assert own.values("primary", topic) == own.values("dr", topic)
    assert "foreign" in salvaged(salvage)

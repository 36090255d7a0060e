"""The fence, on clusters with an authorizer: nobody gets in, it is shown, and it can be taken back."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from drkit.config.schema.config import ClusterConfig, FenceConfig
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import PATHS, Kind, Mode, State
from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record, topics_outside_fence
from drkit.failover.fencing.deny_rules import closing_rules
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.fence_command import CommandFenceContext, fence_again
from drkit.failover.run.service import cancel_run, resume_run, run_failback, run_failover
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.write_block import WriteProbe
from drkit.lab import Lab
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction
from drkit.model.runs import FenceState, verify_chain
from drkit.model.topics.acls import Acl, fence_rules_kind
from tests.support.clusters.secured import allow, as_user, denials, killed_at, put, verb, with_writer, write
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.estates import OwnLink, mirror, mirroring, own_link, texts
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("fences", 3)]

PLANNED = PlanRequest("dr", mode=Mode.PLANNED)


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link whose clients are the user `app`; drkit is a super user."""
    mine = with_writer(own_link(secure_lab, tmp_path, unique_name), secure_lab)
    for alias in ("primary", "dr"):
        put(mine, alias, *(allow(mine.name, kind, "all") for kind in ("topic", "group")))
    yield mine
    mine.store.close()


_FAST = {"acks": "all", "linger.ms": 2, "queue.buffering.max.messages": 500, "log_level": 0}


class Load:
    """Writes numbered records as `app`, as fast as they are taken, until it is turned away."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self._producer = Producer({**as_user(lab, "primary", "app"), **_FAST})
        self._topic = topic
        self._thread = threading.Thread(target=self._write)
        self.acked: dict[int, list[str]] = {0: [], 1: []}
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: len(self.acked[0]) > 100, what="the load to begin")
        return self

    def __exit__(self, *_: object) -> None:
        self.refused.append("stopped")  # should nobody have turned it away
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _write(self) -> None:
        number = 0
        while not self.refused:
            partition = number % 2
            try:
                self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=self._heard)
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:  # the client knows already that it is denied
                self.refused.append(error.args[0].name())
            self._producer.poll(0)
        self._producer.flush(20)

    def _heard(self, error: object, message: object) -> None:
        if error is None:
            self.acked[message.partition()].append(message.value().decode())  # type: ignore[attr-defined]
        else:
            self.refused.append(error.name())  # type: ignore[attr-defined]


def commit(lab: Lab, alias: str, group: str, topic: str) -> str:
    """The outcome of a commit of `app`."""
    consumer = Consumer({**as_user(lab, alias, "app"), "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=False)
    except KafkaException as error:
        return str(error.args[0].name())
    finally:
        consumer.close()
    return "committed"


@pytest.mark.parametrize("_time", range(int(os.environ.get("TEST_PLANNED_MOVES", "1"))))
def test_a_planned_move_under_load_and_back_loses_and_duplicates_nothing(
    own: OwnLink, secure_lab: Lab, tmp_path: Path, _time: int
) -> None:
    """As often as `TEST_PLANNED_MOVES` says."""
    topic = own.create("primary", "t")
    group = own.commit("primary", "g", topic, {0: 3, 1: 5})
    with Load(secure_lab, topic) as load, mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        with own.estate() as estate:
            plan = make_plan(estate, PLANNED)
            assert plan.obstacles == ()
            result = run_failover(estate, plan, accept_unfenced=False)
    assert result.error is None
    assert result.evidence.fenced is True
    assert result.evidence.rpo_records == 0
    assert "shown to User:app by 1 broker" in str(result.machine.facts.fence_reason)
    assert load.refused[0] == "TOPIC_AUTHORIZATION_FAILED"
    assert own.values("dr", topic) == load.acked
    drained = next(stage.reason for stage in result.stages if stage.name == "drain")
    assert "records of 2 partitions are equal by checksum" in drained
    assert own.committed("dr", group) == {(topic, 0): 3, (topic, 1): 5}
    assert commit(secure_lab, "primary", group, topic) == "GROUP_AUTHORIZATION_FAILED"
    assert write(secure_lab, "dr", topic) == "written"

    with own.estate() as estate:
        back = make_failback_plan(estate, "primary")
        result = run_failback(
            estate, back, reading_ports(own, tmp_path / "salvage"), cluster_id=back.target.cluster_id or ""
        )
    assert result.error is None
    assert result.evidence.fenced is True
    assert own.values("primary", topic) == {0: [*load.acked[0], "later"], 1: load.acked[1]}
    assert (write(secure_lab, "dr", topic), write(secure_lab, "primary", topic)) == (
        "TOPIC_AUTHORIZATION_FAILED",
        "written",
    )
    assert denials(own, "primary") == set()
    assert mirror(own) == 1, "the mirror may write to its standby"
    with own.estate() as estate:
        again = run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=False)
    assert again.error is None
    assert (write(secure_lab, "primary", topic), write(secure_lab, "dr", topic)) == (
        "TOPIC_AUTHORIZATION_FAILED",
        "written",
    )


def test_what_cannot_be_shown_or_drained_is_rolled_back(own: OwnLink) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 20))
    theirs = Acl("topic", topic, "literal", "User:*", "*", "write", "deny")
    put(own, "primary", theirs)  # somebody else's, which stays
    mirror(own)
    blind = own.config.clusters["primary"].model_copy(update={"fence": FenceConfig()})
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "primary": blind}})
    with own.estate(config) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False)
    assert isinstance(result.error, Refused)
    assert "User:ANONYMOUS still may write" in result.error.what
    assert result.machine.state is State.CANCELLED
    assert denials(own, "primary") == {theirs}

    own.produce("primary", topic, texts("late", 3))  # no mirror runs: it can't drain
    with own.estate() as estate:
        plan = make_plan(estate, PLANNED)
        with pytest.raises(Refused, match="no mirror runs"):
            run_failover(estate, plan, accept_unfenced=False)
        with mirroring(own):
            wait_until(lambda: own.values("dr", topic) == own.values("primary", topic), what="the mirror")
            plan = make_plan(estate, PLANNED)
        own.produce("primary", topic, texts("later", 3))
        result = run_failover(estate, plan, accept_unfenced=False)
    assert isinstance(result.error, Refused)
    assert "no mirror runs" in result.error.what
    assert result.machine.state is State.CANCELLED
    assert denials(own, "primary") == {theirs}
    assert fence_record(own.store, own.link.id, "primary").state is FenceState.OPEN
    assert mirror(own) == 6


def test_a_primary_that_hung_is_fenced_when_it_answers_again(own: OwnLink, secure_lab: Lab) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    with own.estate() as estate:
        secure_lab.pause("primary")
        try:
            with pytest.raises(Refused, match="can't be fenced"):
                run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False)
            result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
        finally:
            secure_lab.resume("primary")
        assert result.error is None
        assert result.evidence.fenced is False
        assert fence_record(own.store, own.link.id, "primary").state is FenceState.PENDING
    with own.estate() as estate:
        assert any("isn't proven (" in said for said in make_failback_plan(estate, "primary").warnings)
    assert verb(own, "fence", "--link", "dr->primary", code=2)["error"]["kind"] == "ConfigError"
    (closed,) = verb(own, "fence", "--wait", "60", schema="fence")["links"]
    assert (closed["cluster"], closed["fenced"]) == ("primary", True)
    assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert ("fence", "closed") in {(each.kind, each.state) for each in own.store.runs() if each.run == closed["run"]}


def test_topics_made_after_the_fence_are_closed_too(own: OwnLink, secure_lab: Lab) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    own.commit("primary", "g", topic, {0: 3, 1: 5})
    mirror(own)
    killed_at(own, "planned", ("commit", "outcome", "after"))
    during = own.create("primary", "during")
    wait_until(lambda: write(secure_lab, "primary", during) == "written", what="a writer of the new topic")
    assert outside_the_fence(own) == {during}
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, None)
    assert result.error is None
    verified = next(stage.reason for stage in result.stages if stage.name == "verify")
    assert f"created after the fence, and fenced since: {during} (1 offset" in verified
    assert result.evidence.fenced is True
    assert result.machine.facts.fence_epoch == fence_record(own.store, own.link.id, "primary").epoch
    assert write(secure_lab, "primary", during) == "TOPIC_AUTHORIZATION_FAILED"
    assert outside_the_fence(own) == set()

    later = own.create("primary", "later")
    wait_until(lambda: write(secure_lab, "primary", later) == "written", what="a writer of the newer topic")
    assert outside_the_fence(own) == {later}
    (closed,) = verb(own, "fence", schema="fence")["links"]
    assert closed["fenced"]
    assert write(secure_lab, "primary", later) == "TOPIC_AUTHORIZATION_FAILED"
    assert outside_the_fence(own) == set()


def test_a_group_that_first_commits_behind_the_fence_is_named_until_it_is_moved(own: OwnLink) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 20))
    own.commit("primary", "g", topic, {0: 3, 1: 5})
    mirror(own)
    killed_at(own, "planned", ("commit", "outcome", "after"))
    late = own.commit("primary", "late", topic, {0: 4, 1: 6})
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, None)
    assert result.error is None
    assert f"1 group has first committed on primary since, and isn't moved: {late}" in result.stages[-1].reason
    (left,) = verb(own, "runs", result.run, schema="runs")["result"]["without_place"]
    assert (left["group"], len(left["partitions"])) == (late, 2)
    assert "--to-earliest" in left["command"]
    (problem,) = left_behind(own)
    assert f"{late} on {topic}:0 at 4" in problem["reason"]
    verb(own, "failover", "--to", "dr", "--group", late, "--yes", schema="failover")
    assert own.committed("dr", late) == {(topic, 0): 4, (topic, 1): 6}
    assert left_behind(own) == []


def left_behind(own: OwnLink) -> list[dict[str, Any]]:
    """What `drkit status` says of groups that no move has taken."""
    (link,) = verb(own, "status", schema="status")["links"]
    return [problem for problem in link["problems"] if problem["kind"] == "group_left_behind"]


def test_what_comes_between_the_drain_and_a_resume_is_drained_or_nothing_moves(own: OwnLink) -> None:
    """By a super user, whom no fence stops; no mirror runs any more that could drain it."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 20))
    group = own.commit("primary", "g", topic, {0: 3, 1: 20})
    mirror(own)
    killed_at(own, "planned", ("drain", "outcome", "after"))
    own.produce("primary", topic, texts("late", 5))
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, None)
    assert "2 partitions lag" in result.error.what
    assert result.machine.state is State.CANCELLED
    assert own.committed("dr", group) == {}


def test_a_topic_that_was_closed_already_is_within_the_fence(own: OwnLink, secure_lab: Lab) -> None:
    """By the rule that drkit would put: it is its owner's, and stays."""
    topic, closed = own.create("primary", "t"), own.create("primary", "closed")
    for each in (topic, closed):
        own.produce("primary", each, texts("x", 5))
    (theirs,) = closing_rules([closed], [])
    put(own, "primary", theirs)
    mirror(own)
    with own.estate() as estate:
        result = run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=False)
        assert result.error is None
        assert not any("created after the fence" in stage.reason for stage in result.stages)
        assert topics_outside_fence(estate, own.link, "primary") == ()
        assert outside_the_fence(own) == set()
        with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
            assert admin.delete_acls([theirs]) == {}
            wait_until(lambda: theirs not in admin.acls(), what="the rule to be gone")
        assert topics_outside_fence(estate, own.link, "primary") == (closed,), "the operator has opened it"
    assert outside_the_fence(own) == {closed}
    verb(own, "fence", schema="fence")
    assert write(secure_lab, "primary", closed) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_topic_whose_rule_somebody_removed_is_told_until_it_is_closed_again(own: OwnLink, secure_lab: Lab) -> None:
    topic, other = own.create("primary", "t"), own.create("primary", "other")
    for each in (topic, other):
        own.produce("primary", each, texts("x", 5))
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=False).error is None
    assert outside_the_fence(own) == set()
    (rule,) = closing_rules([topic], [])
    with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
        assert admin.delete_acls([rule]) == {}
        wait_until(lambda: rule not in admin.acls(), what="the rule to be gone")
    wait_until(lambda: write(secure_lab, "primary", topic) == "written", what="a writer of the topic")
    assert outside_the_fence(own) == {topic}
    verb(own, "fence", schema="fence")
    assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert outside_the_fence(own) == set()


def test_a_lifted_fence_beside_somebody_s_own_is_not_called_open(own: OwnLink, secure_lab: Lab) -> None:
    """A rule that was put meanwhile denies everybody; one from before the fence is its owner's will."""
    topic, closed = own.create("primary", "t"), own.create("primary", "closed")
    (before,), (since,) = closing_rules([closed], []), closing_rules([topic], [])
    put(own, "primary", before)
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=False).error is None
    prefixed = replace(since, name=topic[:-1], pattern="prefixed")
    single = replace(since, principal="User:somebody")
    for rule in (prefixed, single):
        put(own, "primary", rule)
    lift = ("fence", "--lift", "--cluster", "primary", "--yes")
    (found,) = verb(own, *lift, schema="fence", code=7)["links"]
    assert (found["fenced"], found["denied_by"]) == (False, [str(prefixed)])
    assert str(prefixed) in found["reason"]
    assert f"not for everybody: {single}" in found["reason"]
    assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"
    with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
        assert admin.delete_acls([prefixed]) == {}
    wait_until(lambda: write(secure_lab, "primary", topic) == "written", what="a writer of the topic")
    (again,) = verb(own, *lift, schema="fence", code=7)["links"]
    assert again["denied_by"] == [str(before)], "once the fence is gone nobody remembers what was there before it"


def outside_the_fence(own: OwnLink) -> set[str]:
    """Topics that `drkit status` says the fence doesn't reach."""
    (link,) = verb(own, "status", schema="status")["links"]
    return {problem["topic"] for problem in link["problems"] if problem["kind"] == "outside_the_fence"}


MOVING = [
    ("fence", "create_acls", "before"),
    ("fence", "create_acls", "after"),
    ("fence", "outcome", "after"),
    ("drain", "set_link_control", "after"),
    ("drain", "outcome", "after"),
    ("translate", "outcome", "after"),
]
"""Where a planned move is killed, one after the other, up to where it can be cancelled."""
TAKING_BACK = [
    ("cancel", "intent", "after"),
    ("cancel", "set_link_control", "after"),
    ("cancel", "delete_acls", "after"),
    ("cancel", "cancelled", "before"),
]

EVERY = [
    (step.stage, event, when)
    for step in PATHS[Kind.FAILOVER]
    for event, when in (("intent", "after"), ("outcome", "before"), ("outcome", "after"))
]
"""Every boundary of the journal, as the machine itself enumerates them."""


@pytest.mark.parametrize(
    ("places", "cancelled"),
    [
        *sampled(
            "a planned move killed",
            [pytest.param(MOVING, False, id="to-its-end"), pytest.param(MOVING[-1:], True, id="taken-back")],
            1,
        ),
        pytest.param(EVERY, False, id="at-every-boundary", marks=pytest.mark.long),
    ],
)
def test_a_planned_move_killed_again_and_again_comes_to_its_end_or_back(
    own: OwnLink, secure_lab: Lab, places: Sequence[tuple[str, str, str]], cancelled: bool
) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    group = own.commit("primary", "g", topic, {0: 7, 1: 30})
    mirror(own)
    action = "planned"
    for boundary in places:
        killed_at(own, action, boundary)
        action = "resume"
    action = "cancel"
    for boundary in TAKING_BACK if cancelled else ():
        killed_at(own, action, boundary)
        action = "resume"
    run = own.store.runs()[0].run
    if cancelled:  # a cancelling that was begun is only ever finished
        assert verb(own, "failover", "--cancel", run, "--yes", schema="failover")["state"] == "cancelled"
    with own.estate() as estate:
        result = resume_run(estate, run, None)
    assert result.error is None
    assert verify_chain(own.store.entries(run)) is None
    control = own.store.link_control(own.link.id)
    if cancelled:
        assert (result.machine.state, control.direction) == (State.CANCELLED, Direction.ACTIVE)
        assert denials(own, "primary") == set()
        assert own.committed("dr", group) == {}
        assert write(secure_lab, "primary", topic) == "written"
        assert mirror(own) == 1
        assert "nothing to cancel" in verb(own, "resume", run, "--cancel", "--yes", code=3)["error"]["what"]
        return
    assert (result.machine.state, control.direction) == (State.CLOSED, Direction.SEALED)
    assert result.evidence.fenced is True
    assert len({rule.name for rule in denials(own, "primary")}) == 2
    assert own.committed("dr", group) == {(topic, 0): 7, (topic, 1): 30}
    assert own.values("dr", topic) == own.values("primary", topic)


def test_a_target_that_takes_no_commits_stops_the_run_and_it_goes_on_later(own: OwnLink, secure_lab: Lab) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    group = own.commit("primary", "g", topic, {0: 2})
    mirror(own)
    put(own, "dr", allow(own.name, "topic", "read", "reader"), allow(own.name, "group", "describe", "reader"))
    coordinators = Acl("topic", "__consumer_offsets", "literal", "User:reader", "*", "describe", "allow")
    client = as_user(secure_lab, "dr", "reader")
    poor = ClusterConfig(bootstrap_servers=client.pop("bootstrap.servers"), client=client)
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "dr": poor}})
    with own.estate(config) as estate:
        with pytest.raises(Refused, match="Grant drkit's principal DESCRIBE on the topic __consumer_offsets"):
            make_plan(estate, PLANNED)
        put(own, "dr", coordinators)
        plan = make_plan(estate, PLANNED)
        assert [each.what for each in plan.obstacles] == [f"drkit lacks Read on 1 group of dr: {group}"]
        # as if the right had been taken once the plan was made
        stopped = run_failover(estate, replace(plan, obstacles=()), accept_unfenced=False)
    assert isinstance(stopped.error, PartlyDone)
    assert stopped.machine.state is State.TRANSLATED
    assert "GROUP_AUTHORIZATION_FAILED" in stopped.error.what or "denied" in stopped.error.what
    assert stopped.error.what.startswith("1 of 1 group is not committed, ")
    assert stopped.error.meaning.startswith("None is: nothing moved on dr")
    assert own.committed("dr", group) == {}
    with own.estate() as estate:
        with pytest.raises(Refused, match="can't be cancelled any more: commit has begun"):
            cancel_run(estate, stopped.run)
        result = resume_run(estate, stopped.run, None)
    assert result.error is None
    assert own.committed("dr", group) == {(topic, 0): 2}


COMMAND = """
import sys
from confluent_kafka.admin import AclBinding as B, AclBindingFilter as F, AclOperation as O, AclPermissionType as P
from confluent_kafka.admin import AdminClient, ResourcePatternType as R, ResourceType as T
servers, topic, word = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers})
rule = (T.TOPIC, topic, R.LITERAL, "User:*", "*", O.WRITE, P.DENY)
for done in (admin.create_acls([B(*rule)]) if word == "close" else admin.delete_acls([F(*rule)])).values():
    done.result(20)
if word == "fail":
    sys.exit("the firewall does not answer")
"""


def gated(own: OwnLink, lab: Lab, folder: Path, word: str, user: str = "app") -> ClusterContext:
    """The primary is fenced by a command that does what the word says, and shown to be closed to that user."""
    script = folder / "gate.py"
    script.write_text(COMMAND)
    primary = own.config.clusters["primary"]
    call = (sys.executable, str(script), lab.bootstrap("primary"), own.topic("t"))
    client = as_user(lab, "primary", user)
    servers = client.pop("bootstrap.servers")
    fence = FenceConfig(bootstrap_servers=servers, client=client, command=(*call, word), unfence=(*call, "open"))
    clusters = {**own.config.clusters, "primary": primary.model_copy(update={"fence": fence})}
    return own.estate(own.config.model_copy(update={"clusters": clusters}))


def test_a_command_fences_and_is_believed_only_when_it_shows(own: OwnLink, secure_lab: Lab, tmp_path: Path) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    for word, said in (("fail", "ended with 1: the firewall does not answer"), ("open", "User:app still may write")):
        with gated(own, secure_lab, tmp_path, word) as broken:
            result = run_failover(broken, make_plan(broken, PlanRequest("dr")), accept_unfenced=False)
        assert isinstance(result.error, Refused)
        assert said in result.error.what
        assert result.machine.state is State.CANCELLED
    with gated(own, secure_lab, tmp_path, "close") as working:
        result = run_failover(working, make_plan(working, PlanRequest("dr")), accept_unfenced=False)
    assert result.error is None
    assert result.evidence.fenced is True
    assert "the command keeps clients out" in str(result.machine.facts.fence_reason)
    assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_client_that_was_never_let_in_proves_no_command_however_often_it_is_tried(
    own: OwnLink, secure_lab: Lab, tmp_path: Path
) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    denied = "User:reader was already denied before, so its denial proves nothing"
    with gated(own, secure_lab, tmp_path, "open", "reader") as idle:
        result = run_failover(idle, make_plan(idle, PlanRequest("dr")), accept_unfenced=True)
        assert result.error is None
        assert denied in str(result.machine.facts.fence_reason)
        for _ in range(2):
            _, again = fence_again(idle, own.link, lambda _: None)
            assert not again.proven
            assert denied in again.reason
    assert write(secure_lab, "primary", topic) == "written"
    with gated(own, secure_lab, tmp_path, "open") as broken:
        _, shown = fence_again(broken, own.link, lambda _: None)
        assert "User:app still may write" in shown.reason
    with gated(own, secure_lab, tmp_path, "close", "reader") as other:
        _, shown = fence_again(other, own.link, lambda _: None)
        assert not shown.proven, "it is another client that was let in"
    assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"
    with gated(own, secure_lab, tmp_path, "close") as working:
        for _ in range(2):
            _, shown = fence_again(working, own.link, lambda _: None)
            assert shown.proven, shown.reason


def by_hand(own: OwnLink, estate: ClusterContext, lease: RunLease, run: str) -> ClusterFence:
    return ClusterFence(CommandFenceContext(estate, own.link, run, lease, lambda _: None), "primary")


def test_a_late_run_neither_redoes_nor_undoes_a_newer_fence(own: OwnLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The late one was held up between its last look and its act: the newer one came and went in between."""
    own.create("primary", "t")
    with own.estate() as estate, own.estate() as other, RunLease(own.store, own.link.id, "both") as lease:
        late, newer = by_hand(own, estate, lease, "late"), by_hand(own, other, lease, "newer")
        admin = estate.admin("primary")

        def held_up(act: str, meanwhile: Callable[[], object]) -> None:
            real = getattr(admin, act)

            def acting(*given: object) -> object:
                monkeypatch.undo()
                meanwhile()
                return real(*given)

            monkeypatch.setattr(admin, act, acting)

        held_up("create_acls", lambda: (newer.close(), newer.open()))
        with pytest.raises(Refused, match=r"run late .* is late"):
            late.close()
        assert denials(own, "primary") == set()
        assert late.close().proven
        closed = denials(own, "primary")
        assert closed
        held_up("delete_acls", newer.close)
        with pytest.raises(Refused, match=r"run late .* is late"):
            late.open()
        wait_until(lambda: denials(own, "primary") == closed, what="the newer fence")
        assert newer.open()
        assert denials(own, "primary") == set()


def test_where_drkit_is_an_ordinary_user_its_mirror_is_let_through_and_nobody_else(
    own: OwnLink, secure_lab: Lab
) -> None:
    topic = own.create("primary", "t")
    put(own, "primary", *(allow(own.name, kind, "all", "mirror") for kind in ("topic", "group")))
    put(own, "primary", allow(own.name, "topic", "write", "other"))
    client = as_user(secure_lab, "primary", "mirror")
    fence = own.config.clusters["primary"].fence
    user = ClusterConfig(bootstrap_servers=client.pop("bootstrap.servers"), client=client, fence=fence)
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "primary": user}})
    with own.estate(config) as estate, RunLease(own.store, own.link.id, "run") as lease:
        gate = by_hand(own, estate, lease, "run")
        assert "can't deny its writes" in gate.close().reason, "it may not put rules"
        with may_alter_cluster(secure_lab, "primary"):
            proof = gate.close()
            assert proof.proven, proof.reason
            assert {rule.principal for rule in denials(own, "primary")} == {"User:*"}
            assert "stays closed to 2 other writers" in gate.admit_mirror()
            assert {(rule.principal, rule.resource) for rule in denials(own, "primary")} == {
                ("User:app", "topic"),
                ("User:other", "topic"),
            }
            with WriteProbe("primary", user, timeout_seconds=10) as probe:
                assert probe.may_write([topic]) == {1: {topic}}
            assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"
            assert gate.open()
    assert denials(own, "primary") == set()
    assert write(secure_lab, "primary", topic) == "written"


def test_rules_that_a_cluster_denies_are_not_said_to_be_there(
    own: OwnLink, secure_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """drkit may read access rules and not put any: seen before, or only when it puts them."""
    topic = own.create("primary", "t")
    put(own, "primary", *(allow(own.name, kind, "all", "mirror") for kind in ("topic", "group")))
    client = as_user(secure_lab, "primary", "mirror")
    fence = own.config.clusters["primary"].fence
    user = ClusterConfig(bootstrap_servers=client.pop("bootstrap.servers"), client=client, fence=fence)
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "primary": user}})
    with (
        own.estate(config) as estate,
        RunLease(own.store, own.link.id, "run") as lease,
        may_alter_cluster(secure_lab, "primary", AclOperation.DESCRIBE),
        ExitStack() as right,
    ):
        gate, admin = by_hand(own, estate, lease, "run"), estate.admin("primary")
        wait_until(lambda: "describe" in (admin.allowed_on_cluster() or ()), what="the right to read rules")
        seen = gate.close()
        assert not seen.proven
        assert "drkit lacks Alter on cluster primary" in seen.reason
        assert fence_record(own.store, own.link.id, "primary") is None

        create_acls = admin.create_acls
        right.enter_context(may_alter_cluster(secure_lab, "primary", AclOperation.ALTER))
        wait_until(lambda: "alter" in (admin.allowed_on_cluster() or ()), what="the right to put rules")

        def taken_meanwhile(rules: Collection[Acl]) -> dict[Acl, str]:
            right.close()
            wait_until(lambda: "alter" not in (admin.allowed_on_cluster() or ()), what="the right's end")
            return create_acls(rules)

        monkeypatch.setattr(admin, "create_acls", taken_meanwhile)
        proof = gate.close()
        assert not proof.proven
        assert proof.reason.startswith("no rule of drkit's is on primary, so its clients may write: ")
        assert fence_record(own.store, own.link.id, "primary").state is FenceState.OPEN
        assert own.store.notes(own.link.id, fence_rules_kind("primary")) == {}
        assert gate.open() == "", "nothing was removed that never was there"
    assert denials(own, "primary") == set()
    assert write(secure_lab, "primary", topic) == "written"


@contextmanager
def may_alter_cluster(lab: Lab, alias: str, *operations: AclOperation) -> Iterator[None]:
    """The user `mirror` may put and read access rules (or do what is named to the cluster), for a while."""
    admin = AdminClient({"bootstrap.servers": lab.bootstrap(alias)})
    kinds = [
        (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:mirror", "*", operation)
        for operation in operations or (AclOperation.ALTER, AclOperation.DESCRIBE)
    ]
    for created in admin.create_acls([AclBinding(*kind, AclPermissionType.ALLOW) for kind in kinds]).values():
        created.result(20)
    try:
        yield
    finally:
        for deleted in admin.delete_acls([AclBindingFilter(*kind, AclPermissionType.ALLOW) for kind in kinds]).values():
            deleted.result(20)

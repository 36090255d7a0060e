"""The fence, on clusters with an authorizer: nobody gets in, it is shown, and it can be taken back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

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

from drkit.config.fence_schema import FenceConfig
from drkit.config.schema import ClusterConfig
from drkit.failover.estate import Estate
from drkit.failover.failback import make_failback_plan
from drkit.failover.gate import Gate, gate_record
from drkit.failover.gate_rules import GateState
from drkit.failover.lease import RunLease
from drkit.failover.machine import Mode, State
from drkit.failover.planner import Request, make_plan
from drkit.failover.refence import Hand, fence_again
from drkit.failover.service import run_failback, run_failover
from drkit.kafka.admin import ClusterAdmin
from drkit.kafka.write_probe import WriteProbe
from drkit.lab import Lab
from drkit.model.acls import Acl
from drkit.model.errors import Refused
from tests.support.estates import OwnLink, mirror, mirroring, open_link, own_link, texts
from tests.support.lab import USERS
from tests.support.rooms import reading_ports
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

PLANNED = Request("dr", mode=Mode.PLANNED)


def as_user(lab: Lab, alias: str, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": lab.bootstrap(alias, sasl=True),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def with_writer(mine: OwnLink, lab: Lab) -> OwnLink:
    """The same link, whose fences are shown to the user `app`."""
    mine.store.close()
    text = mine.config_path.read_text()
    for alias in ("primary", "dr"):
        client = as_user(lab, alias, "app")
        servers = client.pop("bootstrap.servers")
        lines = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items())
        text += (
            f'\n[clusters.{alias}.fence]\nbootstrap_servers = "{servers}"\n[clusters.{alias}.fence.client]\n{lines}\n'
        )
    mine.config_path.write_text(text)
    return open_link(mine.config_path, mine.name)


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link whose clients are the user `app`; drkit is a super user."""
    mine = with_writer(own_link(secure_lab, tmp_path, unique_name), secure_lab)
    for alias in ("primary", "dr"):
        put(mine, alias, *(allow(mine.name, kind, "all") for kind in ("topic", "group")))
    yield mine
    mine.store.close()


def allow(name: str, resource: str, operation: str, user: str = "app") -> Acl:
    return Acl(resource, f"{name}.", "prefixed", f"User:{user}", "*", operation, "allow")


def put(own: OwnLink, alias: str, *wanted: Acl) -> None:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        assert admin.create_acls(wanted) == {}
        wait_until(lambda: set(wanted) <= admin.acls(), what="the rules")


def denials(own: OwnLink, alias: str) -> set[Acl]:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        return {rule for rule in admin.acls() if rule.name.startswith(own.name) and rule.permission == "deny"}


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
            self._producer.poll(0)
        self._producer.flush(20)

    def _heard(self, error: object, message: object) -> None:
        if error is None:
            self.acked[message.partition()].append(message.value().decode())  # type: ignore[attr-defined]
        else:
            self.refused.append(error.name())  # type: ignore[attr-defined]


def write(lab: Lab, alias: str, topic: str) -> str:
    """What comes of a record that `app` writes."""
    told: list[str] = []
    producer = Producer({**as_user(lab, alias, "app"), "log_level": 0})
    producer.produce(
        topic, b"later", partition=0, on_delivery=lambda error, _: told.append(error.name() if error else "written")
    )
    producer.flush(20)
    return told[0]


def commit(lab: Lab, alias: str, group: str, topic: str) -> str:
    """What comes of a commit of `app`."""
    consumer = Consumer({**as_user(lab, alias, "app"), "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=False)
    except KafkaException as error:
        return str(error.args[0].name())
    finally:
        consumer.close()
    return "committed"


def test_a_planned_move_under_load_and_back_loses_and_duplicates_nothing(
    own: OwnLink, secure_lab: Lab, tmp_path: Path
) -> None:
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
    assert "shown to User:app by 1 brokers" in str(result.machine.facts.fence_reason)
    assert load.refused[0] == "TOPIC_AUTHORIZATION_FAILED"
    assert own.values("dr", topic) == load.acked
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
        result = run_failover(estate, make_plan(estate, Request("dr")), accept_unfenced=False)
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
    assert gate_record(own.store, own.link.id, "primary").state is GateState.OPEN
    assert mirror(own) == 6


def test_a_primary_that_hung_is_fenced_when_it_answers_again(own: OwnLink, secure_lab: Lab) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    with own.estate() as estate:
        secure_lab.pause("primary")
        try:
            with pytest.raises(Refused, match="can't be fenced"):
                run_failover(estate, make_plan(estate, Request("dr")), accept_unfenced=False)
            result = run_failover(estate, make_plan(estate, Request("dr")), accept_unfenced=True)
        finally:
            secure_lab.resume("primary")
        assert result.error is None
        assert result.evidence.fenced is False
        assert gate_record(own.store, own.link.id, "primary").state is GateState.PENDING
    with own.estate() as estate:
        run, proof = wait_until(lambda: fenced(estate, own), what="the primary to be fenced")
    assert proof.proven, proof.reason
    assert write(secure_lab, "primary", topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert ("fence", "closed") in {(each.kind, each.state) for each in own.store.runs() if each.run == run}


def fenced(estate, own):
    found = fence_again(estate, own.link, lambda _: None)
    return found if found[1].proven else None


def by_hand(own: OwnLink, estate: Estate, lease: RunLease, run: str) -> Gate:
    return Gate(Hand(estate, own.link, run, lease, lambda _: None), "primary")


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


@contextmanager
def may_alter_cluster(lab: Lab, alias: str) -> Iterator[None]:
    """The user `mirror` may put and read access rules, for a while."""
    admin = AdminClient({"bootstrap.servers": lab.bootstrap(alias)})
    kinds = [
        (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:mirror", "*", operation)
        for operation in (AclOperation.ALTER, AclOperation.DESCRIBE)
    ]
    for created in admin.create_acls([AclBinding(*kind, AclPermissionType.ALLOW) for kind in kinds]).values():
        created.result(20)
    try:
        yield
    finally:
        for deleted in admin.delete_acls([AclBindingFilter(*kind, AclPermissionType.ALLOW) for kind in kinds]).values():
            deleted.result(20)

"""A process that stood still within a stage, while another one finished the run: what it finds isn't its own any more.

The store is a real one; no cluster is asked.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import failback_stages, failover_stages, fence_stages
from drkit.failover.stages.failback_stages import Keep, Reverse, ReverseLink
from drkit.failover.stages.failover_stages import Commit, Switch
from drkit.failover.stages.fence_stages import Fence, settle_watermarks, settling_generation
from drkit.failover.stages.scrub_stage import recreate, restore_configs
from drkit.failover.stages.stage import StageContext, check_still_decided, decide_link
from drkit.model.clock import now
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import ACL_NOTES, Acl, AclRole
from drkit.model.topics.standby import RELEASED, SOURCE_SETTINGS, UNCOMPACTED
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store

LINK = LinkId("primary", "dr")
BACK = LINK.reversed()
RUN = "RUN"
TOPIC = ScrubTopic("t", "id-t", "t", 1, 1, 1, created_by_drkit=False, config={"retention.ms": "5"})


class Lease:
    """Another process takes it as soon as the test says."""

    lost = False

    def check(self):
        if self.lost:
            raise PartlyDone("another process had it meanwhile")


class Admin:
    """A cluster with the topic; `meanwhile` is called as it is asked for topics and settings."""

    def __init__(self, meanwhile=lambda: None):
        self.meanwhile, self.did = meanwhile, []

    def topics(self, _names=()):
        self.meanwhile()
        return {}

    def topic_configs(self, _names, **_more):
        self.meanwhile()
        return {"t": {"retention.ms": "7"}}

    def create_topics(self, topics):
        self.did.append(topics)
        return {}

    def set_many_topic_configs(self, changes):
        self.did.append(changes)
        return {}

    def cluster_id(self):
        return "id"


@pytest.fixture
def context(monkeypatch):
    config = Config.model_validate(
        {
            "clusters": {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("primary", "dr")},
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": "primary", "target": "dr", "topics": [".*"]}],
        }
    )
    store = open_store("sqlite:///:memory:")
    with ClusterContext(config, store, patience_seconds=0.05) as estate:
        monkeypatch.setattr(estate, "admin", lambda _alias, **_more: Admin())
        yield StageContext(
            estate=estate,
            link=estate.link(LINK).reversed(),
            run=RUN,
            facts=Facts(mode=Mode.PLANNED, scrubbed={"t": "id-new"}),
            positions=(),
            places=(),
            again=False,
            lease=Lease(),
            ports=None,
            say=lambda _text: None,
            carried=(),
            establish=lambda *_: None,
        )
    store.close()


def decided(store, link, direction, run=RUN):
    kept = store.link_control(link)
    version = 0 if kept is None else kept.version
    control = LinkControl(link=link, direction=direction, version=version + 1, changed_at=now(), reason="", run=run)
    assert store.set_link_control(control, expected_version=None if kept is None else version)


def recorded(store, link):
    """What a mirror that runs has recorded: a topic and a mapping row."""
    store.put_topic_states(link, [TopicState("t", "t", "id-1", "id-2", 2, 1, created_by_drkit=True)])
    store.append_mappings(link, [OffsetMapping("t", 0, 2, 0, 0)])


def record_of(store, link):
    control = store.link_control(link)
    rows = store.mappings(link, TopicPartition("t", 0), 2)
    return control.direction, control.version, store.topic_states(link), rows


def taken_over(context, link, direction, run=RUN):
    """Another process takes the run over, and brings the link there, whose mirror runs."""
    decided(context.estate.store, link, direction, run)
    recorded(context.estate.store, link)
    context.lease.lost = True


def test_the_switch_of_who_stood_still_forgets_nothing_of_the_link_that_serves_again(context, monkeypatch):
    store = context.estate.store
    decided(store, LINK, Direction.REVERSED)
    recorded(store, BACK)
    monkeypatch.setattr(failback_stages, "restore_configs", lambda *_: taken_over(context, LINK, Direction.ACTIVE))
    monkeypatch.setattr(failback_stages, "find_late_writes", lambda context, **_: (context.facts, ""))
    with pytest.raises(PartlyDone, match="another process had it"):
        ReverseLink(LINK, "primary:9092", "primary", (TOPIC,)).execute(context)
    direction, version, states, rows = record_of(store, LINK)
    assert (direction, version) == (Direction.ACTIVE, 2)
    assert states["t"].epoch == 2
    assert len(rows) == 1


@pytest.mark.parametrize("level", [False, True])
@pytest.mark.parametrize("run", [RUN, "ANOTHER"])
def test_the_reversal_of_who_stood_still_pauses_and_forgets_nothing_of_the_way_back(context, monkeypatch, level, run):
    store = context.estate.store
    decided(store, LINK, Direction.SEALED)
    monkeypatch.setattr(
        failback_stages, "trimmed_again", lambda *_: taken_over(context, BACK, Direction.ACTIVE, run) or ""
    )
    with pytest.raises(PartlyDone, match="another process had it"):
        Reverse(LINK, (TOPIC,), level=level).execute(context)
    direction, version, states, rows = record_of(store, BACK)
    assert (direction, version) == (Direction.ACTIVE, 1)
    assert states["t"].epoch == 2
    assert len(rows) == 1


def test_a_link_that_was_decided_since_is_not_decided_again(context):
    store = context.estate.store
    taken_over(context, BACK, Direction.ACTIVE)
    with pytest.raises(PartlyDone, match="another process had it"):
        decide_link(context, BACK, Direction.SEALED, reason="all of it is back", allowed=frozenset(Direction))
    assert store.link_control(BACK).direction is Direction.ACTIVE


@pytest.mark.parametrize("act", [recreate, restore_configs])
def test_a_topic_that_serves_again_is_neither_made_nor_configured(context, act):
    admin = Admin(lambda: setattr(context.lease, "lost", True))
    with pytest.raises(PartlyDone, match="another process had it"):
        act(context, admin, (TOPIC,))
    assert admin.did == []


def test_who_holds_the_lease_turns_the_record_round(context, monkeypatch):
    store = context.estate.store
    decided(store, LINK, Direction.SEALED)
    monkeypatch.setattr(
        context.estate,
        "admin",
        lambda _alias, **_more: SimpleNamespace(
            cluster_id=lambda: "id", topics=lambda _names: {}, compacted=lambda _: set()
        ),
    )
    monkeypatch.setattr(failback_stages, "trimmed_again", lambda *_: "")
    assert Reverse(LINK, (TOPIC,)).execute(context).facts.reversed
    assert store.link_control(BACK).direction is Direction.ACTIVE
    assert store.link_control(LINK).direction is Direction.REVERSED


# -- the link was decided otherwise since ----------------------------------------------------------


def forward(context, **more):
    """The context of a failover's stage."""
    return replace(context, link=context.estate.link(LINK), **more)


@pytest.mark.parametrize(
    ("direction", "run"),
    [(Direction.ACTIVE, "LIFT"), (Direction.ACTIVE, RUN), (Direction.SEALED, "ANOTHER"), (Direction.REVERSED, "BACK")],
)
@pytest.mark.parametrize("stage", [Commit("dr", 1, 1), Switch("dr", "dr:9092")], ids=["commit", "switch"])
def test_neither_groups_nor_clients_are_moved_where_the_link_was_decided_since(
    context, monkeypatch, stage, direction, run
):
    asked = []
    monkeypatch.setattr(context.estate, "admin", lambda alias, **_: asked.append(alias))
    monkeypatch.setattr(context.estate, "groups", lambda alias, **_: asked.append(alias))
    decided(context.estate.store, LINK, direction, run)
    with pytest.raises(PartlyDone, match=f"primary->dr is {direction} by run {run} by now") as told:
        stage.execute(forward(context))
    assert f"drkit abandon {RUN}" in told.value.remedy
    assert asked == []


@pytest.mark.parametrize("direction", [Direction.ACTIVE, Direction.SEALED])
def test_a_failback_moves_no_group_back_where_its_link_is_not_reversed_any_more(context, monkeypatch, direction):
    asked = []
    monkeypatch.setattr(context.estate, "groups", lambda alias, **_: asked.append(alias))
    decided(context.estate.store, BACK, Direction.SEALED)
    decided(context.estate.store, LINK, direction, "LIFT")
    with pytest.raises(PartlyDone, match=f"primary->dr is {direction} by run LIFT by now"):
        Commit("primary", 1, 1).execute(context)
    assert asked == []


def test_a_later_run_on_a_link_that_another_had_sealed_moves_groups_as_long_as_that_stands(context):
    decided(context.estate.store, LINK, Direction.SEALED, "EARLIER")
    check_still_decided(forward(context), sealed_before_by="EARLIER")
    decided(context.estate.store, LINK, Direction.SEALED, "LATER")
    with pytest.raises(PartlyDone, match="sealed by run LATER by now"):
        check_still_decided(forward(context), sealed_before_by="EARLIER")


@pytest.mark.parametrize(
    ("already", "direction", "run"),
    [
        ("EARLIER", Direction.ACTIVE, "LIFT"),
        ("EARLIER", Direction.SEALED, "LATER"),
        (None, Direction.SEALED, "LATER"),
        (None, Direction.REVERSED, "BACK"),
    ],
)
def test_a_cluster_that_serves_by_a_newer_decision_than_the_plan_saw_is_not_closed(
    context, monkeypatch, already, direction, run
):
    """An operator took time to say yes."""
    closed = []
    monkeypatch.setattr(fence_stages, "ClusterFence", lambda *given: closed.append(given))
    decided(context.estate.store, LINK, direction, run)
    with pytest.raises(Refused, match=f"primary->dr is {direction} by run {run}"):
        Fence("primary", "dr", Mode.UNPLANNED, True, already_sealed=already).execute(forward(context))
    assert closed == []


@pytest.mark.parametrize(("direction", "run"), [(Direction.ACTIVE, "LIFT"), (Direction.REVERSED, "ANOTHER")])
def test_the_way_back_stays_for_good_only_where_it_still_flows_by_this_run(context, direction, run):
    decided(context.estate.store, LINK, direction, run)
    with pytest.raises(PartlyDone, match=f"primary->dr is {direction} by run {run} by now"):
        Keep(LINK).execute(context)
    decided(context.estate.store, LINK, Direction.REVERSED)
    assert "dr is the primary for good" in Keep(LINK).execute(context).reason


# -- between a check and what it allowed -----------------------------------------------------------


@pytest.mark.parametrize("since", ["lease", "link"])
@pytest.mark.parametrize("held_back", ["settings", "rules"])
def test_what_a_standby_holds_back_is_not_put_on_it_by_who_stood_still(context, monkeypatch, since, held_back):
    """A machine that stood still finds its lease held, as its clock stood still, too: then the link tells."""
    store, put = context.estate.store, []

    def meanwhile():
        if since == "lease":
            context.lease.lost = True
        elif store.link_control(LINK).run == RUN:
            decided(store, LINK, Direction.ACTIVE, "FAILBACK")

    dr = Admin(meanwhile)
    dr.principal = "drkit"
    dr.topics = lambda _names=(): meanwhile() or {"t": SimpleNamespace(replication_factor=1)}
    dr.topic_configs = lambda *_, **_more: {"t": dict.fromkeys((*RELEASED, *UNCOMPACTED), "standby")}
    dr.acls = lambda: meanwhile() or frozenset()
    dr.set_many_topic_configs = dr.create_acls = dr.delete_acls = lambda what: put.append(what) or {}
    monkeypatch.setattr(context.estate, "admin", lambda _alias, **_more: dr)
    monkeypatch.setattr(failover_stages, "ClusterFence", lambda *_: SimpleNamespace(open=lambda: ""))
    decided(store, LINK, Direction.SEALED)
    recorded(store, LINK)
    if held_back == "settings":
        store.put_notes(LINK, SOURCE_SETTINGS, {"t": json.dumps({"retention.ms": "5"})})
    else:
        rule = Acl("topic", "t", "literal", "User:app", "*", "write", "allow")
        store.put_notes(LINK, ACL_NOTES, {rule.key: AclRole.DUE.value})
    mine = forward(context)
    mine = replace(mine, link=replace(mine.link, acls=AclMode.STANDBY))
    with pytest.raises(PartlyDone, match="another process had it" if since == "lease" else "active by run FAILBACK"):
        Switch("dr", "dr:9092").execute(mine)
    assert put == []


def test_watermarks_are_not_settled_beneath_a_mirror_that_began_while_the_run_stood_still(context):
    """It stood still after its last check, another operator took the run back, and the mirror went on."""
    store, tp = context.estate.store, TopicPartition("t", 0)
    mine = forward(context)
    decided(store, LINK, Direction.SEALED)
    recorded(store, LINK)
    mark = Watermark("t", 0, 2, 10, 10, 0, 10, 0, now())
    store.put_watermarks(LINK, [mark])
    generation = settling_generation(mine)
    view = SimpleNamespace(epoch=2, watermark=mark, target_end=10)
    seen = SimpleNamespace(link=mine.link, partitions={tp: view})

    mirrors = store.next_generation(LINK)
    store.claim(LINK, [(tp, 2)], mirrors)
    store.append_mappings(LINK, [OffsetMapping("t", 0, 2, 20, 21)], {tp: mirrors})
    further = replace(mark, source_through=30, target_end=31)
    store.put_watermarks(LINK, [further], {tp: mirrors})

    with pytest.raises(PartlyDone, match="primary->dr is mirrored again: a mirror has claimed t:0"):
        settle_watermarks(mine, seen, generation)
    assert len(store.mappings(LINK, tp, 2)) == 2
    assert store.watermarks(LINK)[tp].source_through == 30


def test_a_generation_to_settle_with_is_not_used_by_who_stood_still_before_it_was_taken(context):
    context.lease.lost = True
    with pytest.raises(PartlyDone, match="another process had it"):
        settling_generation(context)

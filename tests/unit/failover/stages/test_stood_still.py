"""A process that stood still within a stage, while another one finished the run: what it finds isn't its own any more.

The store is a real one; no cluster is asked.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import failback_stages
from drkit.failover.stages.failback_stages import Reverse, ReverseLink
from drkit.failover.stages.scrub_stage import recreate, restore_configs
from drkit.failover.stages.stage import StageContext, decide_link
from drkit.model.clock import now
from drkit.model.errors import PartlyDone
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.offsets import OffsetMapping
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

"""The plan of a failback of several links: one digest over theirs, what they share, and in which phases it goes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from drkit.cli.views.failover_view import print_result
from drkit.cli.views.site_view import print_site_failback_plan, print_site_result
from drkit.failover.context.evidence import Judgement
from drkit.failover.context.state_machine import PATHS, Facts, Kind, Mode, Run, State
from drkit.failover.plan.failback_plan import FailbackPlan, ScrubTopic, will_pause, with_digest
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.plan.site_failback_plan import (
    SiteFailbackPlan,
    site_failback_plan_json,
    site_failback_plan_of,
)
from drkit.failover.plan.site_plan import expected_loss, refusal_of, standing
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.runner import RunResult
from drkit.failover.site.site_document import site_plan_document, site_run_document
from drkit.failover.site.site_failback_run import _contended, phases
from drkit.failover.site.site_result import LinkResult, SiteResult
from drkit.failover.snapshot.choose_links import LinkLeftOut
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.model.offsets import Certainty
from drkit.model.topology import LinkId
from tests.unit.failover.plan.worlds import AT

EAST, WEST = LinkId("east", "dr"), LinkId("west", "dr")


def position(group: str) -> PlannedPosition:
    """Where it goes is known once the old primary is seeded."""
    return PlannedPosition(
        group=group,
        topic="orders",
        partition=0,
        target_topic="orders",
        source_offset=1,
        target_offset=None,
        strategy=None,
        translation=Certainty.UNAVAILABLE,
        reread=None,
        skipped=None,
        lost=None,
        reason="not known yet",
        why="not known yet",
    )


def a_link_plan(link: LinkId, *, topic: str = "orders", groups: tuple[str, ...] = (), **more) -> FailbackPlan:
    return with_digest(
        FailbackPlan(
            link=link,
            made_at=AT,
            target=ClusterView(link.source, reachable=True, cluster_id=f"id-{link.source}"),
            live=ClusterView(link.target, reachable=True, cluster_id=f"id-{link.target}"),
            endpoint="h:1",
            control="sealed",
            control_version=1,
            failover_run="R",
            topics=(ScrubTopic(topic, "T", topic, 1, 1, 1, created_by_drkit=False, ends={0: 5}, only={0: 2}),),
            offsets={},
            positions=tuple(position(group) for group in groups),
            **more,
        )
    )


def a_plan(*plans: FailbackPlan, kind: Kind = Kind.FAILBACK, **more) -> SiteFailbackPlan:
    return SiteFailbackPlan(kind, AT, plans or (a_link_plan(EAST), a_link_plan(WEST)), **more)


def test_one_digest_over_the_links_plans():
    plan = a_plan()
    assert len(plan.digest) == 64
    assert plan.digest == a_plan(*reversed(plan.plans)).digest
    assert plan.digest != a_plan(a_link_plan(EAST, topic="other"), plan.plans[1]).digest
    assert plan.digest != replace(plan, kind=Kind.REPROTECT).digest


def test_a_plan_is_read_back_from_the_journal():
    plan = a_plan(left_out=(LinkLeftOut(LinkId("south", "dr"), "it was not failed away from"),))
    assert site_failback_plan_of(json.loads(site_failback_plan_json(plan))) == plan


def test_where_it_goes_and_what_it_deletes():
    plan = a_plan(a_link_plan(EAST), a_link_plan(WEST, level=True))
    assert plan.to is None
    assert plan.old_primaries == {"east": "id-east", "west": "id-west"}
    assert plan.deleting == {"east": 1}, "a level link deletes nothing"
    assert plan.live == ("dr",)
    one = a_plan(a_link_plan(EAST), a_link_plan(LinkId("east", "other"), topic="else"))
    assert (one.to, one.deleting) == ("east", {"east": 2})
    assert a_plan(one.plans[0]).again == "drkit failback"


def test_groups_that_links_share_on_a_live_cluster():
    plan = a_plan(
        a_link_plan(EAST, groups=("billing", "audit")),
        a_link_plan(WEST, groups=("billing",)),
        a_link_plan(LinkId("south", "elsewhere"), groups=("audit",)),
    )
    assert plan.shared_groups == {"billing": (EAST, WEST)}
    assert any("billing" in warning for warning in plan.own_warnings())


def test_a_topic_is_brought_back_by_one_link():
    clusters = a_link_plan(EAST), a_link_plan(LinkId("east", "other"))
    (obstacle,) = _contended(clusters)
    assert "orders would be brought back by more than one link: east->dr, east->other" in obstacle.what
    assert list(_contended(a_plan().plans)) == [], "two clusters have a topic of that name each"


def test_what_stands_in_the_way_of_one_link_names_it():
    held = Obstacle("a mirror runs", "It must not write", "Stop it")
    plan = a_plan(replace(a_link_plan(EAST), obstacles=(held,)), a_link_plan(WEST))
    ((link, obstacle),) = standing(plan)
    told = refusal_of(plan, link, obstacle)
    assert told.what == "east->dr: a mirror runs"
    assert told.remedy == "Stop it. Or without it: drkit failback --link 'west->dr'"


def test_its_document():
    document = site_plan_document(a_plan(), [])
    assert (document["to"], document["kind"], document["mode"]) == (None, "failback", "planned")
    assert [each["scrub"][0]["only_here"] for each in document["links"]] == [2, 2]
    assert document["evidence"]["rpo_records"] is None
    assert expected_loss(a_plan()).rpo_records is None


@pytest.mark.parametrize(
    ("endpoints", "found"), [(("e:1", "w:1"), None), (("e:1", "e:1"), "e:1"), (("e:1", None), "e:1")]
)
def test_where_clients_connect_is_of_the_run_only_where_it_is_one_place(endpoints, found):
    plan = a_plan()
    links = tuple(
        LinkResult(
            each.link,
            each,
            RunResult("R", Run(Kind.FAILBACK, State.CLOSED, Facts(Mode.PLANNED, endpoint=endpoint)), AT, (), ()),
        )
        for each, endpoint in zip(plan.plans, endpoints, strict=True)
    )
    document = site_run_document(SiteResult("S", plan, State.CLOSED, links))
    assert document["endpoint"] == found
    assert [each["endpoint"] for each in document["links"]] == list(endpoints)


@pytest.mark.parametrize(("kind", "flow"), [(Kind.FAILBACK, "east->dr"), (Kind.REPROTECT, "dr->east")])
def test_it_ends_with_the_mirror_that_the_operator_is_to_start(kind: Kind, flow: str):
    plan = replace(a_link_plan(EAST), kind=kind)
    run = RunResult("R", Run(kind, State.CLOSED, Facts(Mode.PLANNED)), AT, (), ())
    site = SiteResult("S", a_plan(plan, kind=kind), State.CLOSED, (LinkResult(EAST, plan, run),))
    console = Console(record=True, width=200)
    print_result(console, run, plan, Judgement())
    print_site_result(console, site, Judgement())
    assert console.export_text().count(f"next        drkit mirror --link '{flow}': until it runs") == 2


@pytest.mark.parametrize(("kind", "count"), [(Kind.FAILBACK, 3), (Kind.REPROTECT, 2)])
def test_phases_hold_every_stage_once_and_delete_in_the_second(kind: Kind, count: int):
    found = phases(kind)
    assert len(found) == count
    assert found[0] == {"salvage"}
    assert {"scrub", "reverse", "reseed", "audit"} <= found[1]
    names = [step.stage for step in PATHS[kind]]
    assert sorted(name for phase in found for name in phase) == sorted(names)


def test_it_is_shown_with_what_is_deleted_where():
    console = Console(record=True, width=200)
    print_site_failback_plan(console, a_plan(a_link_plan(EAST), a_link_plan(WEST, level=True)))
    shown = console.export_text()
    assert "failback plan of 2 links" in shown
    assert "east orders: 5 offsets, 2 only here" in shown
    assert "west orders" not in shown
    assert "id-west" in shown


def test_a_run_that_was_told_to_stop_before_its_fence_stops_there_once_whoever_resumes_it():
    told, facts = a_link_plan(EAST, pause_before_fence=True), Facts(Mode.PLANNED)
    states = (State.SALVAGED, State.SCRUBBED, State.REVERSED, State.RESEEDED)
    assert all(will_pause(told, Run(Kind.FAILBACK, state, facts)) for state in states)
    assert will_pause(told, None), "not begun"
    assert not will_pause(told, Run(Kind.FAILBACK, State.AUDITED, facts)), "it waits there, and goes on"
    assert not will_pause(told, Run(Kind.FAILBACK, State.CLOSED, facts))
    assert not any(will_pause(a_link_plan(EAST), Run(Kind.FAILBACK, state, facts)) for state in states)

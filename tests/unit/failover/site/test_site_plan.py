"""A site's plan: which links it takes, one digest over theirs, what other links see, what is accepted for all."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from drkit.evidence import verifier
from drkit.failover.context.evidence import expected_evidence
from drkit.failover.context.state_machine import Facts, Kind, Mode, Run, State
from drkit.failover.journal.site_record import least_far
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.plan.site_plan import (
    SitePlan,
    accepting_shown,
    read_site_plan,
    refusal_of,
    site_plan_from_json,
    site_plan_json,
    standing,
    summed,
    write_site_plan,
)
from drkit.failover.planning.failover_planner import PlanRequest, plan_for
from drkit.failover.run.run_document import plan_document
from drkit.failover.site.shared_groups import SharedGroups
from drkit.failover.site.site_document import link_document, site_plan_document
from drkit.failover.site.site_planner import _accepting, check_known
from drkit.failover.snapshot.choose_links import LinkLeftOut, other_links
from drkit.failover.snapshot.selection import UnknownNames
from drkit.model.errors import ConfigError, PartlyDone
from drkit.model.link_patterns import matching
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_UNFENCED
from drkit.model.topology import Link, LinkId
from tests.unit.failover.plan.worlds import AT, Log, position, world

EAST, WEST = LinkId("east", "dr"), LinkId("west", "dr")


def a_link_plan(link, *, group="billing", offset=3, **asked):
    seen = world([Log("rrrrrr", through=4).view()], [position(offset, group=group)], link=Link(link, topics=(".*",)))
    return plan_for(seen, PlanRequest("dr", **asked), endpoint="127.0.0.1:1")


def a_site_plan(*plans, **more):
    chosen = plans or (a_link_plan(EAST), a_link_plan(WEST, group="audit"))
    return SitePlan(to="dr", mode=Mode.UNPLANNED, made_at=AT, plans=chosen, **more)


# -- choosing links --------------------------------------------------------------------------------


LINKS = [
    Link(LinkId(source, target), topics=(".*",)) for source, target in (("east", "dr"), ("west", "dr"), ("a", "b"))
]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["east->dr"], ["east->dr"]),
        ([" east -> dr "], ["east->dr"]),
        (["[ew].*->dr"], ["east->dr", "west->dr"]),
        (["west->dr", "east->dr"], ["east->dr", "west->dr"]),
        ([".*"], ["east->dr", "west->dr", "a->b"]),
    ],
)
def test_links_are_named_or_match(patterns, found):
    assert [str(link.id) for link in matching(LINKS, patterns)] == found


@pytest.mark.parametrize("pattern", ["south->dr", "eas", "(", ""])
def test_a_pattern_that_means_no_link_is_refused(pattern):
    with pytest.raises(ConfigError) as caught:
        matching(LINKS, ["east->dr", pattern])
    assert "east->dr, west->dr, a->b" in caught.value.remedy


def test_what_other_links_see():
    links = [
        Link(LinkId.parse(name), topics=(".*",))
        for name in ("hub->dr", "hub->spoke", "dr->hub", "dr->archive", "field->hub", "west->dr", "x->y")
    ]
    found = {str(each.link): each.effect for each in other_links(links, links[:1], "dr")}
    assert found.keys() == {"hub->spoke", "dr->hub", "dr->archive", "field->hub", "west->dr"}
    assert "nothing that clients write to dr" in found["hub->spoke"]
    assert "active-active" in found["dr->hub"]
    assert "reach archive" in found["dr->archive"]
    assert "leads into hub, which is left" in found["field->hub"]
    assert "clients of west stay there" in found["west->dr"]


# -- the plan --------------------------------------------------------------------------------------


def test_one_digest_over_the_links_plans():
    plan = a_site_plan()
    assert len(plan.digest) == 64
    assert plan.digest == a_site_plan(*reversed(plan.plans)).digest, "the order of the configuration decides nothing"
    assert plan.digest != a_site_plan(a_link_plan(EAST, offset=2), plan.plans[1]).digest
    assert plan.digest != a_site_plan(plan.plans[0]).digest
    assert plan.digest != replace(plan, mode=Mode.PLANNED).digest


def test_a_plan_is_read_back_from_the_journal_and_from_a_file(tmp_path):
    plan = a_site_plan(left_out=(LinkLeftOut(LinkId("south", "dr"), "it was failed over already"),))
    assert site_plan_from_json(site_plan_json(plan)) == plan
    path = tmp_path / "plan.json"
    write_site_plan(plan, path)
    body = json.loads(path.read_text())
    assert body["digest"] == plan.digest
    assert [each["link"]["source"] for each in body["plan"]["plans"]] == ["east", "west"]
    assert read_site_plan(path, body) == plan


def test_a_file_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    write_site_plan(a_site_plan(), path)
    body = json.loads(path.read_text())
    body["plan"]["plans"][1]["positions"][0]["target_offset"] += 1
    with pytest.raises(ConfigError, match="was changed after it was written"):
        read_site_plan(path, body)
    del body["plan"]["plans"]
    with pytest.raises(ConfigError, match="is damaged"):
        read_site_plan(path, body)


def test_what_stands_in_the_way_names_its_link_and_the_way_round_it():
    plan = a_site_plan()
    assert [link for link, _ in standing(plan)] == [EAST, WEST]
    assert standing(plan, waived=frozenset({"--accept-unfenced"})) == []
    told = refusal_of(plan, *standing(plan)[1]).refusal()
    assert told.what.startswith("west->dr: ")
    assert told.remedy.endswith("drkit failover --to dr --link 'east->dr'")


def test_the_document_lists_all_links_and_each_of_them():
    document = site_plan_document(a_site_plan(), standing(a_site_plan()))
    assert (document["link"], document["to"], document["dry_run"]) == (None, "dr", True)
    assert [(row["link"], row["group"]) for row in document["groups"]] == [
        ("east->dr", "billing"),
        ("west->dr", "audit"),
    ]
    assert {row["link"] for row in document["stages"]} == {"east->dr", "west->dr"}
    assert [each["link"] for each in document["links"]] == ["east->dr", "west->dr"]
    assert [each["evidence"]["rpo_records"] for each in document["links"]] == [2, 2]
    assert document["evidence"]["rpo_records"] == 4
    assert [each["link"] for each in document["refusals"]] == ["east->dr", "west->dr"]


def test_a_links_part_of_the_document_is_that_of_its_own_run():
    plan = a_site_plan()
    document = site_plan_document(plan)
    for each in plan.plans:
        alone, part = plan_document(each), link_document(document, str(each.link))
        assert part is not None
        assert part.keys() >= alone.keys()
        rows = {"groups", "lost_by_topic", "places", "directories"} & alone.keys()
        assert {name: part[name] for name in alone.keys() - rows} == {name: alone[name] for name in alone.keys() - rows}
        for name in rows:
            assert part[name] == [{"link": str(each.link), **row} for row in alone[name]]
        assert verifier._part_of(document, str(each.link)) == part, "the verifier has code of its own"
        assert link_document(alone, str(each.link)) == alone
    assert link_document(document, "south->dr") is None
    assert verifier._part_of(document, "south->dr") is None


def test_the_verifier_adds_up_the_links_of_a_document_anew():
    document = site_plan_document(a_site_plan())
    assert [*verifier._sum_problems(document)] == []
    document["evidence"]["rpo_records"] += 1
    (said,) = verifier._sum_problems(document)
    assert "rpo_records of the failover of result.json" in said


def test_a_sum_that_is_not_known_of_one_link_is_not_known():
    known = [plan.loss for plan in a_site_plan().plans]
    unknown = replace(known[1], records=None)
    assert summed([expected_evidence(known[0]), expected_evidence(unknown)]).rpo_records is None
    assert summed([]).rpo_records == 0


# -- what is accepted for all links together -------------------------------------------------------


def losing(link, records):
    plan = a_link_plan(link)
    missing = Obstacle(f"{records} would be lost", "", "", waived_by=ACCEPT_LOSS)
    return replace(plan, loss=replace(plan.loss, records=records, lower_bound=False), obstacles=(missing,))


def test_accepted_loss_is_divided_so_that_the_links_lose_no_more():
    plans, obstacles = _accepting([losing(EAST, 90), losing(WEST, 5), a_link_plan(LinkId("south", "dr"))], 101)
    assert obstacles == []
    assert [plan.accept_loss for plan in plans] == [92, 7, 2]
    assert sum(plan.accept_loss for plan in plans) <= 101
    assert not any(obstacle.waived_by == ACCEPT_LOSS for plan in plans for obstacle in plan.obstacles)


def test_less_than_is_needed_is_refused_with_the_number():
    plans, (obstacle,) = _accepting([losing(EAST, 90), losing(WEST, 5)], 94)
    assert "95 records on 2 links" in obstacle.what
    assert "--accept-loss 95" in obstacle.remedy
    assert [plan.accept_loss for plan in plans] == [0, 0]


def test_what_a_link_loses_within_its_budget_counts_too():
    """150 were accepted, 50 + 150 planned: the run lost 200."""
    within = replace(losing(EAST, 50), obstacles=())
    _, (obstacle,) = _accepting([within, losing(WEST, 150)], 150)
    assert "200 records on 2 links" in obstacle.what
    plans, obstacles = _accepting([within, losing(WEST, 150)], 201)
    assert (obstacles, [plan.accept_loss for plan in plans]) == ([], [50, 150])
    there = replace(within.source, reachable=True)
    waits, planned = replace(within, catch_up=True, source=there), replace(within, mode=Mode.PLANNED)
    dead = replace(within, loss=replace(within.loss, lower_bound=True))
    for other in (waits, planned, dead):
        plans, obstacles = _accepting([other, losing(WEST, 150)], 150)
        assert (obstacles, [plan.accept_loss for plan in plans]) == ([], [0, 150])


def test_what_is_not_known_needs_the_word():
    plans, _ = _accepting([losing(EAST, None), losing(WEST, 5)], 1000)
    assert any(obstacle.waived_by == ACCEPT_LOSS for obstacle in plans[0].obstacles)
    plans, obstacles = _accepting([losing(EAST, None), losing(WEST, 5)], "unknown")
    assert obstacles == []
    assert [plan.accept_loss for plan in plans] == ["unknown", "unknown"]


# -- what a person at a terminal accepts -------------------------------------------------------------


def test_the_name_accepts_what_was_shown_of_each_link_and_nothing_else():
    """It accepted every loss, and every missing fence, of all links."""
    unfenced = Obstacle("east can't be fenced", "", "", waived_by=ACCEPT_UNFENCED)
    seven = Obstacle("7 would be lost", "", "", waived_by=ACCEPT_LOSS, loss=7)
    nine = Obstacle("9 would be lost", "", "", waived_by=ACCEPT_LOSS, loss=9)
    unknown = Obstacle("an unknown number would be lost", "", "", waived_by=ACCEPT_LOSS, loss="unknown")
    found = {"east": (unfenced,), "west": (seven, nine), "south": (unknown, seven), "north": ()}
    plan = a_site_plan(*(replace(a_link_plan(LinkId(each, "dr")), obstacles=mine) for each, mine in found.items()))
    accepted, links = accepting_shown(plan, standing(plan))
    assert {each.link.source: each.accept_loss for each in accepted.plans} == {
        "east": None,
        "west": 9,
        "south": "unknown",
        "north": None,
    }
    assert links == {EAST}
    assert standing(accepted, unfenced=links) == []
    dead = replace(accepted.of(WEST), obstacles=(unfenced,))
    both = replace(accepted, plans=(accepted.of(EAST), dead))
    assert [link for link, _ in standing(both, unfenced=links)] == [WEST]
    agreed = a_site_plan(replace(a_link_plan(EAST), accept_loss=12, obstacles=(seven,)))
    assert accepting_shown(agreed, standing(agreed))[0].of(EAST).accept_loss == 12, "a flag that accepts more holds"


# -- where a site run stands -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "stands"),
    [
        ([State.CLOSED, State.CLOSED], State.CLOSED),
        ([State.CLOSED, State.TRANSLATED], State.TRANSLATED),
        ([State.CLOSED, State.CANCELLED], State.PLANNED),
        ([State.CANCELLED, State.CANCELLED], State.CANCELLED),
        ([State.CLOSED, State.ABANDONED], State.CLOSED),
        ([State.ABANDONED, State.ABANDONED], State.ABANDONED),
        ([State.ABANDONED, State.CANCELLED], State.CANCELLED),
        ([State.PLANNED, State.VERIFIED], State.PLANNED),
        ([], State.CLOSED),
    ],
)
def test_a_site_stands_where_its_last_link_does(states, stands):
    assert least_far(states) is stands


# -- names that no link knows ----------------------------------------------------------------------


def a_link_without(groups, topics, knows_groups, knows_topics):
    return UnknownNames("unknown", groups=groups, topics=topics, known_groups=knows_groups, known_topics=knows_topics)


def test_a_name_that_no_link_knows_is_told_with_what_any_of_them_knows():
    east = a_link_without({"nope", "billing"}, {"no"}, {"audit"}, {"t"})
    west = a_link_without({"nope"}, {"no"}, {"billing"}, {"u"})
    with pytest.raises(UnknownNames) as caught:
        check_known([east, west])
    assert str(caught.value.what) == "none of the 2 links knows group nope"
    assert caught.value.remedy == "Known groups: audit, billing"
    with pytest.raises(UnknownNames) as caught:
        check_known([a_link_without((), {"no"}, {"audit"}, {"t"}), west])
    assert caught.value.remedy == "Known topics: t, u"


def test_names_that_some_link_knows_are_left_to_it():
    check_known([a_link_without({"billing"}, (), {"audit"}, ()), a_link_without({"audit"}, (), {"billing"}, ())])


# -- groups on several links -----------------------------------------------------------------------


class Held:
    """A lease that is held."""

    def check(self):
        """It is."""


def run_at(state):
    return Run(Kind.FAILOVER, state, Facts(Mode.UNPLANNED))


def test_links_that_share_a_group_wait_for_each_others_commit():
    plan = a_site_plan(a_link_plan(EAST), a_link_plan(WEST))
    assert plan.shared_groups == {"billing": (EAST, WEST)}
    groups = SharedGroups("SITE", plan)
    east, west = (groups.gate(link, Held()) for link in (EAST, WEST))
    switched = threading.Event()

    def switch():
        east("switch", run_at(State.COMMITTED), ())
        switched.set()

    waiting = threading.Thread(target=switch)
    waiting.start()
    west("commit", run_at(State.TRANSLATED), ())
    assert not switched.is_set()
    west("switch", run_at(State.COMMITTED), ())
    waiting.join(10)
    assert switched.is_set()


def test_a_link_does_not_switch_without_one_that_failed_before_its_commit():
    groups = SharedGroups("SITE", a_site_plan(a_link_plan(EAST), a_link_plan(WEST)))
    groups.ended(WEST, State.TRANSLATED)
    with pytest.raises(PartlyDone, match="west->dr has not committed billing") as caught:
        groups.gate(EAST, Held())("switch", run_at(State.COMMITTED), ())
    assert "drkit resume SITE" in caught.value.remedy


def test_links_that_share_nothing_wait_for_nobody():
    groups = SharedGroups("SITE", a_site_plan())
    groups.ended(WEST, State.PLANNED)
    groups.gate(EAST, Held())("switch", run_at(State.COMMITTED), ())


def test_the_positions_that_are_committed_say_what_is_shared():
    plan = a_site_plan()
    groups = SharedGroups("SITE", plan)
    groups.gate(WEST, Held())("commit", run_at(State.TRANSLATED), plan.plans[0].positions)
    groups.ended(WEST, State.TRANSLATED)
    with pytest.raises(PartlyDone, match="billing"):
        groups.gate(EAST, Held())("switch", run_at(State.COMMITTED), ())

"""Waves: which group is of which, in which order links commit, what a wave that fails means for those after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pydantic import ValidationError

from drkit.config.schema.config import WaveConfig
from drkit.failover.plan.site_plan import site_plan_from_json, site_plan_json
from drkit.failover.plan.waves import REST, Wave, WaveAssignment, Waves, waves_of
from drkit.failover.planning.failover_planner import PlanRequest, plan_for
from drkit.failover.site.site_document import site_plan_document
from drkit.model.errors import PartlyDone
from drkit.model.topology import LinkId
from tests.unit.failover.plan.worlds import Log, position, world
from tests.unit.failover.site.test_site_plan import EAST, WEST, Held, a_link_plan, a_site_plan

FIRST = Wave("first", groups=("billing",))
SECOND = Wave("second", links=("west.*",))
LAST = Wave(REST)
ORDER = (FIRST, SECOND, LAST)
TIMEOUT = 20.0


def two_links():
    return (a_link_plan(EAST, group="billing"), a_link_plan(WEST, group="audit"))


# -- which group is of which wave ------------------------------------------------------------------


def test_the_rest_moves_last():
    assert waves_of([]) == ()
    configured = [WaveConfig(name="first", groups=("billing",), on_failure="continue", after=(("true",),))]
    first, rest = waves_of(configured)
    assert (first.name, first.stops, first.after) == ("first", False, (("true",),))
    assert rest == LAST


def test_a_group_is_of_the_first_wave_that_takes_it():
    assignment = WaveAssignment(ORDER, two_links())
    assert assignment.groups(EAST) == {0: ["billing"]}
    assert assignment.groups(WEST) == {1: ["audit"]}
    assert (assignment.first(EAST), assignment.first(WEST)) == (0, 1)
    assert assignment.wave(EAST, "new", {"t"}) == 2, "one that was not planned goes by the patterns"
    assert assignment.wave(WEST, "new", {"t"}) == 1


def test_by_the_topics_that_a_group_reads():
    waves = (Wave("first", topics=("orders",)), Wave("second", topics=("t",)), LAST)
    assert WaveAssignment(waves, two_links()).groups(EAST) == {1: ["billing"]}


def test_a_group_on_two_links_moves_as_a_whole():
    plans = (a_link_plan(EAST, group="billing"), a_link_plan(WEST, group="billing"))
    waves = (Wave("east", links=("east.*",)), Wave("west", links=("west.*",)), LAST)
    assignment = WaveAssignment(waves, plans)
    assert assignment.groups(EAST) == assignment.groups(WEST) == {1: ["billing"]}


def test_waves_are_decision_and_are_kept():
    plain, plan = a_site_plan(), a_site_plan(waves=ORDER)
    assert plan.digest != plain.digest
    assert plan.digest != a_site_plan(waves=(SECOND, FIRST, LAST)).digest
    assert site_plan_from_json(site_plan_json(plan)) == plan
    document = site_plan_document(plan)
    assert [(each["wave"], each["groups"], each["links"]) for each in document["waves"]] == [
        ("first", ["billing"], ["east->dr"]),
        ("second", ["audit"], ["west->dr"]),
        (REST, [], []),
    ]
    assert "waves" not in site_plan_document(plain)


@pytest.mark.parametrize("wrong", [{}, {"name": ""}, {"name": "a", "groups": ["("]}, {"name": "a", "hook": "x"}])
def test_a_wave_that_is_not_one_is_an_error(wrong):
    with pytest.raises(ValidationError):
        WaveConfig.model_validate(wrong)


# -- carrying them out -----------------------------------------------------------------------------


class Links:
    """Two links that commit as their waves let them; what happened, in order."""

    def __init__(self, waves, plans, *, over=frozenset(), fails=()):
        self.plans = {plan.link: plan for plan in plans}
        self.happened = []
        self.stopped = {}
        self.fails = fails
        self.waves = Waves(
            "SITE",
            waves,
            WaveAssignment(waves, plans),
            list(self.plans),
            over=over,
            environment={},
            committed=lambda _link, _groups: None,
        )

    def link(self, link: LinkId) -> None:
        try:
            self.waves.begin(link, Held())
            self.happened.append(f"{link} begins")
            wanted = {position.group: [position] for position in self.plans[link].positions}
            for portion in self.waves.in_order(link, Held())(wanted):
                if link in self.fails:
                    return
                self.happened += [f"{link} {group}" for group in portion]
            self.happened.append(f"{link} ends")
        except PartlyDone as error:
            self.stopped[link] = error
        finally:
            self.waves.ended(link)

    def journaled(self, wave, why, _seconds):
        self.happened.append(f"{wave.name}: {why or 'over'}")

    def run(self):
        threads = [threading.Thread(target=self.link, args=(link,)) for link in self.plans]
        with joined([*threads, threading.Thread(target=self.waves.conduct, args=(self.journaled,))]):
            pass
        return self.happened


@contextmanager
def joined(threads) -> Iterator[None]:
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_one_wave_after_the_other():
    links = Links(ORDER, two_links())
    found = links.run()
    assert found.index("east->dr billing") < found.index("first: over") < found.index("west->dr begins")
    assert found.index("west->dr audit") < found.index("second: over")
    assert links.stopped == {}


def test_a_link_with_groups_in_two_waves_waits_between_them():
    both = a_link_plan(EAST, group="billing")
    other = a_link_plan(EAST, group="audit")
    plan = replace(both, positions=(*both.positions, *other.positions))
    waves = (Wave("one", groups=("audit",)), Wave("two", groups=("billing",)), LAST)
    found = Links(waves, (plan,)).run()
    begun = ["east->dr begins", "east->dr audit", "one: over", "east->dr billing"]
    assert found[:4] == begun
    assert set(found[4:]) == {"east->dr ends", "two: over"}


def test_a_command_that_fails_stops_the_waves_after_it():
    waves = (Wave("first", groups=("billing",), after=(("false",),)), LAST)
    links = Links(waves, two_links())
    found = links.run()
    assert "west->dr begins" not in found
    told = links.stopped[WEST]
    assert "first failed: the command false after wave first" in told.what
    assert "drkit resume SITE" in told.remedy


def test_or_does_not_where_it_is_told_to_continue():
    waves = (Wave("first", groups=("billing",), after=(("false",),), stops=False), LAST)
    links = Links(waves, two_links())
    assert "west->dr ends" in links.run()
    assert links.stopped == {}


def test_a_link_that_fails_in_its_wave_stops_those_after_it():
    links = Links((FIRST, LAST), two_links(), fails=(EAST,))
    assert "first: east->dr did not commit" in links.run()
    assert WEST in links.stopped


def test_what_was_over_before_is_not_done_again(tmp_path):
    mark = tmp_path / "called"
    waves = (Wave("first", groups=("billing",), after=(("touch", str(mark)),)), LAST)
    found = Links(waves, two_links(), over=frozenset({"first"})).run()
    assert not mark.exists()
    assert "first: over" not in found
    assert "west->dr ends" in found
    Links(waves, two_links()).run()
    assert mark.exists()


def test_a_pause_lies_between_two_waves():
    """The pause is longer than the test may take: nothing of the second wave is begun within it."""
    waves = (Wave("first", groups=("billing",), pause_seconds=3600), LAST)
    links = Links(waves, two_links())
    conductor = threading.Thread(target=links.waves.conduct, args=(links.journaled,), daemon=True)
    conductor.start()
    links.link(EAST)
    with pytest.raises(TimeoutError):
        links.waves.begin(WEST, Impatient())
    links.waves.ended(WEST)
    conductor.join(TIMEOUT)
    assert not conductor.is_alive(), "nobody is left to wait for"


class Impatient:
    """A lease that is given up at the second look."""

    def __init__(self):
        self.looks = 0

    def check(self):
        self.looks += 1
        if self.looks > 1:
            raise TimeoutError


def test_a_wave_limits_what_may_be_lost_of_what_its_groups_read():
    """Two records are missing of the topic that `billing` reads; `audit` reads it, too, in a later wave."""
    waves = (Wave("tight", groups=("billing",), max_loss_records=1), Wave("wide", max_loss_records=5), Wave("rest"))
    seen = world([Log("rrrrrr", through=4).view()], [position(3, group="billing"), position(3, group="audit")])
    plan = plan_for(seen, PlanRequest("dr"), endpoint="127.0.0.1:1", waves=waves)
    assert [(each.of, each.records) for each in plan.budgets] == [("wave tight", 1), ("wave wide", 5)]
    said = [obstacle.what for obstacle in plan.obstacles if obstacle.waived_by == "--accept-loss"]
    assert any("of wave tight would be lost, but max_loss_records is 1" in what for what in said)
    loose = plan_for(seen, PlanRequest("dr"), endpoint="127.0.0.1:1", waves=(Wave("tight", groups=("billing",)),))
    assert loose.budgets == ()
    assert loose.digest != plan.digest

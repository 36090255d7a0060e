"""One run for a site: two primaries, a and b, that mirror to c, on three real clusters."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from drkit.failover.context.state_machine import Kind, State
from drkit.failover.journal.journal import INTENT, OUTCOME, PLAN
from drkit.failover.journal.site_record import load_site, site_to_resume
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.planning.failover_planner import PlanRequest
from drkit.failover.site.site_planner import make_site_plan
from drkit.failover.site.site_run import run_site
from drkit.failover.snapshot.choose_links import links_into
from drkit.failover.snapshot.selection import Selection
from drkit.model.link_state import Direction
from drkit.model.runs import verify_chain
from tests.support.clusters.topologies import write
from tests.support.collection.sampling import sampled, some_of, swept
from tests.support.killing.killed_process import Boundary, boundaries
from tests.support.links.sites import LINKS, TIMEOUT, A, B, Site, configure, without
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("runs of a site", 3)]


def test_the_command_moves_all_links_in_one_run(site: Site) -> None:
    code, planned = site.drkit("failover", "--to", "c", "--dry-run")
    assert (code, planned["dry_run"], planned["link"]) == (0, True, None)
    assert {each["link"] for each in planned["links"]} == set(LINKS)
    assert planned["shared_groups"] == [{"group": site.group("both"), "links": list(LINKS)}]
    assert planned["needs"] == ["--accept-unfenced"]

    code, done = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert (code, done["state"], done["mode"], done["to"]) == (0, "closed", "unplanned", "c")
    assert {each["link"]: each["state"] for each in done["links"]} == dict.fromkeys(LINKS, "closed")
    assert done["evidence"]["rpo_records"] == 0
    assert done["evidence"]["rto_seconds"] == max(each["evidence"]["rto_seconds"] for each in done["links"])
    assert {(row["link"], row["group"], row["target_offset"]) for row in done["groups"]} == {
        ("a->c", site.group("both"), 7),
        ("a->c", site.group("alone"), 3),
        ("b->c", site.group("both"), 9),
    }
    site.is_moved()

    code, listed = site.drkit("runs", done["run"])
    assert (code, listed["kind"], listed["state"]) == (0, "site", "closed")
    assert listed["chain"]["state"] == "holds"
    assert [each["run"] for each in listed["result"]["links"]] == [each["run"] for each in done["links"]]
    code, again = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert code == 3
    assert "was failed over already" in again["error"]["what"]
    assert site.drkit("resume", done["run"])[0] == 0
    code, refused = site.drkit("evidence", "export", done["run"], "--out", str(site.net.path.parent / "bundle"))
    assert code == 3
    assert all(each["run"] in refused["error"]["remedy"] for each in done["links"])


def test_some_links_and_then_the_rest(site: Site) -> None:
    code, done = site.drkit("failover", "--to", "c", "--link", "a.*c", "--unplanned", "--accept-unfenced")
    assert (code, done["link"]) == (0, "a->c")
    assert site.directions() == {"a->c": Direction.SEALED, "b->c": Direction.ACTIVE}
    code, rest = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert (code, rest["link"]) == (0, "b->c"), "what was moved before is left out"
    site.is_moved()
    code, refused = site.drkit("failover", "--to", "c", "--link", "south->c")
    assert (code, refused["error"]["exit_code"]) == (2, 2)


def test_a_group_or_topic_is_looked_for_on_every_link(site: Site) -> None:
    code, done = site.drkit("failover", "--to", "c", "--group", site.group("alone"), "--dry-run")
    assert code == 0
    assert [each["link"] for each in done["links"]] == ["a->c"]
    assert [each["link"] for each in done["left_out"]] == ["b->c"]
    code, refused = site.drkit("failover", "--to", "c", "--group", "nobody", "--dry-run")
    assert (code, refused["error"]["what"]) == (2, "none of the 2 links knows group nobody")


def test_a_plan_file_holds_all_links_and_is_stale_where_one_is(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert site.drkit("failover", "--to", "c", "--unplanned", "--out", str(file))[0] == 0
    code, shown = site.drkit("failover", "--plan", str(file), "--dry-run")
    assert (code, shown["digest"]) == (0, json.loads(file.read_text())["digest"])
    configured = site.net.path.read_text()
    configure(
        site, '[clusters.d]\nbootstrap_servers = "127.0.0.1:1"\n[[links]]\nsource = "d"\ntarget = "c"\ntopics = ["x"]\n'
    )
    code, stale = site.drkit("failover", "--plan", str(file), "--accept-unfenced")
    assert (code, "d->c is configured since" in stale["error"]["what"]) == (4, True)
    site.net.path.write_text(configured)
    site.commit("b", "both", site.name, 12)
    code, stale = site.drkit("failover", "--plan", str(file), "--accept-unfenced")
    assert code == 4
    assert "b->c" in stale["error"]["what"]
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)


def test_what_stands_in_the_way_of_one_link_stops_all_before_anything_is_changed(site: Site) -> None:
    without(site.net.path, "b")
    code, refused = site.drkit("failover", "--to", "c", "--planned")
    assert code == 3
    assert "b->c: b does not answer" in refused["error"]["what"]
    assert "--link 'a->c'" in refused["error"]["remedy"]
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
    assert site.net.store.runs() == []


def test_both_primaries_gone(site: Site) -> None:
    as_it_was = site.net.path.read_text()
    without(site.net.path, "a", "b")
    code, done = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert (code, done["state"]) == (0, "closed")
    assert done["evidence"]["rpo_lower_bound"]
    assert done["evidence"]["fenced"] is False
    site.is_moved()
    site.net.path.write_text(as_it_was)
    code, audited = site.drkit("runs", done["run"], "--audit")
    evidence = audited["result"]["evidence"]
    assert (code, evidence["rpo_basis"], evidence["rpo_records"]) == (0, "audited", 0)
    assert not evidence["rpo_lower_bound"]


def test_two_operators(site: Site) -> None:
    """The second is refused whole, whatever part of the links it wants, and told by which run."""
    begun = site.net.store.link_control(A)
    words = [sys.executable, "-m", "tests.support.killing.killed_site", str(site.net.path)]
    with subprocess.Popen([*words, "hold", "site", "-", "-", "-"], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        held = holder.stdout.readline().strip()
        code, refused = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
        code_of_one, one = site.drkit("failover", "--to", "c", "--link", "b->c", "--unplanned", "--accept-unfenced")
        holder.kill()
    assert (code, code_of_one) == (3, 3)
    assert held in refused["error"]["what"]
    assert held in one["error"]["what"]
    assert site.net.store.link_control(A) == begun
    assert site.net.store.runs() == []
    assert site.run().error is None, "a holder that was killed is not waited for"


SITE_BOUNDARIES = [
    ("site", "plan", PLAN, "after"),
    ("site", "link a->c", OUTCOME, "before"),
    ("site", "link a->c", OUTCOME, "after"),
    ("site", "close", OUTCOME, "before"),
    ("site", "close", OUTCOME, "after"),
    ("a->c", "plan", PLAN, "before"),
    ("a->c", "plan", PLAN, "after"),
]


@pytest.mark.parametrize("boundary", sampled("a site killed in its own journal", SITE_BOUNDARIES, 2), ids="-".join)
def test_a_site_killed_in_its_own_journal_is_taken_to_the_same_end(site: Site, boundary: tuple[str, ...]) -> None:
    site.killed("failover", *boundary)
    (run,) = [each.run for each in site.net.store.runs() if each.kind == "site"] or [None]
    if run is None:  # before it was listed: its first entry is there, and nothing was done
        assert boundary == SITE_BOUNDARIES[0]
        assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
        assert site.run().error is None
        site.is_moved()
        return
    if boundary != ("site", "close", OUTCOME, "after"):
        assert site_to_resume(site.net.store, None) == run
    result = site.resume(run)
    assert (result.error, result.state) == (None, State.CLOSED)
    site.is_moved()
    record = load_site(site.net.store, run)
    assert record.finished
    for each in (run, *record.runs.values()):
        assert verify_chain(site.net.store.entries(each)) is None
    assert {each.state for each in site.net.store.runs()} == {State.CLOSED}


@pytest.mark.parametrize("places", swept("a site killed at boundaries of a link", boundaries(Kind.FAILOVER), 3))
def test_a_site_killed_at_every_boundary_of_a_link_comes_to_its_end(site: Site, places: list[Boundary]) -> None:
    action = "failover"
    for stage, event, when in places:
        site.killed(action, "a->c", stage, event, when)
        action = "resume"
    run = site_to_resume(site.net.store, None)
    assert run is not None
    result = site.resume(run)
    assert (result.error, result.state) == (None, State.CLOSED)
    site.is_moved()
    assert {each.state for each in site.net.store.runs()} == {State.CLOSED}


def test_a_cancelled_site_is_as_it_was(site: Site) -> None:
    site.killed("failover", "a->c", "commit", INTENT, "before")
    run = site_to_resume(site.net.store, None)
    assert run is not None
    ended = site.drkit("resume", run, "--cancel", "--yes")
    if ended[0] == 3:  # the other link was quicker, and has begun to commit
        assert "have begun to commit" in ended[1]["error"]["what"] or "has begun to commit" in ended[1]["error"]["what"]
        assert site.resume(run).error is None
        site.is_moved()
        return
    assert ended[0] == 0
    assert ended[1]["state"] == "cancelled"
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
    assert site.committed("both") == {}
    assert site.run().error is None
    site.is_moved()


def test_a_link_that_fails_leaves_the_others_at_their_end_and_the_site_resumable(site: Site) -> None:
    """b's groups can't be committed while one of them has a member on c; a shares none of these with it."""
    site.commit("b", "only-b", site.name, 4)
    assert all(report.caught_up for report in site.net.catch_up("b->c"))
    with site.estate() as estate, SiteContext(estate, links_into(estate, "c").links) as context:
        plan = make_site_plan(context, PlanRequest("c"))
        settings = {"bootstrap.servers": site.net.sides["c"].bootstrap, "group.id": site.group("only-b")}
        consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([site.topics["b"]])
            wait_until(lambda: consumer.poll(0.1) is not None, TIMEOUT, "a member on c")
            result = run_site(context, plan, unfenced=plan.links)
        finally:
            consumer.close()
    by_link = {str(each.link): each for each in result.links}
    assert result.error is not None
    assert int(result.error.exit_code) == 7
    assert f"drkit resume {result.run}" in result.error.remedy
    assert by_link["b->c"].state is State.TRANSLATED
    assert by_link["a->c"].state is State.COMMITTED, "it shares a group with b->c, whose topics have no position yet"
    assert "has not committed" in str(by_link["a->c"].error)
    wait_until(lambda: not _members(site, "only-b"), TIMEOUT, "the member's end")
    done = site.resume(result.run)
    assert (done.error, done.state) == (None, State.CLOSED)
    site.is_moved()
    assert site.committed("only-b") == {site.topics["b"]: 4}


def test_links_that_share_no_group_end_by_themselves(site: Site) -> None:
    """The same failure, where the other link shares no group with the one that fails."""
    site.commit("b", "only-b", site.name, 4)
    assert all(report.caught_up for report in site.net.catch_up("b->c"))
    with site.estate() as estate, SiteContext(estate, links_into(estate, "c").links) as context:
        plan = make_site_plan(context, PlanRequest("c", selection=_only(site, "alone", "only-b")))
        settings = {"bootstrap.servers": site.net.sides["c"].bootstrap, "group.id": site.group("only-b")}
        consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([site.topics["b"]])
            wait_until(lambda: consumer.poll(0.1) is not None, TIMEOUT, "a member on c")
            result = run_site(context, plan, unfenced=plan.links)
        finally:
            consumer.close()
    assert {str(each.link): each.state for each in result.links} == {"a->c": State.CLOSED, "b->c": State.TRANSLATED}
    assert result.error is not None
    wait_until(lambda: not _members(site, "only-b"), TIMEOUT, "the member's end")
    code, done = site.drkit("resume", "--yes")
    assert (code, done["state"]) == (0, "closed")
    assert site.committed("only-b") == {site.topics["b"]: 4}


def test_a_planned_move_of_all_links_loses_nothing(site: Site) -> None:
    with site.net.running():
        for alias in ("a", "b"):
            write(site.net.sides[alias], site.name, [f"{alias} late {number}" for number in range(5)])
        code, done = site.drkit("failover", "--to", "c", "--planned", "--accept-unfenced")
    assert (code, done["state"], done["mode"]) == (0, "closed", "planned")
    assert (done["evidence"]["rpo_records"], done["evidence"]["rpo_lower_bound"]) == (0, False)
    site.is_moved()
    for alias, topic in site.topics.items():
        theirs = [record.value for record in site.net.sides[alias].read(site.name)]
        assert [record.value for record in site.net.sides["c"].read(topic)] == theirs


def test_a_link_that_took_itself_back_is_planned_anew_when_the_site_is_resumed(site: Site) -> None:
    """Somebody continues writing to b, which can't be fenced: its planned move is taken back, and a's is not."""
    with site.net.running():
        with writing(site, "b"):
            code, stopped = site.drkit(
                "failover",
                "--to",
                "c",
                "--planned",
                "--accept-unfenced",
                "--group",
                site.group("alone"),
                "--group",
                site.group("only-b"),
            )
        states = {each["link"]: each["state"] for each in stopped["links"]}
        assert (code, states) == (7, {"a->c": "closed", "b->c": "cancelled"})
        assert stopped["state"] == "planned"
        assert site.directions() == {"a->c": Direction.SEALED, "b->c": Direction.ACTIVE}
        code, done = site.drkit("resume", "--yes")
    assert (code, done["state"]) == (0, "closed")
    assert site.directions() == dict.fromkeys(LINKS, Direction.SEALED)
    before, after = ({each["link"]: each["run"] for each in document["links"]} for document in (stopped, done))
    assert before["a->c"] == after["a->c"]
    assert before["b->c"] != after["b->c"], "what rolled itself back is over; the link has a run of its own again"
    assert site.committed("only-b") == {site.topics["b"]: 4}
    there = [record.value for record in site.net.sides["c"].read(site.topics["b"])]
    assert there == [record.value for record in site.net.sides["b"].read(site.name)]


def test_an_abandoned_site_leaves_each_link_to_the_cluster_that_serves(site: Site) -> None:
    site.killed("failover", "a->c", "translate", INTENT, "after")
    run = site_to_resume(site.net.store, None)
    assert run is not None
    code, done = site.drkit("abandon", run)
    begun = {link for link, direction in site.directions().items() if direction is Direction.SEALED}
    if code == 0:
        assert done["state"] == "abandoned"
        assert begun == set(), "before their commits the primaries serve"
        assert site_to_resume(site.net.store, None) is None
    else:  # b was quicker, and can be taken to its end
        assert (code, [each["link"] for each in done["not_abandoned"]]) == (7, ["b->c"])
        assert begun == {"b->c"}
    assert "a->c" in [each["link"] for each in done["links"]]


@pytest.mark.parametrize("waves", ["", "the first one"])
def test_the_others_continue_without_a_link_whose_run_was_given_up(site: Site, waves: str) -> None:
    """b shares a group with a, or its wave comes after a's: it waited for a on every resume, and had no way out."""
    if waves:
        configure(site, f'[[waves]]\nname = "{waves}"\ngroups = ["{site.group("alone")}"]\n')
    site.killed("failover", "a->c", "translate", INTENT, "after")
    run = site_to_resume(site.net.store, None)
    assert run is not None
    given_up = load_site(site.net.store, run).runs[A]
    assert site.drkit("abandon", given_up)[0] == 0
    code, done = site.drkit("resume", run, "--yes")
    assert (code, done["state"]) == (0, "closed"), done
    assert {each["link"]: each["state"] for each in done["links"]} == {"a->c": "abandoned", "b->c": "closed"}
    assert site.directions() == {"a->c": Direction.ACTIVE, "b->c": Direction.SEALED}
    assert site.committed("both") == {site.topics["b"]: 9}


def test_a_link_s_damaged_journal_stops_no_other_link_for_good(site: Site) -> None:
    """The site could not be resumed, what it named did not help, and b could be resumed alone, past its waves. Once a
    was abandoned, the site's loss was that of b, and met the objective."""
    configure(site, "[objectives]\nrpo_records = 0\n")
    site.killed("failover", "a->c", "translate", INTENT, "after")
    run = site_to_resume(site.net.store, None)
    assert run is not None
    runs = load_site(site.net.store, run).runs
    with closing(sqlite3.connect(site.net.path.parent / "drkit.db")) as store, store:
        store.execute("UPDATE journal SET payload = payload || ' ' WHERE run = ? AND seq = 1", (runs[A],))
    code, stopped = site.drkit("resume", run, "--yes")
    assert (code, f"drkit abandon {runs[A]}" in stopped["links"][0]["error"]["remedy"]) == (7, True), stopped
    assert stopped["evidence"]["rpo_records"] is None, "what a lost isn't known"
    assert site.drkit("resume", run, "--cancel", "--yes")[0] == 1, "whether a has committed isn't known"
    code, shown = site.drkit("runs", run)
    assert (code, shown["result"]["evidence"]["rpo_records"]) == (0, None)
    if load_site(site.net.store, run).children[B].machine.state is not State.CLOSED:
        code, alone = site.drkit("resume", runs[B], "--yes")
        assert (code, f"drkit resume {run}" in alone["error"]["remedy"]) == (3, True), alone

    assert site.drkit("abandon", runs[A])[0] == 0
    code, done = site.drkit("resume", run, "--yes")
    assert (code, done["state"]) == (6, "closed"), done
    code, listed = site.drkit("runs", run)
    for shown in (done, listed["result"]):
        assert shown["evidence"]["rpo_records"] is None, "what a lost still isn't known"
        assert "a->c lost isn't known" in shown["evidence"]["rpo_reason"], shown["evidence"]
    assert site.directions() == dict.fromkeys(LINKS, Direction.SEALED), "abandoned unread, a stays as its run left it"
    assert site.committed("both") == {site.topics["b"]: 9}


def test_groups_move_in_waves_and_a_command_that_fails_stops_the_next_one(site: Site, tmp_path: Path) -> None:
    site.commit("b", "only-b", site.name, 4)
    assert all(report.caught_up for report in site.net.catch_up("b->c"))
    allowed, told = tmp_path / "allowed", tmp_path / "told"
    command = f'["/bin/sh", "-c", "echo $DRKIT_WAVE >> {told}; test -e {allowed}"]'
    configure(
        site,
        f'[[waves]]\nname = "first"\ngroups = [".*-alone"]\nafter = [{command}]\n'
        f'[[waves]]\nname = "second"\nlinks = ["a->c"]\npause_seconds = 0.1\n',
    )
    code, planned = site.drkit("failover", "--to", "c", "--dry-run")
    assert code == 0
    waves = {each["wave"]: (each["groups"], each["links"]) for each in planned["waves"]}
    assert waves == {
        "first": ([site.group("alone")], ["a->c"]),
        "second": ([], []),
        "the rest": ([site.group("both"), site.group("only-b")], ["a->c", "b->c"]),
    }, "a group on two links is of the later of its waves"

    code, stopped = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert (code, stopped["error"]["exit_code"]) == (7, 7)
    states = {each["link"]: each["state"] for each in stopped["links"]}
    assert states == {"a->c": "translated", "b->c": "planned"}, "a link whose first wave was not begun is not touched"
    assert site.committed("alone") == {site.topics["a"]: 3}
    assert site.committed("both") == {}
    assert site.directions() == {"a->c": Direction.SEALED, "b->c": Direction.ACTIVE}
    assert told.read_text().split() == ["first"]

    allowed.touch()
    code, done = site.drkit("resume", "--yes")
    assert (code, done["state"]) == (0, "closed")
    site.is_moved()
    assert site.committed("only-b") == {site.topics["b"]: 4}
    assert told.read_text().split() == ["first", "first"]
    stages = [entry["stage"] for entry in site.drkit("runs", done["run"])[1]["entries"]]
    assert [stage for stage in stages if stage.startswith("wave")] == ["wave first", "wave first", "wave the rest"]


def test_waves_hold_for_one_link_too_and_go_on_where_they_may(site: Site) -> None:
    configure(
        site,
        '[[waves]]\nname = "first"\ngroups = [".*-alone"]\nafter = [["false"]]\non_failure = "continue"\n',
    )
    code, done = site.drkit("failover", "--to", "c", "--link", "a->c", "--unplanned", "--accept-unfenced")
    assert (code, done["state"]) == (0, "closed")
    assert [each["link"] for each in done["links"]] == ["a->c"]
    code, listed = site.drkit("runs", done["run"])
    failed = next(entry for entry in listed["entries"] if entry["stage"] == "wave first")
    assert failed["payload"]["outcome"] == "failed"


@pytest.mark.parametrize("when", sampled("waves killed between two", ["before", "after"], 1))
def test_waves_killed_between_two_are_gone_on_with(site: Site, tmp_path: Path, when: str) -> None:
    told = tmp_path / "told"
    command = f'["/bin/sh", "-c", "echo $DRKIT_WAVE >> {told}"]'
    configure(site, f'[[waves]]\nname = "first"\ngroups = [".*-alone"]\nafter = [{command}]\n')
    site.killed("failover", "site", "wave first", OUTCOME, when)
    assert site.committed("alone") == {site.topics["a"]: 3}
    assert site.committed("both") == {}
    site.commit("c", "alone", site.topics["a"], 5)  # its consumers began, as they may once their wave is over
    code, done = site.drkit("resume", "--yes")
    assert (code, done["state"]) == (0, "closed")
    assert site.committed("alone") == {site.topics["a"]: 5}
    assert site.committed("both") == {site.topics["a"]: 7, site.topics["b"]: 9}
    assert told.read_text().split() == ["first"] * (2 if when == "before" else 1)


def test_a_new_run_takes_the_place_of_one_that_changed_nothing(site: Site) -> None:
    configure(site, '[[waves]]\nname = "first"\ngroups = [".*-alone"]\n')
    site.killed("failover", "a->c", "plan", PLAN, "after")
    old = site_to_resume(site.net.store, None)
    assert old is not None
    code, done = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert (code, done["state"]) == (0, "closed")
    site.is_moved()
    states = {each.run: each.state for each in site.net.store.runs()}
    assert states[old] == State.CANCELLED
    assert site_to_resume(site.net.store, None) is None
    assert site.resume(old).state is State.CANCELLED


def test_all_links_are_rehearsed(site: Site) -> None:
    code, done = site.drkit("failover", "--to", "c", "--rehearse")
    assert (code, done["kind"], done["state"]) == (0, "rehearsal", "closed")
    assert {each["link"]: each["state"] for each in done["links"]} == dict.fromkeys(LINKS, "closed")
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
    assert site.committed("both") == {}


@pytest.mark.parametrize("by_file", [False, True])
def test_a_loss_above_its_budget_is_refused_until_it_is_accepted(site: Site, tmp_path: Path, by_file: bool) -> None:
    configure(
        site, '[objectives]\nmax_loss_records = 2\n[[objectives.max_loss]]\nlinks = ["b.*"]\nmax_loss_records = 0\n'
    )
    write(site.net.sides["b"], site.name, ["one more"])
    code, refused = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert code == 3
    assert "b->c: 1 record would be lost, but max_loss_records is 0" in refused["error"]["what"]
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
    words = ("failover", "--to", "c", "--unplanned", "--accept-unfenced", "--accept-loss")
    assert site.drkit(*words, "0")[0] == 3
    if by_file:  # what is accepted is shared out by what each link needs: b's was half of it
        assert site.drkit("failover", "--to", "c", "--unplanned", "--out", str(tmp_path / "plan"))[0] == 3
        words = ("failover", "--plan", str(tmp_path / "plan"), "--accept-unfenced", "--accept-loss")
    code, done = site.drkit(*words, "1")
    assert (code, done["evidence"]["rpo_records"]) == (0, 1), done


def test_of_a_primary_that_is_gone_no_number_of_records_is_known(site: Site) -> None:
    configure(site, "[objectives]\nmax_loss_records = 1000000\n")
    without(site.net.path, "b")
    code, refused = site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")
    assert code == 3
    assert "isn't known" in refused["error"]["what"]
    assert "--accept-loss unknown" in refused["error"]["remedy"]
    text = site.net.path.read_text().replace("max_loss_records = 1000000", "max_loss_seconds = 86400")
    site.net.path.write_text(text)
    assert site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")[0] == 0


def test_consistent_over_all_links(site: Site) -> None:
    """b lacks a record that is older than all that a lacks: its instant is everybody's."""
    write(site.net.sides["b"], site.name, ["late"], timestamp=1_700_000_000_000)
    write(site.net.sides["a"], site.name, ["later"], timestamp=1_700_000_100_000)
    code, planned = site.drkit("failover", "--to", "c", "--unplanned", "--consistent", "--dry-run")
    assert code == 0
    instants = {each["link"]: each["consistent"]["instant"] for each in planned["links"]}
    assert set(instants.values()) == {"2023-11-14T22:13:20.000Z"}


@contextmanager
def writing(site: Site, alias: str) -> Iterator[None]:
    """A producer that continues and on; the group `only-b` has read some of its topic before."""
    site.commit(alias, "only-b", site.name, 4)
    stop = threading.Event()
    producer = site.net.sides[alias].producer()

    def produce() -> None:
        while not stop.wait(0.01):
            producer.produce(site.name, value=b"on and on", partition=0)
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT)
        assert producer.flush(TIMEOUT) == 0


def _members(site: Site, suffix: str) -> Mapping[str, int]:
    with site.estate() as estate:
        found = estate.groups("c").members([site.group(suffix)])
    return {group: count for group, count in found.items() if count}


def _only(site: Site, *suffixes: str) -> Selection:
    return Selection(groups=tuple(site.group(suffix) for suffix in suffixes))

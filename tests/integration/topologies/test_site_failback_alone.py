"""A failback of several links, while one of them is worked on alone: nothing is deleted or moved past the others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from drkit.failover.context.state_machine import Kind, State
from drkit.failover.journal.journal import OUTCOME
from drkit.failover.journal.site_record import load_site, site_to_resume
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failback, run_failover
from drkit.failover.site.site_failback_run import FailbackMeans, make_site_failback_plan, run_site_failback
from drkit.failover.site.site_run import resume_site
from drkit.failover.snapshot.choose_links import links_away
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED
from drkit.model.topology import LinkId
from tests.integration.topologies.test_site_failback import Failing, by_verb, is_back, topic_id, valid, values
from tests.support.clusters.topics import delete_records
from tests.support.clusters.topologies import Net, write
from tests.support.collection.sampling import some_of
from tests.support.links.sites import LINKS, A, B, Site

pytestmark = [pytest.mark.lab, some_of("failbacks of links of a site", 1)]


@pytest.fixture
def away(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Failed over, and more of both was written to c; `failback` and `resume` salvage and audit by reading."""
    write(site.net.sides["a"], site.name, ["only a 0", "only a 1"])
    result = site.run(accept_loss="unknown")
    assert (result.error, result.state) == (None, State.CLOSED)
    for alias, topic in site.topics.items():
        write(site.net.sides["c"], topic, [f"{alias} on c {number}" for number in range(3)])
    site.commit("c", "both", site.topics["a"], 21)
    for verb in ("failback", "resume"):
        monkeypatch.setattr(f"drkit.cli.verbs.failover.{verb}.failback_ports", lambda *_, **__: site.ports())
    return site


def topic_ids(site: Site) -> dict[str, str]:
    return {alias: topic_id(site, alias) for alias in ("a", "b")}


def alone(site: Site, link: LinkId, kind: Kind = Kind.FAILBACK, waived: tuple[str, ...] = (ACCEPT_UNFENCED,)) -> None:
    """One link, brought back by a run of its own."""
    with site.estate() as estate:
        chosen = estate.link(link)
        plan = make_failback_plan(estate, None, chosen, for_good=kind is Kind.REPROTECT)
        assert [each.what for each in plan.obstacles if each.waived_by not in waived] == []
        result = run_failback(
            estate,
            plan,
            site.ports(),
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            accept_salvage_only=ACCEPT_SALVAGE_ONLY in waived,
        )
    assert (result.error, result.machine.state) == (None, State.CLOSED)


def test_a_link_s_run_is_not_resumed_past_the_links_that_are_not_salvaged(away: Site) -> None:
    away.killed("failback", "a->c", "salvage", OUTCOME, "after")
    run = site_to_resume(away.net.store, None)
    assert run is not None
    mine = load_site(away.net.store, run).runs[A]
    before = topic_ids(away)
    code, refused = by_verb(away, "resume", mine, "--yes", "--accept-unfenced")
    assert (code, f"drkit resume {run} continues" in refused["error"]["remedy"]) == (3, True), refused
    assert topic_ids(away) == before, "b isn't salvaged"
    code, shown = away.drkit("runs", mine)
    assert (code, valid(shown, "runs")["way_out"]["commands"]) == (0, [f"drkit resume {run}"])

    with closing(sqlite3.connect(away.net.path.parent / "drkit.db")) as store, store:
        store.execute("UPDATE journal SET payload = payload || ' ' WHERE run = ?", (run,))
    code, done = by_verb(away, "resume", mine, "--yes", "--accept-unfenced")
    assert (code, done["state"]) == (0, "closed"), "the site run's journal is damaged: each link by itself"
    assert away.drkit("abandon", run)[0] == 0
    alone(away, B)
    is_back(away)


@pytest.mark.parametrize("link", [A, B], ids=str)
def test_a_link_that_was_brought_back_alone_meanwhile_is_left_as_it_is(away: Site, link: LinkId) -> None:
    """b can't be salvaged; then a (which was) or b (whose run rolled itself back) is brought back by itself."""
    ports = away.ports()
    write(away.net.sides["b"], away.name, ["only b"])
    stopped = away.bring_back(ports=replace(ports, salvager=Failing(ports.salvager, "b")))
    assert {str(each.link): each.state for each in stopped.links} == {"a->c": State.SALVAGED, "b->c": State.CANCELLED}
    assert stopped.error is not None
    runs = [each.result.run for each in stopped.links if each.result is not None]
    assert len(runs) == 2
    assert not any(f"resume {each}" in stopped.error.remedy for each in runs), "only the site run takes all links on"
    alone(away, link)
    before = topic_ids(away)
    done = away.resume(stopped.run)
    assert (done.error, done.state) == (None, State.CLOSED)
    left = {str(each.link): each.elsewhere for each in done.links if each.elsewhere is not None}
    assert list(left) == [str(link)], left
    assert topic_ids(away)[link.source] == before[link.source], "it isn't brought back a second time"
    is_back(away)
    kept = list((away.net.path.parent / "salvage").glob("*/records.jsonl"))
    assert {1, 2} <= {len(each.read_text().splitlines()) for each in kept}


def test_what_was_written_since_the_plan_is_not_deleted_unconfirmed(away: Site) -> None:
    """b held nothing of its own when the run was planned, so nobody was asked for its id."""
    code, planned = away.drkit("failback", "--dry-run", "--accept-unfenced")
    assert (code, [each["link"] for each in planned["links"] if each["scrub"]]) == (0, ["a->c"])
    ports = away.ports()
    before = topic_ids(away)
    wrote: list[str] = []

    def late() -> None:
        if not wrote:
            wrote.append("only b")
            write(away.net.sides["b"], away.name, wrote)

    stopped = away.bring_back(ports=replace(ports, salvager=Failing(ports.salvager, before=late)))
    assert stopped.error is not None
    assert "nobody has confirmed" in stopped.error.what
    assert f"drkit failback --link '{B}'" in stopped.error.remedy
    again = away.resume(stopped.run)
    assert again.error is not None
    assert topic_ids(away) == before, "neither of them"

    words = ("failback", "--link", str(B), "--yes", "--accept-unfenced")
    code, refused = by_verb(away, *words)
    assert (code, "--cluster-id" in refused["error"]["remedy"]) == (3, True), refused
    code, done = by_verb(away, *words, "--cluster-id", planned["cluster_ids"]["b"])
    assert (code, done["state"]) == (0, "closed"), done
    last = away.resume(stopped.run)
    assert (last.error, last.state) == (None, State.CLOSED)
    is_back(away)


def test_a_gap_that_nobody_has_seen_is_not_accepted_with_those_that_were(away: Site) -> None:
    """While b is salvaged, records of a's topic are deleted on c: what a still holds of them would be salvaged only."""
    write(away.net.sides["b"], away.name, ["only b"])
    ports = away.ports()
    before = topic_ids(away)
    calls: list[int] = []

    def cut() -> None:
        calls.append(1)
        if len(calls) == len(LINKS):
            admin = AdminClient({"bootstrap.servers": away.net.sides["c"].bootstrap})
            delete_records(admin, away.topics["a"], 5)

    means = FailbackMeans(
        replace(ports, salvager=Failing(ports.salvager, before=cut)), accept_unfenced=True, accept_salvage_only=True
    )
    with away.estate() as estate, SiteContext(estate, links_away(estate, None).links) as site:
        plan = make_site_failback_plan(site, Kind.FAILBACK)
        assert [each.gaps for each in plan.plans] == [(), ()]
        stopped = run_site_failback(site, plan, means, cluster_ids=plan.old_primaries)
    assert stopped.error is not None
    assert "c lacks records that only a still holds" in stopped.error.what
    assert topic_ids(away) == before, "nothing is deleted, of b neither"
    with away.estate() as estate, SiteContext(estate, [each.link() for each in away.net.config.links]) as site:
        means = FailbackMeans(ports, accept_unfenced=True, accept_salvage_only=True)
        done = resume_site(site, stopped.run, means=means)
    assert (done.error, done.state) == (None, State.CLOSED)
    for alias, topic in away.topics.items():
        assert values(away, alias, away.name) == values(away, "c", topic)
    kept = list((away.net.path.parent / "salvage").glob("*/records.jsonl"))
    assert {1, 2 + 5} <= {len(each.read_text().splitlines()) for each in kept}, "all that is nowhere else"


def test_a_chain_is_not_brought_back_from_a_cluster_that_is_scrubbed_itself(
    net: Callable[..., Net], unique_name: str
) -> None:
    """a->b was failed over, then b->c: b, from which a would be seeded, is seeded again itself."""
    links = "".join(
        f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{unique_name}"]\n'
        for source, target in (("a", "b"), ("b", "c"))
    )
    chain = net(links)
    chain.sides["a"].create(unique_name)
    write(chain.sides["a"], unique_name, [f"{number}" for number in range(5)])
    assert all(report.caught_up for report in chain.catch_up())
    site = Site(chain, unique_name)
    for alias in ("b", "c"):
        ended = chain.drkit("failover", "--to", alias, "--unplanned", "--yes", "--accept-unfenced", "--output", "json")
        assert ended.returncode == 0, ended.stdout
        write(chain.sides[alias], unique_name, [f"on {alias}"])
    code, refused = site.drkit("failback", "--dry-run", "--accept-unfenced")
    assert (code, len(refused["refusals"])) == (3, 1), refused
    assert "--link 'b->c'" in refused["refusals"][0]["remedy"]
    assert values(site, "a", unique_name) == [str(number).encode() for number in range(5)]
    # what was named works: it was refused behind the scrub of b, for a->b, which is sealed
    alone(site, LinkId("b", "c"))
    alone(site, LinkId("a", "b"), waived=(ACCEPT_UNFENCED, ACCEPT_SALVAGE_ONLY))  # its topic on b was made anew
    expected = [*(str(number).encode() for number in range(5)), b"on c"]  # b's own was salvaged: c never had it
    assert [values(site, alias, unique_name) for alias in ("a", "b", "c")] == [expected] * 3


@pytest.mark.parametrize("kind", [Kind.FAILBACK, Kind.REPROTECT])
def test_a_way_back_beside_another_writer_is_refused_before_anything_is_deleted(
    net: Callable[..., Net], unique_name: str, kind: Kind
) -> None:
    """a is aggregated on b, and b is mirrored to c: both a->b and the way back c->b would write a's topic on b."""
    aggregating = f'[[links]]\nsource = "a"\ntarget = "b"\ntopics = ["{unique_name}"]\npolicy = "prefix"\n'
    onward = f'[[links]]\nsource = "b"\ntarget = "c"\ntopics = ["{unique_name}", "a[.]{unique_name}"]\n'
    site = Site(net(aggregating + onward), unique_name)
    for alias in ("a", "b"):
        site.net.sides[alias].create(unique_name)
        write(site.net.sides[alias], unique_name, [f"{alias} {number}" for number in range(5)])
    assert all(report.caught_up for report in site.net.catch_up())
    assert all(report.caught_up for report in site.net.catch_up())
    with site.estate() as estate:
        plan = make_plan(estate, PlanRequest("c"))
        assert run_failover(estate, plan, accept_unfenced=True).error is None
    write(site.net.sides["c"], unique_name, ["on c"])
    code, refused = site.drkit(kind.value, "--dry-run", *(["--accept-unfenced"] if kind is Kind.FAILBACK else []))
    assert (code, len(refused["refusals"])) == (3, 1), refused
    assert f"'a.{unique_name}' of b" in refused["refusals"][0]["what"]
    assert "take it out of the configuration until b->c is brought back" in refused["refusals"][0]["remedy"]
    # what was named works
    both = site.net.config
    site.net.config = both.model_copy(update={"links": both.links[1:]})
    alone(site, LinkId("b", "c"), kind)
    assert values(site, "b", unique_name) == values(site, "c", unique_name)
    assert values(site, "b", f"a.{unique_name}") == [f"a {number}".encode() for number in range(5)]
    if kind is Kind.FAILBACK:  # after it, a->b goes on where it was
        site.net.config = both
        write(site.net.sides["a"], unique_name, ["a more"])
        (report,) = site.net.catch_up("a->b")
        assert (report.records, report.halted) == (1, ())
        assert values(site, "b", f"a.{unique_name}") == [*(f"a {number}".encode() for number in range(5)), b"a more"]


def test_the_plan_says_what_becomes_of_another_reader_of_the_old_primary(
    net: Callable[..., Net], unique_name: str
) -> None:
    """A hub: a is mirrored to b and to c, and its topic is made anew by the failback from b."""
    spokes = "".join(
        f'[[links]]\nsource = "a"\ntarget = "{alias}"\ntopics = ["{unique_name}"]\ngroups = []\n{more}'
        for alias, more in (("b", ""), ("c", 'deletions = "mirror"\n'))
    )
    site = Site(net(spokes), unique_name)
    sides = site.net.sides
    sides["a"].create(unique_name)
    write(sides["a"], unique_name, [f"a {number}" for number in range(5)])
    assert all(report.caught_up for report in site.net.catch_up())
    with site.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("b")), accept_unfenced=True).error is None
    write(sides["b"], unique_name, ["on b"])
    code, level = site.drkit("failback", "--dry-run", "--accept-unfenced")
    assert (code, level["warnings"]) == (0, []), "nothing is made anew, so a->c just goes on"

    write(sides["a"], unique_name, ["only a"])
    code, planned = site.drkit("failback", "--dry-run", "--accept-unfenced")
    (said,) = [each for each in valid(planned, "failover")["warnings"] if each.startswith("a->c")]
    assert code == 0
    assert f"{unique_name} on a is deleted and made anew, so it stops there (topic_recreated)" in said
    assert "Stop its mirror first: it may delete them on c, too" in said
    alone(site, LinkId("a", "b"))
    (report,) = site.net.catch_up("a->c")
    assert (report.records, [each.kind for each in site.net.problems("a->c")]) == (0, ["topic_recreated"])
    # what it says works
    sides["c"].delete(unique_name)
    accept = ("link", "resume", "a->c", "--topic", unique_name, "--accept-recreated")
    assert f"drkit link resume 'a->c' --topic T {accept[-1]}" in said
    assert site.drkit(*accept)[0] == 0
    (report,) = site.net.catch_up("a->c")
    assert (report.caught_up, report.halted) == (True, ())
    assert values(site, "c", unique_name) == values(site, "a", unique_name) == values(site, "b", unique_name)

    with site.estate() as estate:
        for alias in ("b", "c"):
            assert run_failover(estate, make_plan(estate, PlanRequest(alias)), accept_unfenced=True).error is None
    write(sides["a"], unique_name, ["only a again"])
    code, planned = site.drkit("failback", "--link", "a->b", "--dry-run", "--accept-unfenced")
    assert any(each.startswith("a->c was failed away from, too") for each in planned["warnings"]), planned["warnings"]

"""Two primaries, a and b, that were failed over to c in one run: brought back in one run, or reprotected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.cli.wiring.page_sources import page_sources
from drkit.config import load_config
from drkit.failover.context.interfaces import Auditor, AuditVerdict, Salvaged, Salvager
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.journal.journal import INTENT, OUTCOME, PLAN
from drkit.failover.journal.site_record import load_site, site_to_resume
from drkit.model.errors import DrkitError
from drkit.model.link_state import Direction
from drkit.model.runs import verify_chain
from drkit.model.topology import Link
from drkit.observe.page.decision import Answer
from tests.support.clusters.topologies import write
from tests.support.collection.sampling import some_of
from tests.support.links.sites import LINKS, TIMEOUT, A, B, Site, configure, without
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("failbacks of a site", 2)]

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def valid(document: dict[str, Any], schema: str) -> dict[str, Any]:
    Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text())).validate(document)
    return document


@pytest.fixture
def away(site: Site) -> Site:
    """Failed over: a holds two records that c never got, b none; c got more of both, and `both` has read on there."""
    write(site.net.sides["a"], site.name, ["only a 0", "only a 1"])
    result = site.run(accept_loss="unknown")
    assert (result.error, result.state) == (None, State.CLOSED)
    for alias, topic in site.topics.items():
        write(site.net.sides["c"], topic, [f"{alias} on c {number}" for number in range(3)])
    site.commit("c", "both", site.topics["a"], 21)
    return site


def values(site: Site, alias: str, topic: str) -> list[bytes | None]:
    return [record.value for record in site.net.sides[alias].read(topic)]


def is_back(site: Site) -> None:
    """Both links are where a failback leads to, by their records and by an independent reader."""
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
    for alias, topic in site.topics.items():
        assert values(site, alias, site.name) == values(site, "c", topic)
    assert len(values(site, "a", site.name)) == 23, "what only a held is in the salvage"
    assert site.committed("both", "a", site.name) == {site.name: 21}
    assert site.committed("alone", "a", site.name) == {site.name: 3}
    assert site.committed("both", "b", site.name) == {site.name: 9}


def topic_id(site: Site, alias: str) -> str:
    with site.estate() as estate:
        return estate.admin(alias).topics([site.name])[site.name].topic_id


def by_verb(site: Site, *words: str) -> tuple[int, dict[str, Any]]:
    """A verb in this process: its exit code and JSON document."""
    told = [*words, "--output", "json", "--config", str(site.net.path)]
    done = CliRunner().invoke(application((words[0],)), told)
    return done.exit_code, json.loads(done.stdout)


def test_the_commands_bring_all_links_back_in_one_run(away: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = away.ports()
    doubting = replace(ports, auditor=Doubting(ports.auditor, "a"))
    for verb in ("failback", "resume"):
        monkeypatch.setattr(f"drkit.cli.verbs.failover.{verb}.failback_ports", lambda *_, **__: doubting)
    code, planned = away.drkit("failback", "--dry-run", "--accept-unfenced")
    valid(planned, "failover")
    assert (code, planned["kind"], planned["to"], planned["run"]) == (0, "failback", None, None)
    deleted = {each["link"]: [topic["only_here"] for topic in each["scrub"]] for each in planned["links"]}
    assert deleted == {"a->c": [2], "b->c": []}, "b holds nothing that c hasn't"
    assert planned["shared_groups"] == [{"group": away.group("both"), "links": list(LINKS)}]
    ids = planned["cluster_ids"]
    words = ("failback", "--yes", "--accept-unfenced", "--pause-before", "fence")

    code, refused = by_verb(away, *words)
    assert (code, "--cluster-id a=ID" in refused["error"]["remedy"]) == (3, True)
    code, refused = by_verb(away, *words, "--cluster-id", ids["a"])
    assert (code, "of which cluster" in refused["error"]["what"]) == (2, True)
    code, refused = by_verb(away, *words, "--cluster-id", f"a={ids['b']}")
    assert (code, "is not the id of a" in refused["error"]["what"]) == (3, True)
    assert [each.kind for each in away.net.store.runs() if each.kind == "failback"] == []

    code, stopped = by_verb(away, *words, "--cluster-id", f"a={ids['a']}", "--link", "a->c", "--link", ".*->c")
    assert (code, {each["link"]: each["state"] for each in stopped["links"]}["a->c"]) == (7, "reseeded")
    code, paused = by_verb(away, "resume", "--yes")  # which stops where the run was told to
    valid(paused, "failover")
    assert (code, paused["digest"], paused["state"]) == (7, planned["digest"], "audited")
    assert {each["link"]: each["state"] for each in paused["links"]} == dict.fromkeys(LINKS, "audited")
    assert away.directions() == dict.fromkeys(LINKS, Direction.REVERSED)
    write(away.net.sides["c"], away.topics["b"], ["b on c while it waits"])

    code, done = by_verb(away, "resume", "--yes")
    valid(done, "failover")
    assert (code, done["state"], done["run"]) == (0, "closed", paused["run"])
    is_back(away)
    assert (done["evidence"]["rpo_records"], done["evidence"]["fenced"]) == (0, False)
    salvaged = {each["link"]: each["salvaged"]["records"] for each in done["links"]}
    assert salvaged == {"a->c": 2, "b->c": 0}

    code, listed = away.drkit("runs", done["run"])
    assert (code, listed["kind"], listed["state"]) == (0, "site", "closed")
    assert valid(listed, "runs")["chain"]["state"] == "holds"
    assert "a->c, b->c failback to a, b" in listed["detail"]
    for each in listed["result"]["links"]:
        taken = [entry for entry in away.net.store.entries(each["run"]) if entry.event == "taken"]
        assert len(taken) == 2, "once by each resume, not by each phase"
    code, refused = away.drkit("failback", "--dry-run")
    assert (code, "were not failed away from" in refused["error"]["what"]) == (3, True)


def test_one_link_of_those_that_were_failed_over(away: Site) -> None:
    code, planned = away.drkit("failback", "--to", "b", "--dry-run", "--accept-unfenced")
    assert (code, planned["link"], planned["to"]) == (0, "b->c", "b")
    code, refused = away.drkit("failback", "--to", "b", "--link", "a->c", "--dry-run")
    assert (code, refused["error"]["exit_code"]) == (2, 2)
    without(away.net.path, "b")
    code, refused = away.drkit("failback", "--dry-run")
    assert (code, "b->c: b does not answer" in refused["error"]["what"]) == (3, True)
    assert "drkit failback --link 'a->c'" in refused["error"]["remedy"]


@dataclass
class Failing:
    """A salvager that fails for links from one cluster, and calls somebody first."""

    real: Salvager
    source: str = ""
    before: Callable[[], None] = field(default=lambda: None)

    def salvage(
        self,
        link: Link,
        topics: Sequence[str],
        positions: Sequence[Mapping[str, Any]],
        out: Path,
        say: Callable[[str], None],
        /,
    ) -> Salvaged:
        self.before()
        if link.id.source == self.source:
            raise DrkitError(f"{self.source} can't be read", remedy="Correct its disk")
        return self.real.salvage(link, topics, positions, out, say)

    def check(self, path: str, /) -> None:
        self.real.check(path)


def test_nothing_is_deleted_anywhere_before_all_links_can_be_scrubbed(away: Site) -> None:
    """First one can't be salvaged; then, while the other is, a precondition of it stops holding."""
    write(away.net.sides["b"], away.name, ["only b"])
    ids = {alias: topic_id(away, alias) for alias in ("a", "b")}
    ports = away.ports()
    result = away.bring_back(ports=replace(ports, salvager=Failing(ports.salvager, "b")))
    assert result.error is not None
    assert int(result.error.exit_code) == 7
    assert "b->c: b can't be read" in result.error.what
    assert "nothing is deleted on a: b->c is not salvaged" in result.error.what
    assert {str(each.link): each.state for each in result.links} == {"a->c": State.SALVAGED, "b->c": State.CANCELLED}
    assert {alias: topic_id(away, alias) for alias in ("a", "b")} == ids

    _, checked = away.drkit("doctor", "--link", "b->c")
    unfinished = [each for link in checked["links"] for each in link["checks"] if each["check"] == "unfinished run"]
    assert [each["remedy"] for each in unfinished] == [f"drkit resume {result.run}"]

    settings = {"bootstrap.servers": away.net.sides["a"].bootstrap, "group.id": away.group("both")}
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:

        def join() -> None:
            consumer.subscribe([away.name])
            wait_until(lambda: (consumer.poll(0.1), consumer.assignment())[1], TIMEOUT, "a member on a")

        stopped = away.resume(result.run, replace(ports, salvager=Failing(ports.salvager, before=join)))
    assert stopped.error is not None
    assert f"{away.group('both')} is active on a" in stopped.error.what
    assert {each.state for each in stopped.links} == {State.SALVAGED}
    assert {alias: topic_id(away, alias) for alias in ("a", "b")} == ids

    done = away.resume(result.run)
    assert (done.error, done.state) == (None, State.CLOSED)
    is_back(away)
    kept = list((away.net.path.parent / "salvage").glob("*/records.jsonl"))
    assert sorted(len(each.read_text().splitlines()) for each in kept) == [1, 2]


@dataclass
class Doubting:
    """An auditor that finds a way back deviated, once."""

    real: Auditor
    target: str

    def audit(self, link: Link, say: Callable[[str], None], /) -> AuditVerdict:
        if link.id.target == self.target:
            self.target = ""
            return AuditVerdict("deviated", "1 lost")
        return self.real.audit(link, say)


def test_a_link_that_shares_groups_with_one_that_fails_is_not_moved(away: Site) -> None:
    ports = away.ports()
    result = away.bring_back(ports=replace(ports, auditor=Doubting(ports.auditor, "b")))
    assert {str(each.link): each.state for each in result.links} == {"a->c": State.AUDITED, "b->c": State.RESEEDED}
    assert result.error is not None
    assert "c is not fenced for a->c" in result.error.what
    code, refused = away.drkit("resume", result.run, "--cancel", "--yes")
    assert (code, "begun to delete" in refused["error"]["what"]) == (3, True)
    done = away.resume(result.run)
    assert (done.error, done.state) == (None, State.CLOSED)
    is_back(away)


KILLS = [
    ("site", "plan", PLAN, "after"),
    ("a->c", "salvage", OUTCOME, "after"),
    ("b->c", "plan", PLAN, "after"),
    ("a->c", "scrub", INTENT, "after"),
    ("b->c", "audit", OUTCOME, "before"),
    ("a->c", "fence", OUTCOME, "after"),
    ("b->c", "commit", OUTCOME, "after"),
    ("site", "link b->c", OUTCOME, "before"),
    ("site", "close", OUTCOME, "before"),
]


def test_killed_at_boundary_after_boundary_it_comes_to_its_end(away: Site) -> None:
    action = "failback"
    for boundary in KILLS:
        away.killed(action, *boundary)
        if action == "failback" and site_to_resume(away.net.store, None) is None:
            continue  # its first entry is there and it isn't listed yet: nothing was done
        action = "resume"
    run = site_to_resume(away.net.store, None)
    assert run is not None
    done = away.resume(run)
    assert (done.error, done.state) == (None, State.CLOSED)
    is_back(away)
    record = load_site(away.net.store, run)
    assert record.finished
    for each in (run, *record.runs.values()):
        assert verify_chain(away.net.store.entries(each)) is None
    assert {each.state for each in away.net.store.runs()} == {State.CLOSED}


def test_the_cluster_failed_over_to_becomes_the_source_for_good_of_all_links(away: Site) -> None:
    done = away.bring_back(Kind.REPROTECT)
    assert (done.error, done.state) == (None, State.CLOSED)
    assert away.directions() == dict.fromkeys(LINKS, Direction.REVERSED)
    for alias, topic in away.topics.items():
        assert values(away, alias, away.name) == values(away, "c", topic)
    assert away.committed("both") == {away.topics["a"]: 21, away.topics["b"]: 9}
    code, listed = away.drkit("runs", done.run)
    assert (code, valid(listed, "runs")["result"]["kind"]) == (0, "reprotect")
    code, refused = away.drkit("failback", "--dry-run")
    assert code == 3
    assert {each["link"] for each in refused["refusals"]} == set(LINKS)
    read = load_config(away.net.path)
    (shown,) = page_sources(read, away.net.store, [each.link() for each in read.links], None).decisions()
    assert shown.answer is Answer.MOVED
    assert "drkit failback" not in shown.moved, "it would be refused, as it was above"
    for each in read.links:
        turned = f'give the link source = "{each.target}" and target = "{each.source}" in the configuration'
        assert f"{each.link().id}: {each.target} was made the primary for good" in shown.moved
        assert turned in shown.moved


def test_what_fails_on_one_link_leaves_the_others_fenced(away: Site) -> None:
    with RunLease(away.net.store, A, "somebody"):
        code, found = by_verb(away, "fence")
        valid(found, "fence")
        assert (code, [each["link"] for each in found["links"]]) == (7, ["b->c"])
        assert [(each["link"], each["exit_code"]) for each in found["failures"]] == [("a->c", 3)]
        code, refused = by_verb(away, "fence", "--link", "a->c")
        assert (code, "is acting on a->c" in refused["error"]["what"]) == (3, True)
        code, lifted = by_verb(away, "fence", "--lift")
        valid(lifted, "fence")
        assert (code, [(each["cluster"], each["fenced"]) for each in lifted["links"]]) == (7, [("c", False)])
        with RunLease(away.net.store, B, "somebody"):
            code, refused = by_verb(away, "fence")
    assert code == 3
    assert all(str(link) in refused["error"]["what"] for link in (A, B))


@pytest.mark.spark
def test_salvages_of_several_links_stand_side_by_side_and_one_that_fails_in_no_others_way(
    site: Site, tmp_path: Path
) -> None:
    write(site.net.sides["a"], site.name, ["only a"])
    configure(
        site,
        '[clusters.d]\nbootstrap_servers = "127.0.0.1:1"\n[[links]]\nsource = "d"\ntarget = "c"\n'
        'topics = ["nothing"]\n',
    )
    out = tmp_path / "kept"
    code, found = site.drkit("salvage", "--out", str(out), "--link", "a->c", "--link", "d.*")
    valid(found, "salvage")
    assert (code, found["total"]) == (7, 1)
    (kept,) = found["links"]
    assert (kept["link"], kept["total"], kept["path"]) == ("a->c", 1, str(out / "a-to-c"))
    assert [each["link"] for each in found["failures"]] == ["d->c"]
    code, refused = site.drkit("salvage", "--out", str(out))
    assert (code, "never overwrites" in refused["error"]["meaning"]) == (3, True)
    assert f"--link 'b->c' --out {out}/b-to-c" in refused["error"]["remedy"]

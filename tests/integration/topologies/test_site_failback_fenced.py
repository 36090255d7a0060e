"""Two links back from one live cluster that is fenced by access rules, for each link's clients apart.

The old primary has two aliases, each the source of one of the links: what is fenced is the live cluster of both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.interfaces import Auditor, AuditVerdict, Ports
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.fencing.cluster_fence import ClusterFence
from drkit.failover.journal.journal import OUTCOME, StageRecord, new_run_id
from drkit.failover.journal.site_record import site_to_resume
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.recovery.fence_command import CommandFenceContext
from drkit.failover.site.site_failback_run import FailbackMeans, make_site_failback_plan, run_site_failback
from drkit.failover.site.site_run import resume_site
from drkit.failover.snapshot.choose_links import links_away
from drkit.lab import Lab
from drkit.model.runs import FENCES, JournalEntry
from drkit.model.topics.acls import fence_rules_kind
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store
from tests.support.clusters.secured import allow, as_user, denials, put, verb, write
from tests.support.links.estates import OwnLink, mirror, open_link
from tests.support.recovery.failback_ports import reading_ports

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

FIRST, SECOND = LinkId("primary", "dr"), LinkId("second", "dr")


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """Links primary->dr (NAME.a.*) and second->dr (NAME.b.*); `app` may read and write what begins with NAME."""
    lines = []
    for alias, cluster in (("primary", "primary"), ("second", "primary"), ("dr", "dr")):
        client = as_user(secure_lab, cluster, "app")
        servers = client.pop("bootstrap.servers")
        lines += [f"[clusters.{alias}]", f'bootstrap_servers = "{secure_lab.bootstrap(cluster)}"']
        lines += [f"[clusters.{alias}.fence]", f'bootstrap_servers = "{servers}"', f"[clusters.{alias}.fence.client]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
    lines += ["[store]", f'url = "sqlite:///{tmp_path}/drkit.db"']
    for source, part in (("primary", "a"), ("second", "b")):
        names = json.dumps(f"{unique_name}[.]{part}[.].*")
        lines += ["[[links]]", f'source = "{source}"', 'target = "dr"', f"topics = [{names}]", f"groups = [{names}]"]
    path = tmp_path / "drkit.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    mine = open_link(path, unique_name)
    yield mine
    mine.store.close()


@dataclass
class Doubting:
    """An auditor that finds the way back to one cluster deviated."""

    real: Auditor
    target: str

    def audit(self, link: Link, say: Any, /) -> AuditVerdict:
        if link.id.target == self.target:
            return AuditVerdict("deviated", "1 lost")
        return self.real.audit(link, say)


class Killed(BaseException):
    """As by SIGKILL: nothing of the run's own is done after it."""


class KillingStore:
    """A store that ends everything before the outcome of a stage is journaled."""

    def __init__(self, store: Store, stage: str) -> None:
        self._store = store
        self._stage = stage

    def append_entry(self, entry: JournalEntry) -> bool:
        if (entry.stage, entry.event) == (self._stage, OUTCOME):
            raise Killed
        return self._store.append_entry(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def failed_over(own: OwnLink, lab: Lab) -> dict[LinkId, tuple[str, str]]:
    """Both links moved to dr, fenced; each old primary's topic holds more than was mirrored, and dr's got more."""
    for alias in ("primary", "dr"):
        put(own, alias, *(allow(own.name, kind, "all") for kind in ("topic", "group")))
    topics: dict[LinkId, tuple[str, str]] = {}
    for link, part in ((FIRST, "a"), (SECOND, "b")):
        topic = own.create("primary", f"{part}.orders")
        own.produce("primary", topic, {0: ["x-0", "x-1"], 1: ["y-0"]})
        topics[link] = (topic, own.commit("primary", f"{part}.billing", topic, {0: 1, 1: 1}))
    for configured in own.config.links:
        mirror(own, configured.link())
    for topic, _ in topics.values():
        own.produce("primary", topic, {0: ["only here"]})
    moved = verb(own, "failover", "--to", "dr", "--unplanned", "--yes", "--accept-loss", "unknown", schema="failover")
    assert (moved["state"], moved["evidence"]["fenced"]) == ("closed", True)
    for topic, _ in topics.values():
        assert (write(lab, "primary", topic), write(lab, "dr", topic)) == ("TOPIC_AUTHORIZATION_FAILED", "written")
    return topics


def is_back(own: OwnLink, lab: Lab, topics: Mapping[LinkId, tuple[str, str]]) -> None:
    """By an independent reader, and by what the clients' user may do."""
    for topic, group in topics.values():
        assert own.values("primary", topic) == own.values("dr", topic)
        assert own.committed("primary", group)[topic, 0] == 1
        assert (write(lab, "primary", topic), write(lab, "dr", topic)) == ("written", "TOPIC_AUTHORIZATION_FAILED")


@pytest.mark.parametrize("known", [True, False], ids=["noted", "only its mark is left"])
def test_a_site_fails_over_to_a_cluster_on_which_a_fence_was_left(
    own: OwnLink,
    secure_lab: Lab,
    known: bool,
) -> None:
    """Both links' clients may write to dr afterwards, also where the store has lost what it knew of that fence."""
    for alias in ("primary", "dr"):
        put(own, alias, *(allow(own.name, kind, "all") for kind in ("topic", "group")))
    topics = {}
    for configured, part in zip(own.config.links, ("a", "b"), strict=True):
        topic = topics[configured.link().id] = own.create("primary", f"{part}.orders")
        own.produce("primary", topic, {0: ["x-0", "x-1"], 1: ["y-0"]})
        own.commit("primary", f"{part}.billing", topic, {0: 1, 1: 1})
        mirror(own, configured.link())
    link = own.link
    run = new_run_id()
    with own.estate() as estate, RunLease(own.store, link.id, run) as lease:
        context = CommandFenceContext(estate, link.reversed(), run, lease, lambda _: None)
        assert ClusterFence(context, "dr").close().proven
    assert write(secure_lab, "dr", topics[FIRST]) == "TOPIC_AUTHORIZATION_FAILED"
    if not known:
        own.store.forget_notes(link.id, FENCES, sorted(own.store.notes(link.id, FENCES)))
        kind = fence_rules_kind("dr")
        own.store.forget_notes(link.id, kind, sorted(own.store.notes(link.id, kind)))

    moved = verb(own, "failover", "--to", "dr", "--unplanned", "--yes", schema="failover")

    assert (moved["state"], moved["evidence"]["fenced"]) == ("closed", True)
    for topic in topics.values():
        assert (write(secure_lab, "primary", topic), write(secure_lab, "dr", topic)) == (
            "TOPIC_AUTHORIZATION_FAILED",
            "written",
        )
    assert not {rule.name for rule in denials(own, "dr") if rule.name.startswith(own.name)}


def test_a_link_whose_clients_are_turned_away_is_taken_to_its_end_before_the_others(
    own: OwnLink, secure_lab: Lab, tmp_path: Path
) -> None:
    """second->dr fails its audit; primary->dr is killed within its fence, whose rules stand."""
    topics = failed_over(own, secure_lab)
    ports = reading_ports(own, tmp_path / "salvage")
    doubting = replace(ports, auditor=Doubting(ports.auditor, "second"))
    killing = cast("Store", KillingStore(own.store, "fence"))
    with pytest.raises(Killed):
        bring_back(own, doubting, killing)
    assert write(secure_lab, "dr", topics[FIRST][0]) == "TOPIC_AUTHORIZATION_FAILED"
    assert write(secure_lab, "dr", topics[SECOND][0]) == "written", "that link's clients still use dr"

    begun: list[tuple[LinkId, str]] = []

    def watch(link: LinkId, stage: str, _record: StageRecord | None, _text: str) -> None:
        if (link, stage) not in begun:
            begun.append((link, stage))

    run = site_to_resume(own.store, None)
    assert run is not None
    with own.estate() as estate, SiteContext(estate, [each.link() for each in own.config.links]) as site:
        done = resume_site(site, run, means=FailbackMeans(ports), watch=watch)
    assert (done.error, done.state, done.evidence.fenced) == (None, State.CLOSED, True)
    assert begun.index((FIRST, "close")) < begun.index((SECOND, "audit")), begun
    is_back(own, secure_lab, topics)
    kept = [line for path in (tmp_path / "salvage").glob("*/records.jsonl") for line in path.read_text().splitlines()]
    assert len(kept) == len(topics)


def bring_back(own: OwnLink, ports: Ports, store: Store) -> None:
    with ClusterContext(own.config, store, patience_seconds=2.0) as estate:
        chosen = links_away(estate, None).links
        with SiteContext(estate, chosen) as site:
            plan = make_site_failback_plan(site, Kind.FAILBACK)
            run_site_failback(site, plan, FailbackMeans(ports), cluster_ids=plan.old_primaries)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("engine", ["mirror", "spark"])
def test_the_commands_bring_fenced_links_back_by_spark(
    own: OwnLink, secure_lab: Lab, tmp_path: Path, engine: str
) -> None:
    """Salvage, audit and (`spark`) the seed of several links as an operator runs them."""
    topics = failed_over(own, secure_lab)
    found = {alias: secure_lab.cluster_id("primary") for alias in ("primary", "second")}
    ids = [word for alias, each in found.items() for word in ("--cluster-id", f"{alias}={each}")]
    words = ("--yes", "--engine", engine, "--salvage-dir", str(tmp_path / "salvage"), "--master", "local[2]")
    command = [sys.executable, "-m", "drkit", "failback", *words, *ids, "--config", str(own.config_path)]
    ended = subprocess.run(
        [*command, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, f"{ended.returncode}: {ended.stdout}{ended.stderr}"
    done = json.loads(ended.stdout)
    assert (done["state"], done["evidence"]["fenced"]) == ("closed", True)
    assert [each["salvaged"]["records"] for each in done["links"]] == [1, 1]
    is_back(own, secure_lab, topics)

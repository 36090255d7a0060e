"""A site of two primaries, a and b, that are mirrored to c: its links, independent clients, and runs like commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.interfaces import Ports
from drkit.failover.context.state_machine import Kind
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.planning.failover_planner import PlanRequest
from drkit.failover.site.site_failback_run import FailbackMeans, make_site_failback_plan, run_site_failback
from drkit.failover.site.site_planner import make_site_plan
from drkit.failover.site.site_result import SiteResult
from drkit.failover.site.site_run import resume_site, run_site
from drkit.failover.snapshot.choose_links import links_away, links_into
from drkit.model.link_state import Direction
from drkit.model.topology import LinkId
from tests.support.clusters.topologies import Net, write
from tests.support.links.estates import OwnLink, commit_once
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

A, B = LinkId("a", "c"), LinkId("b", "c")
LINKS = ("a->c", "b->c")
TIMEOUT = 30.0


@dataclass
class Site:
    """Two mirrored links to c, each with a topic of `name`; the group `both` reads from each, `alone` from one."""

    net: Net
    name: str

    @property
    def topics(self) -> dict[str, str]:
        """The topics on c, by the alias of their source."""
        return {alias: f"{alias}.{self.name}" for alias in ("a", "b")}

    def group(self, suffix: str) -> str:
        return f"{self.name}-{suffix}"

    def drkit(self, *words: str) -> tuple[int, dict[str, Any]]:
        """A verb's exit code and JSON document."""
        ended = self.net.drkit(*words, "--output", "json")
        return ended.returncode, json.loads(ended.stdout)

    def estate(self) -> ClusterContext:
        return ClusterContext(self.net.config, self.net.store, patience_seconds=2.0)

    def commit(self, alias: str, suffix: str, topic: str, offset: int) -> None:
        """Commit like a consumer of the group."""
        settings = {"bootstrap.servers": self.net.sides[alias].bootstrap, "group.id": self.group(suffix)}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        place = [ClientPartition(topic, 0, offset)]
        try:  # a new cluster still elects its coordinators
            for done in wait_until(lambda: commit_once(consumer, place), TIMEOUT, "a coordinator"):
                assert done.error is None
        finally:
            consumer.close()

    def committed(self, suffix: str, alias: str = "c", *topics: str) -> dict[str, int]:
        """A group's positions on a cluster, by topic (those of c)."""
        settings = {"bootstrap.servers": self.net.sides[alias].bootstrap, "group.id": self.group(suffix)}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        try:
            wanted = [ClientPartition(topic, 0) for topic in topics or self.topics.values()]
            found = consumer.committed(wanted, timeout=TIMEOUT)
        finally:
            consumer.close()
        return {place.topic: place.offset for place in found if place.offset >= 0}

    def directions(self) -> dict[str, Direction]:
        found = {link: self.net.store.link_control(LinkId.parse(link)) for link in LINKS}
        return {link: Direction.ACTIVE if control is None else control.direction for link, control in found.items()}

    def run(self, **asked: Any) -> SiteResult:
        """A site run, executed like by the command."""
        with self.estate() as estate, SiteContext(estate, links_into(estate, "c").links) as site:
            plan = make_site_plan(site, PlanRequest("c", **asked))
            return run_site(site, plan, unfenced=plan.links)

    def resume(self, run: str, ports: Ports | None = None) -> SiteResult:
        """Run a site run to its end, like the command."""
        means = FailbackMeans(ports or self.ports(), accept_unfenced=True)
        with self.estate() as estate, SiteContext(estate, [each.link() for each in self.net.config.links]) as site:
            return resume_site(site, run, means=means)

    def ports(self) -> Ports:
        """The real mirror; salvage and audit by reading."""
        own = OwnLink(self.name, self.net.path, self.net.config, self.net.store)
        return reading_ports(own, self.net.path.parent / "salvage")

    def bring_back(self, kind: Kind = Kind.FAILBACK, ports: Ports | None = None) -> SiteResult:
        """A failback (or reprotect) of all links, executed like by the command."""
        means = FailbackMeans(ports or self.ports(), accept_unfenced=True)
        with self.estate() as estate, SiteContext(estate, links_away(estate, None).links) as site:
            plan = make_site_failback_plan(site, kind)
            return run_site_failback(site, plan, means, cluster_ids=plan.old_primaries)

    def killed(self, action: str, whose: str, stage: str, event: str, when: str, *approvals: Path) -> None:
        """Execute the action, with these approvals, in a process that kills itself there."""
        words = [sys.executable, "-m", "tests.support.killing.killed_site", str(self.net.path), action]
        words += [whose, stage, event, when, *map(str, approvals)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr

    def is_moved(self) -> None:
        """Assert that both links are failed over, by their records and by an independent reader."""
        assert self.directions() == dict.fromkeys(LINKS, Direction.SEALED)
        assert self.committed("both") == {self.topics["a"]: 7, self.topics["b"]: 9}
        assert self.committed("alone") == {self.topics["a"]: 3}


def without(config_path: Path, *aliases: str) -> None:
    """Give these clusters addresses at which nothing answers."""
    lines = config_path.read_text().splitlines()
    for alias in aliases:
        place = lines.index(f"[clusters.{alias}]")
        lines[place + 1] = f'bootstrap_servers = "127.0.0.1:{1 + aliases.index(alias)}"'
    config_path.write_text("\n".join(lines) + "\n")


def configure(site: Site, lines: str) -> None:
    """Add to the configuration."""
    site.net.path.write_text(site.net.path.read_text() + lines)


def mirrored_site(net: Net, name: str) -> Site:
    """Two links to c, 20 records on each source, three positions, all mirrored."""
    made = Site(net, name)
    for alias in ("a", "b"):
        side = net.sides[alias]
        side.create(name)
        write(side, name, [f"{alias} {number}" for number in range(20)])
    made.commit("a", "both", name, 7)
    made.commit("a", "alone", name, 3)
    made.commit("b", "both", name, 9)
    assert all(report.caught_up for report in net.catch_up())
    return made


def site_links(name: str) -> str:
    """The configuration's links of such a site."""
    return "".join(
        f'[[links]]\nsource = "{alias}"\ntarget = "c"\ntopics = ["{name}"]\ngroups = ["{name}-.*"]\npolicy = "prefix"\n'
        for alias in ("a", "b")
    )

"""The walk of docs/recovery-walk.md: what it types at a terminal, on clusters with security on and with live clients.

The page says what is typed, what comes back and how it ends; here things break in between, and a reader that isn't
drkit counts what was kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from drkit.drill.workload.reading import group_positions, log_ends
from drkit.lab import Lab
from drkit.model.errors import DrkitError
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from tests.support.clusters.guard import Guard
from tests.support.clusters.lab import USERS
from tests.support.clusters.operator_site import PARTITIONS, OperatorSite
from tests.support.clusters.tls import Pem, tls_listeners
from tests.support.commands.terminal import at_terminal
from tests.support.recovery.cell_faults import format_anew
from tests.support.recovery.walk_page import not_shown, steps
from tests.support.wait import wait_until

PAGE = Path(__file__).resolve().parents[4] / "docs" / "recovery-walk.md"
DENIED = "TOPIC_AUTHORIZATION_FAILED"
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


class Walker:
    """Who types the page's commands."""

    def __init__(self, site: OperatorSite) -> None:
        self.site = site

    def play(self, name: str, when: Callable[[], bool] | None = None, then: Callable[[], object] | None = None) -> None:
        """Type a block's commands; `when` and `then` are for the last one (`at_terminal`)."""
        run = self.site.newest_run()
        given = {
            "RUN": "none" if run is None else run.run,
            "CLUSTER_ID": self.site.cluster_id_if_up("primary"),
        }
        typed = list(steps(PAGE, name, given))
        assert typed, f"no command in block {name}"
        complaints = []
        for step in typed:
            last = step is typed[-1]
            shown = at_terminal(
                [sys.executable, "-m", *step.words],
                answers=step.answers,
                when=when if last else None,
                then=then if last else None,
                environment=self.site.environment(),
                cwd=self.site.folder,
            )
            screen = shown.screen.replace(f"{self.site.name}.", "")
            said = f"\n{step.line}\n{screen}\n[exit {shown.code}, {shown.seconds:.0f} s]\n"
            with (self.site.folder / "walk.txt").open("a") as transcript:
                transcript.write(said)
            if shown.code != step.code:
                complaints.append(f"not [exit {step.code}]:{said}")
            elif missing := not_shown(step, screen):
                complaints.append(f"not shown: {missing}:{said}")
        assert not complaints, f"block {name}:\n" + "\n".join(complaints)


def begin(lab: Lab, folder: Path, name: str, pem: Pem) -> OperatorSite:
    """Clusters with a topic, a producer and a group at work on the primary."""
    site = OperatorSite(lab, folder, name, pem)
    site.create_topic()
    site.shop.start("producer", "primary")
    site.shop.start("consumer", "primary")
    return site


def traffic(site: OperatorSite, alias: str, count: int = 200) -> None:
    """Until clients have written and read some more on a cluster."""
    before = {table: site.shop.count(table, alias) for table in ("acks", "polls")}
    wait_until(
        lambda: all(site.shop.count(table, alias) >= before[table] + count for table in before),
        60,
        what=f"clients at work on {alias}",
    )


def captured(site: OperatorSite, beyond: Mapping[TopicPartition, int] | None = None) -> None:
    """Until the mirror has brought something over from every partition (more than that), and has seen where the group
    stands."""

    def seen() -> bool:
        try:
            with closing(open_store(f"sqlite:///{site.store_path}", create=False)) as store:
                marks = store.watermarks(link)
                more = [mark.source_through > (beyond or {}).get(tp, 0) for tp, mark in marks.items()]
                return len(store.group_positions(link)) == PARTITIONS == len(more) and all(more)
        except DrkitError as error:  # the mirror is about to make it
            raise AssertionError(str(error)) from error

    link = LinkId("primary", "dr")
    wait_until(seen, 60, what="the mirror, and the group's positions")


def brought(site: OperatorSite) -> dict[TopicPartition, int]:
    """How far the mirror has come."""
    with closing(open_store(f"sqlite:///{site.store_path}", create=False)) as store:
        return {tp: mark.source_through for tp, mark in store.watermarks(LinkId("primary", "dr")).items()}


def stop_clients(site: OperatorSite, alias: str) -> None:
    """Producers first; the group on this cluster reads to the end before it stops."""
    site.shop.stop(site.shop.running("producer"))
    ends = log_ends(site.administrator(alias), site.topic, PARTITIONS, 20)

    def at_end() -> bool:
        stands = group_positions(site.administrator(alias), site.group, site.topic, PARTITIONS, 20)
        return all(stands.get(number, 0) >= end for number, end in ends.items())

    wait_until(at_end, 90, what=f"the group at the end on {alias}")
    site.shop.stop(site.shop.running())


def members(site: OperatorSite, alias: str) -> list[object]:
    """Of the group, as the cluster counts them: those that died, too, until their session is over."""
    client = AdminClient(site.administrator(alias))  # one that nobody holds is closed before it answers
    found: list[object] = client.describe_consumer_groups([site.group])[site.group].result(20).members
    return found


def clients_on(site: OperatorSite, alias: str) -> None:
    site.shop.start("producer", alias)
    site.shop.start("consumer", alias)
    traffic(site, alias)


@pytest.fixture(scope="module")
def walk_lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard, pem: Pem) -> Iterator[Lab]:
    """A lab of its own: its clusters are killed, frozen and replaced."""
    folder = tmp_path_factory.mktemp("walk")
    lab_guard.watch(folder)
    listener = {"scram": tls_listeners(pem, USERS)["scram"]}
    lab = Lab.up(folder, brokers=1, store="sqlite", users=USERS, listeners=listener)
    yield lab
    lab.down()


@pytest.fixture
def walker(walk_lab: Lab, tmp_path: Path, unique_name: str, pem: Pem) -> Iterator[Walker]:
    """Clients are running on the primary, a mirror follows."""
    if stopped := [node.name for node in walk_lab.status() if node.state != "up"]:
        walk_lab.restart(*stopped)
    made = Walker(begin(walk_lab, tmp_path / "site", unique_name, pem))
    yield made
    made.site.shop.stop(made.site.shop.running())


def test_a_frozen_primary(secure_lab: Lab, tmp_path: Path, unique_name: str, pem: Pem) -> None:
    """The part that is short enough for every run: nothing hangs, and dr serves."""
    site = begin(secure_lab, tmp_path / "site", unique_name, pem)
    walker = Walker(site)
    try:
        with site.mirror():
            traffic(site, "primary", 50)
            captured(site)
            secure_lab.pause("primary")
            site.shop.stop(site.shop.running())
            walker.play("frozen")
    finally:
        site.shop.stop(site.shop.running())
        secure_lab.resume("primary")


@pytest.mark.long
def test_a_frozen_primary_that_wakes_up(walker: Walker) -> None:
    site = walker.site
    with site.mirror():
        traffic(site, "primary")
        captured(site)
        site.lab.pause("primary")
        walker.play("frozen-look")
        site.shop.stop(site.shop.running())
        walker.play("frozen")
    clients_on(site, "dr")
    site.lab.resume("primary")
    assert site.write("primary") == "written"
    walker.play("frozen-awake")
    assert site.write("primary") == DENIED
    stop_clients(site, "dr")
    assert site.acknowledged("dr") <= site.held("dr")
    only_there = site.acknowledged() - site.held("dr")
    assert only_there <= site.held("primary")
    assert not (site.held("dr") & site.acknowledged()) - site.read_by_group()


def gone_to_dr(walker: Walker) -> None:
    """The primary dies at work, groups are moved, clients work on dr."""
    site = walker.site
    with site.mirror():
        traffic(site, "primary")
        captured(site)
        site.lab.kill("primary")
        site.shop.stop(site.shop.running())
        walker.play("gone")
    clients_on(site, "dr")


@pytest.mark.long
def test_a_primary_that_dies_again_behind_the_fence_of_dr(walker: Walker) -> None:
    site = walker.site
    gone_to_dr(walker)
    site.lab.restart("primary-1")
    assert site.write("primary") == "written", "dr has not all that the primary has"
    walker.play("again-fence")
    wait_until(lambda: not members(site, "primary"), 90, what="the end of the session of the group that died")
    site.shop.stop(site.shop.running("producer"))
    walker.play("again", when=lambda: site.write("dr") == DENIED, then=lambda: site.lab.kill("primary"))
    wait_until(lambda: site.write("dr") == "written", what="dr to be open again")
    walker.play("again-abandon")
    clients_on(site, "dr")
    site.lab.restart("primary-1")
    walker.play("again-plan")
    assert "isn't shown to be" not in (site.folder / "walk.txt").read_text(), "the primary is closed to all but drkit"
    assert site.acknowledged("dr") <= site.held("dr")


@pytest.mark.long
def test_a_primary_that_comes_back_as_a_new_empty_cluster(walker: Walker) -> None:
    site = walker.site
    gone_to_dr(walker)
    format_anew(site.lab.dir / "nodes" / "primary-1" / "data")
    site.lab.restart("primary-1")
    walker.play("anew-look")
    site.admit("primary")
    walker.play("anew-failback")
    stop_clients(site, "dr")
    walker.play("anew-resume")
    assert site.held("dr") <= site.held("primary")
    before = brought(site)
    with site.mirror("back.log"):
        clients_on(site, "primary")
        captured(site, before)
        walker.play("anew-end")
    stop_clients(site, "primary")
    assert site.acknowledged("dr") <= site.held("primary")
    assert not (site.held("primary") & site.acknowledged()) - site.read_by_group()

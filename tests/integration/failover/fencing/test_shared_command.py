"""A command closes a cluster to the clients of all links alike: one link's run neither opens it under another's fence,
nor takes that fence for a client that was never let in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record
from drkit.failover.journal.journal import new_run_id
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.fence_command import CommandFenceContext
from drkit.failover.site.site_failback_run import FailbackMeans, make_site_failback_plan, run_site_failback
from drkit.failover.snapshot.choose_links import links_away
from drkit.lab import Lab
from drkit.model.topology import LinkId
from tests.support.clusters.secured import allow, as_user, fenced_problems, put, verb, write
from tests.support.links.estates import OwnLink, mirror, open_link
from tests.support.recovery.failback_ports import reading_ports

pytestmark = pytest.mark.lab

BERLIN, PARIS = LinkId("primary", "dr"), LinkId("primary", "second")
DENIED = "TOPIC_AUTHORIZATION_FAILED"
COMMAND = """
import sys
from confluent_kafka.admin import AclBinding as B, AclBindingFilter as F, AclOperation as O, AclPermissionType as P
from confluent_kafka.admin import AdminClient, ResourcePatternType as R, ResourceType as T
servers, prefix, word = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers})
rule = (T.TOPIC, prefix, R.PREFIXED, "User:*", "*", O.WRITE, P.DENY)
for done in (admin.create_acls([B(*rule)]) if word == "close" else admin.delete_acls([F(*rule)])).values():
    done.result(20)
"""


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """Links primary->dr (NAME.a.*) and primary->second (NAME.b.*), mirrored; a command closes the primary."""
    script = tmp_path / "gate.py"
    script.write_text(COMMAND)
    call = [sys.executable, str(script), secure_lab.bootstrap("primary"), f"{unique_name}."]
    client = as_user(secure_lab, "primary", "app")
    servers = client.pop("bootstrap.servers")
    lines = []
    for alias, cluster in (("primary", "primary"), ("dr", "dr"), ("second", "dr")):
        lines += [f"[clusters.{alias}]", f'bootstrap_servers = "{secure_lab.bootstrap(cluster)}"']
    lines += ["[clusters.primary.fence]", f'bootstrap_servers = "{servers}"']
    lines += [f"command = {json.dumps([*call, 'close'])}", f"unfence = {json.dumps([*call, 'open'])}"]
    lines += ["[clusters.primary.fence.client]"]
    lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
    lines += ["[store]", f'url = "sqlite:///{tmp_path}/drkit.db"']
    for target, part in (("dr", "a"), ("second", "b")):
        names = json.dumps(f"{unique_name}[.]{part}[.].*")
        lines += ["[[links]]", 'source = "primary"', f'target = "{target}"', f"topics = [{names}]", "groups = []"]
    path = tmp_path / "drkit.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    mine = open_link(path, unique_name)
    put(mine, "primary", *(allow(unique_name, kind, "all") for kind in ("topic", "group")))
    for part in ("a", "b"):
        mine.produce("primary", mine.create("primary", f"{part}.orders"), {0: ["x-0", "x-1"]})
    for configured in mine.config.links:
        mirror(mine, configured.link())
    yield mine
    mine.store.close()


def outcomes(own: OwnLink, lab: Lab) -> tuple[str, str]:
    """Of a record that a client of each link writes to the primary."""
    return (write(lab, "primary", f"{own.name}.a.orders"), write(lab, "primary", f"{own.name}.b.orders"))


def move_away(own: OwnLink) -> None:
    """Fail both links over, one after the other, each with a proven fence."""
    for target in ("dr", "second"):
        moved = verb(own, "failover", "--to", target, "--planned", "--yes", schema="failover")
        assert (moved["state"], moved["evidence"]["fenced"]) == ("closed", True)


def test_a_command_that_closes_a_cluster_for_two_links(own: OwnLink, secure_lab: Lab) -> None:
    move_away(own)
    assert outcomes(own, secure_lab) == (DENIED, DENIED)

    with own.estate() as estate:
        plans = [make_failback_plan(estate, None, own.link, together=links) for links in ([], [BERLIN, PARIS])]
    told = [[each.what for each in plan.obstacles if "by its command" in each.what] for plan in plans]
    assert told == [["primary is closed to all clients by its command, for primary->second, too"], []]

    run = new_run_id()
    with own.estate() as estate, RunLease(own.store, BERLIN, run) as lease:
        fence = ClusterFence(CommandFenceContext(estate, own.link, run, lease, lambda _: None), "primary")
        assert "lets drkit itself write" in fence.admit_mirror()
        assert outcomes(own, secure_lab) == (DENIED, DENIED), "the mirror alone is let through"
        assert fence.open() == "primary stays closed by its command, which the fence of primary->second needs"
    assert outcomes(own, secure_lab) == (DENIED, DENIED)
    of_paris = fence_record(own.store, PARIS, "primary")
    assert of_paris is not None
    assert of_paris.proven

    words = ("fence", "--lift", "--cluster", "primary", "--yes", "--link")
    verb(own, *words, str(BERLIN), code=7, schema="fence")
    (said,) = fenced_problems(own)
    assert "primary is closed to its clients by its command, for primary->second" in said
    assert outcomes(own, secure_lab) == (DENIED, DENIED)
    verb(own, *words, str(PARIS), schema="fence")
    assert outcomes(own, secure_lab) == ("written", "written")
    assert fenced_problems(own) == []


def test_what_a_command_closed_for_two_links_is_open_once_both_are_back(
    own: OwnLink, secure_lab: Lab, tmp_path: Path
) -> None:
    move_away(own)
    means = FailbackMeans(reading_ports(own, tmp_path / "salvage"), accept_unfenced=True)
    with own.estate() as estate, SiteContext(estate, links_away(estate, None).links) as site:
        plan = make_site_failback_plan(site, Kind.FAILBACK)
        assert plan.obstacles == ()
        result = run_site_failback(site, plan, means, cluster_ids=plan.old_primaries)
    assert result.state is State.CLOSED, result
    assert outcomes(own, secure_lab) == ("written", "written")
    assert fenced_problems(own) == []

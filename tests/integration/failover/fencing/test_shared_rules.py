"""Two links carry the same topic away from one cluster, whose ACLs go by name: what the fence of one closes stays so
under the failback, the lift and the mirror of the other, and that is said, not passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.failover.context.lease import RunLease
from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record
from drkit.failover.journal.journal import new_run_id
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.fence_command import CommandFenceContext
from drkit.lab import Lab
from drkit.model.errors import Refused
from drkit.model.runs import FenceState
from drkit.model.topology import LinkId
from tests.support.clusters.secured import allow, as_user, denials, fenced_problems, put, verb, write
from tests.support.links.estates import OwnLink, mirror, open_link

pytestmark = pytest.mark.lab

BERLIN, PARIS = LinkId("primary", "dr"), LinkId("primary", "second")
DENIED = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """Links primary->dr and primary->second of the same topic, mirrored; drkit is a super user, its clients are not."""
    client = as_user(secure_lab, "primary", "app")
    servers = client.pop("bootstrap.servers")
    lines = []
    for alias, cluster in (("primary", "primary"), ("dr", "dr"), ("second", "dr")):
        lines += [f"[clusters.{alias}]", f'bootstrap_servers = "{secure_lab.bootstrap(cluster)}"']
    lines += ["[clusters.primary.fence]", f'bootstrap_servers = "{servers}"', "[clusters.primary.fence.client]"]
    lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
    lines += ["[store]", f'url = "sqlite:///{tmp_path}/drkit.db"']
    for target, policy in (("dr", "identity"), ("second", "prefix")):
        lines += ["[[links]]", 'source = "primary"', f'target = "{target}"', f'policy = "{policy}"']
        lines += [f"topics = [{json.dumps(f'{unique_name}[.].*')}]", "groups = []"]
    path = tmp_path / "drkit.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    mine = open_link(path, unique_name)
    put(mine, "primary", allow(unique_name, "topic", "all"), allow(unique_name, "topic", "all", "mirror"))
    mine.produce("primary", mine.create("primary", "orders"), {0: ["x-0", "x-1"]})
    for configured in mine.config.links:
        mirror(mine, configured.link())
    yield mine
    mine.store.close()


def test_what_the_fences_of_two_links_close_alike(own: OwnLink, secure_lab: Lab) -> None:
    topic = f"{own.name}.orders"
    for target in ("dr", "second"):
        moved = verb(own, "failover", "--to", target, "--planned", "--yes", schema="failover")
        assert (moved["state"], moved["evidence"]["fenced"]) == ("closed", True)
    told = f"the fence of primary->second needs closed on primary, too: {topic}"

    with own.estate() as estate:
        back = make_failback_plan(estate, None, own.link)
        (found,) = [each for each in back.obstacles if "needs closed" in each.what]
        assert (found.what, found.waived_by) == (told, None)
        assert "drkit fence --lift --cluster primary --yes --link 'primary->second'" in found.remedy
        kept = make_failback_plan(estate, None, own.link, for_good=True)
        assert not [each for each in kept.obstacles if "needs closed" in each.what], "no rule stops a super user"

    client = as_user(secure_lab, "primary", "mirror")
    fence = own.config.clusters["primary"].fence
    user = ClusterConfig(bootstrap_servers=client.pop("bootstrap.servers"), client=client, fence=fence)
    ordinary = own.config.model_copy(update={"clusters": {**own.config.clusters, "primary": user}})
    with own.estate(ordinary) as estate, RunLease(own.store, BERLIN, run := new_run_id()) as lease:
        gate = ClusterFence(CommandFenceContext(estate, own.link, run, lease, lambda _: None), "primary")
        with pytest.raises(Refused, match="needs closed on primary, too") as refused:
            gate.admit_mirror()
        assert "drkit fence --lift" in refused.value.remedy
    record = fence_record(own.store, BERLIN, "primary")
    assert record is not None
    assert (record.state, record.proven) == (FenceState.CLOSED, True), "nothing was changed"

    words = ("fence", "--lift", "--cluster", "primary", "--yes", "--link")
    (lifted,) = verb(own, *words, str(BERLIN), code=7, schema="fence")["links"]
    assert (lifted["fenced"], lifted["denied_by"]) == (True, []), "they are drkit's rules"
    assert told in lifted["reason"]
    assert write(secure_lab, "primary", topic) == DENIED
    (said,) = fenced_problems(own)
    assert f"by rules ({topic}), for primary->second, and those of primary->dr are to use it" in said
    verb(own, *words, str(PARIS), schema="fence")
    assert write(secure_lab, "primary", topic) == "written"
    assert denials(own, "primary") == set()
    assert fenced_problems(own) == []


def test_the_fences_of_two_links_are_lifted_by_one_command(own: OwnLink, secure_lab: Lab) -> None:
    for target in ("dr", "second"):
        verb(own, "failover", "--to", target, "--planned", "--yes", schema="failover")
    lifted = verb(own, "fence", "--lift", "--cluster", "primary", "--yes", schema="fence")["links"]
    assert [each["fenced"] for each in lifted] == [False, False]
    assert write(secure_lab, "primary", f"{own.name}.orders") == "written"

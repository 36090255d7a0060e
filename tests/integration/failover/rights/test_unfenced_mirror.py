"""Without ALTER on the target a mirror that didn't leave in order can't be refused there: the run says so, each time,
and the next mirror's appends follow what that one still sends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import cancel_run, run_failover
from drkit.lab import Lab
from drkit.store.producers import retired_producers, used_producer
from drkit.store.workers import lost_workers
from tests.support.commands.rights import Grants, as_exact, printed
from tests.support.killing.killed_process import OUTCOME, killed
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def exact(own: OwnLink, secure_lab: Lab, grants: Grants) -> Iterator[OwnLink]:
    """The same link as the user `exact`, who may alter nothing of dr's cluster."""
    mine = as_exact(own, secure_lab)
    grants.give(printed(mine))
    rights = printed(mine)["dr"]
    grants.take("dr", [each for each in rights if (each["resource"], each["operation"]) == ("cluster", "alter")])
    yield mine
    mine.store.close()


def test_a_lost_mirror_that_no_partition_refuses_is_said_by_each_failover(
    own: OwnLink, exact: OwnLink, tmp_path
) -> None:
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("first", 20))
    command = [sys.executable, "-m", "drkit", "mirror", "--config", str(exact.config_path), "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: len(own.store.watermarks(own.link.id)) == 2, 120, what="both partitions to be mirrored")
        finally:
            process.send_signal(signal.SIGKILL)
    with exact.estate() as estate:
        cluster = estate.admin("dr").cluster_id()
    producer = used_producer(own.store, own.link.id, cluster)
    killed(exact, "failover", tmp_path, ("drain", OUTCOME, "after"))
    (run,) = own.store.runs()
    assert any(
        "UNFENCED: a mirror that did not leave in order" in entry.payload for entry in own.store.entries(run.run)
    )
    assert used_producer(own.store, own.link.id, cluster) == producer
    assert not retired_producers(own.store, own.link.id, cluster)
    with exact.estate() as estate:
        assert cancel_run(estate, run.run).error is None
    own.produce("primary", topic, texts("second", 5))
    mirror(exact)
    assert own.values("dr", topic) == own.values("primary", topic)
    assert used_producer(own.store, own.link.id, cluster) == producer
    assert lost_workers(own.store, own.link.id, own.store.time())
    with exact.estate() as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False)
    assert result.error is None
    assert any("UNFENCED: a mirror" in stage.reason for stage in result.stages if stage.name == "drain")

"""The fence's context outside of a run's stages, and a bounded check whether a cluster answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.lease import RunLease
from drkit.failover.stages.stage import wait_for
from drkit.model.errors import DrkitError
from drkit.model.topology import Link


@dataclass(frozen=True, slots=True)
class CommandFenceContext:
    """See `drkit.failover.fencing.fence_proof.FenceContext`."""

    estate: ClusterContext
    link: Link
    run: str
    lease: RunLease
    say: Callable[[str], None]

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`, at most for `seconds`; whether it came true. Keeps the right to run."""
        return wait_for(self.lease, done, seconds)


def answers(estate: ClusterContext, cluster: str) -> bool:
    """Whether a cluster answers now."""
    try:
        estate.admin(cluster, may_be_gone=True).brokers()
    except DrkitError:
        return False
    estate.reach(cluster).gone = False
    return True

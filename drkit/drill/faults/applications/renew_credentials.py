"""Makes a cluster accept credentials again."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.secured import USER, authenticates
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import RenewCredentials

_SECONDS = 30.0


def renew_credentials(env: DrillEnvironment, fault: RenewCredentials) -> str:
    """Restore the applications' user on a cluster with its password; returns once a new connection succeeds.

    Raises:
        Refused: the lab has no authorizer.
        NotInTime: the cluster still refuses the credentials.
    """
    properties = env.credentials_of(fault.cluster)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        cluster.set_password(USER, env.lab.users[USER])
    wait_for(f"access of {USER} to {fault.cluster}", _SECONDS, lambda: authenticates(properties, _SECONDS) is True)
    return f"{fault.cluster} accepts the credentials of the applications' user {USER} again"

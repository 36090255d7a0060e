"""Makes a cluster refuse credentials."""

from __future__ import annotations

import secrets
from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.secured import AGAIN_SECONDS, USER, authenticates
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import ExpireCredentials

_SECONDS = 30.0


def expire_credentials(env: DrillEnvironment, fault: ExpireCredentials) -> str:
    """Delete the applications' user on a cluster, or change its password; returns once a new connection is refused.

    Raises:
        Refused: the lab has no authorizer.
        NotInTime: the cluster still accepts the credentials.
    """
    properties = env.credentials_of(fault.cluster)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        if fault.how == "deleted":
            cluster.remove_password(USER)
        else:
            cluster.set_password(USER, secrets.token_hex(16))
    wait_for(
        f"the refusal of {USER} on {fault.cluster}", _SECONDS, lambda: authenticates(properties, _SECONDS) is False
    )
    how = "is deleted" if fault.how == "deleted" else "has another password"
    return (
        f"the applications' user {USER} {how} on {fault.cluster}: new connections are refused, "
        f"and open ones within {AGAIN_SECONDS} s"
    )

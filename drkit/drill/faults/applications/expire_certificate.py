"""Lets a cluster show an expired certificate."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.secured import KEYSTORE, authenticates
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import ExpireCertificate

_SECONDS = 30.0


def expire_certificate(env: DrillEnvironment, fault: ExpireCertificate) -> str:
    """Replace the certificate of the applications' listener by an expired one; returns once a new connection fails.

    Raises:
        Refused: the applications of the lab don't use TLS.
        NotInTime: new connections still succeed.
    """
    expired = env.certificates().expired_keystore
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        cluster.set_broker(KEYSTORE, str(expired))
    properties = env.credentials_of(fault.cluster)
    what = f"the refusal of the certificate of {fault.cluster}"
    wait_for(what, _SECONDS, lambda: authenticates(properties, _SECONDS) is False)
    return (
        f"the certificate of {fault.cluster} that applications see has expired: they refuse new connections; open ones "
        "stay until they end"
    )

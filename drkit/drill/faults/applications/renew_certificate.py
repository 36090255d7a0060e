"""Lets a cluster show a valid certificate again."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.secured import KEYSTORE, authenticates
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import RenewCertificate

_SECONDS = 30.0


def renew_certificate(env: DrillEnvironment, fault: RenewCertificate) -> str:
    """Replace the certificate of the applications' listener by a valid one; returns once a new connection succeeds.

    Raises:
        Refused: the applications of the lab don't use TLS.
        NotInTime: new connections are still refused.
    """
    valid = env.certificates().keystore
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        cluster.set_broker(KEYSTORE, str(valid))
    properties = env.credentials_of(fault.cluster)
    wait_for(f"access to {fault.cluster}", _SECONDS, lambda: authenticates(properties, _SECONDS) is True)
    return f"{fault.cluster} shows applications a valid certificate again"

"""Faults that clients meet: credentials that a cluster refuses, a clock that is wrong."""

from __future__ import annotations

import secrets
from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.secured import AGAIN_SECONDS, USER, authenticates
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import CorrectClock, ExpireCredentials, RenewCredentials, SkewClock

_CREDENTIALS_SECONDS = 30.0
_RECORD_SECONDS = 60.0


def expire_credentials(env: DrillEnvironment, fault: ExpireCredentials) -> str:
    """Delete the applications' user on a cluster, or change its password; returns once a new connection is refused.

    Raises:
        Refused: the lab has no authorizer.
        NotInTime: the cluster still takes the credentials.
    """
    properties = env.credentials_of(fault.cluster)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        if fault.how == "deleted":
            cluster.remove_password(USER)
        else:
            cluster.set_password(USER, secrets.token_hex(16))
    wait_for(
        f"the refusal of {USER} on {fault.cluster}",
        _CREDENTIALS_SECONDS,
        lambda: authenticates(properties, _CREDENTIALS_SECONDS) is False,
    )
    how = "is deleted" if fault.how == "deleted" else "has another password"
    return (
        f"the applications' user {USER} {how} on {fault.cluster}: new connections are refused, "
        f"and those that there are within {AGAIN_SECONDS} s"
    )


def renew_credentials(env: DrillEnvironment, fault: RenewCredentials) -> str:
    """Have the applications' user on a cluster, with its password; returns once a new connection is let in.

    Raises:
        Refused: the lab has no authorizer.
        NotInTime: the cluster still refuses the credentials.
    """
    properties = env.credentials_of(fault.cluster)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        cluster.set_password(USER, env.lab.users[USER])
    wait_for(
        f"{USER} let in on {fault.cluster}",
        _CREDENTIALS_SECONDS,
        lambda: authenticates(properties, _CREDENTIALS_SECONDS) is True,
    )
    return f"{fault.cluster} takes the credentials of the applications' user {USER} again"


def skew_clock(env: DrillEnvironment, fault: SkewClock) -> str:
    """Have the producer on a cluster stamp its records by a clock that is wrong; returns once it has sent one.

    Only stamps are wrong: the producer is stopped in order, and another one continues whose clock differs. The brokers'
    clocks are right.

    Raises:
        Refused: no producer runs there.
        NotInTime: the new one sends nothing.
    """
    producer = env.clients.restart_producer(fault.cluster, clock_skew_seconds=fault.seconds)
    wait_for(f"a record of {producer.name}", _RECORD_SECONDS, lambda: producer.ledger.count("attempts") > 0)
    direction = "behind" if fault.seconds < 0 else "ahead"
    return f"{producer.name} on {fault.cluster} stamps its records {abs(fault.seconds):g} s {direction}"


def correct_clock(env: DrillEnvironment, fault: CorrectClock) -> str:
    """Have the producer on a cluster stamp its records by the right time again.

    Raises:
        Refused: no producer runs there.
    """
    producer = env.clients.restart_producer(fault.cluster, clock_skew_seconds=0.0)
    return f"{producer.name} on {fault.cluster} stamps its records by the right time"

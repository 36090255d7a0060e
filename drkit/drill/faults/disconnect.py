"""Connections torn down."""

from __future__ import annotations

import psutil

from drkit.drill.environment.connections import reset_connections
from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import Disconnect
from drkit.model.errors import Refused
from drkit.model.wording import counted


def disconnect(env: DrillEnvironment, _fault: Disconnect) -> str:
    """Tear down every TCP connection of the mirror, as a firewall that lost its state does.

    Raises:
        Refused: this machine doesn't allow it, or the mirror has no connection.
    """
    mirror = env.the_mirror()
    try:
        pids = [mirror.pid, *(child.pid for child in psutil.Process(mirror.pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        pids = []
    torn = reset_connections(pids)
    if not torn:
        raise Refused(
            "the mirror has no connection that could be torn down", remedy="Look at the steps before this one"
        )
    return f"{counted(torn, 'connection')} of the mirror (pid {mirror.pid}) torn down"

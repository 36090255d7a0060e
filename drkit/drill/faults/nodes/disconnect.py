"""Tears down connections."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil

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
        raise Refused("the mirror has no connection that could be torn down", remedy="Check the steps before this one")
    return f"{counted(torn, 'connection')} of the mirror (pid {mirror.pid}) torn down"


def reset_connections(pids: Iterable[int]) -> int:
    """SOCK_DESTROY on these processes' connections (RST to the other end); returns how many there were.

    Raises:
        Refused: this machine doesn't allow it: `ss` is missing, or isn't permitted (it needs root).
    """
    ports: set[int] = set()
    for pid in pids:
        with suppress(psutil.Error):
            connections = psutil.Process(pid).net_connections(kind="tcp")
            ports.update(
                each.laddr.port for each in connections if each.laddr and each.status == psutil.CONN_ESTABLISHED
            )
    if not ports:
        return 0
    tool = shutil.which("ss")
    if tool is None:
        raise Refused("connections can't be reset: `ss` is not installed", remedy="Install iproute2")
    match = " or ".join(f"sport = :{port}" for port in sorted(ports))
    done = subprocess.run([tool, "-K", "-t", f"( {match} )"], capture_output=True, check=False)
    if done.returncode:
        raise Refused(
            f"connections can't be reset: {done.stderr.decode(errors='replace').strip()}",
            remedy="`ss -K` needs root, and a kernel with CONFIG_INET_DIAG_DESTROY",
        )
    return len(ports)

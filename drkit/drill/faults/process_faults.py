"""Faults of processes: brokers and the mirror killed, paused, restarted, without disk or connections."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.waiting import NotInTime, wait_for
from drkit.drill.experiment.faults import Disconnect, FillDisk, Kill, Pause, Restart, Resume
from drkit.model.errors import Refused
from drkit.model.wording import counted

_DISK_SECONDS = 60.0


def kill(env: DrillEnvironment, fault: Kill) -> str:
    """SIGKILL a node: it is gone at once, with whatever it had not written.

    Raises:
        Refused: none of it was running.
    """
    node = fault.node
    if node == "mirror":
        mirror = env.the_mirror()
        mirror.kill()
        return f"the mirror (pid {mirror.pid}) is killed"
    if node == "run":
        run = env.the_run()
        run.kill()
        run.wait()
        return f"the run (pid {run.pid}) is killed"
    killed = env.lab.kill(node)
    if not killed:
        raise Refused(f"{node} was not running, so it can't be killed", remedy="Look at the steps before this one")
    return f"killed {', '.join(killed)}"


def pause(env: DrillEnvironment, fault: Pause) -> str:
    """SIGSTOP a node: it hangs; its connections stay open and nothing answers."""
    if fault.node == "mirror":
        mirror = env.the_mirror()
        mirror.send(signal.SIGSTOP)
        return f"the mirror (pid {mirror.pid}) is paused"
    return f"paused {', '.join(env.lab.pause(fault.node))}"


def resume(env: DrillEnvironment, fault: Resume) -> str:
    """SIGCONT a paused node; one that isn't paused is left as it is."""
    if fault.node == "mirror":
        mirror = env.the_mirror()
        mirror.send(signal.SIGCONT)
        return f"the mirror (pid {mirror.pid}) continues"
    return f"resumed {', '.join(env.lab.resume(fault.node))}"


def restart(env: DrillEnvironment, fault: Restart) -> str:
    """Stop a node in order where it runs, and start it on the same ports and data. Returns when it answers."""
    if fault.node == "mirror":
        mirror = env.the_mirror()
        mirror.restart()
        return f"the mirror runs again (pid {mirror.pid})"
    return f"restarted {', '.join(env.lab.restart(fault.node, say=env.say))}"


def fill_disk(env: DrillEnvironment, fault: FillDisk) -> str:
    """Have brokers be unable to write a byte more to any file, as on a full disk; returns once they have ended by it.

    By the limit of their processes on the size of files (RLIMIT_FSIZE), set to 0: writes fail (EFBIG, not ENOSPC), and
    Kafka takes its only log directory for lost and ends. A restarted broker has its room again.

    Raises:
        Refused: none of them was running, or this system has no such limit.
        NotInTime: they still run; they may write again.
    """
    if not hasattr(psutil.Process, "rlimit"):
        raise Refused(
            "a disk can't be filled here: this system doesn't limit the files of a process that runs",
            remedy="Play the experiment on Linux",
        )
    running = env.lab.running(fault.node)
    if not running:
        raise Refused(
            f"{fault.node} was not running, so its disk can't be filled", remedy="Look at the steps before this one"
        )
    names, brokers = ", ".join(running), list(running.values())
    before = [broker.rlimit(psutil.RLIMIT_FSIZE) for broker in brokers]
    for broker, (_, most) in zip(brokers, before, strict=True):
        broker.rlimit(psutil.RLIMIT_FSIZE, (0, most))
    try:
        wait_for(f"the end of {names} by a full disk", _DISK_SECONDS, lambda: not env.lab.running(fault.node))
    except NotInTime:
        for broker, limits in zip(brokers, before, strict=True):
            if broker.is_running():
                broker.rlimit(psutil.RLIMIT_FSIZE, limits)
        raise
    return f"the disk of {names} is full: nothing could be written any more, and the process ended"


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


def reset_connections(pids: Iterable[int]) -> int:
    """SOCK_DESTROY on these processes' connections (RST to the other end); returns how many there were.

    Raises:
        Refused: this machine doesn't allow it: `ss` is missing, or may not (it needs root).
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

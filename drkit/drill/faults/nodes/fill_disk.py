"""Fills a disk."""

from __future__ import annotations

import psutil

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.waiting import NotInTime, wait_for
from drkit.drill.experiment.faults import FillDisk
from drkit.model.errors import Refused

_SECONDS = 60.0


def fill_disk(env: DrillEnvironment, fault: FillDisk) -> str:
    """Prevent brokers from writing to any file, as on a full disk; returns once they have ended because of it.

    It sets the limit of file sizes of their processes (RLIMIT_FSIZE) to 0: writes fail (EFBIG, not ENOSPC), and Kafka
    marks its only log directory as offline and ends. A restarted broker can write again.

    Raises:
        Refused: none of them was running, or this system has no such limit.
        NotInTime: they still run; they may write again.
    """
    if not hasattr(psutil.Process, "rlimit"):
        raise Refused(
            "a disk can't be filled here: this system can't limit the file sizes of a running process",
            remedy="Play the experiment on Linux",
        )
    running = env.lab.running(fault.node)
    if not running:
        raise Refused(
            f"{fault.node} was not running, so its disk can't be filled", remedy="Check the steps before this one"
        )
    names, brokers = ", ".join(running), list(running.values())
    before = [broker.rlimit(psutil.RLIMIT_FSIZE) for broker in brokers]
    for broker, (_, most) in zip(brokers, before, strict=True):
        broker.rlimit(psutil.RLIMIT_FSIZE, (0, most))
    try:
        wait_for(f"the end of {names} by a full disk", _SECONDS, lambda: not env.lab.running(fault.node))
    except NotInTime:
        for broker, limits in zip(brokers, before, strict=True):
            if broker.is_running():
                broker.rlimit(psutil.RLIMIT_FSIZE, limits)
        raise
    return f"the disk of {names} is full: the process couldn't write any more, and ended"

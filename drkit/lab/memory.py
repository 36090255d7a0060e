"""Whether there is memory for what is about to start, asked before it starts."""

from __future__ import annotations

from pathlib import Path

import psutil

from drkit.model.errors import Refused

_CGROUP = Path("/sys/fs/cgroup")


def refuse_too_little_memory(need_mib: int) -> None:
    """Raise Refused where less than `need_mib` MiB are available, to this machine or this container."""
    available = available_mib()
    if available < need_mib:
        raise Refused(
            f"the nodes to start need about {need_mib:,} MiB of memory, and {available:,} MiB are available",
            meaning="They would push the machine into swapping, or be killed by it",
            remedy="Stop something, or ask for less: fewer --brokers, or --store sqlite",
        )


def available_mib() -> int:
    """Memory that can be had without swapping, in MiB: the machine's, or the control group's if lower."""
    machine = psutil.virtual_memory().available
    group = _left_in_control_group()
    return int(machine if group is None else min(machine, group)) >> 20


def _left_in_control_group() -> int | None:
    """Bytes that the control group (v2) may still take; None where there is no limit."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" where there is none
        return max(0, limit - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return None

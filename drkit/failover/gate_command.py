"""The user's own programs that keep clients out of a cluster and let them in again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from drkit.config.fence_schema import FenceConfig
from drkit.model.errors import DrkitError
from drkit.model.gate import GateRecord
from drkit.model.topology import LinkId


def run_command(fence: FenceConfig, action: str, record: GateRecord, link: LinkId, say: Callable[[str], None]) -> None:
    """Start the program for `fence` or `unfence` and wait for its end. It is told what it is about by variables.

    Raises:
        DrkitError: it can't be started, didn't end in time, or ended with another code than 0.
    """
    command = (fence.command if action == "fence" else fence.unfence) or ()
    given = {
        "DRKIT_ACTION": action,
        "DRKIT_CLUSTER": record.cluster,
        "DRKIT_LINK": str(link),
        "DRKIT_RUN": record.run,
        "DRKIT_EPOCH": str(record.epoch),
    }
    name = f"the {action} command of {record.cluster}"
    say(f"{name} runs")
    try:
        ended = subprocess.run(
            list(command),
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=fence.timeout_seconds,
            check=False,
        )
    except OSError as error:
        raise DrkitError(f"{name} can't be started: {error}", remedy="Mend it in the configuration") from error
    except subprocess.TimeoutExpired:
        raise DrkitError(
            f"{name} did not end within {fence.timeout_seconds:g} s and was stopped", remedy="Look at what it did"
        ) from None
    if ended.returncode:
        said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        raise DrkitError(
            f"{name} ended with {ended.returncode}{f': {said[-1]}' if said else ''}", remedy="Look at what it did"
        )

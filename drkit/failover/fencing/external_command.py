"""The user's own programs that keep clients out of a cluster and let them in again."""

from __future__ import annotations

from collections.abc import Callable

from drkit.config.schema.fence import FenceConfig
from drkit.directory.process import run_bounded
from drkit.model.deadline import Deadline
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.runs.fence import FenceRecord
from drkit.model.topology import LinkId


def run_command(fence: FenceConfig, action: str, record: FenceRecord, link: LinkId, say: Callable[[str], None]) -> None:
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
        done = run_bounded(command, given, "", Deadline.after(fence.timeout_seconds))
    except Unreachable as error:
        raise DrkitError(f"{name}: {error.what}", remedy="Look at what it did") from error
    except DrkitError as error:
        raise DrkitError(f"{name}: {error.what}", remedy="Mend it in the configuration") from error
    if done.code:
        raise DrkitError(
            f"{name} ended with {done.code}{f': {done.said}' if done.said else ''}", remedy="Look at what it did"
        )

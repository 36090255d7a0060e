"""The proof of a fence, and the context for closing or opening one.

`cluster_fence.py` makes the proof: every broker must refuse an empty Produce request (`kafka/admin/write_probe.py`),
and log ends must not move (`quiescence.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.lease import RunLease
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs.fence import FenceRecord
from drkit.model.topology import Link


class FenceContext(Protocol):
    """Dependencies of a fence: the context of a run's stage, or that of `drkit fence`."""

    @property
    def estate(self) -> ClusterContext:
        """Clusters and store."""

    @property
    def link(self) -> Link:
        """The link, in either direction."""

    @property
    def run(self) -> str:
        """The run."""

    @property
    def lease(self) -> RunLease:
        """The run's lease."""

    @property
    def say(self) -> Callable[[str], None]:
        """Reports progress."""

    def wait(self, done: Callable[[], bool], seconds: float, /) -> bool:
        """Poll until `done`, for at most `seconds`; returns whether it came true."""


@dataclass(frozen=True, slots=True)
class FenceProof:
    """The result of closing a fence. `proven`: nobody can write; `reason`: what was shown, or why it was not.

    `ends`: log ends that didn't move behind the closed fence, by `topic:partition`; None: they moved, or are unknown.
    `impossible`: why the cluster can't be fenced until somebody corrects that. `denied_by`: of a lifted fence, other
    ACLs that still deny everybody writing.
    """

    proven: bool
    reason: str
    epoch: int | None = None
    ends: dict[str, int] | None = None
    impossible: DrkitError | None = None
    denied_by: tuple[str, ...] = ()


class FenceSuperseded(Refused):
    """A newer epoch has decided about the fence."""


def superseded(found: FenceRecord | None, record: FenceRecord) -> FenceSuperseded:
    """The error for the run of `record` where `found` was decided later (None: the record is gone)."""
    who = "another process" if found is None else f"run {found.run} (epoch {found.epoch})"
    return FenceSuperseded(
        f"{who} has decided about the fence of {record.cluster} since: run {record.run} (epoch {record.epoch}) is late",
        meaning="Its change of the fence was not made, or was reverted",
        remedy="`drkit runs` shows which run acts on the link now",
    )

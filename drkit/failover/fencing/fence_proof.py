"""What a gate is worked with, and what comes of closing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.lease import RunLease
from drkit.model.errors import Refused
from drkit.model.fence import FenceRecord
from drkit.model.topology import Link


class FenceContext(Protocol):
    """What a gate is worked with: the context of a run's stage, or that of `drkit fence`."""

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
        """The right to act."""

    @property
    def say(self) -> Callable[[str], None]:
        """Says what is going on."""

    def wait(self, done: Callable[[], bool], seconds: float, /) -> bool:
        """Poll until `done`, at most for `seconds`; whether it came true."""


@dataclass(frozen=True, slots=True)
class FenceProof:
    """What came of closing a gate. `proven`: nobody can write; `reason`: what was shown, or why it was not.

    `ends`: log ends that stood still with the gate closed, by `topic:partition`; None: they did not, or it can't
    be known.
    """

    proven: bool
    reason: str
    epoch: int | None = None
    ends: dict[str, int] | None = None


class Late(Refused):
    """A newer epoch has decided about the gate."""


def late(found: FenceRecord | None, record: FenceRecord) -> Late:
    """What the run of `record` is told where `found` was decided since (None: it is gone)."""
    who = "somebody" if found is None else f"run {found.run} (epoch {found.epoch})"
    return Late(
        f"{who} has decided anew about the fence of {record.cluster}: run {record.run} (epoch {record.epoch}) is late",
        meaning="What it was about to do, or had just done, is not done",
        remedy="`drkit runs` shows who acts",
    )

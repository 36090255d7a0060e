"""Drills by the clock, and the policies for missed times: scheduled times that passed without a drill.

| policy | a time that passed while another drill ran, the machine slept, or the scheduler was stopped |
|---|---|
| `skip` | is skipped and reported |
| `grace` | is made up for within five minutes |
| `once` | is made up for, however late; several missed times by one drill |
"""

from __future__ import annotations

from enum import StrEnum

GRACE_SECONDS = 300
_SKIP_SECONDS = 60
"""A busy machine starts a drill some seconds late: that doesn't count as missed."""


class MissedPolicy(StrEnum):
    """See the module docstring."""

    SKIP = "skip"
    GRACE = "grace"
    ONCE = "once"

    @property
    def late_seconds(self) -> int | None:
        """How late a drill may begin, in seconds; None: any time later."""
        return {MissedPolicy.SKIP: _SKIP_SECONDS, MissedPolicy.GRACE: GRACE_SECONDS, MissedPolicy.ONCE: None}[self]

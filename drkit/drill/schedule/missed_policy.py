"""What happens to scheduled times that passed without a drill: the policies.

| policy | a time that passed while another drill ran, while the machine slept, or while nobody ran the clock |
|---|---|
| `skip` | is left out, and told |
| `grace` | is made up for if it passed no more than five minutes ago; what passed while no clock ran is left out |
| `once` | is made up for, however late; by one drill, however many passed |
"""

from __future__ import annotations

from enum import StrEnum

GRACE_SECONDS = 300
_SKIP_SECONDS = 60
"""A busy machine starts a drill some seconds late: that is no missed time."""


class MissedPolicy(StrEnum):
    """See the module docstring."""

    SKIP = "skip"
    GRACE = "grace"
    ONCE = "once"

    @property
    def late_seconds(self) -> int | None:
        """How late a drill may begin, in seconds; None: however late."""
        return {MissedPolicy.SKIP: _SKIP_SECONDS, MissedPolicy.GRACE: GRACE_SECONDS, MissedPolicy.ONCE: None}[self]

"""The risks of a run that an operator accepts by flags, and the approval of a plan: by two operators' signatures, or by
one operator alone in an emergency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ACCEPT_UNFENCED = "--accept-unfenced"
ACCEPT_SALVAGE_ONLY = "--accept-salvage-only"
ACCEPT_LOSS = "--accept-loss"
ALLOW_REWIND = "--allow-rewind"
CLUSTER_ID = "--cluster-id"


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval with verified signatures, or an emergency.

    Args:
        digest: of the plan; empty in an emergency.
        operators: who signed.
        allows: the flags that all of them accept, as typed on the command line.
        emergency: why one operator acts alone; None: two approved.
    """

    digest: str = ""
    operators: tuple[str, ...] = ()
    allows: frozenset[str] = frozenset()
    emergency: str | None = None

    def journaled(self) -> dict[str, Any]:
        """The fields that go into the journal."""
        if self.emergency is not None:
            return {"emergency": self.emergency}
        return {"digest": self.digest, "operators": list(self.operators), "allows": sorted(self.allows)}

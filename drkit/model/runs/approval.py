"""Who approved a plan, and what: two operators by their signatures, or one alone in an emergency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval whose signatures were verified, or an emergency.

    Args:
        digest: of the plan; empty in an emergency.
        operators: who signed.
        allows: the flags that all of them accept, as they are typed.
        emergency: why one acts alone; None: two approved.
    """

    digest: str = ""
    operators: tuple[str, ...] = ()
    allows: frozenset[str] = frozenset()
    emergency: str | None = None

    def journaled(self) -> dict[str, Any]:
        """What the journal keeps of it."""
        if self.emergency is not None:
            return {"emergency": self.emergency}
        return {"digest": self.digest, "operators": list(self.operators), "allows": sorted(self.allows)}

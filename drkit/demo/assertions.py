"""What the demo claims, each with what was expected and what was found. One that fails fails the demo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, checked."""

    text: str
    held: bool
    found: str


@dataclass(slots=True)
class Claims:
    """All claims checked so far, in the order of the story."""

    checked: list[Claim] = field(default_factory=list)

    def check(self, text: str, held: bool, found: str) -> bool:
        """Keep a claim with what was found; returns whether it held."""
        self.checked.append(Claim(text, held, found))
        return held

    def equal(self, text: str, expected: object, found: object) -> bool:
        """Keep the claim that two values agree."""
        same = expected == found
        return self.check(text, same, _words(found) if same else f"expected {_words(expected)}, found {_words(found)}")

    @property
    def all_held(self) -> bool:
        """Whether none failed (and any was made at all)."""
        return bool(self.checked) and all(claim.held for claim in self.checked)

    def document(self) -> list[dict[str, Any]]:
        """The claims as JSON."""
        return [{"claim": claim.text, "held": claim.held, "found": claim.found} for claim in self.checked]


def _words(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def counted(value: int | None) -> str:
    """A count as people read it; what isn't known says so."""
    return "unknown" if value is None else f"{value:,}"

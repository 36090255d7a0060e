"""Lists and counts in sentences."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 5


def and_more(names: Sequence[str], *, separator: str = ", ", shown: int = _SHOWN) -> str:
    """The first few (`shown`), and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return separator.join(names[:shown]) + more


def bounds(*, lower: bool, upper: bool) -> str:
    """What follows a number that is a lower bound, an upper one, or may be off either way; nothing if it is exact."""
    if lower:
        return ", more or fewer" if upper else " or more"
    return " or fewer" if upper else ""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: "1 broker", "2 brokers"; `plural` where that isn't the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"

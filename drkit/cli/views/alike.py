"""Things whose texts differ only in their numbers, together: one of them is shown, and how many are like it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
_NUMBER = re.compile(r"\d+")


def alike(
    items: Iterable[Item], text: Callable[[Item], str], *, apart: Callable[[Item], object] = lambda _: None
) -> list[list[Item]]:
    """The items in groups, in the order of each group's first; those that `apart` tells apart are in different ones."""
    groups: dict[tuple[object, str], list[Item]] = {}
    for each in items:
        groups.setdefault((apart(each), _NUMBER.sub("#", text(each))), []).append(each)
    return list(groups.values())

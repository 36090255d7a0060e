"""Example topic names of regular expressions, for what is checked before any topic is known. Pure.

An example is made by text substitution and kept only if the pattern really matches it. A pattern that is too involved
has none: what holds for its topics is checked with the topics that exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_FILLS = ("x", "0", "A", "_", "-")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?([^()|]*)(?:\|[^()]*)?\)")
_DOT = re.compile(r"\[[.]\]|\\[.]")
_ANY = re.compile(r"\[\^?\]?[^]]*\]|\\[dwDWS]|[.]")
_REPEATED = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|\[[.]\]|\\[._-])+")
_HELD = "\0"  # stands for a literal dot while `.` is replaced
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def examples(patterns: Iterable[str]) -> list[str]:
    """A topic name for each of these patterns (whole-name match) that has a simple one."""
    found = (_example(pattern) for pattern in patterns)
    return list(dict.fromkeys(name for name in found if name is not None))


@lru_cache(maxsize=4096)
def _example(pattern: str) -> str | None:
    text = pattern.removeprefix("^").removesuffix("$")
    while (shorter := _GROUP.sub(r"\1", text)) != text:
        text = shorter
    text = _DOT.sub(_HELD, text.split("|")[0])
    for fill in _FILLS:
        name = _REPEATED.sub("", _ANY.sub(fill, text)).replace("\\", "").replace(_HELD, ".")
        if _NAME.fullmatch(name) and re.fullmatch(pattern, name):
            return name
    return None


def plain_name(pattern: str) -> str | None:
    """The one name that a pattern without any operator matches (`orders[.]eu`); None for other patterns."""
    return _DOT.sub(".", pattern).replace("\\", "") if _PLAIN.fullmatch(pattern) else None


def prefix_of(pattern: str) -> str | None:
    """What the names begin with that a pattern matches, all such names: "orders." of `orders[.].*`; None for others."""
    if not pattern.endswith(".*") or pattern.endswith("\\.*"):
        return None
    return plain_name(pattern[:-2]) if len(pattern) > len(".*") else ""

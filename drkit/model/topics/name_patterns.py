"""Example topic names of regular expressions, for what is checked before any topic is known. Pure.

An example is made by text substitution and kept only if the pattern really matches it. A pattern that is too involved
has none: what holds for its topics is checked with the topics that exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_FILLS = ("x", "0", "A", "_", "-")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?([^()|]*)(?:\|[^()]*)?\)")
_DOT = re.compile(r"\[[.]\]|\\[.]")
_ANY = re.compile(r"\[\^?\]?[^]]*\]|\\[dwDWS]|[.]")
_REPEATED = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|\[[.]\]|\\[._-])+")
_HELD = "\0"  # stands for a literal dot while `.` is replaced
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LITERAL = re.compile(r"[A-Za-z0-9_-]|\[[.]\]|\\[._-]")
_CHOICE = re.compile(r"\((?:\?:)?((?:[\w-]|\[[.]\]|\\[._-])+(?:\|(?:[\w-]|\[[.]\]|\\[._-])+)+)\)(?![*+?{])")
"""Words of which one stands there, in parentheses."""
_FLAGS = re.compile(r"\(\?[aiLmsux]")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_MOST_STRETCHES = 50


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


class Stretch(NamedTuple):
    """Names as an access rule can say them: one name, or all that begin with a prefix ("": all names).

    `exact`: they are just those that the pattern matches; else the stretch is wider.
    """

    name: str
    prefixed: bool
    exact: bool


def stretches(pattern: str) -> list[Stretch]:
    """The narrowest stretches that hold every name which a pattern (whole-name match) can match."""
    found = [_stretch(each) for piece in _alternatives(pattern) for each in _expanded(piece)]
    return list(dict.fromkeys(found))


def _stretch(piece: str) -> Stretch:
    text = piece.removeprefix("^")
    text = text[:-1] if text.endswith("$") and not text.endswith("\\$") else text
    name, prefix = plain_name(text), prefix_of(text)
    if name is not None:
        return Stretch(name, prefixed=False, exact=True)
    if prefix is not None:
        return Stretch(prefix, prefixed=True, exact=True)
    return Stretch(_leading(text), prefixed=True, exact=False)


def _leading(text: str) -> str:
    """The literal characters with which every match begins."""
    found, place = "", 0
    while (match := _LITERAL.match(text, place)) is not None:
        place = match.end()
        after = text[place : place + 1]
        if after and after in "*?{":
            break
        found += _DOT.sub(".", match[0]).removeprefix("\\")
        if after == "+":
            break
    return found


def _alternatives(pattern: str) -> list[str]:
    """A pattern taken apart at the bars that are in no parentheses and in no class of characters."""
    if _FLAGS.match(pattern):
        return [pattern]  # the flags hold for all of them
    pieces, depth, begin = [], 0, 0
    for token in _TOKEN.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == "|" and depth == 0:
            pieces.append(pattern[begin : token.start()])
            begin = token.end()
    return [*pieces, pattern[begin:]]


def _expanded(piece: str) -> list[str]:
    """`orders[.](eu|us)` as `orders[.]eu` and `orders[.]us`; as it is where that makes too many."""
    found = [piece]
    while any(_CHOICE.search(each) for each in found):
        more: list[str] = []
        for each in found:
            choice = _CHOICE.search(each)
            if choice is None:
                more.append(each)
            else:
                more += [f"{each[: choice.start()]}{option}{each[choice.end() :]}" for option in choice[1].split("|")]
        if len(more) > _MOST_STRETCHES:
            return [piece]
        found = more
    return found

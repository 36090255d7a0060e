"""Example names for sets of regular expressions: one for every way in which a topic name can match them. Pure.

`examples` walks all patterns at once, as automata over the characters of topic names, and returns a
shortest name for every combination of patterns that some name matches. So what holds for all names can
be tried on a few: "is there a topic that both of these match?"

Patterns that aren't regular (look-around, back-references, flags) take no part; and the work is
bounded. Then not every combination is found: the answer is examples, never a proof.
"""

from __future__ import annotations

import string
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]  # the parser of `re` itself, so that both agree
from re import _parser  # type: ignore[attr-defined]  # as above
from typing import Any

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
_MOST_REPEATS = 249
_MOST_WORK = 200_000
_LETTERS_FIRST = string.ascii_lowercase + string.ascii_uppercase + string.digits + "._-"
_BEGINS = ((ops.AT, ops.AT_BEGINNING), (ops.AT, ops.AT_BEGINNING_STRING))
_ENDS = ((ops.AT, ops.AT_END), (ops.AT, ops.AT_END_STRING))
_CATEGORIES = {
    ops.CATEGORY_DIGIT: frozenset(string.digits),
    ops.CATEGORY_WORD: frozenset(string.ascii_letters + string.digits + "_"),
    ops.CATEGORY_SPACE: frozenset(""),
}
_CATEGORIES |= {
    ops.CATEGORY_NOT_DIGIT: ALPHABET - _CATEGORIES[ops.CATEGORY_DIGIT],
    ops.CATEGORY_NOT_WORD: ALPHABET - _CATEGORIES[ops.CATEGORY_WORD],
    ops.CATEGORY_NOT_SPACE: ALPHABET,
}


class _NotRegular(Exception):
    """A pattern says something that an automaton can't."""


@dataclass(slots=True)
class _Automaton:
    """States by number: where each leads on a set of characters, and without any."""

    on: list[list[tuple[frozenset[str], int]]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)
    end: int = 0

    def state(self) -> int:
        self.on.append([])
        self.free.append([])
        return len(self.on) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """These and all that they lead to without a character."""
        seen, left = set(states), list(states)
        while left:
            for following in self.free[left.pop()]:
                if following not in seen:
                    seen.add(following)
                    left.append(following)
        return frozenset(seen)

    def step(self, states: frozenset[int], char: str) -> frozenset[int]:
        return self.closure({to for state in states for chars, to in self.on[state] if char in chars})


def examples(patterns: Sequence[str]) -> list[str]:
    """Shortest names for every combination of these patterns (whole-name match) that was found.

    Patterns that match one name only add that name, whatever else matches it.
    """
    plain = list(dict.fromkeys(name for pattern in patterns if (name := _plain(pattern)) is not None))
    automata = [regular for each in patterns if _plain(each) is None and (regular := _automaton(each)) is not None]
    if not automata:
        return plain
    chars = _representatives(automata)
    begin = tuple(automaton.closure([0]) for automaton in automata)
    seen, waiting = {begin}, deque([(begin, "")])
    found: dict[tuple[bool, ...], str] = {}
    work = 0
    while waiting and work < _MOST_WORK:
        states, name = waiting.popleft()
        matched = tuple(a.end in now for a, now in zip(automata, states, strict=True))
        if name and any(matched):
            found.setdefault(matched, name)
        for char in chars if len(name) < _MOST_REPEATS else ():
            work += len(automata)
            following = tuple(a.step(now, char) if now else now for a, now in zip(automata, states, strict=True))
            if any(following) and following not in seen:
                seen.add(following)
                waiting.append((following, name + char))
    return [*plain, *found.values()]


@lru_cache(maxsize=4096)
def _plain(pattern: str) -> str | None:
    """The one name that a pattern without any operator matches; None for other patterns."""
    parsed = _parser.parse(pattern)
    items = list(parsed)
    if not items or parsed.state.flags & ~ops.SRE_FLAG_UNICODE or any(op is not ops.LITERAL for op, _ in items):
        return None
    return "".join(chr(code) for _, code in items)


def _representatives(automata: Sequence[_Automaton]) -> list[str]:
    """One character for each group that no automaton tells apart."""
    sets = list(dict.fromkeys(chars for automaton in automata for edges in automaton.on for chars, _ in edges))
    groups: dict[tuple[bool, ...], str] = {}
    for char in _LETTERS_FIRST:
        groups.setdefault(tuple(char in chars for chars in sets), char)
    return list(groups.values())


@lru_cache(maxsize=1024)
def _automaton(pattern: str) -> _Automaton | None:
    """The automaton of a pattern; None where it isn't regular."""
    parsed = _parser.parse(pattern)
    if parsed.state.flags & ~ops.SRE_FLAG_UNICODE:
        return None
    automaton = _Automaton()
    items = list(parsed)
    while items and items[0] in _BEGINS:
        items = items[1:]
    while items and items[-1] in _ENDS:
        items = items[:-1]
    try:
        automaton.end = _sequence(automaton, automaton.state(), items)
    except _NotRegular:
        return None
    return automaton


def _sequence(automaton: _Automaton, begin: int, items: Iterable[tuple[Any, Any]]) -> int:
    for op, argument in items:
        begin = _item(automaton, begin, op, argument)
    return begin


def _item(automaton: _Automaton, begin: int, op: Any, argument: Any) -> int:
    """Add one item of a parsed pattern after the state `begin`; returns where it ends."""
    chars = _characters(op, argument)
    if chars is not None:
        end = automaton.state()
        automaton.on[begin].append((chars, end))
        return end
    if op is ops.SUBPATTERN and not argument[1] and not argument[2]:
        return _sequence(automaton, begin, argument[3])
    if op is ops.BRANCH:
        end = automaton.state()
        for branch in argument[1]:
            automaton.free[_sequence(automaton, begin, branch)].append(end)
        return end
    if op in {ops.MAX_REPEAT, ops.MIN_REPEAT}:
        return _repeat(automaton, begin, *argument)
    raise _NotRegular


def _repeat(automaton: _Automaton, begin: int, least: int, most: int, items: Iterable[tuple[Any, Any]]) -> int:
    if least > _MOST_REPEATS:
        raise _NotRegular
    for _ in range(least):
        begin = _sequence(automaton, begin, items)
    if most > _MOST_REPEATS:  # more than a name is long: without end
        again, end = automaton.state(), automaton.state()
        automaton.free[begin].append(again)
        automaton.free[again].append(end)
        automaton.free[_sequence(automaton, again, items)].append(again)
        return end
    ends = [begin]
    for _ in range(most - least):
        ends.append(_sequence(automaton, ends[-1], items))
    end = automaton.state()
    for state in ends:
        automaton.free[state].append(end)
    return end


def _characters(op: Any, argument: Any) -> frozenset[str] | None:
    """The characters that an item stands for; None where it is no single character."""
    if op is ops.LITERAL:
        return frozenset(chr(argument)) & ALPHABET
    if op is ops.NOT_LITERAL:
        return ALPHABET - {chr(argument)}
    if op is ops.ANY:
        return ALPHABET
    if op is not ops.IN:
        return None
    chosen: set[str] = set()
    for kind, value in argument:
        if kind is ops.LITERAL:
            chosen.add(chr(value))
        elif kind is ops.RANGE:
            chosen.update(char for char in ALPHABET if value[0] <= ord(char) <= value[1])
        elif kind is ops.CATEGORY and value in _CATEGORIES:
            chosen |= _CATEGORIES[value]
        elif kind is not ops.NEGATE:
            raise _NotRegular
    return ALPHABET - chosen if argument[0][0] is ops.NEGATE else frozenset(chosen & ALPHABET)

"""The drills in the store: one run each, and the age of the last passed one of each kind.

A kind of drill is an experiment, identified by its title. The store has the drills whose configuration names it, from
every machine; a drill's files are on the machine that ran it.

A passed drill proves nothing about a changed setup: each notes the version, configuration and topics that it ran with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from drkit import __version__
from drkit.config import Config
from drkit.config.effective import configuration_digest
from drkit.model.canonical import document_digest
from drkit.model.clock import age_seconds
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.wording import counted
from drkit.store.api import Store

DRILL = "drill"
"""The kind of a drill's run."""
PASSED = "passed"
VERDICTS = (PASSED, "failed", "unknown")
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class DrillKind:
    """One kind of drill: its newest run, and when one last passed (None: never).

    `changes`: what has changed since it last passed (`Surroundings`); None: unknown.
    """

    title: str
    run: str
    at: datetime
    verdict: str
    passed_at: datetime | None
    passed_run: str | None = None
    changes: tuple[str, ...] | None = None

    def age_seconds(self, at: datetime) -> float | None:
        """The time since one last passed; None: never, or it isn't known (`passed_at` lies in the future)."""
        return None if self.passed_at is None else age_seconds(self.passed_at, at)


def drill_kinds(runs: Iterable[RunSummary]) -> list[DrillKind]:
    """Every kind of drill among the store's runs, by title."""
    by_title: dict[str, list[RunSummary]] = {}
    for each in runs:
        if each.kind == DRILL:
            by_title.setdefault(each.detail, []).append(each)
    found = []
    for title, drills in sorted(by_title.items()):
        newest = max(drills, key=lambda each: each.started_at)
        passed = max((each for each in drills if each.state == PASSED), key=lambda each: each.started_at, default=None)
        found.append(
            DrillKind(
                title,
                newest.run,
                newest.started_at,
                newest.state,
                None if passed is None else passed.started_at,
                None if passed is None else passed.run,
            )
        )
    return found


def drills_document(kinds: Sequence[DrillKind], at: datetime) -> list[dict[str, Any]]:
    """The entry in `drkit status`."""
    return [
        {
            "title": each.title,
            "run": each.run,
            "started_at": each.at,
            "verdict": each.verdict,
            "last_passed_at": each.passed_at,
            "last_passed_age_seconds": each.age_seconds(at),
            "changed_since_passed": None if each.changes is None else list(each.changes),
        }
        for each in kinds
    ]


def age_in_words(seconds: float) -> str:
    """`3 days`, `5 hours`, `12 minutes`: whole units, rounded down."""
    for unit, length in (("day", _DAY), ("hour", 3600.0)):
        if seconds >= length:
            return counted(int(seconds // length), unit)
    return counted(int(seconds // 60), "minute")


KEY = "surroundings"
"""Key in a drill's entry in the store's journals."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """drkit's version, the digest of the configuration (secrets masked), and of the names of all links' topics."""

    drkit: str
    configuration: str
    topics: str
    topic_count: int

    def document(self) -> dict[str, Any]:
        """As in a drill's entry."""
        return asdict(self)


def surroundings_now(config: Config, store: Store) -> Surroundings:
    """The current state. Topics are those of the configured links in the store.

    Raises:
        Unreachable: the store doesn't answer.
    """
    topics = sorted(
        {(str(each.link().id), name) for each in config.links for name in store.topic_states(each.link().id)}
    )
    return Surroundings(__version__, configuration_digest(config), document_digest(topics), len(topics))


def surroundings_of(entries: Sequence[JournalEntry]) -> Surroundings | None:
    """The surroundings in a drill's entries; None: there are none."""
    for entry in entries:
        found = json.loads(entry.payload).get(KEY)
        if found is not None:
            return Surroundings(**{name: found[name] for name in Surroundings.__slots__})
    return None


def changes(before: Surroundings, after: Surroundings) -> tuple[str, ...]:
    """The changes, in words."""
    found = []
    if before.drkit != after.drkit:
        found.append(f"drkit {before.drkit} is {after.drkit} now")
    if before.configuration != after.configuration:
        found.append("the configuration")
    if before.topics != after.topics:
        found.append(f"the topics ({counted(before.topic_count, 'topic')} then, {after.topic_count} now)")
    return tuple(found)


def known_drills(config: Config, store: Store) -> list[DrillKind]:
    """Every kind of drill in the store, with the changes since one last passed.

    Raises:
        Unreachable: the store doesn't answer.
    """
    kinds = drill_kinds(store.runs())
    return list(_compared(kinds, surroundings_now(config, store), store)) if kinds else []


def _compared(kinds: Iterable[DrillKind], after: Surroundings, store: Store) -> Iterable[DrillKind]:
    for kind in kinds:
        before = None if kind.passed_run is None else surroundings_of(store.entries(kind.passed_run))
        yield kind if before is None else replace(kind, changes=changes(before, after))

"""What drills were played with, and what of it has changed since: a rehearsal shows something of what is there now only
while nothing has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

from drkit import __version__
from drkit.config import Config
from drkit.config.effective import configuration_digest
from drkit.model.runs.journal import JournalEntry
from drkit.model.wording import counted
from drkit.observe.drill_history import DrillKind, drill_kinds
from drkit.store.api import Store

KEY = "surroundings"
"""Of a drill's entry in the store's journals."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """drkit's version, the digest of the configuration (secrets masked), and of the names of all links' topics."""

    drkit: str
    configuration: str
    topics: str
    topic_count: int

    def document(self) -> dict[str, Any]:
        """As a drill's entry has it."""
        return asdict(self)


def surroundings_now(config: Config, store: Store) -> Surroundings:
    """As it is now. Topics are those that the store knows of the configured links.

    Raises:
        Unreachable: the store doesn't answer.
    """
    topics = sorted(
        {(str(each.link().id), name) for each in config.links for name in store.topic_states(each.link().id)}
    )
    digest = sha256(json.dumps(topics, separators=(",", ":")).encode()).hexdigest()
    return Surroundings(__version__, configuration_digest(config), digest, len(topics))


def surroundings_of(entries: Sequence[JournalEntry]) -> Surroundings | None:
    """What a drill's entries say; None: nothing."""
    for entry in entries:
        found = json.loads(entry.payload).get(KEY)
        if found is not None:
            return Surroundings(**{name: found[name] for name in Surroundings.__slots__})
    return None


def changes(before: Surroundings, after: Surroundings) -> tuple[str, ...]:
    """What is another now, in words."""
    found = []
    if before.drkit != after.drkit:
        found.append(f"drkit {before.drkit} is {after.drkit} now")
    if before.configuration != after.configuration:
        found.append("the configuration")
    if before.topics != after.topics:
        found.append(f"the topics ({counted(before.topic_count, 'topic')} then, {after.topic_count} now)")
    return tuple(found)


def known_drills(config: Config, store: Store) -> list[DrillKind]:
    """Every kind of drill that the store knows, with what changed since one last passed.

    Raises:
        Unreachable: the store doesn't answer.
    """
    kinds = drill_kinds(store.runs())
    return list(_compared(kinds, surroundings_now(config, store), store)) if kinds else []


def _compared(kinds: Iterable[DrillKind], after: Surroundings, store: Store) -> Iterable[DrillKind]:
    for kind in kinds:
        before = None if kind.passed_run is None else surroundings_of(store.entries(kind.passed_run))
        yield kind if before is None else replace(kind, changes=changes(before, after))

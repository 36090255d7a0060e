"""The version, configuration and topics that drills ran with, and their changes since: a passed drill proves nothing
about a changed setup."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from drkit import __version__
from drkit.config import Config
from drkit.config.effective import configuration_digest
from drkit.model.canonical import document_digest
from drkit.model.runs.journal import JournalEntry
from drkit.model.wording import counted
from drkit.observe.drill_history import DrillKind, drill_kinds
from drkit.store.api import Store

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

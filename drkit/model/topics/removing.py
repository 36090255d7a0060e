"""Settings by which brokers remove records: which, whether some remove more than others, and the notes of those of a
link's source. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

CLEANUP = "cleanup.policy"
"""The setting that says whether retention and the log cleaner work on a topic (`is_compacted`)."""
TOMBSTONES_KEPT = "delete.retention.ms"
"""The setting that says for how long the log cleaner keeps a tombstone, at least."""
REMOVING = (
    CLEANUP,
    TOMBSTONES_KEPT,
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)
"""The settings by which brokers remove records."""
_UNLIMITED = "-1"
_BY_RETENTION = frozenset({"retention.bytes", "retention.ms"})


def is_compacted(settings: Mapping[str, str]) -> bool:
    """Whether the log cleaner may remove records from the middle of a topic with these settings."""
    return "compact" in settings.get(CLEANUP, "delete")


def removing_more(own: Mapping[str, str], live: Mapping[str, str]) -> tuple[str, ...]:
    """The settings of a topic by which its brokers remove more with `own` than with `live`; of those without effect
    under its clean-up policy, none. Where that removes more itself, the live cluster's counts: a topic keeps it then,
    and `own`'s retention would be in force under it."""
    policy = own.get(CLEANUP, "delete")
    now = live.get(CLEANUP, policy)
    policies = set((now if _removes_more(CLEANUP, policy, now) else policy).split(","))
    return tuple(
        key
        for key in REMOVING
        if key in own and key in live and _in_force(key, policies) and _removes_more(key, own[key], live[key])
    )


def changed_to_remove_more(
    own: Mapping[str, str], live: Mapping[str, str], followed: Mapping[str, str]
) -> tuple[str, ...]:
    """The settings of a source's topic by which it removes more than the target's, and which differ from those that
    were followed last. Another clean-up policy concerns the others, too: where it removes more itself, all that differ
    from the target's are in force under it; those without effect under the former one count as changed; and it is
    named with them.

    Args:
        own: the source's.
        live: the target's.
        followed: those of the source that were followed last; one that isn't named is as it was.
    """
    changed = {key for key in REMOVING if key in own and own[key] != followed.get(key, own[key])}
    if CLEANUP not in changed:  # the target has this policy, or gets it now
        more = removing_more(own, {**live, CLEANUP: own.get(CLEANUP, "delete")})
        return tuple(key for key in more if key in changed)
    former = set(followed[CLEANUP].split(","))
    changed |= {key for key in own.keys() & set(REMOVING) if not _in_force(key, former)}
    more = removing_more(own, live)
    if CLEANUP in more:
        more = tuple(key for key in REMOVING if key in own and own[key] != live.get(key, own[key]))
    found = {key for key in more if key in changed}
    return tuple(key for key in REMOVING if key in found or key == CLEANUP) if found else ()


@dataclass(frozen=True, slots=True)
class FollowedSettings:
    """The settings in `REMOVING` of a source's topic (by its topic id) that were followed last, or accepted."""

    topic_id: str
    settings: dict[str, str]

    def note(self) -> str:
        """The note's text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `note` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class HeldSettings:
    """Settings of a source's topic that don't follow until an operator accepts exactly these."""

    settings: dict[str, str]
    accepted: bool = False

    def note(self) -> str:
        """The note's text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `note` wrote."""
        return cls(**json.loads(text))


def _in_force(key: str, policies: set[str]) -> bool:
    return key == CLEANUP or ("delete" if key in _BY_RETENTION else "compact") in policies


def _removes_more(key: str, own: str, live: str) -> bool:
    if key == CLEANUP:
        return not set(own.split(",")) <= set(live.split(","))
    if key in _BY_RETENTION and _UNLIMITED in {own, live}:
        return own != _UNLIMITED
    return int(own) < int(live)

"""Settings by which brokers remove records: which, and whether some remove more than others. Pure."""

from __future__ import annotations

from collections.abc import Mapping

CLEANUP = "cleanup.policy"
"""The setting that says whether retention and the log cleaner work on a topic (`is_compacted`)."""
REMOVING = (
    CLEANUP,
    "delete.retention.ms",
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


def _in_force(key: str, policies: set[str]) -> bool:
    return key == CLEANUP or ("delete" if key in _BY_RETENTION else "compact") in policies


def _removes_more(key: str, own: str, live: str) -> bool:
    if key == CLEANUP:
        return not set(own.split(",")) <= set(live.split(","))
    if key in _BY_RETENTION and _UNLIMITED in {own, live}:
        return own != _UNLIMITED
    return int(own) < int(live)

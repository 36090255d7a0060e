"""Decides a standby topic's settings: the source's effective ones, except those that would harm a mirror. Pure.

It compares effective values, broker defaults included: a source whose brokers keep records for a month must not get a
target whose brokers keep them for a week.

- Settings that a topic has only while it is a standby are in `drkit.model.topics.standby`; it gets the source's values
  at the switch.
- The link's policy says which settings follow and which are overridden.
- Settings about where a cluster keeps replicas and tiers, or how it throttles them, don't follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drkit.model.topic_policy import FOLLOWED, OPTIONAL, TopicSettings
from drkit.model.topics.standby import AS_PRODUCED, COMPRESSION, MIN_INSYNC, STANDBY, UNCOMPACTED
from drkit.model.topology import Link

__all__ = [
    "FOLLOWED",
    "OPTIONAL",
    "READ",
    "STANDBY",
    "SettingChanges",
    "settings_to_put",
    "settings_to_read",
    "standby_settings",
]

READ = (*FOLLOWED, *OPTIONAL, *STANDBY)
"""The settings to read of both sides' topics, besides overrides."""


@dataclass(frozen=True, slots=True)
class SettingChanges:
    """The settings to put on a target topic.

    `followed` and `overridden` differ from its current ones; together they are `all`. `unknown` names
    overrides that the target's brokers don't know (only where the topic exists).
    """

    followed: dict[str, str]
    overridden: dict[str, str]
    unknown: tuple[str, ...] = ()

    @property
    def all(self) -> dict[str, str]:
        """Both."""
        return {**self.followed, **self.overridden}


def standby_settings(
    source: Mapping[str, str],
    target: Mapping[str, str] | None,
    *,
    target_replicas: int,
    policy: TopicSettings | None = None,
    topic: str = "",
    aligning: bool = False,
) -> SettingChanges:
    """The settings to put on the target topic so that it follows its source.

    Args:
        source: effective settings of the source topic (those of `READ`).
        target: effective settings of the target topic (those of `READ` and of the overrides), None
            where it is to be created.
        target_replicas: the target topic's replication factor.
        policy: the link's; None: all follow, nothing is overridden.
        topic: the topic's name on the source, for the policy.
        aligning: it must not be compacted yet, whatever source and policy say (`offset_alignment.aligned_topics`).

    Returns:
        Those that differ; for a topic to be created, all. A setting that the source's brokers don't
        know stays; one that the target's don't know can't be set.
    """
    policy = policy or TopicSettings()
    overrides = policy.overrides_of(topic)
    if aligning:
        source = {**source, **UNCOMPACTED}
        overrides = {name: UNCOMPACTED.get(name, value) for name, value in overrides.items()}
    names = FOLLOWED if not policy.include else (*FOLLOWED, *OPTIONAL)
    followed = {
        name: source[name] for name in names if name in source and name not in overrides and policy.follows(name)
    }
    for settings in (followed, overrides):
        if MIN_INSYNC in settings:
            settings[MIN_INSYNC] = _at_most(settings[MIN_INSYNC], target_replicas)
    followed.update(STANDBY)
    if followed.pop(COMPRESSION, overrides.pop(COMPRESSION, None)) is not None:
        followed[COMPRESSION] = AS_PRODUCED
    if target is None:
        return SettingChanges(followed, overrides)
    return SettingChanges(
        {name: value for name, value in followed.items() if name in target and target[name] != value},
        {name: value for name, value in overrides.items() if name in target and target[name] != value},
        tuple(sorted(name for name in overrides if name not in target)),
    )


def settings_to_read(link: Link, topics: Iterable[str]) -> tuple[str, ...]:
    """The settings to read of the link's target topics: those that may follow, and overrides.

    `topics`: those of the source.
    """
    policy = link.settings_policy
    overridden = {name for topic in topics for name in policy.overrides_of(topic)}
    return (*READ, *sorted(overridden - set(READ)))


def settings_to_put(
    link: Link,
    topic: str,
    source: Mapping[str, str],
    target: Mapping[str, str] | None,
    *,
    target_replicas: int,
    aligning: bool = False,
) -> SettingChanges:
    """The settings that the link's mirror puts on the target of a source's topic; arguments as `standby_settings`'."""
    if link.shares_target and target is not None:
        source = {}  # a link comes from there too: two topics that each follow the other would never agree
    return standby_settings(
        source,
        target,
        target_replicas=target_replicas,
        policy=link.settings_policy,
        topic=topic,
        aligning=aligning,
    )


def _at_most(value: str, replicas: int) -> str:
    """Limit `min.insync.replicas` to the number of replicas; leave other text for the brokers to refuse."""
    return str(min(int(value), replicas)) if value.isdecimal() else value

"""Settings that a topic has only while it is a standby, and what it gets instead at the switch. Pure.

- `message.timestamp.type` is CreateTime and the limits on timestamps are wide open on the standby,
  or records would get another stamp or be refused.
- `compression.type` is `producer` on the standby, or its brokers would compress batches again: these may then be larger
  than the topic takes, and are no longer the source's byte for byte.
- `min.insync.replicas` is never above what the topic has replicas.
- A compacted topic that is to begin where its source begins isn't compacted until it does (`UNCOMPACTED`).

What the source has of these is noted in the store while the link runs (`SOURCE_SETTINGS`), because at
the switch the source may be gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from drkit.model.topic_policy import FOLLOWED, OPTIONAL, TopicSettings
from drkit.model.topics.removing import CLEANUP, REMOVING
from drkit.model.topology import Link

_WIDE_OPEN = str(2**63 - 1)
STANDBY = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": _WIDE_OPEN,
    "message.timestamp.before.max.ms": _WIDE_OPEN,
}
"""Settings that a topic has while it is a standby."""

COMPRESSION = "compression.type"
AS_PRODUCED = "producer"
"""What a standby's topic has of `COMPRESSION` where that follows the source or is overridden: the switch puts it on."""

MIN_INSYNC = "min.insync.replicas"
RELEASED = (*STANDBY, COMPRESSION, MIN_INSYNC)
"""Settings that get the source's values at the switch."""

SOURCE_SETTINGS = "source_settings"
"""Kind of the notes that hold the source's values: by source topic, JSON."""


ALIGNING = "aligning"
"""Kind of the notes that name topics (by source topic) which get `cleanup.policy=compact` only once they begin where
their source does."""

OWN_SETTINGS = "own_settings"
"""Kind of the notes that hold, by source topic, what target topics had themselves of the settings in `UNCOMPACTED`:
they get it back when they are aligned, where the link's policy neither lets the source's follow nor overrides it."""

UNCOMPACTED = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""What these have until then: a compacted topic refuses the filler (records without a key) and DeleteRecords, and
one that isn't must not lose records to a retention that compaction keeps away from."""


def own_note(own: Mapping[str, str]) -> str:
    """The text of a note of `OWN_SETTINGS`, of a topic's settings."""
    return json.dumps({name: own[name] for name in UNCOMPACTED if name in own}, sort_keys=True)


def own_settings(
    note: str, topic: str, source: Mapping[str, str], target: Mapping[str, str], policy: TopicSettings
) -> dict[str, str] | None:
    """What of a note of `OWN_SETTINGS` is to be given back to a topic that is aligned.

    Args:
        note: its text.
        topic: the topic, by its source name.
        source: the source topic's effective settings.
        target: the target topic's: one that is neither as `UNCOMPACTED` nor as the source has it (on the way back all
            follow) was set by somebody since, and stays.
        policy: the link's.

    Returns:
        The settings; None while another clean-up policy is due first: with its own retention and `delete`, a
        compacted topic would lose records.
    """
    held: dict[str, str] = json.loads(note)
    overrides = policy.overrides_of(topic)
    due = overrides.get(CLEANUP, source.get(CLEANUP) if policy.follows(CLEANUP) else None)
    if due is not None and target.get(CLEANUP) != due:
        return None
    return {
        name: value
        for name, value in held.items()
        if name not in overrides
        and not policy.follows(name)
        and target.get(name, value) in {UNCOMPACTED[name], source.get(name)} - {value}
    }


def note_of(settings: Mapping[str, str], policy: TopicSettings, topic: str) -> str:
    """The text of a topic's note: what it gets at the switch of `RELEASED` and `UNCOMPACTED`.

    Args:
        settings: the source topic's effective settings.
        policy: the link's; what neither follows nor is overridden isn't noted.
        topic: the topic's name on the source.
    """
    names = (*RELEASED, *UNCOMPACTED)
    noted = {name: settings[name] for name in names if name in settings and (name in STANDBY or policy.follows(name))}
    noted.update({name: value for name, value in policy.overrides_of(topic).items() if name in names})
    return json.dumps(noted, sort_keys=True)


def read_note(text: str) -> dict[str, str]:
    """The settings that `note_of` wrote."""
    found: dict[str, str] = json.loads(text)
    return found


def release_settings(
    source: Mapping[str, str], target: Mapping[str, str], *, target_replicas: int, aligning: bool = False
) -> dict[str, str]:
    """The settings to put on a topic that is a standby no longer.

    Args:
        source: the source's values, as noted.
        target: the target topic's effective settings (those of `RELEASED` and `UNCOMPACTED`).
        target_replicas: its replication factor.
        aligning: it isn't compacted yet because it was being aligned.

    Returns:
        Those that differ; one that the target's brokers don't know is left out.
    """
    names = (*RELEASED, *UNCOMPACTED) if aligning else RELEASED
    due = {name: source[name] for name in names if name in source}
    if MIN_INSYNC in due:
        due[MIN_INSYNC] = str(min(int(due[MIN_INSYNC]), max(1, target_replicas)))
    return {name: value for name, value in due.items() if name in target and target[name] != value}


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

    def keeping_records(self) -> SettingChanges:
        """Without those of the source's by which records may be removed."""
        return self.without(REMOVING)

    def without(self, keys: Collection[str]) -> SettingChanges:
        """Without the source's values of these settings."""
        return replace(self, followed={key: value for key, value in self.followed.items() if key not in keys})


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

"""`[links.topic_settings]`: the settings that follow the source, the overridden ones, and those that can't be."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from drkit.config.schema.base import Pattern, Strict, scalars_as_text
from drkit.model.topic_policy import FOLLOWED, OPTIONAL, TopicOverride, TopicSettings
from drkit.model.topics.standby import STANDBY

_NAME = re.compile(r"[a-z][a-z0-9.]*")
_FIXED = "drkit sets it on a standby; with another value the target would refuse records or change their timestamps"
_NOT_OVERRIDDEN = {
    **dict.fromkeys(STANDBY, f"{_FIXED}; the switch sets the source's value"),
    "cleanup.policy": "a standby with another cleanup policy than its source loses records that the source still has",
    "leader.replication.throttled.replicas": "it belongs to a reassignment on the target",
    "follower.replication.throttled.replicas": "it belongs to a reassignment on the target",
}


def _followable(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if pattern in STANDBY:
            raise ValueError(f"{pattern!r} can't be a following setting: {_FIXED}")
        if not any(re.fullmatch(pattern, name) for name in (*FOLLOWED, *OPTIONAL)):
            known = ", ".join((*FOLLOWED, *OPTIONAL))
            raise ValueError(f"{pattern!r} matches no setting that can follow; those are: {known}")
    return patterns


def _overridable(settings: dict[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        if name in _NOT_OVERRIDDEN:
            raise ValueError(f"{name!r} can't be overridden: {_NOT_OVERRIDDEN[name]}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a topic setting, such as 'retention.ms'")
        if not value.strip():
            raise ValueError(f"{name!r} has no value")
    return settings


class TopicOverrideConfig(Strict):
    """One `[[links.topic_settings.topics]]`: settings of the matching topics."""

    match: Pattern
    settings: dict[str, str] = Field(default_factory=dict)
    replication_factor: int | None = Field(default=None, ge=1, le=32767)

    _text = field_validator("settings", mode="before")(scalars_as_text)
    _allowed = field_validator("settings")(_overridable)


class TopicSettingsConfig(Strict):
    """`[links.topic_settings]`."""

    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    overrides: dict[str, str] = Field(default_factory=dict)
    replication_factor: int | None = Field(default=None, ge=1, le=32767)
    topics: tuple[TopicOverrideConfig, ...] = ()

    _chosen = field_validator("include", "exclude")(_followable)
    _text = field_validator("overrides", mode="before")(scalars_as_text)
    _allowed = field_validator("overrides")(_overridable)

    def policy(self) -> TopicSettings:
        """The settings, in the model's type."""
        return TopicSettings(
            include=self.include,
            exclude=self.exclude,
            overrides=tuple(self.overrides.items()),
            replication_factor=self.replication_factor,
            topics=tuple(
                TopicOverride(each.match, tuple(each.settings.items()), each.replication_factor) for each in self.topics
            ),
        )

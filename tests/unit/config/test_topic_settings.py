"""The link's table of topic settings: what is read, and how what can't be is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from drkit.config import load_config
from drkit.model.errors import ConfigError
from drkit.model.topic_policy import AclMode, Deletions, TopicOverride

HEAD = """
[clusters.primary]
bootstrap_servers = "p:9092"
[clusters.dr]
bootstrap_servers = "d:9092"
[[links]]
source = "primary"
target = "dr"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "drkit.toml"
    path.write_text(HEAD + text)
    return path


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    text = """
deletions = "mirror"
deletion_limit = 0
acls = "standby"
[links.topic_settings]
include = ["retention[.].*", "preallocate"]
exclude = ["retention.bytes"]
replication_factor = 3
[links.topic_settings.overrides]
"segment.ms" = 60000
"preallocate" = true
[[links.topic_settings.topics]]
match = "orders.*"
settings = { "retention.ms" = "-1" }
replication_factor = 2
"""
    link = load_config(written(tmp_path, text)).links[0].link()
    assert (link.deletions, link.deletion_limit, link.acls) == (Deletions.MIRROR, 0, AclMode.STANDBY)
    policy = link.settings_policy
    assert policy.overrides == (("segment.ms", "60000"), ("preallocate", "true"))
    assert policy.topics == (TopicOverride("orders.*", (("retention.ms", "-1"),), 2),)
    assert [policy.follows(name) for name in ("retention.ms", "retention.bytes", "segment.ms")] == [True, False, False]
    assert (policy.replicas_of("orders.eu"), policy.replicas_of("flights")) == (2, 3)
    assert link.mirrors_deletions
    back = link.reversed()
    assert not back.mirrors_deletions
    assert back.settings_policy.overrides == ()
    assert back.reversed() == link


def test_unless_it_is_said_all_settings_follow_and_nothing_is_deleted(tmp_path: Path) -> None:
    link = load_config(written(tmp_path, "")).links[0].link()
    assert not link.mirrors_deletions
    assert link.acls is AclMode.OFF
    assert link.settings_policy.follows("retention.ms")
    assert link.settings_policy.replicas_of("flights") is None


TABLE = "[links.topic_settings]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLE + 'include = ["retention.mss"]', ["include", "'retention.mss' matches no setting that can follow"]),
        (TABLE + 'exclude = ["("]', ["exclude", "is not a regular expression"]),
        (TABLE + 'include = ["message.timestamp.type"]', ["can't be a following setting", "on a standby"]),
        (TABLE + 'overrides = { "message.timestamp.type" = "LogAppendTime" }', ["can't be overridden", "switch"]),
        (TABLE + 'overrides = { "cleanup.policy" = "compact" }', ["cleanup.policy", "loses records"]),
        (TABLE + 'overrides = { "Retention" = 1 }', ["'Retention' is not the name of a topic setting"]),
        (TABLE + 'overrides = { "retention.ms" = "" }', ["'retention.ms' has no value"]),
        (TABLE + 'overrides = { "retention.ms" = [1] }', ["overrides.retention.ms", "string"]),
        (TABLE + "replication_factor = 0", ["replication_factor", "greater than or equal to 1"]),
        (TABLE + "unknown = 1", ["topic_settings.unknown: unknown key"]),
        ('[[links.topic_settings.topics]]\nsettings = { "retention.ms" = 1 }', ["topics.0.match", "required"]),
        ('[[links.topic_settings.topics]]\nmatch = "a"\nsettings = { "cleanup.policy" = 1 }', ["topics.0.settings"]),
        ('deletions = "yes"', ["links.0.deletions", "keep"]),
        ("deletion_limit = -1", ["links.0.deletion_limit"]),
        ('acls = "all"', ["links.0.acls", "standby"]),
    ],
)
def test_what_cannot_be_is_named_with_its_key(tmp_path: Path, text: str, words: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    for word in [str(path), "links.0", *words]:
        assert word in str(caught.value)

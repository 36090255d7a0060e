from __future__ import annotations

from drkit.mirror.topic_settings import FOLLOWED, STANDBY, is_compacted, standby_settings

SOURCE = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "min.insync.replicas": "2",
    "message.timestamp.type": "LogAppendTime",
    "message.timestamp.after.max.ms": "3600000",
    "leader.replication.throttled.replicas": "*",
}


def test_a_new_topic_gets_all_that_follows_and_nothing_else() -> None:
    settings = standby_settings(SOURCE, None, target_replicas=3)
    assert settings == {"cleanup.policy": "compact", "retention.ms": "-1", "min.insync.replicas": "2", **STANDBY}


def test_min_insync_replicas_never_exceeds_what_there_is() -> None:
    assert standby_settings(SOURCE, None, target_replicas=1)["min.insync.replicas"] == "1"


def test_only_what_differs_is_set_on_a_topic_that_exists() -> None:
    target = {**STANDBY, "cleanup.policy": "delete", "retention.ms": "-1", "min.insync.replicas": "2"}
    assert standby_settings(SOURCE, target, target_replicas=3) == {"cleanup.policy": "compact"}


def test_a_setting_that_the_targets_brokers_do_not_know_is_left_out() -> None:
    target = {"cleanup.policy": "compact"}
    assert standby_settings(SOURCE, target, target_replicas=3) == {}


def test_timestamps_pass_unchanged_on_a_standby() -> None:
    assert STANDBY["message.timestamp.type"] == "CreateTime"
    assert int(STANDBY["message.timestamp.after.max.ms"]) == 2**63 - 1
    assert not set(STANDBY) & set(FOLLOWED)


def test_compaction_is_seen_in_either_form() -> None:
    assert is_compacted({"cleanup.policy": "compact"})
    assert is_compacted({"cleanup.policy": "compact,delete"})
    assert not is_compacted({"cleanup.policy": "delete"})
    assert not is_compacted({})

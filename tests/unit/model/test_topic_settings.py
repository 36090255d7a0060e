from __future__ import annotations

from drkit.model.topic_policy import TopicOverride, TopicSettings
from drkit.model.topics.removing import is_compacted
from drkit.model.topics.standby import (
    FOLLOWED,
    STANDBY,
    UNCOMPACTED,
    note_of,
    own_note,
    own_settings,
    read_note,
    release_settings,
    standby_settings,
)

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
    assert settings.all == {"cleanup.policy": "compact", "retention.ms": "-1", "min.insync.replicas": "2", **STANDBY}


def test_min_insync_replicas_never_exceeds_what_there_is() -> None:
    assert standby_settings(SOURCE, None, target_replicas=1).all["min.insync.replicas"] == "1"


def test_only_what_differs_is_set_on_a_topic_that_exists() -> None:
    target = {**STANDBY, "cleanup.policy": "delete", "retention.ms": "-1", "min.insync.replicas": "2"}
    assert standby_settings(SOURCE, target, target_replicas=3).all == {"cleanup.policy": "compact"}


def test_a_setting_that_the_targets_brokers_do_not_know_is_left_out() -> None:
    target = {"cleanup.policy": "compact"}
    assert standby_settings(SOURCE, target, target_replicas=3).all == {}


def test_the_policy_says_what_follows() -> None:
    only = TopicSettings(include=(r"retention\..*", "unclean.leader.election.enable"), exclude=("retention.bytes",))
    source = {**SOURCE, "retention.bytes": "5", "unclean.leader.election.enable": "true", "preallocate": "true"}
    followed = standby_settings(source, None, target_replicas=3, policy=only).followed
    assert followed == {"retention.ms": "-1", "unclean.leader.election.enable": "true", **STANDBY}
    assert "unclean.leader.election.enable" not in standby_settings(source, None, target_replicas=3).all


def test_while_it_is_aligned_a_topic_is_neither_compacted_nor_cut_off_by_age_whatever_the_policy_says() -> None:
    source = {**SOURCE, "retention.ms": "604800000", "retention.bytes": "5"}
    policy = TopicSettings(overrides=(("cleanup.policy", "compact"), ("retention.ms", "1")))
    for each in (TopicSettings(), policy):
        new = standby_settings(source, None, target_replicas=3, policy=each, aligning=True).all
        assert {name: new[name] for name in UNCOMPACTED} == UNCOMPACTED
        assert standby_settings(source, new, target_replicas=3, policy=each, aligning=True).all == {}
    due = standby_settings(source, new, target_replicas=3, policy=policy).all
    assert due == {"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "5"}
    others = TopicSettings(exclude=("retention.*",))
    assert "retention.ms" not in standby_settings(source, None, target_replicas=3, policy=others, aligning=True).all


def test_overrides_win_over_the_source_and_a_topics_own_over_the_links() -> None:
    policy = TopicSettings(
        overrides=(("retention.ms", "1"), ("min.insync.replicas", "3"), ("no.such", "x")),
        replication_factor=3,
        topics=(
            TopicOverride("orders.*", (("retention.ms", "2"),), 2),
            TopicOverride("orders", (("segment.ms", "9"),)),
        ),
    )
    target = {"retention.ms": "7", "min.insync.replicas": "1", "segment.ms": "9", **STANDBY}
    wanted = standby_settings(SOURCE, target, target_replicas=2, policy=policy, topic="orders")
    assert (wanted.followed, wanted.unknown) == ({}, ("no.such",))
    assert wanted.overridden == {"retention.ms": "2", "min.insync.replicas": "2"}
    other = standby_settings(SOURCE, target, target_replicas=2, policy=policy, topic="flights")
    assert other.overridden == {"retention.ms": "1", "min.insync.replicas": "2"}
    assert (policy.replicas_of("orders"), policy.replicas_of("flights")) == (2, 3)


def test_at_the_switch_a_topic_gets_what_its_source_had() -> None:
    policy = TopicSettings(overrides=(("min.insync.replicas", "3"), ("retention.ms", "1"), ("compression.type", "lz4")))
    note = note_of({**SOURCE, "message.timestamp.before.max.ms": "9", "compression.type": "zstd"}, policy, "t")
    target = {**STANDBY, "min.insync.replicas": "1", "compression.type": "producer", **UNCOMPACTED}
    del target["message.timestamp.before.max.ms"]  # brokers before 3.6 don't know it
    assert release_settings(read_note(note), target, target_replicas=2) == {
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.after.max.ms": "3600000",
        "min.insync.replicas": "2",
        "compression.type": "lz4",
    }
    aligning = release_settings(read_note(note), target, target_replicas=2, aligning=True)
    assert aligning["cleanup.policy"] == "compact"
    assert aligning["retention.ms"] == "1"
    released = {**target, **release_settings(read_note(note), target, target_replicas=2)}
    assert release_settings(read_note(note), released, target_replicas=2) == {}


def test_a_standby_takes_batches_as_they_were_produced() -> None:
    source = {**SOURCE, "compression.type": "lz4"}
    assert standby_settings(source, None, target_replicas=3).all["compression.type"] == "producer"
    overriding = TopicSettings(overrides=(("compression.type", "gzip"),))
    target = {**source, "compression.type": "gzip"}
    due = standby_settings(source, target, target_replicas=3, policy=overriding)
    assert (due.followed["compression.type"], due.overridden) == ("producer", {})
    own = TopicSettings(exclude=("compression.type",))
    assert "compression.type" not in standby_settings(source, target, target_replicas=3, policy=own).all
    assert "compression.type" not in read_note(note_of(source, own, "t")), "nor does the switch touch it"


def test_timestamps_pass_unchanged_on_a_standby() -> None:
    assert STANDBY["message.timestamp.type"] == "CreateTime"
    assert int(STANDBY["message.timestamp.after.max.ms"]) == 2**63 - 1
    assert not set(STANDBY) & set(FOLLOWED)


def test_compaction_is_seen_in_either_form() -> None:
    assert is_compacted({"cleanup.policy": "compact"})
    assert is_compacted({"cleanup.policy": "compact,delete"})
    assert not is_compacted({"cleanup.policy": "delete"})
    assert not is_compacted({})


def test_of_its_own_settings_a_topic_gets_back_what_nothing_else_sets() -> None:
    own = {"cleanup.policy": "compact,delete", "retention.ms": "5000", "retention.bytes": "-1"}
    note = own_note({**own, "segment.ms": "9"})
    nothing = TopicSettings(exclude=("cleanup.policy", "retention[.].*"))
    assert own_settings(note, "t", {"cleanup.policy": "delete"}, UNCOMPACTED, nothing) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5000",
    }
    assert own_settings(note, "t", UNCOMPACTED, UNCOMPACTED, TopicSettings()) == {}
    overriding = TopicSettings(exclude=nothing.exclude, overrides=(("retention.ms", "-1"),))
    assert own_settings(note, "t", {}, UNCOMPACTED, overriding) == {"cleanup.policy": "compact,delete"}
    since = {**UNCOMPACTED, "retention.ms": "77"}
    assert own_settings(note, "t", {}, since, nothing) == {"cleanup.policy": "compact,delete"}, "set by somebody since"
    assert own_settings(note, "t", since, since, nothing)["retention.ms"] == "5000", "as the way back had it follow"


def test_its_own_retention_waits_for_the_clean_up_policy_that_is_due() -> None:
    note = own_note({"cleanup.policy": "compact", "retention.ms": "5000"})
    policy = TopicSettings(exclude=("retention[.].*",))
    assert own_settings(note, "t", {"cleanup.policy": "compact"}, UNCOMPACTED, policy) is None
    compacted = {**UNCOMPACTED, "cleanup.policy": "compact"}
    assert own_settings(note, "t", {"cleanup.policy": "compact"}, compacted, policy) == {"retention.ms": "5000"}
    overriding = TopicSettings(exclude=policy.exclude, overrides=(("cleanup.policy", "compact"),))
    assert own_settings(note, "t", {"cleanup.policy": "delete"}, UNCOMPACTED, overriding) is None

"""What a link says about its target's topics: settings that follow or don't, and deletions."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from drkit.drill.environment.log_surgery import stopped
from drkit.mirror.runtime.events import ProgressEvent
from drkit.model import offsets
from drkit.model.link_state import Problem
from drkit.observe.status import link_statuses
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Side
from tests.support.links.topic_looks import TakenMeanwhile
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("policies of topics", 3)]

LONG_UNSEEN = timedelta(seconds=3)
"""For so long a look at the source has not shown a topic."""


def settings(side: Side, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = side.admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items()}


def change(side: Side, topic: str, name: str, value: str) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    side.admin.incremental_alter_configs([resource])[resource].result(20)


def write(side: Side, topic: str, count: int, text: str = "r") -> None:
    producer = side.producer()
    for number in range(count):
        producer.produce(topic, value=f"{text}{number}".encode(), partition=0)
    assert producer.flush(20) == 0


def made(mirrored: Mirrored, *parts: str) -> list[str]:
    """Topics of the link with five records each."""
    topics = [mirrored.name(part) for part in parts]
    for topic in topics:
        mirrored.source.create(topic)
        write(mirrored.source, topic, 5)
    return topics


# ---- settings ----------------------------------------------------------------------------------------


METADATA = "__cluster_metadata-0"
"""The folder of the controllers' log."""


def test_settings_follow_or_are_overridden_as_the_link_says(mirrored: Mirrored) -> None:
    plain, orders = mirrored.name("plain"), mirrored.name("orders")
    mirrored.configure(
        f"""
[links.topic_settings]
include = ["retention[.].*", "max.message.bytes", "unclean.leader.election.enable"]
exclude = ["retention.bytes"]
overrides = {{ "segment.bytes" = 3000000, "max.message.bytes" = 2222222 }}
[[links.topic_settings.topics]]
match = "{orders}"
settings = {{ "max.message.bytes" = 3333333 }}
"""
    )
    for topic in (plain, orders):
        mirrored.source.create(
            topic,
            retention_ms="777000",
            retention_bytes="999999",
            max_message_bytes="1111111",
            unclean_leader_election_enable="true",
            segment_ms="7654321",
        )
        write(mirrored.source, topic, 5)
    with mirrored.running():
        for topic in (plain, orders):
            mirrored.wait_through(topic)
        theirs = settings(mirrored.target, plain)
        assert theirs["retention.ms"] == "777000"
        assert theirs["retention.bytes"] == "-1", "excluded"
        assert theirs["segment.ms"] != "7654321", "not included"
        assert theirs["unclean.leader.election.enable"] == "true"
        assert theirs["segment.bytes"] == "3000000"
        assert theirs["max.message.bytes"] == "2222222"
        assert settings(mirrored.target, orders)["max.message.bytes"] == "3333333"
        change(mirrored.target, plain, "max.message.bytes", "1000000")
        wait_until(lambda: settings(mirrored.target, plain)["max.message.bytes"] == "2222222", what="it put back")
        change(mirrored.source, plain, "retention.ms", "888000")
        wait_until(lambda: settings(mirrored.target, plain)["retention.ms"] == "888000", what="what follows")
    assert mirrored.problems() == []
    mirrored.assert_same(plain)


def test_an_override_that_the_brokers_do_not_know_or_refuse_is_shown_and_holds_nothing_up(mirrored: Mirrored) -> None:
    (topic,) = made(mirrored, "odd")
    mirrored.configure(
        """
[links.topic_settings.overrides]
"retention.mss" = 5
"segment.bytes" = "many"
"max.message.bytes" = 2222222
"""
    )
    change(mirrored.source, topic, "retention.ms", "777000")
    with mirrored.running():
        mirrored.wait_through(topic)
        change(mirrored.source, topic, "retention.ms", "888000")
        wait_until(lambda: settings(mirrored.target, topic)["retention.ms"] == "888000", what="what follows")
        wait_until(lambda: len(mirrored.problems()) == 2, what="both problems")
    unknown, refused = mirrored.problems("setting_unknown")[0], mirrored.problems("target_config_refused")[0]
    assert "retention.mss" in unknown.reason
    assert "segment.bytes" in refused.reason
    assert not unknown.halted
    assert not refused.halted
    mirrored.assert_same(topic)


def test_what_the_source_has_of_the_standbys_settings_is_noted_for_the_switch(mirrored: Mirrored) -> None:
    topic = mirrored.name("stamped")
    mirrored.source.create(topic, message_timestamp_after_max_ms="123456")
    write(mirrored.source, topic, 5)
    assert mirrored.catch_up().caught_up
    notes = mirrored.store.notes(mirrored.link.id, "source_settings")
    assert '"message.timestamp.after.max.ms": "123456"' in notes[topic]
    assert settings(mirrored.target, topic)["message.timestamp.after.max.ms"] == str(2**63 - 1)


def test_an_older_retention_of_a_restored_source_is_not_put_on_the_target(mirrored: Mirrored, tmp_path: Path) -> None:
    """Also by the first look of a mirror that starts: it would remove what only the target has."""
    topic, rested = mirrored.name("orders"), mirrored.name("rested")
    for each in (topic, rested):
        mirrored.source.create(each, retention_ms="3600000", max_message_bytes="1111111")
        write(mirrored.source, each, 5)
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(tmp_path / "copy")
    for each in (topic, rested):
        change(mirrored.source, each, "retention.ms", "-1")
        change(mirrored.source, each, "max.message.bytes", "2222222")
    write(mirrored.source, topic, 5, "later")
    assert mirrored.catch_up().caught_up
    assert settings(mirrored.target, topic)["retention.ms"] == "-1", "what was changed while no mirror ran follows"
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(tmp_path / "copy")
    with mirrored.running():
        wait_until(lambda: mirrored.problems("source_truncated"), 60, "the problem")
        for each in (topic, rested):
            theirs = settings(mirrored.target, each)
            assert (theirs["retention.ms"], theirs["max.message.bytes"]) == ("-1", "1111111"), each
        resumed = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
        assert resumed.returncode == 0, resumed.stderr
        wait_until(lambda: mirrored.problems("source_truncated") == [], 60, "the topic accepted")
        wait_until(lambda: {each.topic for each in held(mirrored)} == {topic, rested}, 60, "both held")
        assert settings(mirrored.target, rested)["retention.ms"] == "-1"
        accept(mirrored, rested)
        wait_until(lambda: settings(mirrored.target, rested)["retention.ms"] == "3600000", 60, "what an operator took")
        assert settings(mirrored.target, topic)["retention.ms"] == "-1", "of that topic alone"


def held(mirrored: Mirrored) -> list[Problem]:
    return mirrored.problems("settings_held")


def accept(mirrored: Mirrored, topic: str) -> None:
    told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "settings_held", "--topic", topic)
    assert told.returncode == 0, told.stderr


def has(mirrored: Mirrored, topic: str, name: str, value: str) -> None:
    wait_until(lambda: settings(mirrored.target, topic)[name] == value, 60, f"{name}={value}")


def test_an_older_retention_of_restored_controllers_is_not_put_on_the_target(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    """Every topic's log is whole, so nothing that is compared differs."""
    topic = mirrored.name("orders")
    mirrored.source.create(topic, retention_ms="3600000", max_message_bytes="1111111")
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(tmp_path / "copy")
    change(mirrored.source, topic, "retention.ms", "-1")
    change(mirrored.source, topic, "max.message.bytes", "2222222")
    write(mirrored.source, topic, 5)
    with mirrored.running():
        mirrored.wait_through(topic)
        wait_until(lambda: settings(mirrored.target, topic)["retention.ms"] == "-1", 60, "what was set last")
        set_controllers_back(mirrored, tmp_path)
        has(mirrored, topic, "max.message.bytes", "1111111")
        (problem,) = wait_until(lambda: held(mirrored), 60, "the problem")
        assert problem.topic == topic
        assert "retention.ms is 3600000 on primary, where -1 was followed, and stays -1 on dr" in problem.reason
        change(mirrored.source, topic, "retention.ms", "7200000")  # by an operator who doesn't know what it was
        wait_until(lambda: "retention.ms is 7200000" in held(mirrored)[0].reason, 60, "the problem of now")
    with mirrored.running():  # another mirror
        change(mirrored.source, topic, "max.message.bytes", "3333333")
        has(mirrored, topic, "max.message.bytes", "3333333")
        assert settings(mirrored.target, topic)["retention.ms"] == "-1"
        assert held(mirrored)
        refused = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "settings_held")
        assert refused.returncode == 3, "it is named"
        accept(mirrored, topic)
        has(mirrored, topic, "retention.ms", "7200000")
        wait_until(lambda: held(mirrored) == [], 60, "it is settled")
        change(mirrored.source, topic, "retention.ms", "-1")
        has(mirrored, topic, "retention.ms", "-1")
        set_controllers_back(mirrored, tmp_path)
        wait_until(lambda: held(mirrored), 60, "the problem again: who accepted it meant that time")
        assert settings(mirrored.target, topic)["retention.ms"] == "-1"
        change(mirrored.source, topic, "retention.ms", "-1")
        wait_until(lambda: held(mirrored) == [], 60, "the source has again what dr has")


def set_controllers_back(mirrored: Mirrored, folder: Path) -> None:
    """Their log alone is restored from the copy."""
    with stopped(mirrored.lab, "primary-1") as disk:
        shutil.rmtree(disk.data / METADATA)
        shutil.copytree(folder / "copy" / METADATA, disk.data / METADATA)


def test_an_older_retention_of_controllers_that_were_restored_while_no_mirror_ran_is_not_put_on_the_target(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic, retention_ms="3600000")
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(tmp_path / "copy")
    change(mirrored.source, topic, "retention.ms", "-1")
    write(mirrored.source, topic, 5)
    with mirrored.running():
        mirrored.wait_through(topic)
        has(mirrored, topic, "retention.ms", "-1")
        wait_until(lambda: mirrored.store.notes(mirrored.link.id, "followed_settings"), what="what was followed")
    set_controllers_back(mirrored, tmp_path)
    with mirrored.running():
        wait_until(lambda: held(mirrored), 60, "the problem")
    assert settings(mirrored.target, topic)["retention.ms"] == "-1"


# ---- deletions ---------------------------------------------------------------------------------------


def test_a_deleted_topic_is_deleted_and_forgotten_and_a_new_one_of_its_name_is_mirrored(
    mirrored: Mirrored, taken_meanwhile: TakenMeanwhile
) -> None:
    mirrored.configure('deletions = "mirror"')
    goes, stays = made(mirrored, "goes", "stays")
    with mirrored.running() as running:
        mirrored.wait_through(goes)
        mirrored.wait_through(stays)
        taken_meanwhile(stays)
        mirrored.source.delete(goes)
        wait_until(lambda: mirrored.target.partitions(goes) == 0, 60, "its end on the target")
        wait_until(lambda: goes not in mirrored.store.topic_states(mirrored.link.id), what="it forgotten")
        assert mirrored.through(goes) == -1
        assert mirrored.problems() == []
        mirrored.source.create(goes)
        write(mirrored.source, goes, 3, "anew")
        write(mirrored.source, stays, 3)
        mirrored.wait_through(goes)
        mirrored.wait_through(stays)
    assert running.error is None
    assert len(mirrored.assert_same(goes)) == 3
    mirrored.assert_same(stays)
    mirrored.assert_translates(goes)


@pytest.mark.parametrize("restored", ["all", "controllers", "controllers, then longer"])
def test_topics_that_a_restored_source_lacks_are_held(
    mirrored: Mirrored, taken_meanwhile: TakenMeanwhile, tmp_path: Path, restored: str
) -> None:
    """The target has all that is left of them. Where the controllers alone are restored all other topics are whole."""
    mirrored.configure('deletions = "mirror"')
    (stays,) = made(mirrored, "stays")
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(tmp_path / "copy")
    (only,) = made(mirrored, "only")
    with mirrored.running():
        for topic in (stays, only):
            mirrored.wait_through(topic)
        taken_meanwhile(stays)
        with stopped(mirrored.lab, "primary-1") as disk:
            if restored != "all":
                shutil.rmtree(disk.data / METADATA)
                shutil.copytree(tmp_path / "copy" / METADATA, disk.data / METADATA)
            else:
                disk.set_back(tmp_path / "copy")
        if restored == "controllers, then longer":  # an operator makes topics: their log is soon beyond its former end
            mirrored.source.create(mirrored.name("many").replace(mirrored.prefix, "beside"), partitions=300)
        wait_until(lambda: mirrored.problems("deletion_held"), 60, "the problem")
    (held,) = mirrored.problems("deletion_held")
    assert held.topic == only
    assert "restored from an older copy of its disks" in held.reason
    assert len(mirrored.target.read(only)) == 5


def test_a_topic_that_drkit_did_not_create_stays(mirrored: Mirrored, taken_meanwhile: TakenMeanwhile) -> None:
    mirrored.configure('deletions = "mirror"')
    theirs = mirrored.name("theirs")
    mirrored.target.create(theirs)
    (ours,) = made(mirrored, "ours")
    made(mirrored, "theirs", "other")
    with mirrored.running():
        for topic in (theirs, ours, mirrored.name("other")):
            mirrored.wait_through(topic)
        taken_meanwhile(mirrored.name("other"))
        mirrored.source.delete(theirs)
        mirrored.source.delete(ours)
        wait_until(lambda: mirrored.target.partitions(ours) == 0, 60, "the end of ours")
        wait_until(lambda: mirrored.problems("source_topic_deleted"), what="the problem")
    assert len(mirrored.target.read(theirs)) == 5


def test_a_topic_whose_deletion_is_held_is_said_to_be_and_the_others_are_as_they_are(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror's line said that the source was not seen, for as long as the deletion was held."""
    monkeypatch.setattr(offsets, "LOOKS_WITHIN_SECONDS", LONG_UNSEEN.total_seconds())
    mirrored.configure('deletions = "mirror"\ndeletion_limit = 0')
    goes, stays = made(mirrored, "goes", "stays")
    with mirrored.running() as running:
        for topic in (goes, stays):
            mirrored.wait_through(topic)
        mirrored.source.delete(goes)
        wait_until(lambda: mirrored.problems("deletion_held"), 60, "the problem")

        def told() -> ProgressEvent | None:
            """A report long after the deleted topic was seen, that knows how far the link is behind."""
            reports = (each for each in running.events if isinstance(each, ProgressEvent))
            late = (r for r in reports if any(r.at - mark.observed_at > LONG_UNSEEN for mark in r.watermarks))
            return next((report for report in late if report.lag_records is not None), None)

        report = wait_until(told, 60, "a lag that is known")
        assert (report.lag_records, report.gone) == (0, (goes,))
        assert f"gone on primary and held on dr: {goes}" in report.lag_in_words()

        def held() -> Problem | None:
            """The one problem of the topic: none says that a mirror has yet to look, or that no broker leads it."""
            (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link], timeout_seconds=3)
            found = [each for each in status.problems if each.topic == goes]
            return found[0] if [each.kind for each in found] == ["deletion_held"] else None

        assert f"deletion_held --topic {goes}" in wait_until(held, 60, "one problem").remedy


def test_more_deletions_than_the_limit_wait_for_an_operator_who_names_them(mirrored: Mirrored) -> None:
    mirrored.configure('deletions = "mirror"\ndeletion_limit = 2')
    topics = made(mirrored, "a", "b", "c", "d")
    named = topics[1]

    def held() -> set[str]:
        return {problem.topic for problem in mirrored.problems("deletion_held")}

    with mirrored.running():
        for topic in topics:
            mirrored.wait_through(topic)
        for topic in topics[:3]:
            mirrored.source.delete(topic)
        wait_until(lambda: held() == set(topics[:3]), 60, "three held")
        assert mirrored.drkit("link", "resume", str(mirrored.link.id)).returncode == 0
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", named).returncode == 0
        assert mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "deletion_held").returncode == 3
        assert held() == set(topics[:3]), "who goes on deletes nothing, and all of a link is no name of a topic"
        told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), "deletion_held", "--topic", named)
        assert told.returncode == 0, told.stderr
        wait_until(lambda: mirrored.target.partitions(named) == 0, 60, "the end of the one named")
        wait_until(lambda: named not in mirrored.store.topic_states(mirrored.link.id), what="it forgotten")
    for topic in (topics[0], topics[2], topics[3]):
        assert len(mirrored.target.read(topic)) == 5

"""Topics or aliases of a link are edited: its copy on the target stays the link's, whatever became of the store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.model.errors import Refused
from drkit.model.topology import worker_group
from drkit.state_topic.records import state_topic
from tests.support.collection.sampling import some_of
from tests.support.links.estates import OwnLink, mirror, mirroring, open_link, texts
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("edited topics", 2)]

FAIL_OVER = ("failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes")


def run(own: OwnLink, *words: str, code: int = 0) -> dict:
    """A verb with `--output json`; its document."""
    done = CliRunner().invoke(application((words[0],)), [*words, "--output", "json", "--config", str(own.config_path)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def edited(own: OwnLink) -> OwnLink:
    """The link with one topic more."""
    own.store.close()
    text = own.config_path.read_text()
    own.config_path.write_text(text.replace("topics = [", f'topics = ["{own.name}-more", '))
    return open_link(own.config_path, own.name)


def lost(own: OwnLink) -> OwnLink:
    """The link with a new store."""
    own.store.close()
    for file in own.config_path.parent.glob("drkit.db*"):
        file.unlink()
    return open_link(own.config_path, own.name)


@pytest.fixture
def mirrored(own: OwnLink) -> tuple[OwnLink, str, str]:
    """A topic that is on both sides, and a group in its middle."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    group = own.commit("primary", "g", topic, {0: 30, 1: 12})
    mirror(own)
    return own, topic, group


@pytest.mark.parametrize("continued", [False, True])
def test_after_the_store_is_lost_nothing_is_copied_twice_and_the_copy_is_found(mirrored, continued):
    own, topic, group = mirrored
    copy = state_topic(own.link)
    own = edited(own)
    if continued:
        own.produce("primary", topic, texts("y", 5))
        mirror(own)
    before = own.values("dr", topic)
    own = lost(own)
    with pytest.raises(Refused, match="has a copy of its state") as refused:
        mirror(own)
    assert f"delete topic {copy} on dr" in str(refused.value.remedy)
    assert own.values("dr", topic) == before
    own.store.close()
    for file in own.config_path.parent.glob("drkit.db*"):
        file.unlink()

    (link,) = run(own, "store", "recover", "--from", "dr")["links"]
    assert (link["copy"], link["partitions"], link["positions"], link["left_out"]) == (copy, 2, 2, [])
    own = open_link(own.config_path, own.name)
    own.produce("primary", topic, texts("z", 5))
    mirror(own)
    assert own.values("dr", topic) == own.values("primary", topic)
    assert state_topic(own.link) not in own.topic_names("dr"), "the copy goes on where it was"
    moved = run(own, *FAIL_OVER)
    assert [(each["target_offset"], each["translation"]) for each in moved["groups"]] == [(30, "exact"), (12, "exact")]
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}
    own.store.close()


def test_a_backup_from_before_a_failover_is_not_resumed(mirrored, tmp_path):
    own, topic, _ = mirrored
    file = tmp_path / "copy.gz"
    run(own, "store", "backup", "--out", str(file))
    moved = run(own, *FAIL_OVER)
    own.produce("dr", topic, texts("by-clients", 3))
    own = lost(edited(own))
    own.store.close()
    for each in own.config_path.parent.glob("drkit.db*"):
        each.unlink()
    run(own, "store", "restore", "--from", str(file))
    refused = run(own, "link", "resume", str(own.link.id), code=3)["error"]
    assert f"is sealed by run {moved['run']}" in refused["what"]
    (link,) = run(own, "doctor", code=3)["links"]
    (check,) = [check for check in link["checks"] if check["check"] == "copy of the store"]
    assert (check["outcome"], "a later decision" in check["reason"]) == ("fail", True)


@pytest.fixture
def other(mirrored: tuple[OwnLink, str, str], tmp_path: Path) -> Iterator[OwnLink]:
    """Another operator's configuration of the link, with one topic more, and a copy of its store."""
    own, _, _ = mirrored
    folder = tmp_path / "other"
    folder.mkdir()
    own.store.close()
    shutil.copy(own.config_path.with_name("drkit.db"), folder)
    own.store = open_link(own.config_path, own.name).store
    path = folder / "drkit.toml"
    path.write_text(own.config_path.read_text().replace(str(own.config_path.parent), str(folder)))
    elsewhere = edited(open_link(path, own.name))
    yield elsewhere
    elsewhere.store.close()


def test_a_mirror_with_the_patterns_of_before_and_another_store_is_seen(mirrored, other):
    own, _, _ = mirrored
    with mirroring(own):
        with own.estate() as estate:
            group = worker_group(own.link.id)
            copy = state_topic(own.link).rpartition(".")[2]
            wait_until(lambda: any(copy in each for each in estate.groups("dr").client_ids(group)), what="the mirror")
        refused = run(other, *FAIL_OVER, code=3)["error"]
        assert "is running that keeps another store: process" in refused["what"]
        with pytest.raises(Refused, match="keeps another store"):
            mirror(other)
    assert run(other, *FAIL_OVER)["state"] == "closed"


def test_a_cluster_under_another_alias_is_not_mirrored_a_second_time(mirrored):
    own, topic, _ = mirrored
    own.store.close()
    before, text = own.values("dr", topic), own.config_path.read_text()
    renamed = text.replace("[clusters.primary]", "[clusters.east]").replace('source = "primary"', 'source = "east"')
    own.config_path.write_text(renamed)
    again = open_link(own.config_path, own.name)
    with pytest.raises(Refused, match="under other aliases") as refused:
        mirror(again)
    assert state_topic(own.link) in refused.value.what
    assert own.values("dr", topic) == before
    again.store.close()
    told = run(again, "store", "recover", "--from", "dr", code=3)["error"]
    assert f"{state_topic(own.link)} has topics of it" in told["remedy"]
    own.config_path.write_text(text)
    own.produce("primary", topic, texts("y", 5))
    again = open_link(own.config_path, own.name)
    mirror(again)
    assert own.values("dr", topic) == own.values("primary", topic)
    again.store.close()

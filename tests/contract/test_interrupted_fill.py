"""A store that a restore or a recovery was filling when it was cut off: the next one begins with nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drkit.kafka.admin.topic_requests import TopicInfo
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic.guard import BEGUN, RESTORING, begun
from drkit.state_topic.link_copy import LinkCopy, ProvenPartition
from drkit.state_topic.recovery import fill, has_data
from drkit.state_topic.restore import holds_something, restore
from drkit.store import open_whole_store
from drkit.store.api import WholeStore
from drkit.store.backup import Backup, read_backup, write_backup
from tests.support.links.cut_store import CutOff
from tests.support.links.filled_store import FILLED, contents_of, fill_store

LINK = Link(FILLED, topics=(".*",))
OTHER = Link(LinkId("second", "dr"), topics=(".*",))


@pytest.fixture(params=["sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WholeStore]:
    """An empty store of each backend."""
    of_cassandra = request.param == "cassandra"
    url = request.getfixturevalue("cassandra_url") if of_cassandra else f"sqlite:///{tmp_path}/empty.db"
    with closing(open_whole_store(url)) as store:
        yield store


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    """Of two links."""
    with closing(open_whole_store(f"sqlite:///{tmp_path}/before.db")) as store:
        fill_store(store)
        store.set_link_control(LinkControl(OTHER.id, Direction.ACTIVE, 1, now()), expected_version=None)
        return write_backup(store, tmp_path / "copy.gz", backend="sqlite")


def restored(tmp_path: Path, backup: Backup) -> tuple[dict[str, Any], int]:
    """What is in a store after that backup was restored into it, and by how many writes."""
    with closing(open_whole_store(f"sqlite:///{tmp_path}/expected.db")) as store:
        counted = CutOff(store)
        restore(counted, backup, [])
        return contents_of(store), counted.written


class Target:
    """The target of a link with one topic, without a cluster."""

    def topics(self, names):
        return {name: TopicInfo(name, f"{name}-id", 1, 1, False) for name in names}

    def log_ends(self, tps, *, partial):
        assert partial
        return dict.fromkeys(tps, 500)

    def start_offsets(self, tps, *, partial):
        assert partial
        return dict.fromkeys(tps, 0)


def copy_of_topic(topic: str) -> LinkCopy:
    """A copy that knows one topic."""
    copy, tp = LinkCopy("copy"), TopicPartition(topic, 0)
    copy.topics[topic] = TopicState(topic, topic, "s", f"{topic}-id", 1, 1, created_by_drkit=True)
    mark = Watermark(*tp, 1, 400, 500, 0, 400, 0, now())
    copy.partitions[tp] = ProvenPartition(mark, [OffsetMapping(*tp, 1, 0, 0), OffsetMapping(*tp, 1, 300, 400)])
    copy.positions.append(GroupPosition(f"reads-{topic}", *tp, 5, "", now()))
    copy.notes["setting"] = {topic: "on"}
    return copy


def test_a_restore_of_several_links_is_done_again_wherever_it_was_cut(empty, backup, tmp_path):
    expected, writes = restored(tmp_path, backup)
    for cut in (3, writes // 2, writes - 1):
        with pytest.raises(Unreachable):
            restore(CutOff(empty, cut), backup, [])
        assert not holds_something(empty), f"after {cut} of {writes} writes the same command would be refused"
        assert RESTORING in {begun(empty, link) for link in (LINK, OTHER)}
        restore(empty, backup, [])
        assert contents_of(empty) == expected
        assert holds_something(empty)
        empty.remove_all()


def test_a_restore_keeps_nothing_of_a_recovery_that_was_cut(empty, backup, tmp_path):
    expected, _ = restored(tmp_path, backup)
    counted = CutOff(empty)
    fill(counted, LINK, copy_of_topic("later"), Target())
    empty.remove_all()
    with pytest.raises(Unreachable):
        fill(CutOff(empty, counted.written - 1), LINK, copy_of_topic("later"), Target())
    assert begun(empty, LINK) == BEGUN
    assert not holds_something(empty)
    restore(empty, read_backup(backup.path), [])
    assert contents_of(empty) == expected


def test_a_recovery_keeps_nothing_of_one_that_was_cut(empty):
    counted = CutOff(empty)
    fill(counted, LINK, copy_of_topic("former"), Target())
    empty.remove_all()
    with pytest.raises(Unreachable):
        fill(CutOff(empty, counted.written - 1), LINK, copy_of_topic("former"), Target())
    assert not has_data(empty, LINK)
    fill(empty, LINK, copy_of_topic("now"), Target())
    tp = TopicPartition("former", 0)
    assert (list(empty.topic_states(FILLED)), list(empty.watermarks(FILLED))) == (["now"], [TopicPartition("now", 0)])
    assert (empty.mappings(FILLED, tp, 1), empty.notes(FILLED, "setting")) == ([], {"now": "on"})
    assert [each.group for each in empty.group_positions(FILLED)] == ["reads-now"]

"""What a worker may change on the target: only within a moment of reading that the link is still its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.topics.change_permission import ChangePermission
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topics.acls import Acl
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store import Store, open_store

LINK = Link(LinkId("primary", "dr"), topics=("t",))


CLUSTER = ClusterConfig(bootstrap_servers="127.0.0.1:1")


class World:
    """A store, a clock, and whether the worker's note holds."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.at = 100.0
        self.valid = True
        self.may_write = True
        self.permission = ChangePermission(
            LINK, store, lambda: self.valid, lambda: self.valid and self.may_write, clock=lambda: self.at
        )

    def seal(self) -> None:
        control = LinkControl(LINK.id, Direction.SEALED, 1, now(), "failed over")
        assert self.store.set_link_control(control, expected_version=None)


@pytest.fixture
def world() -> Iterator[World]:
    with closing(open_store("sqlite:///:memory:")) as store:
        yield World(store)


def test_it_holds_for_a_moment_after_the_links_state_was_read(world: World) -> None:
    assert not world.permission.holds(), "nothing has been read yet"
    world.permission.renew()
    assert world.permission.holds()
    world.at += 3.1  # the process was stopped, say
    assert not world.permission.holds()
    world.permission.renew()
    assert world.permission.holds()


def test_a_sealed_link_is_changed_no_more(world: World) -> None:
    world.permission.renew()
    world.seal()
    world.at += 3.1
    assert not world.permission.holds()
    with pytest.raises(Unreachable, match="drkit changes nothing on dr: link primary->dr is sealed"):
        world.permission.renew()
    assert not world.permission.holds()


def test_a_worker_whose_note_has_run_out_changes_nothing(world: World) -> None:
    world.permission.renew()
    world.valid = False
    assert not world.permission.holds()
    with pytest.raises(Unreachable, match="could not be renewed"):
        world.permission.renew()


def test_what_was_seen_before_another_took_over_changes_nothing(world: World) -> None:
    """Its note holds again: it was renewed when the process woke up."""
    world.permission.renew()
    world.may_write = False
    with pytest.raises(Unreachable, match="could not be renewed"):
        world.permission.renew()


@pytest.mark.parametrize(
    "remove",
    [
        lambda admin: admin.delete_exact({"t": "id"}),
        lambda admin: admin.delete_acls([Acl("topic", "t", "literal", "User:app", "*", "read", "allow")]),
        lambda admin: admin.delete_records({TopicPartition("t", 0): 1}),
        lambda admin: admin.set_many_topic_configs({"t": {"retention.ms": "1"}}),
    ],
    ids=["topics", "rules", "records", "settings"],
)
def test_before_something_is_removed_the_links_state_is_read_however_recently_it_was(
    world: World, remove: Callable[[ClusterAdmin], object]
) -> None:
    """The clock of a machine that was paused saw no time pass."""
    world.permission.renew()
    world.seal()
    assert world.permission.holds()
    with ClusterAdmin("dr", CLUSTER) as admin:
        admin.change_only_with(world.permission)
        with pytest.raises(Unreachable, match="drkit changes nothing on dr: link primary->dr is sealed"):
            remove(admin)

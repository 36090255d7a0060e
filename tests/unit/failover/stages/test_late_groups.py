"""Groups that first commit on the cluster that groups left, after their positions were chosen."""

from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.positions.group_commands import without_place
from drkit.failover.snapshot.selection import Selection
from drkit.failover.stages import late_groups
from drkit.lag.groups_left_behind import GroupsLeftBehind
from drkit.model.errors import NotShown, Unreachable
from drkit.model.topology import Link, LinkId
from tests.unit.failover.plan.worlds import position

LINK = Link(LinkId("primary", "dr"), topics=(".*",))


@pytest.fixture
def late(monkeypatch):
    """What a run finds, of what is on the cluster that groups left."""

    def find(
        *positions,
        unread=None,
        error=None,
        gone=False,
        fenced=True,
        selection=None,
        link=LINK,
        stored=(),
        another=False,
    ):
        asked = []

        def look(_clusters, _link, seen):
            asked.extend(seen)
            if error is not None:
                raise error
            return GroupsLeftBehind(positions, unread)

        monkeypatch.setattr(late_groups, "groups_left_behind", look)

        def check(*_):
            if another:
                raise NotShown("another cluster answers there")

        monkeypatch.setattr(late_groups, "check_source_cluster", check)
        admin = SimpleNamespace(
            topics=lambda _names, **_: {"t": SimpleNamespace(partitions=2)}, cluster_id=lambda: "its id"
        )
        context = SimpleNamespace(
            facts=Facts(mode=Mode.PLANNED, fenced=fenced),
            link=link,
            positions=(position(1, group="moved"),),
            estate=SimpleNamespace(
                reach=lambda _alias: SimpleNamespace(gone=gone),
                store=SimpleNamespace(group_positions=lambda _link: stored),
                admin=lambda _alias, **_: admin,
            ),
        )
        found, said = late_groups.find_late_groups(context, selection or Selection())
        return found, said, asked

    return find


def test_each_of_their_positions_has_no_place_and_what_moves_it(late):
    found, said, asked = late(position(5, group="h"), position(6, group="h", partition=1), stored=[position(2)])
    assert asked == [("billing", "t", 0), ("moved", "t", 0)], "what the run, and others before, have seen"
    assert [(each.partition, each.source_offset, each.target_offset) for each in found] == [(0, 5, None), (1, 6, None)]
    assert "drkit failover --to dr --link 'primary->dr' --group h moves it" in found[0].reason
    (left,) = without_place(found, "dr:9092")
    assert (left.group, left.command.split()[-2:]) == ("h", ["--to-earliest", "--execute"])
    assert said == "; 1 group has first committed on primary since, and isn't moved: h"


def test_of_a_topic_that_is_not_on_the_target_no_command_is_named(late):
    found, _, _ = late(position(5, group="h", topic="new"), position(5, group="h", partition=2))
    assert [each.reason.endswith("; dr has no such partition") for each in found] == [True, True]
    assert [left.command for left in without_place(found, "dr:9092")] == [None]


def test_groups_that_were_not_selected_are_left_where_they_are(late):
    assert late(position(5, group="h"), selection=Selection(groups=("moved",)))[:2] == ((), "")


def test_a_failback_names_no_failover(late):
    way_back = Link(LinkId("dr", "primary"), topics=(".*",), inverse=True)
    found, _, _ = late(position(5, group="h"), link=way_back)
    assert "drkit failover" not in found[0].reason


@pytest.mark.parametrize("how", [{"gone": True}, {"fenced": None}])
def test_a_cluster_that_is_gone_and_a_run_that_moves_no_group_are_not_asked(late, how):
    assert late(position(5, group="h"), **how) == ((), "", [])


@pytest.mark.parametrize("how", [{"unread": "broker 2 is down"}, {"error": Unreachable("broker 2 is down")}])
def test_what_can_t_be_read_is_said(late, how):
    found, said, _ = late(**how)
    assert (found, said) == ((), "; whether more groups have committed on primary isn't known: broker 2 is down")


def test_groups_of_another_cluster_at_its_address_are_none_of_the_link_s(late):
    found, said, asked = late(position(5, group="h"), another=True)
    assert (found, asked) == ((), [])
    assert said.endswith("isn't known: another cluster answers there")

"""What a move leaves without a position is named with the command that places it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.failover.plan.codec import pack, unpack
from drkit.failover.positions.group_commands import without_place
from drkit.failover.positions.positions import NoReset, choose_positions
from drkit.failover.snapshot.selection import Selection
from drkit.model.groups import SHARE, UnmovableGroup
from drkit.model.topology import TopicPartition, TopicPolicy
from tests.unit.failover.plan.worlds import AT, LINK, Log, position, world

SERVERS = "dr-1:9092,dr-2:9092"


def the_world(*, unmovable=()):
    """t:0 is mirrored, t:1 and u:0 too, but of these the store has lost the rows; w:0 is not on the target."""
    view = Log("r" * 10).view()
    no_rows = [replace(view, rows=(), topic=t, target_topic=f"primary.{t}", partition=p) for t, p in PLACES]
    views = [view, *no_rows, replace(view, topic="w", target_topic="w", target_end=None)]
    groups = [position(3), *(position(3, topic=topic, partition=p) for topic, p in PLACES)]
    groups += [position(3, group="my audits", topic="w"), position(3, group="my audits", partition=1)]
    return replace(world(views, groups, link=PREFIXED), unmovable=tuple(unmovable))


PREFIXED = replace(LINK, policy=TopicPolicy.PREFIX)
PLACES = (("t", 1), ("t", 2), ("u", 0))


def chosen(seen):
    return choose_positions(seen, Selection(), None)


def test_one_command_places_all_that_a_group_lacks():
    found = without_place(chosen(the_world()), SERVERS)
    assert [each.group for each in found] == ["billing", "my audits", "my audits"]
    billing, _, _ = found
    assert [(each.topic, each.partition) for each in billing.positions] == list(PLACES)
    assert billing.command == (
        f"kafka-consumer-groups.sh --bootstrap-server {SERVERS} --group billing --topic primary.t:1,2 "
        "--topic primary.u:0 --reset-offsets --to-earliest --execute"
    )


def test_what_the_target_lacks_has_no_command():
    there, missing = without_place(chosen(the_world()), SERVERS)[1:]
    assert [each.topic for each in missing.positions] == ["w"]
    assert missing.command is None
    assert missing.positions[0].reason == "primary.w:0 is not on dr"
    assert "--group 'my audits' --topic primary.t:1 --reset-offsets" in there.command


@pytest.mark.parametrize(("kind", "tool"), [(SHARE, "kafka-share-groups.sh"), ("streams-v9", None)])
def test_groups_without_committed_offsets_have_another_tool_or_none(kind, tool):
    share = UnmovableGroup("jobs", kind, {TopicPartition("t", 0): 4}, AT)
    found = next(each for each in without_place(chosen(the_world(unmovable=[share])), SERVERS) if each.group == "jobs")
    words = (
        f"{tool} --bootstrap-server {SERVERS} --group jobs --topic primary.t:0 --reset-offsets --to-earliest --execute"
    )
    assert found.command == (None if tool is None else words)


def test_a_journal_keeps_why_nothing_can_be_reset():
    positions = chosen(the_world())
    assert {each.no_reset for each in positions} == {None, NoReset.NOT_ON_TARGET}
    assert unpack(pack(positions)) == positions


def test_nothing_is_said_where_every_group_has_its_place():
    seen = world([Log("r" * 10).view()], [position(3)])
    assert without_place(chosen(seen), SERVERS) == []

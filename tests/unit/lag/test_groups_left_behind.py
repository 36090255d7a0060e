"""Which groups of a cluster that was failed away from no move has taken."""

from types import SimpleNamespace

import pytest

from drkit.kafka.groups.coordinator import CommittedOffset
from drkit.lag.groups_left_behind import groups_left_behind, mover_of
from drkit.model.topology import Link, LinkId

LINK = Link(LinkId("primary", "dr"), topics=("orders",), groups=("app-.*",))


def committed(group, offsets, topic="orders"):
    return [CommittedOffset(group, topic, partition, offset, "") for partition, offset in offsets.items()]


class Groups:
    """A cluster's groups: what each has committed, those of which that can't be read, and what isn't listed."""

    def __init__(self, offsets, failures=None, missing=""):
        self.offsets, self.failures, self.missing = offsets, failures or {}, missing
        self.asked = []

    def list_groups_within(self, _seconds):
        shares = {"app-shares": SimpleNamespace(commits_offsets=False)}
        there = {name: SimpleNamespace(commits_offsets=True) for name in [*self.offsets, *self.failures]}
        return SimpleNamespace(groups=there | shares, complete=not self.missing, missing=self.missing)

    def list_reachable_groups(self):
        return self.list_groups_within(0)

    def fetch(self, names):
        self.asked.append(sorted(names))
        return SimpleNamespace(
            offsets={name: self.offsets.get(name, []) for name in names},
            failures={name: why for name, why in self.failures.items() if name in names},
        )


def look(primary, dr=None, seen=(), **how):
    sides = {"primary": primary, "dr": dr or Groups({})}
    found = groups_left_behind(SimpleNamespace(groups=lambda alias, **_: sides[alias]), LINK, seen, **how)
    return [(each.group, each.partition, each.offset) for each in found.positions], found.unread


def test_what_no_move_has_seen_is_left_behind():
    primary = Groups(
        {
            "app-h": committed("app-h", {1: 6, 0: 5}),
            "app-g": committed("app-g", {0: 9, 1: 2}),
            "others": committed("others", {0: 1}),
            "app-elsewhere": committed("app-elsewhere", {0: 1}, topic="else"),
        }
    )
    assert look(primary, seen=[("app-g", "orders", 0)]) == (
        [("app-g", 1, 2), ("app-h", 0, 5), ("app-h", 1, 6)],
        None,
    )


def test_a_poll_asks_for_new_groups_only():
    primary = Groups({"app-h": committed("app-h", {0: 5}), "app-g": committed("app-g", {1: 2})})
    assert look(primary, seen=[("app-g", "orders", 0)], only_new=True) == ([("app-h", 0, 5)], None)
    assert primary.asked == [["app-h"]]
    known = Groups({"app-g": committed("app-g", {1: 2})})
    assert look(known, seen=[("app-g", "orders", 0)], only_new=True) == ([], None)
    assert known.asked == []


def test_who_has_a_position_on_the_target_skips_nothing_unawares():
    primary = Groups({"app-h": committed("app-h", {0: 5, 1: 6})})
    assert look(primary, Groups({"app-h": committed("app-h", {0: 1})})) == ([("app-h", 1, 6)], None)


@pytest.mark.parametrize(
    ("primary", "why"),
    [
        (Groups({}, missing="broker 2 doesn't answer"), "broker 2 doesn't answer"),
        (Groups({}, failures={"app-h": "access is denied"}), "offsets of app-h: access is denied"),
    ],
)
def test_what_can_t_be_read_is_said(primary, why):
    assert look(primary) == ([], why)


def test_a_group_whose_offsets_on_the_target_can_t_be_read_may_have_been_moved():
    primary = Groups({"app-h": committed("app-h", {0: 5}), "app-i": committed("app-i", {0: 6})})
    found, why = look(primary, Groups({}, failures={"app-h": "access is denied"}))
    assert (found, why) == ([("app-i", 0, 6)], "offsets of app-h on dr: access is denied")


def test_the_command_names_a_few_groups():
    assert mover_of(LINK, ["a b"]) == "drkit failover --to dr --link 'primary->dr' --group 'a b'"
    assert mover_of(LINK, list("abcdef")).endswith("--group e …")

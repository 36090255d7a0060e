"""What keeps an ACL on the target that the source has no longer, against clusters made up here."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.admin.cluster_description import MetadataEnd
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.mirror.control import acknowledge
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.acl_sync import MISSES, SECONDS, AclSync
from drkit.mirror.topics.source_growth import SourceGrowth
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.errors import Unreachable
from drkit.model.link_state import ACL_REMOVAL_HELD, SOURCE_TRUNCATED, TopicState
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import ACL_NOTES, Acl, AclRole
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.link_notes import noted_rules

LINK = Link(LinkId("primary", "dr"), topics=(".*",), acls=AclMode.STANDBY)
BESIDE = LinkId("west", "dr")
OWN = Acl("topic", "", "prefixed", "User:drkit", "*", "read", "allow")
READ = Acl("topic", "orders", "literal", "User:app", "*", "read", "allow")
DENIED = replace(READ, operation="read", permission="deny", principal="User:guest")
WRITE = replace(READ, operation="write")


END = MetadataEnd(3, 100)


@dataclass
class Cluster:
    """What `AclSync` and `SourceGrowth` ask of a cluster. Each record of its only log is a batch, its value the
    checksum."""

    rules: set[Acl] = field(default_factory=set)
    log: list[int] = field(default_factory=lambda: [1, 2, 3])
    principal: str = "User:drkit"
    alias: str = "primary"
    metadata: MetadataEnd | None = END
    elsewhere: set[Acl] = field(default_factory=set)
    """What another broker shows."""
    silent: bool = False
    """The other broker."""

    def metadata_end(self) -> MetadataEnd | None:
        return self.metadata

    def acls_by_broker(self) -> dict[int, frozenset[Acl]]:
        if self.silent:
            raise Unreachable("no answer")
        return {1: self.acls(), 2: frozenset(self.rules | self.elsewhere)}

    def acls(self) -> frozenset[Acl]:
        return frozenset(self.rules)

    def sessions(self) -> dict[int, int]:
        return {1: 1, 2: 2}

    def create_acls(self, rules: Collection[Acl]) -> dict[Acl, str]:
        self.rules |= set(rules)
        return {}

    def delete_acls(self, rules: Collection[Acl]) -> dict[Acl, str]:
        self.rules -= set(rules)
        return {}

    def log_ends(self, tps: list[TopicPartition], **_: bool) -> dict[TopicPartition, int]:
        return {tp: len(self.log) for tp in tps}

    def batches_at(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, LogBatch | None]:
        return {
            tp: LogBatch(offset, offset, 0, self.log[offset]) if offset < len(self.log) else None
            for tp, offset in offsets.items()
        }


class World:
    """A link whose source has rules; `looks` lets time pass, and the source take a record at each look."""

    def __init__(self, *rules: Acl, link: Link = LINK) -> None:
        self.store = open_store("sqlite:///:memory:")
        weakref.finalize(self, self.store.close)
        self.source, self.target = Cluster({OWN, *rules}), Cluster()
        self.states = {"orders": TopicState("orders", "orders", "s", "d", 1, 1, created_by_drkit=True)}
        self.shown = True
        self.numbers = count(10)
        self.at = 0.0
        self.restart(link)
        self.looks()

    def restart(self, link: Link = LINK) -> None:
        self.problems = Problems(self.store, LINK.id, lambda _: None)
        self.growth = SourceGrowth(self.source)
        self.sync = AclSync(
            link,
            self.source,
            self.target,
            self.store,
            self.problems,
            self.growth,
            links=[BESIDE],
            clock=lambda: self.at,
        )

    def looks(self, times: int = MISSES + 1, *, takes: bool = True) -> None:
        for _ in range(times):
            self.problems.follow()
            infos = {"orders": TopicInfo("orders", "s", 1, 1, internal=False)} if self.shown else {}
            if takes:
                self.source.log.append(next(self.numbers))
            look = TopicSnapshot(infos, {}, self.states, {}, {}, 1, 1)
            self.growth.saw(infos, set())
            self.sync.sync(look)
            self.at += SECONDS

    def kept(self) -> set[Acl]:
        """What the target has, or gets at the switch."""
        return self.target.rules | set(noted_rules(self.store, LINK.id))

    def held(self) -> str:
        return "".join(problem.reason for problem in self.store.problems(LINK.id) if problem.kind == ACL_REMOVAL_HELD)

    def acknowledge(self) -> None:
        acknowledge(self.store, LINK, ACL_REMOVAL_HELD)


def test_rules_that_were_deleted_while_the_source_took_records_go() -> None:
    world = World(READ, WRITE, DENIED)
    assert world.kept() == {READ, WRITE, DENIED}
    world.source.rules = {OWN, READ}
    world.looks()
    assert (world.kept(), world.held()) == ({READ}, "")


@pytest.mark.parametrize("silent", [False, True], ids=["shows them", "is silent"])
def test_a_rule_that_another_broker_shows_is_not_taken_for_deleted(silent: bool) -> None:
    """The broker that is asked may be cut off from the controllers, and know none of what came since."""
    world = World(READ, WRITE, DENIED)
    world.source.rules = {OWN, READ}
    world.source.elsewhere, world.source.silent = {WRITE, DENIED}, silent
    world.looks()
    assert (world.kept(), world.held()) == ({READ, WRITE, DENIED}, "")
    new = replace(READ, principal="User:other")
    world.source.rules.add(new)
    world.looks(1)
    assert new in world.kept(), "what is added follows"
    world.source.elsewhere, world.source.silent = {WRITE}, False
    world.looks()
    assert world.kept() == {READ, WRITE, new}
    world.source.elsewhere = set()
    world.looks(1)
    assert world.kept() == {READ, new}


@pytest.mark.parametrize("left", [set(), {READ}], ids=["none", "some"])
def test_rules_that_a_source_lacks_that_was_set_back_stay_until_an_operator_decides(left: set[Acl]) -> None:
    """With it go the records by which it would show a deletion, also where it has taken others since."""
    world = World(READ, WRITE, DENIED)
    del world.source.log[3:]
    world.source.rules = {OWN, *left}
    for _ in range(2):
        world.looks()
        assert world.kept() == {READ, WRITE, DENIED}
    assert str(WRITE) in world.held()
    new = replace(READ, principal="User:other")
    world.source.rules.add(new)
    world.looks()
    assert new in world.kept(), "what is added follows"
    world.acknowledge()
    world.looks()
    assert (world.kept(), world.held()) == ({*left, new}, "")


@pytest.mark.parametrize("now", [MetadataEnd(4, 20), None], ids=["set back", "not told"])
def test_rules_that_controllers_lack_that_were_set_back_alone_stay(now: MetadataEnd | None) -> None:
    """Every topic's log is whole."""
    world = World(READ, WRITE)
    world.source.rules, world.source.metadata = {OWN, READ}, now
    world.looks()
    assert world.kept() == {READ, WRITE}
    assert str(WRITE) in world.held()


def test_a_formatted_source_has_the_rules_of_drkit_at_most() -> None:
    world = World(READ, DENIED)
    world.source.rules, world.source.log = {OWN}, []
    world.restart()
    world.looks()
    assert world.kept() == {READ, DENIED}
    assert "has no rules any more" in world.held()
    world.source.rules = {OWN, READ, DENIED}
    world.looks()
    assert world.held() == ""


def test_a_mirror_that_starts_cannot_know_who_removed_rules() -> None:
    world = World(READ, DENIED)
    world.source.rules = {OWN, READ}
    world.restart()
    world.looks()
    assert (world.kept(), str(DENIED) in world.held()) == ({READ, DENIED}, True)


def test_what_an_operator_acknowledged_while_no_mirror_ran_goes_unless_it_came_back() -> None:
    for back in (False, True):
        world = World(READ, DENIED)
        world.source.rules = {OWN, READ}
        world.restart()
        world.looks()
        world.acknowledge()
        world.restart()
        if back:
            world.source.rules = {OWN, READ, DENIED}
            world.looks()
            world.source.rules = {OWN, READ}
            world.restart()
        world.looks()
        assert (DENIED in world.kept(), str(DENIED) in world.held()) == (back, back)
        world.acknowledge() if back else None
        world.looks()
        world.looks()
        assert (world.kept(), world.store.notes(LINK.id, ACL_REMOVAL_HELD)) == ({READ}, {})


def test_a_rule_that_a_target_has_again_is_told_and_goes_on_an_operators_word() -> None:
    """A target that is set back has again what was removed, whoever ran meanwhile; the source takes it up by itself."""
    for stopped in (False, True):
        world = World(READ, DENIED)
        world.source.rules = {OWN, DENIED}
        world.looks()
        assert world.target.rules == {DENIED}
        if stopped:
            world.restart()
        world.target.rules.add(READ)
        world.looks()
        assert (world.target.rules, str(READ) in world.held()) == ({READ, DENIED}, True)
        world.acknowledge()
        world.looks()
        assert (world.target.rules, world.held()) == ({DENIED}, "")
        world.target.rules.add(READ)
        world.looks()
        assert str(READ) in world.held(), "an operator's word is for what was told"
        world.source.rules.add(READ)
        world.looks()
        assert (world.target.rules, world.held()) == ({READ, DENIED}, "")


def test_a_rule_that_another_link_put_on_the_target_is_not_there_again() -> None:
    world = World(READ, DENIED)
    world.source.rules = {OWN, DENIED}
    world.looks()
    world.store.put_notes(BESIDE, ACL_NOTES, {READ.key: AclRole.ON.value})
    world.target.rules.add(READ)
    world.looks()
    assert (world.target.rules, world.held()) == ({READ, DENIED}, "")


def test_a_mirror_that_ends_once_it_has_caught_up_removes_what_was_acknowledged_at_its_first_look() -> None:
    world = World(READ, DENIED)
    world.source.rules = {OWN, READ}
    world.restart()
    world.looks()
    world.acknowledge()
    world.restart()
    world.looks(1)
    assert world.kept() == {READ}


def test_nor_does_anything_go_where_a_partition_has_parted_from_its_source_or_nothing_is_written() -> None:
    world = World(READ, DENIED)
    world.problems.put(SOURCE_TRUNCATED, "orders", 0, "why", "do", halted=True)
    world.source.rules = {OWN, READ}
    world.looks()
    assert "orders:0 may hold other records" in world.held()
    quiet = World(READ, DENIED)
    quiet.restart()
    quiet.looks(takes=False)
    quiet.source.rules = {OWN, READ}
    quiet.looks(takes=False)
    assert quiet.kept() == {READ, DENIED}


def test_of_a_topic_that_drkit_is_not_shown_any_more_the_rules_stay() -> None:
    prefixed = replace(READ, name="or", pattern="prefixed")
    world = World(prefixed, link=replace(LINK, exclude_topics=("or.*x",)))
    assert world.kept() == {READ}, "for each topic: the prefix alone would say more"
    world.shown = False
    world.looks()
    assert (world.kept(), world.held()) == ({READ}, "")


@pytest.mark.parametrize("restarted", [False, True], ids=["while-it-ran", "while-no-mirror-ran"])
def test_a_writer_on_the_standby_is_shown_until_its_rule_is_gone(restarted: bool) -> None:
    world, foreign = World(READ), replace(WRITE, principal="User:stranger")

    def shown() -> list[str]:
        return [each.topic for each in world.store.problems(LINK.id) if each.kind == "standby_writable"]

    world.target.rules.add(foreign)
    world.looks(1)
    assert shown() == ["orders"]
    world.target.rules.remove(foreign)
    if restarted:
        world.restart()
    world.looks(1)
    assert shown() == []


def test_what_the_configuration_leaves_out_goes_without_a_question() -> None:
    other = replace(READ, name="flights")
    prefixed = replace(DENIED, name="or", pattern="prefixed")
    world = World(READ, other, prefixed)
    assert world.kept() == {READ, other, prefixed}
    world.restart(replace(LINK, exclude_topics=("flights", "or.*x")))
    world.looks(takes=False)
    assert (world.kept(), world.held()) == ({READ, DENIED}, "")
    both = World(replace(READ, operation="all"))
    both.restart(replace(LINK, acls=AclMode.COPY))
    both.looks(takes=False)
    assert (both.kept(), both.held()) == ({replace(READ, operation="all")}, "")

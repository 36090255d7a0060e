"""Settings by which a source removes more: they follow where somebody set them, else an operator decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.admin.topic_requests import Teller, ToldSettings
from drkit.mirror.control import acknowledge
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.removing_changes import LOOKS, RemovingChanges
from drkit.mirror.topics.topic_writer import TopicWriter
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import (
    DELETION_HELD,
    FOLLOWED_SETTINGS,
    ROWS_UNPROVEN,
    SETTINGS_HELD,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.topic_policy import TopicSettings
from drkit.model.topics.removing import changed_to_remove_more
from drkit.model.topics.standby import UNCOMPACTED
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
LONG = {"retention.ms": "604800000", "cleanup.policy": "delete", "max.message.bytes": "1000000"}
SHORT = LONG | {"retention.ms": "3600000"}
SHORTER = LONG | {"retention.ms": "60000"}
COMPACTED = {"cleanup.policy": "compact", "retention.bytes": "-1", "retention.ms": "604800000"}
BOTH_POLICIES = COMPACTED | {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}
BEFORE_COMPACTION = COMPACTED | {"cleanup.policy": "delete"}


@dataclass
class Broker:
    """Of the source: what it tells, and by which connection; None: it doesn't answer. `slow`: it tells a look, but not
    in time what it is asked beside one."""

    settings: Mapping[str, str]
    session: int | None
    slow: bool = False


@dataclass
class World:
    """A source of two brokers, a link's topics, and the mirrors that lead one after another."""

    store: Store
    names: tuple[str, ...] = ("orders",)
    brokers: dict[int, Broker] = field(default_factory=lambda: {1: Broker(LONG, 10), 2: Broker(LONG, 20)})
    target: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: int = 0
    policy: TopicSettings = field(default_factory=TopicSettings)

    def __post_init__(self) -> None:
        self.target = {name: dict(LONG) for name in self.names}
        self.states = {
            name: TopicState(name, name, f"s-{name}", f"d-{name}", 1, 1, created_by_drkit=True) for name in self.names
        }
        self.store.put_topic_states(LINK.id, list(self.states.values()))
        self.writer = self.mirror()

    def mirror(self) -> TopicWriter:
        """One that starts, or another worker."""
        problems = Problems(self.store, LINK.id, lambda _: None)
        problems.follow()
        self.problems = problems
        source: Any = SimpleNamespace(topic_configs_of=self._of_each)
        target: Any = SimpleNamespace(set_many_topic_configs=self._put)
        link = replace(LINK, topic_settings=self.policy)
        changes = RemovingChanges(link, source, self.store, problems)
        return TopicWriter(link, target, problems, lambda _: None, changes)

    def _of_each(self, names: Any, *, nodes: set[int], **_: Any) -> dict[int, ToldSettings]:
        self.asked += 1
        return {
            node: ToldSettings({name: dict(broker.settings) for name in names}, Teller(node, broker.session))
            for node, broker in self.brokers.items()
            if node in nodes and broker.session is not None and not broker.slow
        }

    def _put(self, wanted: dict[str, dict[str, str]]) -> dict[str, str]:
        for name, settings in wanted.items():
            self.target[name] |= settings
        return {}

    def look(self, teller: int) -> Any:
        """What a look sees, which one broker told."""
        broker = self.brokers[teller]
        tellers = frozenset() if broker.session is None else frozenset({Teller(teller, broker.session)})
        return SimpleNamespace(
            ready={name: SimpleNamespace(state=self.states[name]) for name in self.names},
            source=dict.fromkeys(self.names),
            states=self.states,
            source_settings={name: dict(broker.settings) for name in self.names},
            target_settings={name: dict(self.target[name]) for name in self.names},
            target={name: SimpleNamespace(replication_factor=1) for name in self.names},
            source_tellers=tellers,
        )

    def looks(self, *tellers: int, mirror: TopicWriter | None = None) -> None:
        """As many looks of the leader's, told by these brokers."""
        for teller in tellers:
            (mirror or self.writer).configure(self.look(teller))
            self.problems.follow()

    def set_to(self, settings: Mapping[str, str]) -> None:
        """Somebody sets it on the source; both brokers run on."""
        for broker in self.brokers.values():
            broker.settings = settings

    def set_back_to(self, settings: Mapping[str, str]) -> None:
        """Its controllers are restored from an older copy, so both brokers start anew."""
        self.brokers = {node: Broker(settings, (broker.session or 0) + 1) for node, broker in self.brokers.items()}

    def restart(self) -> None:
        self.writer = self.mirror()

    def held(self) -> list[Problem]:
        return [problem for problem in self.store.problems(LINK.id) if problem.kind == SETTINGS_HELD]

    def accept(self, topic: str = "orders") -> None:
        """As an operator does with `drkit link acknowledge`."""
        acknowledge(self.store, LINK, SETTINGS_HELD, topic)
        self.problems.follow()

    def has(self, topic: str = "orders") -> str:
        return self.target[topic]["retention.ms"]


@pytest.fixture
def world(store: Store) -> World:
    made = World(store)
    made.looks(1, 2)
    return made


def test_what_somebody_sets_while_the_brokers_run_follows(world: World) -> None:
    world.set_to(SHORT)
    world.looks(1)
    assert world.has() == "3600000"
    assert world.held() == []
    world.looks(2, 1)
    assert world.asked == 0, "it told both itself"


def test_what_shows_it_may_be_a_broker_that_is_asked(world: World) -> None:
    world.set_to(SHORT)
    world.brokers[1].session = 11
    world.looks(1)
    assert world.has() == "3600000"
    world.looks(2, 1)
    assert world.asked == 1, "only when it has changed"


def test_the_broker_that_tells_the_change_shows_it_whoever_is_slow(world: World) -> None:
    world.set_to(SHORT)
    for broker in world.brokers.values():
        broker.slow = True
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])


def test_so_it_does_while_one_broker_restarts(world: World) -> None:
    world.brokers[1].session = None
    world.set_to(SHORT)
    world.looks(2)
    assert world.has() == "3600000"


def test_what_is_set_back_is_held_and_says_what_it_was_and_is_and_what_accepts_it(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    assert world.has() == LONG["retention.ms"]
    (held,) = world.held()
    assert (held.topic, held.partition, held.halted) == ("orders", None, False)
    assert "retention.ms is 3600000 on primary, where 604800000 was followed, and stays 604800000 on dr" in held.reason
    assert "`drkit link acknowledge 'primary->dr' settings_held --topic orders`" in held.remedy


def test_the_next_mirror_holds_it_too_and_so_does_one_that_was_not_running_when_it_was_set_back(world: World) -> None:
    world.restart()
    world.set_back_to(SHORT)
    for _ in range(2):
        world.looks(1, 2, 1)
        assert world.has() == LONG["retention.ms"]
        assert len(world.held()) == 1
        world.restart()


def test_a_broker_that_has_told_the_former_value_by_another_connection_shows_nothing(world: World) -> None:
    """Nor does one that was first asked when the source had been set back."""
    world.set_back_to(SHORT)
    world.looks(*[1, 2] * LOOKS)
    assert world.has() == LONG["retention.ms"]


def test_a_broker_that_never_told_the_former_value_shows_nothing(store: Store) -> None:
    """It was cut off from the controllers before that was set, and follows others now that were set back."""
    world = World(store)
    world.brokers[2].settings = SHORT
    world.looks(1, 1)
    world.brokers[1].session = 11
    world.brokers[1].settings = SHORT
    world.looks(2, 1, 2)
    assert world.has() == LONG["retention.ms"]
    assert len(world.held()) == 1


@pytest.mark.parametrize("takes_over", [False, True], ids=["the leader", "a worker that leads then"])
@pytest.mark.parametrize("set_back", [False, True], ids=["cut off", "controllers set back"])
def test_what_a_broker_told_before_the_value_was_set_anew_shows_nothing(
    world: World, takes_over: bool, set_back: bool
) -> None:
    """It told the long retention, then the short one, and is cut off from the controllers before it is long again."""
    other = world.mirror()

    def look(teller: int) -> None:
        other.watch(world.look(teller))
        world.looks(teller)

    look(1)
    look(2)
    world.set_to(SHORT)
    look(2)
    assert world.has() == "3600000"
    world.brokers[1].settings = LONG
    look(1)
    if set_back:
        world.brokers[1] = Broker(SHORT, 11)
    for teller in [2, 1] * LOOKS:
        world.looks(teller, mirror=other if takes_over else None)
        assert world.has() == LONG["retention.ms"]
    assert len(world.held()) == set_back


def test_a_broker_that_lags_is_waited_for_without_a_problem(world: World) -> None:
    world.brokers[1] = Broker(SHORT, 11)  # it restarted, and told nothing before
    for _ in range(LOOKS - 1):
        world.looks(1)
        assert (world.has(), world.held()) == (LONG["retention.ms"], [])
    world.brokers[2].settings = SHORT
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])


def test_one_that_does_not_answer_is_waited_for_likewise(world: World) -> None:
    world.set_to(SHORT)
    world.brokers[1].session = 11
    world.brokers[2].slow = True
    for _ in range(LOOKS - 1):
        world.looks(1)
        assert (world.has(), world.held()) == (LONG["retention.ms"], [])
    world.brokers[2].slow = False
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])


@pytest.mark.parametrize("slow", [False, True], ids=["behind", "silent"])
def test_one_that_stays_so_is_not_waited_for_for_ever_and_shows_it_whenever_it_tells_it(
    world: World, slow: bool
) -> None:
    world.brokers[1] = Broker(SHORT, 11)
    world.brokers[2].slow = slow
    world.looks(*[1] * LOOKS)
    assert len(world.held()) == 1
    world.looks(1, 1)
    assert len(world.held()) == 1
    world.brokers[2] = Broker(SHORT, 20)
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])
    assert world.store.notes(LINK.id, SETTINGS_HELD) == {}


def test_once_accepted_it_follows_and_the_problem_is_gone(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    world.accept()
    world.looks(1)
    assert world.has() == "3600000"
    assert world.held() == []
    assert world.store.notes(LINK.id, SETTINGS_HELD) == {}
    world.restart()
    world.looks(2)
    assert (world.has(), world.held()) == ("3600000", [])


def test_it_may_be_accepted_while_no_mirror_runs(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    world.accept()
    world.restart()
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])


def test_who_accepted_it_did_not_mean_what_the_source_has_after_it_was_set_back_again(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    world.accept()
    world.set_back_to(SHORTER)
    world.looks(1)
    assert world.has() == LONG["retention.ms"], "accepted was another value"
    world.accept()
    world.looks(1)
    assert world.has() == "60000"
    world.set_to(LONG)
    world.looks(1)
    world.set_back_to(SHORTER)
    world.looks(1)
    assert world.has() == LONG["retention.ms"], "it was accepted once"
    assert len(world.held()) == 1


def test_what_was_accepted_and_not_put_yet_is_void_once_the_source_has_the_former_value_again(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    world.accept()
    world.set_to(LONG)
    world.looks(1)
    world.set_back_to(SHORT)
    world.looks(1)
    assert world.has() == LONG["retention.ms"]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_problem_is_over_once_the_source_has_what_the_target_has(world: World, restarts: bool) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    if restarts:
        world.restart()
    world.set_to(LONG)
    world.looks(1)
    assert world.held() == []
    assert world.store.notes(LINK.id, SETTINGS_HELD) == {}


def test_or_the_target_has_what_the_source_has(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    world.target["orders"] |= SHORT
    world.looks(1)
    assert world.held() == []


def test_what_keeps_more_follows_whoever_restarted(world: World) -> None:
    world.set_back_to(LONG | {"retention.ms": "-1"})
    world.looks(1)
    assert (world.has(), world.held()) == ("-1", [])


def test_what_removes_nothing_follows_beside_what_is_held(world: World) -> None:
    world.set_back_to(SHORT | {"max.message.bytes": "2000000"})
    world.looks(1)
    assert world.target["orders"] == LONG | {"max.message.bytes": "2000000"}


def test_another_worker_that_leads_knows_what_was_followed_and_who_told_it(world: World) -> None:
    other = world.mirror()
    other.watch(world.look(1))
    world.set_back_to(SHORT)
    other.watch(world.look(1))
    world.looks(1, mirror=other)
    assert world.has() == LONG["retention.ms"]
    assert len(world.held()) == 1


def test_another_worker_that_saw_it_set_follows_as_it_leads(world: World) -> None:
    other = world.mirror()
    other.watch(world.look(1))
    world.set_to(SHORT)
    other.watch(world.look(1))
    world.looks(1, mirror=other)
    assert (world.has(), world.held()) == ("3600000", [])


def test_what_another_leader_followed_meanwhile_is_no_change(world: World) -> None:
    """The one that led before was frozen, and leads again: it reads the notes anew."""
    other = world.mirror()
    other.watch(world.look(1))
    world.set_to(SHORT)
    world.looks(1, mirror=other)
    world.target["orders"] |= LONG  # by hand
    world.set_back_to(SHORT)
    world.writer.read_again()
    world.writer.watch(world.look(1))
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])


def test_of_many_topics_one_is_accepted_by_name(store: Store) -> None:
    world = World(store, ("orders", "payments"))
    world.looks(1)
    world.set_back_to(SHORT)
    world.looks(1)
    assert {problem.topic for problem in world.held()} == {"orders", "payments"}
    with pytest.raises(Refused, match="one topic at a time"):
        acknowledge(store, LINK, SETTINGS_HELD)
    world.accept("payments")
    world.looks(1)
    assert (world.has("payments"), world.has("orders")) == ("3600000", LONG["retention.ms"])


def test_all_of_them_are_accepted_at_once_as_they_are_held(store: Store) -> None:
    world = World(store, ("orders", "payments"))
    world.looks(1)
    world.set_back_to(SHORT)
    world.looks(1)
    _, done = acknowledge(store, LINK, SETTINGS_HELD, all_topics=True)
    assert {problem.topic for problem in done} == {"orders", "payments"}
    world.looks(1)
    assert (world.has("payments"), world.has("orders")) == ("3600000", "3600000")
    world.set_back_to(SHORTER)
    world.looks(1)
    assert len(world.held()) == 2, "of other values nothing was accepted"


def test_another_kind_takes_no_more_than_one_topic_at_a_time(world: World) -> None:
    world.store.put_problem(LINK.id, Problem(DELETION_HELD, "orders", None, "why", "how", halted=False, since=now()))
    with pytest.raises(Refused, match="one topic at a time"):
        acknowledge(world.store, LINK, DELETION_HELD, all_topics=True)


def test_an_operator_who_vouches_for_the_store_does_so_for_all_topics_at_once(store: Store) -> None:
    for topic in ("orders", "payments"):
        store.put_problem(LINK.id, Problem(ROWS_UNPROVEN, topic, 0, "why", "how", halted=False, since=now()))
    with pytest.raises(Refused, match="one topic at a time") as told:
        acknowledge(store, LINK, ROWS_UNPROVEN)
    assert "--all-topics" in told.value.remedy
    _, done = acknowledge(store, LINK, ROWS_UNPROVEN, all_topics=True)
    assert ({problem.topic for problem in done}, store.problems(LINK.id)) == ({"orders", "payments"}, [])


def test_another_topic_of_that_name_has_settings_of_its_own(world: World) -> None:
    world.states["orders"] = TopicState("orders", "orders", "s-new", "d-orders", 2, 1, created_by_drkit=True)
    world.set_back_to(SHORT)
    world.looks(1)
    assert (world.has(), world.held()) == ("3600000", [])


def test_what_is_held_is_noted_for_the_switch_as_it_was(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    assert world.writer.as_followed("orders", SHORT) == LONG
    world.accept()
    world.looks(1)
    assert world.writer.as_followed("orders", SHORT) == SHORT


def test_so_is_what_a_lagging_broker_may_still_show(world: World) -> None:
    world.brokers[1] = Broker(SHORT, 11)
    world.looks(1)
    assert world.held() == []
    assert world.writer.as_followed("orders", SHORT) == LONG


@pytest.fixture
def aligned(store: Store) -> World:
    """A compacted topic that is being aligned, so that its target isn't compacted yet."""
    made = World(store, brokers={1: Broker(COMPACTED, 10), 2: Broker(COMPACTED, 20)})
    made.target["orders"] = dict(UNCOMPACTED)
    made.writer.aligning = {"orders"}
    made.looks(1, 2)
    return made


@pytest.mark.parametrize("older", [BOTH_POLICIES, BEFORE_COMPACTION], ids=["shorter retention", "before compaction"])
def test_older_settings_are_held_while_a_topic_is_aligned_and_once_it_is(aligned: World, older: dict[str, str]) -> None:
    aligned.set_back_to(older)
    for _ in range(2):
        aligned.looks(1, 2)
        assert len(aligned.held()) == 1
        assert aligned.writer.as_followed("orders", older) == COMPACTED, "a failover puts what was followed"
    aligned.writer.aligning.clear()
    aligned.looks(1, 2)
    aligned.restart()
    aligned.looks(1, 2)
    assert aligned.target["orders"] == UNCOMPACTED
    assert len(aligned.held()) == 1
    aligned.accept()
    aligned.looks(1)
    assert (aligned.target["orders"], aligned.held()) == (older, [])


def test_what_somebody_sets_while_a_topic_is_aligned_follows_afterwards(aligned: World) -> None:
    aligned.set_to(BOTH_POLICIES)
    aligned.looks(1)
    assert (aligned.target["orders"], aligned.held()) == (UNCOMPACTED, [])
    aligned.writer.aligning.clear()
    aligned.looks(2)
    assert (aligned.target["orders"], aligned.held()) == (BOTH_POLICIES, [])


def test_a_retention_without_effect_is_not_held_while_a_compacted_topic_is_aligned(aligned: World) -> None:
    shorter = COMPACTED | {"retention.ms": "3600000"}
    aligned.set_back_to(shorter)
    aligned.looks(1)
    aligned.writer.aligning.clear()
    aligned.looks(1)
    assert (aligned.target["orders"], aligned.held()) == (shorter, [])


@pytest.mark.parametrize(
    "apart",
    [TopicSettings(exclude=("retention.ms",)), TopicSettings(overrides=(("retention.ms", LONG["retention.ms"]),))],
    ids=["excluded", "overridden"],
)
def test_what_the_link_did_not_let_follow_is_held_once_it_does(store: Store, apart: TopicSettings) -> None:
    world = World(store, policy=apart)
    world.looks(1, 2)
    world.set_back_to(SHORT)
    world.looks(1, 2)
    assert world.held() == []
    world.policy = TopicSettings()
    world.restart()
    world.looks(1, 2)
    assert world.has() == LONG["retention.ms"]
    assert len(world.held()) == 1


def test_after_a_failover_it_is_cleared_and_nothing_is_put(world: World) -> None:
    world.set_back_to(SHORT)
    world.looks(1)
    assert world.store.set_link_control(LinkControl(LINK.id, Direction.SEALED, 1, now()), expected_version=None)
    world.accept()
    assert world.held() == []
    assert world.store.notes(LINK.id, SETTINGS_HELD) == {}
    assert LONG["retention.ms"] in world.store.notes(LINK.id, FOLLOWED_SETTINGS)["orders"]


def test_under_a_clean_up_policy_that_removes_more_all_that_changed_is_held() -> None:
    followed = {"cleanup.policy": "compact", "retention.ms": "604800000"}
    own = {"cleanup.policy": "compact,delete", "retention.ms": "3600000", "retention.bytes": "-1"}
    assert changed_to_remove_more(own, followed | {"retention.bytes": "-1"}, followed) == (
        "cleanup.policy",
        "retention.ms",
    )
    assert changed_to_remove_more(own, own, followed) == ()
    assert changed_to_remove_more(own, {"retention.ms": "-1", "cleanup.policy": "compact,delete"}, own) == ()


def test_another_policy_under_which_more_takes_effect_counts_for_what_did_not_change() -> None:
    uncompacted = COMPACTED | UNCOMPACTED
    assert changed_to_remove_more(BEFORE_COMPACTION, uncompacted, COMPACTED) == ("cleanup.policy", "retention.ms")
    both = COMPACTED | {"cleanup.policy": "compact,delete"}
    assert changed_to_remove_more(both, uncompacted, COMPACTED) == ("cleanup.policy", "retention.ms")
    assert changed_to_remove_more(COMPACTED, both, both) == (), "it removes less"
    assert changed_to_remove_more(BEFORE_COMPACTION, both | {"retention.ms": "-1"}, both) == (), "nor in effect anew"


def test_under_a_policy_that_is_put_now_what_changed_is_judged_by_it() -> None:
    shorter = BEFORE_COMPACTION | {"retention.ms": "3600000"}
    assert changed_to_remove_more(shorter, COMPACTED, BEFORE_COMPACTION) == ("retention.ms",)
    assert changed_to_remove_more(COMPACTED, COMPACTED | UNCOMPACTED, BOTH_POLICIES | COMPACTED) == ()

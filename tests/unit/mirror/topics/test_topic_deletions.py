"""What keeps a topic from being deleted on the target: each protection alone, against clusters made up here."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from drkit.kafka.admin.cluster_admin import Broker, TopicInfo
from drkit.kafka.admin.cluster_description import MetadataEnd
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.mirror.control import acknowledge
from drkit.mirror.engine.interface import NOT_MOVING
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.source_growth import SourceGrowth
from drkit.mirror.topics.topic_deletions import LOOKS, SECONDS, TopicDeletions
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import (
    DELETION_HELD,
    FOREIGN_WRITER,
    RECORDS_UNMAPPED,
    SOURCE_TOPIC_DELETED,
    SOURCE_TRUNCATED,
    Problem,
    TopicState,
)
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.link_notes import accept_purge, accepted_purges, add_never_mirrored, never_mirrored, note_clusters

LINK = Link(LinkId("primary", "dr"), (".*",), deletion_limit=2)


END = MetadataEnd(3, 100)


@dataclass
class Cluster:
    """What `TopicDeletions` asks of a cluster."""

    brokers_listed: int = 3
    cluster: str = "id-1"
    known: set[str] = field(default_factory=set)
    silent: bool = False
    deleted: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    log: dict[TopicPartition, list[int]] = field(default_factory=dict)

    alias: str = "primary"
    metadata: MetadataEnd | None = END
    connected: dict[int, int] = field(default_factory=lambda: {1: 10, 2: 20, 3: 30})

    def metadata_end(self) -> MetadataEnd | None:
        return self.metadata

    def sessions(self) -> dict[int, int]:
        return dict(self.connected)

    def brokers(self) -> list[Broker]:
        return [Broker(number, "h", 9092) for number in range(self.brokers_listed)]

    def cluster_id(self) -> str:
        return self.cluster

    asked: int = 0
    """How often each of its brokers was asked for topics."""

    def absent_everywhere(self, names: list[str]) -> set[str]:
        self.asked += 1
        if self.silent:
            raise Unreachable("no answer")
        return set(names) - self.known

    def log_ends(self, tps: list[TopicPartition], **_: bool) -> dict[TopicPartition, int]:
        return {tp: len(self.log[tp]) for tp in tps if tp in self.log}

    def batches_at(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, LogBatch | None]:
        """Each record is a batch; its value the checksum."""
        found: dict[TopicPartition, LogBatch | None] = {}
        for tp, offset in offsets.items():
            inside = offset < len(self.log.get(tp, ()))
            found[tp] = LogBatch(offset, offset, 0, self.log[tp][offset]) if inside else None
        return found

    def delete_exact(self, topics: dict[str, str]) -> dict[str, str]:
        if self.refusal:
            return dict.fromkeys(topics, self.refusal)
        self.deleted.update(topics)
        return {}


OTHER = TopicPartition("other", 0)
"""A partition of a topic that stays."""


class World:
    """A link whose topics a, b, c … were mirrored; `looks` lets time pass. Another topic takes a record at each look of
    the first ones, which find all topics."""

    def __init__(self, *topics: str) -> None:
        self.store = open_store("sqlite:///:memory:")
        weakref.finalize(self, self.store.close)
        self.source, self.target = Cluster(), Cluster()
        self.at = 0.0
        self.states = {t: TopicState(t, t, f"s-{t}", f"t-{t}", 1, 1, created_by_drkit=True) for t in topics}
        self.target_ids = {topic: f"t-{topic}" for topic in topics}
        self.others = 5
        self.store.put_topic_states(LINK.id, list(self.states.values()))
        note_clusters(self.store, LINK.id, source=self.source.cluster_id(), target="id-of-dr")
        self.source.log[OTHER] = [1, 2, 3]
        self.restart()
        self.looks(grows=True)

    def restart(self) -> None:
        self.problems = Problems(self.store, LINK.id, lambda _: None)
        self.problems.follow()
        self.growth = SourceGrowth(self.source)
        self.deletions = TopicDeletions(
            LINK, self.source, self.target, self.store, self.problems, self.growth, clock=lambda: self.at
        )

    def looks(self, *gone: str, count: int = LOOKS + 1, seconds: float = SECONDS, grows: bool = False) -> list[str]:
        """So many looks at which these topics are gone; returns what the last said is never deleted."""
        stay: list[str] = []
        for _ in range(count):
            self.problems.follow()
            infos = {name: TopicInfo(name, known, 1, 1, internal=False) for name, known in self.target_ids.items()}
            states = self.store.topic_states(LINK.id)
            source = {
                topic: TopicInfo(topic, state.source_topic_id, 1, 1, internal=False)
                for topic, state in states.items()
                if topic not in gone
            }
            source["other"] = TopicInfo("other", "s-other", 1, 1, internal=False)
            if grows:
                self.source.log[OTHER].append(len(self.source.log[OTHER]) + 1)
            look = TopicSnapshot(source, infos, states, {}, {}, 3, self.others)
            self.growth.saw(source, {state.source_topic_id for state in states.values()})
            stay = self.deletions.sync(look, [topic for topic in gone if topic in states])
            self.at += seconds
        return stay

    def held(self) -> set[str]:
        return {problem.topic for problem in self.store.problems(LINK.id) if problem.kind == DELETION_HELD}

    def waits(self, topic: str) -> Problem:
        """What is told of a topic that is gone on the source, and on the target is not."""
        (found,) = (each for each in self.store.problems(LINK.id) if each.topic == topic)
        assert not found.halted
        return found

    def name(self, topic: str) -> None:
        """As an operator does with `drkit link acknowledge`."""
        acknowledge(self.store, LINK, DELETION_HELD, topic)


def test_no_broker_is_asked_again_about_what_is_held_until_an_operator_names_it() -> None:
    """Many may be held for days."""
    world = World("a", "b", "c")
    world.source.metadata = None
    world.looks("a", "b")
    assert world.held() == {"a", "b"}
    before = world.source.asked
    world.looks("a", "b", count=5)
    assert world.source.asked == before
    world.restart()
    world.looks("a", "b", count=5)
    assert world.source.asked == before, "nor by the next mirror"
    world.name("a")
    world.looks("a", "b", count=1)
    assert world.target.deleted == {"a": "t-a"}
    assert world.held() == {"b"}


def test_a_topic_goes_by_its_id_and_is_forgotten() -> None:
    world = World("a", "b")
    assert world.looks("a") == []
    assert world.target.deleted == {"a": "t-a"}
    assert list(world.store.topic_states(LINK.id)) == ["b"]
    assert world.held() == set()


def test_what_a_worker_still_told_of_a_topic_that_is_forgotten_goes_too() -> None:
    """Its brokers seemed not to answer for it: they had just deleted it."""
    world = World("a", "b")
    world.looks("a")
    for topic in ("a", "b"):
        Problems(world.store, LINK.id, lambda _: None).put(NOT_MOVING, topic, 0, "why", "do", halted=True)
    world.restart()
    world.looks(count=1)
    assert [problem.place for problem in world.store.problems(LINK.id)] == ["b:0"]


def test_of_a_topic_made_anew_nothing_is_known_by_the_epoch_of_the_former_one() -> None:
    """It begins at epoch 1 again: offsets that were never mirrored of the former one seemed to have returned."""
    world = World("a", "b")
    for topic in ("a", "b"):
        place = TopicPartition(topic, 0)
        add_never_mirrored(world.store, LINK.id, place, 1, 100, 200)
        accept_purge(world.store, LINK.id, place, 1, 0, 50)
        world.problems.put_standing(RECORDS_UNMAPPED, place, 1, "why", "do", unsure=(0, None))
    kept = TopicPartition("b", 0)
    world.looks("a")
    assert list(never_mirrored(world.store, LINK.id)) == [kept]
    assert list(accepted_purges(world.store, LINK.id)) == [(kept, 1)]
    assert world.store.notes(LINK.id, RECORDS_UNMAPPED) == {"b:0": "1"}


def test_a_topic_that_was_deleted_there_before_the_mirror_was_killed_is_forgotten() -> None:
    """Nothing is left there to lose, and the next process can show no deletion."""
    world = World("a", "b")
    world.restart()
    world.looks("a")
    assert world.held() == {"a"}
    del world.target_ids["a"]
    world.target.known = {"a"}
    world.looks("a")
    assert world.held() == {"a"}, "a broker has it"
    world.target.known = set()
    world.looks("a")
    assert (list(world.store.topic_states(LINK.id)), world.held(), world.target.deleted) == (["b"], set(), {})


def test_it_takes_both_looks_and_seconds() -> None:
    world = World("a")
    world.looks("a", count=LOOKS - 1, seconds=100)
    assert world.target.deleted == {}
    other = World("a")
    other.looks("a", count=100, seconds=SECONDS / 1000)
    assert other.target.deleted == {}


def test_a_topic_that_came_back_is_waited_for_anew() -> None:
    world = World("a")
    world.looks("a", count=LOOKS - 1)
    world.looks(count=1)
    world.looks("a", count=LOOKS - 1)
    assert world.target.deleted == {}


def test_who_named_a_topic_did_not_mean_the_next_one_of_that_name() -> None:
    """Also where another worker, which saw that the topic is back, cleared the problem."""
    world = World("a")
    world.others = 0
    world.looks("a")
    assert world.held() == {"a"}
    world.name("a")
    world.looks(count=1)
    world.looks("a")
    assert (world.target.deleted, world.held()) == ({}, {"a"})


def test_a_topic_that_was_named_while_no_mirror_ran_goes_unless_it_came_back() -> None:
    for back in (False, True):
        world = World("a", "b")
        world.restart()
        world.looks("a")
        world.name("a")
        world.restart()
        assert world.held() == set()
        if back:
            world.looks(count=1)
        world.looks("a")
        assert (list(world.target.deleted), world.held()) == (([], {"a"}) if back else (["a"], set()))
        assert world.store.notes(LINK.id, DELETION_HELD) == {}


def test_one_broker_that_knows_the_topic_or_is_silent_keeps_it() -> None:
    world = World("a")
    world.source.known = {"a"}
    world.looks("a")
    assert world.target.deleted == {}
    assert "a broker of primary still has it" in world.waits("a").reason
    world.source.known, world.source.silent = set(), True
    world.looks("a")
    assert world.target.deleted == {}
    assert "a broker of primary is silent: no answer" in world.waits("a").reason
    assert "See that every broker of primary runs" in world.waits("a").remedy
    world.source.silent = False
    world.looks("a", count=1)
    assert list(world.target.deleted) == ["a"]
    assert world.store.problems(LINK.id) == []


def test_what_waits_for_a_broker_is_held_by_one_problem_once_it_is_held() -> None:
    world = World("a")
    world.source.silent = True
    world.looks("a")
    assert world.waits("a").kind == SOURCE_TOPIC_DELETED
    world.source.silent, world.others = False, 0
    world.looks("a")
    assert [each.kind for each in world.store.problems(LINK.id)] == [DELETION_HELD]
    world.source.silent = True
    world.looks("a")
    assert [each.kind for each in world.store.problems(LINK.id)] == [DELETION_HELD]
    world.name("a")
    world.looks("a")
    assert world.waits("a").kind == SOURCE_TOPIC_DELETED, "it is named, and a broker is silent"


def test_a_source_with_fewer_brokers_than_before_deletes_nothing_for_a_while() -> None:
    world = World("a")
    world.looks(count=1)
    world.source.brokers_listed = 2
    world.looks("a", count=20)
    assert world.target.deleted == {}
    assert "primary lists 2 brokers and listed 3" in world.waits("a").reason
    assert "Bring the missing brokers of primary back" in world.waits("a").remedy
    world.looks("a", count=2, seconds=601)
    assert list(world.target.deleted) == ["a"], "they are all there are now"


def test_another_cluster_under_the_same_address_deletes_nothing_even_if_named() -> None:
    world = World("a")
    world.looks(count=1)
    world.restart()
    world.source.cluster = "id-2"
    world.looks("a")
    assert world.held() == {"a"}
    world.name("a")
    world.looks("a")
    assert world.target.deleted == {}
    assert "another cluster" in world.store.problems(LINK.id)[0].reason


def test_a_source_without_any_topic_is_held() -> None:
    world = World("a")
    world.others = 0
    world.looks("a")
    assert world.held() == {"a"}
    assert world.target.deleted == {}


def test_too_many_are_held_and_stay_held_until_each_is_named() -> None:
    world = World("a", "b", "c")
    world.looks("a", "b", "c")
    assert world.held() == {"a", "b", "c"}
    world.name("b")
    world.looks("a", "b", "c")
    assert list(world.target.deleted) == ["b"]
    world.looks("a", "c", count=2, seconds=4000)
    world.restart()
    world.looks("a", "c", count=LOOKS + 2, seconds=4000)
    assert list(world.target.deleted) == ["b"], "neither time nor a restart is a word to delete"
    world.name("a")
    world.looks("a", "c")
    assert list(world.target.deleted) == ["b", "a"]


def test_one_after_the_other_counts_as_well() -> None:
    world = World("a", "b", "c")
    for topic in ("a", "b", "c"):
        world.looks(topic)
    assert list(world.target.deleted) == ["a", "b"]
    assert world.held() == {"c"}


def test_the_limit_holds_for_whoever_leads_next() -> None:
    world = World("a", "b", "c", "d")
    world.looks("a")
    world.looks("b")
    world.restart()
    world.looks(grows=True)
    world.looks("c")
    assert (list(world.target.deleted), world.held()) == (["a", "b"], {"c"})
    notes = world.store.notes(LINK.id, "deleted")
    world.store.put_notes(LINK.id, "deleted", dict.fromkeys(notes, (now() - timedelta(minutes=61)).isoformat()))
    world.looks("c", "d")
    assert (list(world.target.deleted), world.held()) == (["a", "b", "d"], {"c"})


# ---- a source that was restored from an older copy, or formatted ---------------------------------------


@pytest.mark.parametrize("then", [[1, 2, 3], [1, 2, 3, *[7] * 9], [], [9]], ids=["cut", "grown", "formatted", "young"])
def test_topics_that_a_set_back_source_lacks_are_held(then: list[int]) -> None:
    """Another cluster's disks under the same id: it lacks what was written while the topic was there."""
    world = World("a")
    world.source.log[OTHER] = then
    world.looks("a")
    assert (world.target.deleted, world.held()) == ({}, {"a"})
    assert "restored from an older copy" in world.store.problems(LINK.id)[0].reason
    world.name("a")
    world.looks("a")
    assert list(world.target.deleted) == ["a"], "an operator knows"


@pytest.mark.parametrize("now", [(3, 90), (2, 200), (4, 20), (4, 200), None], ids=str)
def test_topics_that_controllers_lack_that_were_set_back_alone_are_held(now: tuple[int, int] | None) -> None:
    """Every topic's log is whole. A leader of theirs that was elected anew shows nothing either, nor do they where they
    don't tell."""
    world = World("a")
    world.source.metadata = None if now is None else MetadataEnd(*now)
    world.looks("a")
    assert world.target.deleted == {}
    (held,) = world.store.problems(LINK.id)
    assert (held.topic, held.kind) == ("a", DELETION_HELD)
    assert ("DESCRIBE on the cluster" in held.reason) == (now is None)


def test_controllers_that_were_set_back_and_got_to_the_same_epoch_again_show_nothing() -> None:
    world = World("a")
    world.source.metadata = MetadataEnd(2, 50)
    world.looks("a", count=1)
    world.source.metadata = MetadataEnd(3, 200)
    world.looks("a")
    assert world.target.deleted == {}


@pytest.mark.parametrize(
    ("now", "shown"),
    [({1: 10, 2: 20, 3: 30}, True), ({1: 11, 2: 21, 3: 30}, True), ({1: 11, 2: 21, 3: 31}, False), ({}, False)],
    ids=["all run on", "one runs on", "all are new", "none answers"],
)
def test_controllers_that_were_set_back_and_got_beyond_their_end_in_the_same_epoch_show_nothing(
    now: dict[int, int], shown: bool
) -> None:
    """An operator made some topics at once: their log is longer than it was within a second. Whoever took over what
    they lack has started anew; a broker that runs on had the topic, and was told of its end."""
    world = World("a")
    world.source.connected = now
    world.source.metadata = END._replace(high_watermark=END.high_watermark + 200)
    world.looks("a")
    assert (world.target.deleted == {"a": "t-a"}) == shown
    assert world.held() == (set() if shown else {"a"})


def test_brokers_that_restarted_show_a_deletion_again_once_something_came_while_the_topic_was_there() -> None:
    world = World("a")
    world.source.connected = {1: 11, 2: 21, 3: 31}
    world.looks(count=3, grows=True)
    world.looks("a")
    assert list(world.target.deleted) == ["a"]


def test_a_topic_that_rested_since_shows_no_deletion() -> None:
    """The copy of the disks may be of any moment after its last record."""
    world = World("a")
    world.restart()
    world.looks()
    world.looks("a", grows=True)
    assert (world.target.deleted, world.held()) == ({}, {"a"})


def test_what_was_written_before_the_topic_was_seen_shows_no_deletion() -> None:
    world = World("a")
    world.restart()
    world.looks("a", count=1)
    world.looks(count=1, grows=True)
    world.looks("a")
    assert world.held() == {"a"}


@pytest.mark.parametrize("kind", [SOURCE_TRUNCATED, FOREIGN_WRITER])
def test_while_a_partition_has_parted_from_its_source_deletions_are_held(kind: str) -> None:
    world = World("a")
    world.problems.put(kind, "other", 0, "why", "do", halted=True)
    world.looks("a")
    assert (world.target.deleted, world.held()) == ({}, {"a"})
    assert "other:0" in next(each.reason for each in world.store.problems(LINK.id) if each.kind == DELETION_HELD)


@pytest.mark.parametrize("change", ["not drkit's", "another id"])
def test_what_is_not_drkits_is_never_touched(change: str) -> None:
    world = World("a")
    if change == "another id":
        world.target_ids["a"] = "t-other"
    else:
        state = TopicState("a", "a", "s-a", "t-a", 1, 1, created_by_drkit=False)
        world.store.put_topic_states(LINK.id, [state])
    assert world.looks("a") == ["a"]
    assert world.target.deleted == {}
    assert list(world.store.topic_states(LINK.id)) == ["a"]


def test_a_target_topic_that_is_gone_already_is_only_forgotten_once_no_broker_has_it() -> None:
    world = World("a")
    del world.target_ids["a"]
    world.target.known = {"a"}
    world.looks("a")
    assert list(world.store.topic_states(LINK.id)) == ["a"]
    world.target.known = set()
    world.looks("a")
    assert list(world.store.topic_states(LINK.id)) == []
    assert world.target.deleted == {}


def test_a_refusal_is_shown_and_forgets_nothing() -> None:
    world = World("a")
    world.target.refusal = "TOPIC_DELETION_DISABLED"
    world.looks("a")
    (problem,) = world.store.problems(LINK.id)
    assert (problem.kind, problem.halted) == ("deletion_refused", False)
    assert "TOPIC_DELETION_DISABLED" in problem.reason
    assert list(world.store.topic_states(LINK.id)) == ["a"]

"""What a capture asks for: only what can have changed, all of it when it can't tell, and again where it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.groups.coordinator import CommittedOffset, FetchedOffsets
from drkit.kafka.groups.group_admin import GroupInfo, GroupListing
from drkit.kafka.groups.offsets_topic import OffsetsTopicEnds, partition_of
from drkit.mirror.groups.group_capture import REFRESH_SECONDS, SWEEP_SECONDS, GroupCapture
from drkit.mirror.workers.leader_lease import LeaderLease, WhileLeading
from drkit.model.clock import now
from drkit.model.errors import NotShown, Refused
from drkit.model.groups import GroupState
from drkit.model.link_state import SOURCE_TRUNCATED, Problem, TopicState
from drkit.model.topology import Link, LinkId, TimelinePolicy, TopicPartition
from drkit.store.link_notes import behind_captured, note_clusters
from drkit.store.sqlite.backend import SqliteStore
from drkit.store.workers import lease_name

PARTITIONS = 50
LINK = Link(LinkId("a", "b"), ("t",), timeline=TimelinePolicy(max_rows=10**12))  # looks follow at once here


class Coordinators:
    """A cluster's groups; committing moves the end of the log that the group lives in."""

    def __init__(self, *groups: str) -> None:
        self.offsets = dict.fromkeys(groups, 0)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.down: set[int] = set()
        self.visible = True
        self.asked: list[set[str]] = []
        self.listed = 0
        self.failing: dict[str, str] = {}
        self.withdrawn: set[str] = set()
        self.tombstones: set[str] = set()
        self.cluster_id = "source"
        self.topic_ids = {"t": "first", "other": "o"}
        self.before_ids_are_told: Callable[[], None] = lambda: None

    def topics(self, names: Iterable[str] | None = None, **_: object) -> dict[str, TopicInfo]:
        self.before_ids_are_told()
        wanted = self.topic_ids.keys() if names is None else self.topic_ids.keys() & set(names)
        return {name: TopicInfo(name, self.topic_ids[name], 1, 1, internal=False) for name in wanted}

    def ids_everywhere(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.topic_ids[name] for name in self.topic_ids.keys() & set(names)}

    def commit(self, group: str, offset: int) -> None:
        self.offsets[group] = offset
        self.ends[partition_of(group, PARTITIONS)] += 1

    def delete(self, group: str) -> None:
        del self.offsets[group]
        self.tombstones.add(group)
        self.ends[partition_of(group, PARTITIONS)] += 1

    def lose_log(self) -> None:
        """Its disks are set back: to nothing."""
        self.offsets.clear()
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def withdraw(self, group: str) -> None:
        """It no longer has an offset on t."""
        self.withdrawn.add(group)
        self.ends[partition_of(group, PARTITIONS)] += 1

    def offsets_log(self) -> OffsetsTopicEnds:
        if not self.visible:
            return OffsetsTopicEnds()
        ends = {p: end for p, end in self.ends.items() if p not in self.down}
        return OffsetsTopicEnds(PARTITIONS, ends, self.cluster_id)

    def list_reachable_groups(self) -> GroupListing:
        self.listed += 1
        groups = {group: GroupInfo(group, "Stable", "classic") for group in self.offsets}
        return GroupListing(groups, complete=not self.down)

    def fetch(self, groups: Iterable[str]) -> FetchedOffsets:
        names = set(groups)
        self.asked.append(names)
        found = {
            name: [
                CommittedOffset(name, topic, 0, offset, "")
                for topic, offset in (("t", self.offsets[name]), ("other", 1))
                if topic == "other" or name not in self.withdrawn
            ]
            for name in (names & self.offsets.keys()) - self.failing.keys()
        }
        return FetchedOffsets(found, {name: why for name, why in self.failing.items() if name in names})


class Deletions:
    """What the log of these coordinators says of missing groups."""

    def __init__(self, cluster: Coordinators) -> None:
        self._cluster = cluster
        self._lost: set[str] = set()
        self.noted: list[tuple[set[str], set[str]]] = []

    def lost(self) -> set[str]:
        return self._lost

    def back(self, listed: Iterable[str], _ends: object, *, complete: bool) -> None:  # noqa: ARG002
        self._lost -= set(listed)

    def among(self, missing: dict[str, datetime]) -> set[str]:
        self._lost |= missing.keys() - self._cluster.tombstones
        return missing.keys() & self._cluster.tombstones

    def keep(self, groups: Iterable[str]) -> None:
        self._lost |= set(groups)

    def note_log(self, captured: dict[str, datetime], _ends: object, missing: set[str]) -> None:
        self.noted.append((set(captured), missing))


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def captured(store: SqliteStore) -> dict[str, int]:
    return {position.group: position.offset for position in store.group_positions(LINK.id)}


def settled(cluster: Coordinators, store: SqliteStore, clock: Clock | None = None) -> GroupCapture:
    """A capture that has looked until there is nothing more to ask for."""
    deletions = Deletions(cluster)
    capture = GroupCapture(LINK, cluster, cluster, store, deletions, clock or Clock())  # type: ignore[arg-type]
    for _ in range(3):
        capture.capture()
    cluster.asked.clear()
    cluster.listed = 0
    return capture


@pytest.mark.parametrize(
    ("group", "partition"),
    [("", 0), ("hello", 99162322 % 50), ("Aa", 2112 % 50), ("BB", 2112 % 50), ("polygenelubricants", 0)],
)
def test_a_group_lives_where_javas_hash_says(group: str, partition: int) -> None:
    """Hashes that are known of Java; the last one is the smallest integer, of which Kafka takes 0."""
    assert partition_of(group, 50) == partition


def test_while_nothing_moves_no_group_is_asked_for(store: SqliteStore) -> None:
    cluster = Coordinators("one", "two")
    capture = settled(cluster, store)
    for _ in range(10):
        capture.capture()
    assert cluster.asked == []
    assert cluster.listed == 0


def test_only_groups_where_something_moved_are_asked_for_and_once_more(store: SqliteStore) -> None:
    cluster = Coordinators("one", "two")
    assert partition_of("one", PARTITIONS) != partition_of("two", PARTITIONS)
    capture = settled(cluster, store)
    cluster.commit("one", 7)
    for _ in range(4):
        capture.capture()
    assert cluster.asked == [{"one"}, {"one"}]
    assert captured(store) == {"one": 7, "two": 0}


def test_an_answer_from_just_before_the_commit_is_made_up_for(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    capture = settled(cluster, store)
    cluster.commit("one", 7)
    cluster.offsets["one"] = 0  # the log's end shows it, the coordinator doesn't yet
    capture.capture()
    assert captured(store) == {"one": 0}
    cluster.offsets["one"] = 7
    capture.capture()
    assert captured(store) == {"one": 7}


def test_where_the_log_may_not_be_looked_at_all_are_asked_for(store: SqliteStore) -> None:
    cluster = Coordinators("one", "two")
    cluster.visible = False
    capture = settled(cluster, store)
    capture.capture()
    capture.capture()
    assert cluster.asked == [{"one", "two"}, {"one", "two"}]


def test_now_and_then_all_are_asked_for(store: SqliteStore) -> None:
    cluster, clock = Coordinators("one", "two"), Clock()
    capture = settled(cluster, store, clock)
    cluster.offsets["two"] = 5  # behind the log's back
    capture.capture()
    assert captured(store)["two"] == 0
    clock.at += SWEEP_SECONDS
    capture.capture()
    assert cluster.asked == [{"one", "two"}]
    assert captured(store)["two"] == 5


def test_a_group_that_could_not_be_read_is_asked_for_until_it_can(store: SqliteStore) -> None:
    cluster = Coordinators("one", "two")
    capture = settled(cluster, store)
    cluster.failing["one"] = "denied"
    cluster.commit("one", 7)
    for _ in range(5):
        capture.capture()
    assert cluster.asked == [{"one"}] * 5
    assert captured(store)["one"] == 0
    del cluster.failing["one"]
    capture.capture()
    assert captured(store)["one"] == 7


def test_groups_of_a_coordinator_that_is_down_wait_and_their_past_is_not_made_up(store: SqliteStore) -> None:
    cluster = Coordinators("one", "two")
    capture = settled(cluster, store)
    capture.capture()
    cluster.down.add(partition_of("one", PARTITIONS))
    for _ in range(3):
        capture.capture()
    assert cluster.asked == []
    down_at = next(p.captured_at for p in store.group_positions(LINK.id) if p.group == "one")
    cluster.down.clear()
    cluster.commit("one", 9)
    capture.capture()
    assert captured(store)["one"] == 9
    newest = max(
        (each for each in (around.then for around in store.group_states_around(LINK.id, _later())) if each),
        key=lambda state: (state.group == "one", state.at),
    )
    assert newest.positions[0].offset == 9
    assert newest.held_until is not None
    assert newest.held_until >= down_at
    fresh = next(p.captured_at for p in store.group_positions(LINK.id) if p.group == "one")
    assert newest.held_until < fresh


def test_a_deleted_group_leaves_its_past_and_stands_nowhere_since(store: SqliteStore) -> None:
    cluster = Coordinators("one", "two")
    capture = settled(cluster, store)
    cluster.delete("one")
    capture.capture()
    assert captured(store) == {"two": 0}
    states = {around.group: around.then for around in store.group_states_around(LINK.id, _later())}
    assert states["one"] is not None
    assert states["one"].positions == ()
    assert states["one"].before is not None


def test_a_deleted_group_stays_where_it_was_in_a_topic_that_is_gone_too_or_anew(store: SqliteStore, caplog) -> None:
    """Kafka deletes a group whose last offset went with its topic."""
    link = Link(LINK.id, ("t", "other"), timeline=LINK.timeline)
    cluster = Coordinators("one", "two")
    cluster.commit("one", 7)
    store.put_topic_states(LINK.id, [mirrored("first"), replace(mirrored("o"), topic="other", target_topic="other")])
    capture = GroupCapture(link, cluster, cluster, store, Deletions(cluster), Clock())  # type: ignore[arg-type]
    capture.capture()
    del cluster.topic_ids["t"]
    cluster.delete("one")
    capture.capture()
    assert [(p.group, p.topic) for p in store.group_positions(LINK.id)] == [
        ("one", "t"),
        ("two", "other"),
        ("two", "t"),
    ]
    assert "its positions there stay as captured, as the topic does on b" in caplog.text
    cluster.topic_ids["t"] = "second"
    cluster.delete("two")
    cluster.asked.clear()
    for _ in range(3):
        capture.capture()
    assert [(p.group, p.topic, p.topic_id) for p in store.group_positions(LINK.id)] == [
        ("one", "t", "first"),
        ("two", "t", "first"),
    ]
    assert cluster.asked == [{"two"}], "they aren't asked for each time"
    store.put_topic_states(LINK.id, [mirrored("second", epoch=2)])
    capture.capture()
    assert captured(store) == {}


def test_groups_that_the_source_lost_stay_as_captured_until_they_are_back(store: SqliteStore, caplog) -> None:
    cluster = Coordinators("one", "two")
    cluster.commit("one", 7)
    capture = settled(cluster, store)
    cluster.lose_log()
    for _ in range(3):
        capture.capture()
    assert captured(store) == {"one": 7, "two": 0}
    assert "group one is gone on a, and nothing in its __consumer_offsets shows that it was deleted" in caplog.text
    cluster.asked.clear()
    capture.capture()
    assert cluster.asked == [], "they aren't asked for each time"
    cluster.commit("one", 3)
    capture.capture()
    assert captured(store) == {"one": 3, "two": 0}
    cluster.delete("one")
    capture.capture()
    assert captured(store) == {"two": 0}


def test_what_is_listed_and_not_read_does_not_keep_the_log_from_being_noted(store: SqliteStore) -> None:
    """Groups that the link no longer covers, say; where one is missing, its deletion may stand in the log."""
    cluster = Coordinators("one", "two", "three")
    settled(cluster, store)
    link, deletions = replace(LINK, exclude_groups=("two",)), Deletions(cluster)
    capture = GroupCapture(link, cluster, cluster, store, deletions, Clock())  # type: ignore[arg-type]
    del cluster.offsets["three"]
    cluster.commit("one", 7)
    capture.capture()
    assert deletions.noted[-1] == ({"one"}, {"three"})


def test_another_cluster_at_the_sources_address_changes_nothing(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    cluster.commit("one", 7)
    note_clusters(store, LINK.id, source="source")
    capture = settled(cluster, store)
    cluster.cluster_id = "another"
    cluster.commit("one", 1)
    with pytest.raises(NotShown, match="a is another cluster now"):
        capture.capture()
    assert captured(store) == {"one": 7}


def test_a_new_group_is_found_by_its_first_commit(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    capture = settled(cluster, store)
    cluster.commit("new", 3)
    capture.capture()
    assert captured(store) == {"one": 0, "new": 3}


def test_without_a_timeline_nothing_of_the_past_is_kept(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    link = Link(LINK.id, ("t",), timeline=TimelinePolicy(keep_seconds=0))
    capture = GroupCapture(link, cluster, cluster, store, Deletions(cluster))  # type: ignore[arg-type]
    capture.capture()
    cluster.commit("one", 4)
    capture.capture()
    assert captured(store) == {"one": 4}
    assert store.group_states_around(link.id, _later()) == []


def test_a_new_run_begins_the_timeline_anew_and_asks_for_all(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    settled(cluster, store)
    cluster.offsets["one"] = 8
    again = settled(cluster, store)
    assert captured(store) == {"one": 8}
    again.capture()
    newest = store.group_states_around(LINK.id, _later())[0].then
    assert newest is not None
    assert (newest.positions[0].offset, newest.before) == (8, None)


def mirrored(topic_id: str, epoch: int = 1) -> TopicState:
    return TopicState("t", "t", topic_id, "target", epoch, 1, created_by_drkit=True)


def test_an_offset_read_while_its_topic_was_made_anew_is_read_again(store: SqliteStore) -> None:
    """Kafka knows it by the topic's name: what is read before isn't taken for a position in the new topic."""
    cluster = Coordinators("one", "two")
    cluster.commit("one", 300)
    capture = settled(cluster, store)

    def made_anew() -> None:
        cluster.before_ids_are_told = lambda: None
        cluster.topic_ids["t"] = "second"
        cluster.commit("one", 4)

    cluster.commit("one", 310)
    cluster.before_ids_are_told = made_anew
    capture.capture()
    assert {(p.offset, p.topic_id) for p in store.group_positions(LINK.id) if p.group == "one"} == {(4, "second")}


def test_positions_in_a_topic_that_isnt_accepted_yet_wait_and_those_in_the_former_one_end_with_it(store) -> None:
    cluster = Coordinators("one", "idle")
    cluster.commit("one", 300)
    cluster.commit("idle", 200)
    store.put_topic_states(LINK.id, [mirrored("first")])
    capture = settled(cluster, store)
    cluster.topic_ids["t"] = "second"
    cluster.commit("one", 4)
    cluster.withdraw("idle")
    for _ in range(3):
        capture.capture()
    assert captured(store) == {"one": 300, "idle": 200}, "both are positions in the topic that is mirrored"

    store.put_topic_states(LINK.id, [mirrored("second", epoch=2)])
    assert captured(store) == {}, "before the capture has looked again"
    assert [around.then for around in store.group_states_around(LINK.id, _later())] == []
    capture.capture()
    assert captured(store) == {"one": 4}
    (around,) = store.group_states_around(LINK.id, _later())
    assert (around.then.group, around.then.positions[0].offset, around.then.before) == ("one", 4, None)


def test_positions_in_a_forgotten_topic_arent_put_back(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    store.put_topic_states(LINK.id, [mirrored("first")])
    capture = settled(cluster, store)
    cluster.topic_ids.pop("t")
    cluster.withdraw("one")
    begun = store.group_positions(LINK.id)
    store.forget_topic(LINK.id, "t")
    store.put_group_positions(LINK.id, begun)  # by a look that had begun before
    for _ in range(3):
        capture.capture()
    assert captured(store) == {}


def test_the_age_shows_of_a_position_that_its_group_no_longer_has(store, monkeypatch) -> None:
    cluster = Coordinators("one", "two")
    capture = settled(cluster, store)
    cluster.withdraw("one")
    capture.capture()
    capture.capture()
    at = now() + timedelta(seconds=REFRESH_SECONDS + 1)
    monkeypatch.setattr("drkit.mirror.groups.group_capture.now", lambda: at)
    capture.capture()
    fresh = {p.group: p.captured_at == at for p in store.group_positions(LINK.id)}
    assert fresh == {"one": False, "two": True}


def _later() -> datetime:
    return now() + timedelta(hours=1)


def test_who_leads_again_goes_by_what_another_leader_captured_meanwhile(store: SqliteStore) -> None:
    """Or a source that was set back in between would go unnoticed."""
    cluster, lease = Coordinators("one"), LeaderLease(store, LINK.id)
    captures = WhileLeading(lease, lambda: GroupCapture(LINK, cluster, cluster, store, Deletions(cluster), Clock()))  # type: ignore[arg-type]
    cluster.commit("one", 100)
    assert lease.take()
    captures.current().capture()
    assert captures.current() is captures.current()
    lease.release()
    assert store.acquire_lease(lease_name(LINK.id), "elsewhere", 10, store.time()).owner != lease.owner
    cluster.commit("one", 200)
    settled(cluster, store)
    store.release_lease(lease_name(LINK.id), "elsewhere")
    assert lease.take()
    cluster.commit("one", 150)
    captures.current().capture()
    (position,) = store.group_positions(LINK.id)
    parted = Problem(SOURCE_TRUNCATED, "t", 0, "", "", True, now(), 0)
    assert position.offset == 150
    assert behind_captured(store, LINK.id, [position], [parted]) == {("one", TopicPartition("t", 0)): 200}


def test_a_group_that_is_hidden_is_not_taken_for_deleted(store):
    """A listing leaves out what drkit may not see."""
    source, clock = Coordinators("billing", "audit"), Clock()
    source.commit("billing", 7)
    capture = GroupCapture(LINK, source, source, store, Deletions(source), clock)
    capture.capture()
    listed = source.list_reachable_groups

    def hides() -> GroupListing:
        listing = listed()
        listing.groups.pop("billing", None)
        return listing

    source.list_reachable_groups = hides
    source.failing["billing"] = "GROUP_AUTHORIZATION_FAILED"
    source.commit("audit", 3)
    with pytest.raises(Refused, match="billing can't be captured any more: GROUP_AUTHORIZATION_FAILED"):
        capture.capture()
    assert captured(store) == {"billing": 7, "audit": 3}
    source.failing.clear()
    source.delete("billing")
    capture.capture()
    assert captured(store) == {"audit": 3}


@pytest.mark.parametrize(("why", "awaited"), [("GROUP_AUTHORIZATION_FAILED", set()), ("no answer", {"billing"})])
def test_deletions_beside_a_group_that_is_hidden_count_all_the_same(store, why, awaited):
    """What the log holds was never noted again in the hidden one's part of it. Where nobody answers, it is awaited."""
    source = Coordinators("billing", "audit")
    deletions = Deletions(source)
    capture = GroupCapture(LINK, source, source, store, deletions, Clock())
    capture.capture()
    listed = source.list_reachable_groups

    def hides() -> GroupListing:
        listing = listed()
        listing.groups.pop("billing", None)
        return listing

    source.list_reachable_groups = hides
    source.failing["billing"] = why
    source.commit("audit", 3)
    with pytest.raises(Refused):
        capture.capture()
    assert deletions.noted[-1] == ({"audit"}, awaited)


def states_of(store: SqliteStore, group: str) -> list[GroupState]:
    found: list[GroupState] = []
    moment = _later()
    while True:
        then = next((a.then for a in store.group_states_around(LINK.id, moment) if a.group == group), None)
        if then is None:
            return found[::-1]
        found.append(then)
        moment = then.at - timedelta(microseconds=1)


@pytest.mark.parametrize("how", ["lost", "coordinator down", "looks missed"])
def test_a_group_that_is_seen_again_where_it_was_had_not_surely_stood_there_meanwhile(store, monkeypatch, how) -> None:
    """Its log was lost, or its coordinator's groups weren't listed, or the source didn't answer: it counted as seen."""
    cluster = Coordinators("one", "two")
    cluster.commit("one", 7)
    capture = settled(cluster, store)
    seen_at = max(p.captured_at for p in store.group_positions(LINK.id) if p.group == "one")
    if how == "looks missed":
        monkeypatch.setattr("drkit.mirror.groups.group_capture.now", lambda: seen_at + timedelta(seconds=60))
    elif how == "lost":
        cluster.lose_log()
        capture.capture()
    else:
        cluster.down.add(partition_of("one", PARTITIONS))
        kept = cluster.offsets.pop("one")
        capture.capture()
        cluster.down.clear()
        cluster.offsets["one"] = kept
    cluster.commit("one", 7)
    capture.capture()
    first, second = states_of(store, "one")
    assert first.positions == second.positions
    assert second.before == first.at
    assert second.held_until is not None
    assert second.held_until <= seen_at + timedelta(seconds=1)
    capture.capture()
    assert len(states_of(store, "one")) == 2


def test_where_the_source_may_have_been_set_back_it_is_known_where_a_group_was(store: SqliteStore) -> None:
    """The commit may be captured before anybody finds that the source was set back. On one that wasn't, somebody has
    reset the group."""
    cluster = Coordinators("one")
    cluster.commit("one", 50)
    capture = settled(cluster, store)
    parted = [Problem(SOURCE_TRUNCATED, "t", 1, "why", "do", True, now(), 30)]

    def behind(*problems: Problem) -> list[int]:
        return list(behind_captured(store, LINK.id, store.group_positions(LINK.id), problems).values())

    for offset in (20, 30, 25):
        cluster.commit("one", offset)
        capture.capture()
        assert (captured(store), behind(), behind(*parted)) == ({"one": offset}, [], [50])
    live = [each._replace(offset=22) for each in store.group_positions(LINK.id)]
    assert list(behind_captured(store, LINK.id, live, parted, live).values()) == [50]
    anew = [each._replace(topic_id="another") for each in live]
    assert behind_captured(store, LINK.id, anew, parted) == {}
    cluster.commit("one", 50)
    settled(cluster, store)
    assert behind(*parted) == []
    cluster.delete("one")
    capture.capture()
    assert store.notes(LINK.id, "group_moved_back") == {}


def test_a_commit_that_the_source_has_and_no_mirror_captured_is_compared_too(store: SqliteStore) -> None:
    cluster = Coordinators("one")
    cluster.commit("one", 50)
    settled(cluster, store)
    kept = list(store.group_positions(LINK.id))
    live = [each._replace(offset=20) for each in kept]
    parted = [Problem(SOURCE_TRUNCATED, "t", 0, "why", "do", True, now(), 30)]
    assert behind_captured(store, LINK.id, live, parted, kept) == {("one", TopicPartition("t", 0)): 50}

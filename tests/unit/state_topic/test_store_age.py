"""What the copy on the target knows and the store doesn't."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin.topic_requests import TopicInfo
from drkit.model.clock import now
from drkit.model.link_state import (
    RECORDS_UNMAPPED,
    ROWS_UNPROVEN,
    SOURCE_TRUNCATED,
    STORE_OLDER,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic import store_age
from drkit.state_topic.link_copy import LinkCopy, ProvenPartition
from drkit.state_topic.records import StateKind, chained, key_bytes
from drkit.state_topic.store_age import (
    NOT_OLDER,
    ComparedStores,
    OlderStore,
    StoreAge,
    older_store_problems,
    older_than,
    unproven_problem,
    unproven_rows,
)
from drkit.store import open_store
from drkit.store.link_notes import NEVER_MIRRORED

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
AT = now() - timedelta(minutes=5)
LATER = AT + timedelta(minutes=1)
PL, PL1, NEW = TopicPartition("pl", 0), TopicPartition("pl", 1), TopicPartition("new", 0)


class Target:
    """The topics of the target and the end of the first partition's log, without a cluster."""

    def __init__(self, end: int | None = None, **ids: str) -> None:
        self._ids = ids
        self._end = end

    def log_ends(self, tps, *, partial):
        assert partial
        assert self._end is not None, "asked for nothing"
        return dict.fromkeys(tps, self._end)

    def topics(self, names, *, denied):
        assert not denied
        return {name: TopicInfo(name, self._ids[name], 1, 1, False) for name in names if name in self._ids}


def state(topic="pl", epoch=1, partitions=1) -> TopicState:
    return TopicState(topic, topic, "s", f"{topic}-id", epoch, partitions, created_by_drkit=True)


def mark(tp=PL, through=50, epoch=1, at=AT) -> Watermark:
    return Watermark(*tp, epoch, through, through, 0, through, 0, at)


@pytest.fixture
def store(tmp_path):
    """One topic, mirrored to 50."""
    made = open_store(f"sqlite:///{tmp_path}/drkit.db")
    made.put_topic_states(LINK.id, [state()])
    made.put_watermarks(LINK.id, [mark()])
    made.put_group_positions(LINK.id, [GroupPosition("g", *PL, 5, "", AT)])
    yield made
    made.close()


def copied(*states, marks=(), positions=(), **more) -> LinkCopy:
    """The copy of that store, and of what came later."""
    copy = LinkCopy("copy", **more)
    copy.topics = {each.topic: each for each in (state(), *states)}
    copy.partitions = {each.tp: ProvenPartition(each, []) for each in (mark(), *marks)}
    copy.positions = [GroupPosition("g", *PL, 5, "", AT), *positions]
    return copy


def older(copy, store, target=None, link=LINK) -> OlderStore | None:
    return older_than(copy, store, link, target or Target(pl="pl-id", new="new-id"))


def test_a_copy_of_the_same_state_makes_no_store_older(store):
    assert older(copied(), store) is None


@pytest.mark.parametrize(
    ("copy", "unknown"),
    [
        (copied(state("new"), marks=[mark(NEW, 50, at=LATER)]), "topic new"),
        (copied(state("new")), "topic new"),  # nothing of it is mirrored yet
        (copied(state(epoch=2)), "epoch 2 of topic pl"),
        (copied(state(partitions=2), marks=[mark(PL1, 0, at=LATER)]), "partition pl:1"),
    ],
)
def test_topics_partitions_and_epochs_that_only_the_copy_has(store, copy, unknown):
    found = older(copy, store)
    assert found == OlderStore([], None, (unknown,))
    assert found.knows_more() == f"which has {unknown}, unknown to the store"


def test_a_topic_that_was_created_anew_at_the_same_epoch_is_unknown_to_a_store_with_the_former_one(store):
    """Its watermark is below that of the former one."""
    anew = replace(state(), source_topic_id="s2", target_topic_id="pl-id-2")
    copy = copied(anew, marks=[mark(through=30, at=LATER)])
    unknown = "topic pl as it was created anew"
    assert older(copy, store, Target(pl="pl-id-2")) == OlderStore([], None, (unknown,))


def test_a_copy_that_still_has_the_former_topic_is_only_late(store):
    """The store has the one that is there: neither the former one's watermark nor its partitions are newer."""
    former = replace(state(partitions=2), target_topic_id="former-id")
    copy = copied(former, marks=[mark(through=90, at=LATER), mark(PL1, 7)])
    assert older(copy, store, Target(pl="pl-id")) is None


@pytest.mark.parametrize("target", [Target(pl="pl-id"), Target(pl="pl-id", new="another-id")])
def test_of_a_topic_that_was_deleted_on_the_target_the_copy_is_only_late(store, target):
    assert older(copied(state("new"), marks=[mark(NEW, 50, at=LATER)]), store, target) is None


def test_a_copy_that_lags_behind_an_accepted_topic_or_an_added_partition_makes_no_store_older(store):
    copy = copied(state(partitions=2), marks=[mark(PL1, 7)])
    store.put_topic_states(LINK.id, [state(epoch=2, partitions=3)])
    assert older(copy, store) is None


def test_after_a_failback_the_copy_is_late_until_it_has_the_decision(store):
    control = LinkControl(LINK.id, Direction.ACTIVE, 7, LATER, "failed back", "01RUN", frozenset())
    store.set_link_control(control, expected_version=None)
    reversed_before = replace(control, direction=Direction.REVERSED, version=6)
    assert older(copied(state("new"), control=reversed_before), store) is None
    found = older(copied(state("new"), control=control), store)
    assert found is not None
    assert found.unknown == ("topic new",)


def test_standing_facts_of_a_partition_count_where_its_watermark_is_newer(store):
    """Where it isn't, they may have been cleared since, and the copy be late."""
    problem = Problem(SOURCE_TRUNCATED, *PL, "why", "do", halted=True, since=LATER)
    facts = {"problems": [problem], "notes": {NEVER_MIRRORED: {"pl:0": "1:50:60"}}}
    assert older(copied(**facts), store) is None
    newer = copied(marks=[mark(through=90, at=LATER)], **facts)
    found = older(newer, store)
    assert found is not None
    assert found.partitions == [PL]
    assert found.unknown == ("ranges of pl:0 that were never mirrored", f"problem {SOURCE_TRUNCATED} of pl:0")
    store.put_problem(LINK.id, problem)
    store.put_notes(LINK.id, NEVER_MIRRORED, {"pl:0": "1:50:60"})
    assert older(newer, store) == OlderStore([PL], None, observed_later=(PL,))


def test_positions_that_were_captured_after_all_that_the_store_has(store):
    moved, other = GroupPosition("g", *PL, 9, "", LATER), GroupPosition("h", *PL, 1, "", LATER)
    assert older(copied(positions=[moved, other]), store) == OlderStore([], None, (), ("g", "h"))
    store.put_watermarks(LINK.id, [mark(at=LATER + timedelta(seconds=1))])
    assert older(copied(positions=[other]), store) is None, "a group that was deleted since, of a mirror that ran on"
    assert older(copied(positions=[moved._replace(offset=5)]), store) is None


def test_a_watermark_whose_rows_the_copy_does_not_prove_is_newer_all_the_same(store):
    assert older(copied(unproven={PL: mark()}), store) is None
    assert older(copied(unproven={PL: mark(through=90, at=LATER)}), store) == OlderStore(
        [PL], None, observed_later=(PL,)
    )
    found = older(copied(state(partitions=2), unproven={PL1: mark(PL1, 7)}), store)
    assert found == OlderStore([], None, ("partition pl:1",))


def test_a_partition_that_a_recovery_left_out_makes_no_store_older(store):
    """Its rows are damaged in the copy: no other store would know more."""
    copy = copied(state(partitions=2), unproven={PL1: mark(PL1, 7)})
    store.put_problem(LINK.id, Problem(RECORDS_UNMAPPED, *PL1, "why", "do", halted=True, since=LATER))
    assert older(copy, store) is None
    found = older(copied(state(partitions=2), marks=[mark(PL1, 7)]), store)
    assert found == OlderStore([], None, ("partition pl:1",)), "the copy proves its rows"


@pytest.mark.parametrize(("end", "partitions"), [(89, None), (90, [PL]), (95, [PL])])
def test_of_a_newer_watermark_with_an_older_time_the_log_says_whether_the_clock_was_set_back(store, end, partitions):
    """Else the target has lost these records, and the mirror has taken its watermark back since."""
    set_back = copied(marks=[mark(through=90, at=AT - timedelta(hours=1))])
    found = older(set_back, store, Target(end=end, pl="pl-id"))
    assert found == (None if partitions is None else OlderStore(partitions, None))


def test_where_others_write_to_the_target_its_log_says_nothing_of_that(store):
    set_back = {"marks": [mark(through=90, at=AT - timedelta(hours=1))]}
    assert older(copied(**set_back), store, link=replace(LINK, shares_target=True)) is None
    control = LinkControl(LINK.id, Direction.SEALED, 1, AT, "failed over", "01RUN", frozenset())
    store.set_link_control(control, expected_version=None)
    assert older(copied(**set_back, control=control), store) is None


ROWS = [OffsetMapping(*PL, 1, source, target) for source, target in ((0, 0), (20, 15), (40, 30))]


@pytest.mark.parametrize(
    ("kept", "lost"),
    [
        (ROWS, []),
        ([*ROWS, OffsetMapping(*PL, 1, 60, 44)], []),  # the copy is late
        ([ROWS[0], ROWS[2]], [ROWS[1]]),
        (ROWS[:2], [ROWS[2]]),
        ([], ROWS),
        ([ROWS[0], OffsetMapping(*PL, 1, 20, 12)], []),  # taken back and copied again
    ],
)
def test_rows_that_only_the_copy_has_are_lost_unless_a_mirror_replaced_them(store, kept, lost):
    store.append_mappings(LINK.id, kept)
    copy = copied()
    copy.partitions[PL] = ProvenPartition(mark(), ROWS)
    found = older(copy, store)
    assert (found and found.lost) == ({PL: lost} if lost else None)
    assert found is None or found.unknown == (f"mapping rows of pl:0 from source offset {lost[0].source_offset} on",)


def test_a_partition_that_lost_its_only_row_has_lost_it(store):
    """Most have only one: a mirror took it for one that was never mirrored."""
    copy = copied()
    copy.partitions[PL] = ProvenPartition(mark(), ROWS[:1])
    found = older(copy, store)
    assert found is not None
    assert found.lost == {PL: ROWS[:1]}
    store.append_mappings(LINK.id, ROWS[:1])
    assert older(copy, store) is None


def test_rows_above_the_stores_watermark_are_those_that_a_mirror_took_back_or_will_copy(store):
    store.append_mappings(LINK.id, ROWS[:1])
    store.put_watermarks(LINK.id, [mark(through=20)])
    copy = copied()
    copy.partitions[PL] = ProvenPartition(mark(), ROWS)
    found = older(copy, store, Target(end=0, pl="pl-id"))
    assert found is None or not found.lost


@pytest.mark.parametrize("what", ["watermark", "decision"])
def test_a_copy_that_lost_its_beginning_says_nothing_of_what_was_there(store, monkeypatch, what):
    """It counted as compared: a store without rows that the copy had had was no older one."""
    store.set_link_control(LinkControl(LINK.id, Direction.ACTIVE, 1, AT), expected_version=None)
    copy = LinkCopy("copy", control=store.link_control(LINK.id), begins=7)
    copy.topics["pl"] = state()
    copy.partitions[PL] = ProvenPartition(mark(), [])
    monkeypatch.setattr(store_age, "read_copy", lambda *_, **__: copy)

    def age() -> StoreAge:
        return store_age.read_age(LINK, store, ClusterConfig(bootstrap_servers="dr:9092"), Target)

    assert age().compared_at is not None, "what it has was compared"
    assert age()._replace(compared_at=None) == StoreAge(None)
    if what == "watermark":
        del copy.partitions[PL]
    else:
        copy.control = None
    unknown = age().unknown
    assert unknown is not None
    assert age().compared_at is None
    assert "copy begins at offset 7" in unknown
    assert ("pl:0" if what == "watermark" else "the decision about the link") in unknown
    copy.begins = 0  # it isn't written yet
    assert age()._replace(compared_at=None) == StoreAge(None)


def test_rows_that_a_running_mirror_takes_back_between_two_reads_are_no_loss(store, monkeypatch):
    """It takes its watermark back first: what was read before the rows is out of date then."""
    store.append_mappings(LINK.id, ROWS)
    copy = copied()
    copy.partitions[PL] = ProvenPartition(mark(), ROWS)
    read = store.watermarks

    def then_taken_back(link: LinkId):
        found = read(link)
        store.put_watermarks(LINK.id, [mark(through=20)])
        store.supersede_mappings(LINK.id, PL, 1, 14)
        return found

    monkeypatch.setattr(store, "watermarks", then_taken_back)
    found = older(copy, store, Target(end=0, pl="pl-id"))
    assert found is None or not found.lost


def test_who_looks_again_and_again_compares_as_often_as_that_is_cheap(monkeypatch):
    at = [100.0]
    monkeypatch.setattr(store_age, "time", SimpleNamespace(monotonic=lambda: at[0]))
    took, times = 0.1, []

    def compare() -> StoreAge:
        times.append(at[0])
        at[0] += took
        return StoreAge(OlderStore([], len(times)), unknown)

    def found(link: LinkId = LINK.id) -> int:
        compared.age(link, compare)
        return len(times)

    compared, unknown = ComparedStores(), None
    assert [found() for _ in range(3)] == [1, 1, 1]
    at[0] += store_age.KEPT_SECONDS + 0.1
    took = 4.0
    assert found() == 2
    at[0] += store_age.KEPT_TIMES * took - 1
    assert found() == 2, "reading it takes seconds"
    assert found(LinkId("other", "dr")) == 3
    at[0] += 2
    unknown = "no answer"
    assert found() == 4
    at[0] += store_age.KEPT_SECONDS + 0.1
    assert found() == 5, "what isn't known yet is looked for again soon"


@pytest.mark.parametrize(("kept", "unproven"), [(ROWS, set()), (ROWS[:2], {PL})], ids=["all", "some"])
def test_rows_that_the_copy_counts_and_does_not_have_are_proven_by_their_chain_alone(
    store, monkeypatch, kept, unproven
):
    """A late writer has replaced the copy's: nobody knows whether the store has lost any, unless it has what counts."""
    store.append_mappings(LINK.id, kept)
    chain = ""
    for each in ROWS:
        chain = chained(chain, each.source_offset, each.target_offset)
    copy = LinkCopy("copy", topics={"pl": state()}, unproven={PL: mark()}, counted={PL: (len(ROWS), chain)})
    monkeypatch.setattr(store_age, "read_copy", lambda *_, **__: copy)
    found = store_age.read_age(LINK, store, ClusterConfig(bootstrap_servers="dr:9092"), lambda: Target(pl="pl-id"))
    assert (found.older, found.unproven) == (None, unproven)
    assert (found.rows_in_doubt(LINK, []).of(PL) is not None) is bool(unproven)
    assert found.rows_in_doubt(LINK.reversed(), []).of(PL) is None, "a way back has no copy"
    beyond = older_store_problems(LINK, found, [mark()], {PL: 51}, AT)
    assert [each.kind for each in beyond] == [STORE_OLDER] * len(unproven), (
        "how what landed since is mapped isn't known"
    )
    assert not older_store_problems(LINK, found, [mark()], {PL: 50}, AT)


def test_what_is_on_record_as_unproven_is_in_doubt_though_copy_and_store_agree():
    told = unproven_problem(LINK.id, PL, "its copy had lost them", AT)
    for link in (LINK, LINK.reversed()):
        assert NOT_OLDER.rows_in_doubt(link, [told]).of(PL) == told.reason
        assert NOT_OLDER.rows_in_doubt(link, [told]).of(PL1) is None
    assert StoreAge(unknown="no answer").rows_in_doubt(LINK, [told]).of(PL) == told.reason


UNLIKE = {"unproven": {PL: mark()}, "counted": {PL: (3, "another chain")}}


@pytest.mark.parametrize(
    ("copy", "rows", "found"),
    [
        (LinkCopy("copy", **UNLIKE), ROWS, [PL]),
        (LinkCopy("copy", begins=7), ROWS, [PL]),
        (LinkCopy("copy", unreadable=[key_bytes((StateKind.WATERMARK, *PL)).decode()]), ROWS, [PL]),
        (LinkCopy("copy"), ROWS, []),  # it never had any: nothing says that the store has lost one
        (LinkCopy("copy", begins=7), ROWS[:1], []),  # all offsets are equal: none is needed but the first
        (LinkCopy("copy", begins=7), [], []),  # without any, no position is known anyway
        (LinkCopy("copy", topics={"pl": replace(state(), target_topic_id="former")}, **UNLIKE), ROWS, []),
    ],
    ids=["other rows", "cut", "unreadable", "new", "equal offsets", "none", "a former topic's"],
)
def test_rows_that_the_copy_had_and_does_not_prove_are_named_before_they_are_written_anew(store, copy, rows, found):
    store.append_mappings(LINK.id, rows)

    def problems(*, known: bool, link: Link = LINK) -> list[Problem]:
        return unproven_rows(copy, store, link, lambda *_: known, AT, looked_from=0)

    assert [(each.kind, TopicPartition(each.topic, each.partition)) for each in problems(known=False)] == [
        (ROWS_UNPROVEN, tp) for tp in found
    ]
    assert not problems(known=True), "this process has seen all of them"
    assert not problems(known=False, link=replace(LINK, shares_target=True)), "there provenance tells"


@pytest.mark.parametrize(("looked_from", "cut_since"), [(0, True), (6, True), (7, False)])
def test_what_a_copy_lacks_that_was_not_cut_since_it_was_looked_through_it_never_had(store, looked_from, cut_since):
    store.append_mappings(LINK.id, ROWS)
    found = unproven_rows(LinkCopy("copy", begins=7), store, LINK, lambda *_: False, AT, looked_from=looked_from)
    assert bool(found) is cut_since

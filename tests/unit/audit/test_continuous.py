"""What a continuous audit keeps: ranges cut into lots, the stream's offsets, the sum as it is kept."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.audit.compare.offset_zones import zones
from drkit.audit.compare.scope import PartitionScope, Scope
from drkit.audit.continuous import closed_ranges as reconciling
from drkit.audit.continuous import continuous_audit, target_tail, watermark_stream
from drkit.audit.continuous.continuous_audit import (
    OFFSETS_A_SLICE,
    STATE_FILE,
    STREAM,
    ContinuousAudit,
    ContinuousRequest,
    keep_progress,
    load_progress,
)
from drkit.audit.continuous.watermark_stream import WatermarkReader, between, from_anywhere, position
from drkit.model.audit.audit_result import Counts, PlacementBasis
from drkit.model.audit.continuous_audit import AuditProgress, ClosedRange, Reconciled, slices
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, Refused, Unreachable
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition

RANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 50), st.integers(0, 40)),
    unique_by=lambda each: each[:2],
    max_size=6,
).map(lambda found: [ClosedRange(topic, number, 0, first, first + size, 1) for topic, number, first, size in found])


@given(RANGES, st.integers(1, 30))
def test_lots_hold_every_offset_once_in_order_and_no_more_than_they_may(ranges, most):
    lots = slices(ranges, most)

    assert all(0 < sum(each.until - each.first for each in lot) <= most for lot in lots)
    assert all(len({each[:2] for each in lot}) == len(lot) for lot in lots)
    for each in ranges:
        pieces = [piece for lot in lots for piece in lot if piece[:2] == each[:2]]
        assert [offset for piece in pieces for offset in range(piece.first, piece.until)] == [
            *range(each.first, each.until)
        ]


OPTIONS = {"secret_store": "sqlite:///none", "link": "a->b", "wanted": "[]", "from_now": ""}


class Marks:
    """A store's watermarks, and its topics by name, with their ids once they are set."""

    def __init__(self, through: dict[tuple[str, int, int], int]) -> None:
        self.through = through
        self.ids = ("", "")

    def topic_states(self, link: LinkId) -> dict[str, TopicState]:  # noqa: ARG002 - as a store has it
        return {topic: TopicState(topic, topic, *self.ids, epoch, 1, True) for topic, _, epoch in self.through}

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:  # noqa: ARG002 - as a store has it
        return {
            TopicPartition(topic, number): Watermark(topic, number, epoch, through, through, 0, through, 0, now())
            for (topic, number, epoch), through in self.through.items()
        }

    def close(self) -> None:
        pass


def went_on(last) -> WatermarkReader:
    """A reader of a stream that continues, after what Spark (4.0) asks it first; a new stream's isn't asked that."""
    reader = WatermarkReader(OPTIONS)
    if last["at"]:
        assert reader.partitions(last, last) == []
    return reader


def test_what_a_mirror_copies_a_second_time_is_closed_again_first_and_alone(monkeypatch):
    seen = {("t", 0, 0): 7}
    monkeypatch.setattr(watermark_stream, "open_store", lambda url, create: Marks(seen))  # noqa: ARG005 - as it is called
    last = WatermarkReader(OPTIONS).latestOffset()
    seen["t", 0, 0] = 3

    reader, looks = went_on(last), [last]
    for through in (3, 5, 9, 9, 9):
        seen["t", 0, 0] = through
        looks.append(reader.latestOffset())

    closed = [[each[3:5] + each[8:] for each in between(*two)] for two in pairwise(looks)]
    assert closed == [[], [(3, 5, True)], [(5, 7, True)], [(7, 9, False)], []]


def test_what_was_copied_again_adds_what_deviates_and_no_record_twice():
    first = ClosedRange("t", 0, 1, 0, 10, 1, incarnation="a b")
    fresh = AuditProgress("audit-1", "a->b", "2026-11-20T04:03:00Z")
    sound = Reconciled(first, "t", Counts(10, 10, 10), reached=12, beyond=(10, 12))
    again = Reconciled(first._replace(first=8, again=True), "t", Counts(2, 2, 1, lost=1, foreign=1), reached=10)

    summed = fresh.added(0, [sound], now(), 0.0)
    assert summed.told_of([again.closed]) == {}
    summed = summed.added(1, [again], now(), 0.0)

    assert summed.topics == {"t": Counts(11, 11, 10, lost=1, foreign=1)}
    assert (summed.told, summed.reached, summed.alerts) == ({}, {"t:0": 10}, 1)
    assert summed.counts.broken_identity() is None


def test_from_now_on_begins_at_what_spark_has_asked_for_first(monkeypatch):
    seen = {("t", 0, 0): 7}
    monkeypatch.setattr(watermark_stream, "open_store", lambda url, create: Marks(seen))  # noqa: ARG005 - as it is called
    reader = WatermarkReader({**OPTIONS, "from_now": "1"})
    latest = reader.latestOffset()
    seen["t", 0, 0] = 9

    assert reader.initialOffset() == latest
    assert [each[3:5] for each in between(latest, reader.latestOffset())] == [(7, 9)]


LOOKS = st.lists(
    st.dictionaries(st.tuples(st.sampled_from(["t/a", "u"]), st.integers(0, 1), st.just(3)), st.integers(0, 20)),
    min_size=1,
    max_size=6,
)


def test_a_topic_that_was_deleted_and_comes_again_begins_anew():
    first = position({("t", 0, 0, "a b"): 5, ("u", 0, 0, ""): 7}, 10, None)
    gone = position({("u", 0, 0, ""): 7}, 20, first)
    back = position({("t", 0, 0, "a b"): 3, ("u", 0, 0, ""): 7}, 30, gone)

    assert between(first, gone) == []
    assert between(gone, back) == [ClosedRange("t", 0, 0, 0, 3, 30, opening=True, incarnation="a b")]


def test_a_topic_that_came_again_in_the_same_epoch_while_nobody_looked_begins_anew(monkeypatch):
    store = Marks({("t", 0, 1): 1_000})
    store.ids = ("source/1", "target+1")
    monkeypatch.setattr(watermark_stream, "open_store", lambda url, create: store)  # noqa: ARG005 - as it is called
    last = WatermarkReader(OPTIONS).latestOffset()
    store.through["t", 0, 1], store.ids = 800, ("source/1", "target+2")

    newest = went_on(last).latestOffset()

    assert [each[:5] + each[6:8] for each in between(last, newest)] == [
        ("t", 0, 1, 0, 800, True, "source/1 target+2"),
    ]


def test_the_watermark_of_a_former_topic_is_not_taken_for_its_successor_s(monkeypatch):
    store = Marks({("t", 0, 1): 1_000})
    store.ids = ("a", "b")
    read = store.watermarks

    def replaced_meanwhile(link: LinkId) -> dict[TopicPartition, Watermark]:
        marks = read(link)
        if store.ids == ("a", "b"):
            store.through["t", 0, 1], store.ids = 800, ("a", "c")
        return marks

    monkeypatch.setattr(store, "watermarks", replaced_meanwhile)
    monkeypatch.setattr(watermark_stream, "open_store", lambda url, create: store)  # noqa: ARG005 - as it is called

    assert WatermarkReader(OPTIONS).latestOffset()["through"] == {"1/0/t a c": 800}


def test_ids_that_become_known_or_unknown_make_no_other_topic():
    unknown = position({("t", 0, 1, ""): 5}, 10, None)
    known = position({("t", 0, 1, "a b"): 7}, 20, unknown)
    again = position({("t", 0, 1, ""): 9}, 30, known)

    assert [each[3:5] for each in between(unknown, known)] == [(5, 7)]
    assert [each[3:5] for each in between(known, again)] == [(7, 9)]


@given(LOOKS, st.sets(st.integers(0, 5)))
def test_the_streams_offsets_close_every_source_offset_once_whenever_it_is_restarted(looks, restarts):
    closed, now_at = [], {}
    seen: dict[tuple[str, int, int], int] = {}  # the store forgets nothing, but a mirror may go back
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watermark_stream, "open_store", lambda url, create: Marks(seen))  # noqa: ARG005 - as it is called
        reader = WatermarkReader(OPTIONS)
        last = reader.initialOffset()
        for at, look in enumerate([*looks, {}, {}], 1):  # what is closed again takes a look of its own
            seen |= look
            if at in restarts:
                reader.stop()
                reader = went_on(last)
            newest = reader.latestOffset()
            closed += [ClosedRange(*row) for share in reader.partitions(last, newest) for row in reader.read(share)]
            last = newest
            now_at |= look
    for (topic, partition, epoch), through in now_at.items():
        mine = [each for each in closed if each[:3] == (topic, partition, epoch)]
        once = [offset for each in mine if not each.again for offset in range(each.first, each.until)]
        assert once == [*range(len(once))]
        assert all(each.until <= len(once) for each in mine if each.again)
        assert len(once) >= through
        assert last["through"].get(f"{epoch}/{partition}/{topic}") == through


def test_nothing_new_makes_no_batch():
    first = position({("t", 0, 0, "a b"): 5}, 10, None)

    assert position({("t", 0, 0, "a b"): 5}, 20, first) is first


def test_a_relative_store_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert from_anywhere("sqlite:///drkit.db?timeout=3") == f"sqlite:///{tmp_path.resolve()}/drkit.db?timeout=3"
    for url in ("sqlite:////var/drkit.db", "cassandra://u:p@h:9042/drkit?dc=dr"):
        assert from_anywhere(url) == url


def test_a_range_of_a_topic_that_was_deleted_since_is_unknown_and_stops_nothing(monkeypatch):
    def observe(request, store, config):  # noqa: ARG001 - as observe_scope has it
        raise ConfigError(f"the link has no such topic: {len(request.topics)}")

    monkeypatch.setattr(reconciling, "observe_scope", observe)
    ranges = [ClosedRange(topic, 0, 0, 0, 10, 1) for topic in ("t", "u")]
    link = Link(LinkId("a", "b"), topics=(".*",), groups=())

    found = reconciling.reconcile(ranges, {}, link, None, None, None)

    assert [(each.closed, each.problem, each.deviates) for each in found] == [
        (each, "the link has no such topic: 1", False) for each in ranges
    ]


def progress() -> AuditProgress:
    fresh = AuditProgress(run="audit-1", link="a->b", started_at="2026-11-20T04:02:59Z")
    closed = ClosedRange("t", 0, 0, 0, 10, 1)
    lost = Reconciled(closed, "t", Counts(source_records=10, matched=9, lost=1))
    taken = Reconciled(closed._replace(topic="u"), "u", problem="gone")
    return fresh.added(0, [lost, taken], now(), 1.5)


def test_an_audit_that_compared_nothing_is_not_clean():
    assert AuditProgress(run="r", link="primary->dr", started_at="").verdict == "unknown"


def test_the_sum_is_read_back_as_it_was_kept(tmp_path):
    kept = progress()
    keep_progress(tmp_path, kept)

    found = load_progress(tmp_path, "a->b")

    assert found == kept
    assert (found.verdict, found.ranges, found.alerts, found.unknown, found.batch) == ("deviated", 2, 1, 1, 0)
    assert found.counts == Counts(source_records=10, matched=9, lost=1)
    assert found.through == {"t:0": 10, "u:0": 10}
    with pytest.raises(Refused, match="checkpoint of a->b, not of c->d"):
        load_progress(tmp_path, "c->d")


def test_a_checkpoint_without_its_sum_is_not_counted_on(tmp_path):
    assert load_progress(tmp_path, "a->b") is None
    (tmp_path / STREAM / "offsets").mkdir(parents=True)
    with pytest.raises(DrkitError, match=f"{STATE_FILE} is missing"):
        load_progress(tmp_path, "a->b")
    (tmp_path / STATE_FILE).write_text('{"format": "else"}')
    with pytest.raises(DrkitError, match="is not a continuous audit's progress"):
        load_progress(tmp_path, "a->b")


def test_what_the_target_removed_is_no_longer_clean_although_it_is_no_loss_of_the_mirrors():
    removed = Reconciled(ClosedRange("t", 0, 0, 5, 10, 1), "t", Counts(target_retired=2), gone=2)

    assert removed.deviates
    assert str(removed) == "t:0 source offsets 5 to 9: 2 gone from the target"


FAR = 1_000_000_000


class Logs:
    """Two clusters with one partition of which the mirror has carried source offsets [FAR, FAR + 1000) to 0 and on."""

    def __init__(self, monkeypatch, folder) -> None:
        self.source_start, self.target_start = FAR, 0
        self.epoch, self.incarnation = 0, ""
        self.compared: list[ClosedRange] = []
        self.scopes: list[PartitionScope] = []
        self.dies = False
        self.source_end, self.mirrored_through, self.target_end = FAR + 1000, FAR + 1000, 1000
        self.sealed_at: int | None = None
        self.answers = True
        self.told = []
        self.folder = folder
        self.link = Link(LinkId("a", "b"), topics=(".*",), groups=())
        for name, value in {
            "observe_scope": lambda request, store, config: self.scope(),  # noqa: ARG005 - as it is called
            "log_starts": lambda scope, config: scope.starts(),  # noqa: ARG005 - as it is called
            "ScopeReader": lambda spark, scope: scope,  # noqa: ARG005 - as it is called
            "describe": lambda *_: None,
            "_unknown": lambda *_: {},
            "judge": lambda scope: scope,
            "outcome_counts": lambda *_: {},
            "count": self.count,
            "_first": lambda scope: defaultdict(list),  # noqa: ARG005 - as it is called
        }.items():
            monkeypatch.setattr(reconciling, name, value)
        monkeypatch.setattr(continuous_audit, "spark_session", lambda runtime: None)  # noqa: ARG005 - as it is called

    def topic_states(self, link: LinkId) -> dict[str, SimpleNamespace]:  # noqa: ARG002 - as a store has it
        return {"t": SimpleNamespace(epoch=self.epoch, incarnation=self.incarnation)}

    def link_control(self, link: LinkId) -> None:  # noqa: ARG002 - as a store has it
        if not self.answers:
            raise Unreachable("the store doesn't answer")

    def scope(self) -> Scope:
        part = PartitionScope(
            number=0, topic="t", target_topic="t", partition=0,
            source_start=self.source_start, source_end=self.source_end,
            target_start=self.target_start, target_end=self.target_end,
            source_from=self.source_start, target_from=self.target_start,
            zones=zones([OffsetMapping("t", 0, 0, FAR, 0)]), basis=PlacementBasis.MAPPING, first_place=0,
            mirrored_through=self.mirrored_through, sealed_at=self.sealed_at, earlier_until=None,
            source_compacted=False, target_compacted=False,
        )  # fmt: skip
        return Scope(self.link, (part,), {}, {}, None, None, None, now(), ())

    def count(self, scope: Scope, *_: object) -> list[SimpleNamespace]:
        """Every record is there that the target's retention has left."""
        if self.dies:
            raise RuntimeError("killed")
        found = []
        self.scopes += scope.partitions
        for each in scope.partitions:
            records = each.source_end - each.source_from
            retired = max(0, min(each.source_end, FAR + each.target_start) - each.source_from)
            counts = Counts(source_records=records - retired, matched=records - retired, target_retired=retired)
            found.append(SimpleNamespace(counts=counts))
            self.compared.append((each.source_from, each.source_end, each.target_from, each.target_end))
        return found

    def tell(self, found: Sequence[Reconciled], _: AuditProgress) -> None:
        self.told.extend(found)

    def batch(self, number: int, *closed: ClosedRange) -> AuditProgress:
        """Reconcile a batch in an audit that has just been started."""
        request = ContinuousRequest(self.link, self.folder, "sqlite:///none")
        audit = ContinuousAudit(request, self, None, None, self.tell, print)
        audit._stop = threading.Event()
        audit._progress = load_progress(self.folder, "a->b") or AuditProgress("audit-1", "a->b", "2026-11-20T04:02:59Z")
        audit._reconcile(SimpleNamespace(collect=lambda: [tuple(each) for each in closed]), number)
        return audit.progress


@pytest.fixture
def logs(monkeypatch, tmp_path) -> Logs:
    return Logs(monkeypatch, tmp_path)


def taken(count: int) -> str:
    return f"the source's retention took {count} offsets of it before they were looked at"


OPENING = ClosedRange("t", 0, 0, 0, FAR + 1000, 1, opening=True)


def test_what_retention_took_before_the_audit_began_is_never_claimed_and_costs_nothing(logs):
    done = logs.batch(0, OPENING)

    assert [str(each) for each in logs.told] == [f"t:0 source offsets {FAR} to {FAR + 999}: equal"]
    assert (done.verdict, done.ranges, done.counts.matched) == ("clean", 1, 1000)
    assert logs.compared == [(FAR, FAR + 1000, 0, 1000)]


def test_a_batch_is_not_done_before_what_was_found_is_told(logs, monkeypatch):
    monkeypatch.setattr(continuous_audit, "_RETRY_SECONDS", 0)
    sums = []

    def told(found, progress):
        sums.append((progress.batch, load_progress(logs.folder, "a->b").batch))
        if len(sums) < 3:
            raise Unreachable("the store doesn't answer")
        logs.told.extend(found)

    monkeypatch.setattr(logs, "tell", told)

    assert logs.batch(0, OPENING).batch == 0
    assert sums == [(0, -1)] * 3
    assert len(logs.told) == 1


def test_a_target_whose_log_begins_later_has_lost_nothing_of_what_the_audit_began_with(logs):
    logs.target_start = 30
    done = logs.batch(0, OPENING)
    assert (done.verdict, done.gone, done.counts.matched) == ("clean", 0, 970)

    logs.target_start = 1000
    done = logs.batch(1, OPENING)
    assert (done.verdict, done.gone, done.through) == ("clean", 0, {"t:0": FAR + 1000})


def test_an_audit_that_is_killed_begins_its_first_ranges_where_it_began_them(logs):
    logs.dies = True
    with pytest.raises(RuntimeError, match="killed"):
        logs.batch(0, OPENING)
    logs.dies = False
    logs.source_start, logs.target_start = FAR + 5, 7

    done = logs.batch(0, OPENING)

    assert [str(each) for each in logs.told] == [
        f"t:0 source offsets {FAR} to {FAR + 4}: {taken(5)}",
        f"t:0 source offsets {FAR} to {FAR + 999}: 2 gone from the target",
    ]
    assert (done.alerts, done.unknown, done.begins) == (1, 1, {})


def test_what_retention_took_since_is_one_range_however_long(logs):
    done = logs.batch(0, OPENING._replace(first=10, opening=False))

    assert [str(each) for each in logs.told] == [
        f"t:0 source offsets 10 to {FAR - 1}: {taken(FAR - 10)}",
        f"t:0 source offsets {FAR} to {FAR + 999}: equal",
    ]
    assert (done.verdict, done.unknown, done.through) == ("unknown", 1, {"t:0": FAR + 1000})


def test_a_long_range_of_a_topic_made_anew_is_one_range(logs):
    logs.epoch = 1

    done = logs.batch(0, OPENING)

    assert (done.ranges, done.unknown) == (1, 1)
    assert "another one by now" in str(logs.told[0])


def test_a_range_planned_of_a_former_topic_of_the_same_epoch_is_not_compared_with_its_successor(logs):
    logs.incarnation = "a c"

    done = logs.batch(0, OPENING._replace(incarnation="a b"))

    assert (done.ranges, done.unknown, logs.compared) == (1, 1, [])
    assert "another one by now (it has other topic ids)" in str(logs.told[0])


def test_what_the_source_no_longer_reaches_is_not_called_equal(logs):
    logs.source_end = FAR + 800

    done = logs.batch(0, OPENING)

    cut_off = f"the source's log ends at {FAR + 800}, before what was mirrored of it"
    assert [str(each) for each in logs.told] == [
        f"t:0 source offsets {FAR} to {FAR + 799}: equal",
        f"t:0 source offsets {FAR + 800} to {FAR + 999}: {cut_off}",
    ]
    assert (done.verdict, done.unknown, done.through) == ("unknown", 1, {"t:0": FAR + 1000})


@pytest.mark.parametrize(("source_start", "source_end"), [(0, 0), (FAR, FAR + 1000)])
def test_a_range_of_a_topic_that_the_source_deleted_or_made_anew_is_unknown(logs, source_start, source_end):
    logs.source_start, logs.source_end, logs.mirrored_through = source_start, source_end, None

    done = logs.batch(0, OPENING._replace(first=FAR, opening=False))

    assert (done.verdict, done.ranges, done.unknown, logs.compared) == ("unknown", 1, 1, [])
    assert "deleted or recreated" in str(logs.told[0])


def tail_audit(logs, monkeypatch) -> list[PartitionScope]:
    """Look behind what is reconciled, once; returns what was judged."""
    judged = []

    def judge(scope):
        judged.extend(scope.partitions)
        return SimpleNamespace(settled=[], stayed=None)

    for name, value in {
        "observe_scope": lambda *_: logs.scope(),
        "log_starts": lambda scope, _: scope.starts(),
        "ScopeReader": lambda _, scope: scope,
        "judge": judge,
        "unreadable_target": lambda *_: {},
    }.items():
        monkeypatch.setattr(target_tail, name, value)
    assert target_tail.TargetTailAudit(logs.link, logs, None).check(load_progress(logs.folder, "a->b"), list) == []
    return judged


def test_what_clients_write_on_the_target_after_a_failover_is_not_looked_at(logs, monkeypatch):
    logs.target_end = 1050
    logs.batch(0, OPENING)
    assert [(each.target_from, each.target_end) for each in tail_audit(logs, monkeypatch)] == []
    assert [each[3] for each in logs.compared] == [1050]
    logs.target_end = 1070
    assert [(each.target_from, each.target_end) for each in tail_audit(logs, monkeypatch)] == [(1000, 1070)]

    logs.sealed_at = 1000
    logs.batch(1, OPENING._replace(first=FAR, opening=False))

    assert tail_audit(logs, monkeypatch) == []
    assert [each[3] for each in logs.compared] == [1050, 1000]


def test_a_look_behind_says_what_does_not_answer_and_takes_it_back_once_it_answers(logs):
    said = []
    audit = ContinuousAudit(ContinuousRequest(logs.link, logs.folder, "sqlite:///none"), logs, None, None, logs.tell,
                            said.append)  # fmt: skip
    audit._progress = AuditProgress("audit-1", "a->b", "2026-11-20T04:02:59Z")
    logs.answers = False
    audit._look_behind()
    assert (said, audit.problem) == (["waiting: the store doesn't answer"], "the store doesn't answer")

    logs.answers = True
    audit._look_behind()

    assert audit.problem is None


def test_an_audit_that_compares_nothing_for_long_does_not_work(logs, monkeypatch):
    """It hangs: nothing told it of a problem."""
    request = ContinuousRequest(logs.link, logs.folder, "sqlite:///none", interval_seconds=300.0)
    audit = ContinuousAudit(request, logs, None, None, logs.tell, print)
    audit._progress = AuditProgress("audit-1", "a->b", "2026-11-20T04:02:59Z")
    began, at = time.monotonic(), [0.0]
    monkeypatch.setattr(continuous_audit.time, "monotonic", lambda: began + at[0])
    works = []
    for at[0] in (800.0, 1000.0):
        works.append(audit.works)
    audit._look_behind()
    assert [*works, audit.works] == [True, False, True], "three intervals, which are longer than ten minutes"


def test_only_the_first_lot_of_an_opening_range_opens():
    opening = ClosedRange("t", 0, 0, 5, 5 + 2 * OFFSETS_A_SLICE, 1, opening=True)
    other = opening._replace(topic="a")

    lots = slices([other, opening], OFFSETS_A_SLICE)

    assert [(each.topic, each.first, each.opening) for lot in lots for each in lot] == [
        ("a", 5, True),
        ("a", 5 + OFFSETS_A_SLICE, False),
        ("t", 5, True),
        ("t", 5 + OFFSETS_A_SLICE, False),
    ]


def test_what_stands_behind_the_last_mirrored_record_is_in_the_sum_once():
    before = AuditProgress("run", "a->b", "now", batch=3, ranges=2, alerts=1)
    copies = Reconciled(ClosedRange("t", 0, 0, 9, 9, 1), "t", Counts(target_records=2, duplicated=2), behind=(9, 11))

    after = before.beheld([(copies, [(9, 11)])]).beheld([(copies, [(11, 13), (20, 21)])])

    assert (after.batch, after.ranges, after.alerts, after.looks) == (3, 2, 3, 2)
    assert after.counts.duplicated == 4
    assert after.told == {"t:0": [(9, 13), (20, 21)]}
    assert AuditProgress.from_json(after.to_json(), "here") == after
    assert str(copies) == "t:0 target offsets 9 to 10, after the last mirrored record: 2 duplicated"


@pytest.mark.parametrize("anew", [{"epoch": 1}, {"incarnation": "a c"}])
def test_what_was_told_of_a_former_topic_is_not_left_out_of_its_successor(logs, anew):
    former = ClosedRange("t", 0, 0, FAR, FAR + 1000, 1, incarnation="a b")
    logs.incarnation = "a b"
    copies = Reconciled(former, "t", Counts(target_records=7, duplicated=7), behind=(319, 326))
    progress = logs.batch(0, former).beheld([(copies, [(319, 326)])])
    assert progress.told_of([former]) == {"t:0": [(319, 326)]}
    keep_progress(logs.folder, progress)
    successor = former._replace(**anew)
    logs.epoch, logs.incarnation = successor.epoch, successor.incarnation

    after = logs.batch(1, successor)

    assert [scope.told for scope in logs.scopes] == [(), ()]
    assert progress.told_of([successor]) == {}
    assert (after.told, after.is_of("t:0", former.incarnation_name)) == ({}, False)
    assert after.is_of("t:0", successor.incarnation_name)


def test_what_a_range_had_behind_its_place_is_no_later_range_s():
    progress = AuditProgress("audit-1", "a->b", "2026-11-20T04:03:00Z")
    last = Reconciled(ClosedRange("t", 0, 0, 0, 1_000, 1), "t", reached=1_060, beyond=(1_000, 1_060))
    other = Reconciled(ClosedRange("t", 1, 0, 0, 9, 1), "t", reached=9)

    summed = progress.added(0, [last, other], now(), 0.0)

    assert summed.told == {"t:0": [(1_000, 1_060)]}
    assert summed.reached == {"t:0": 1_060, "t:1": 9}

"""Compacted topics: what the cleaner removed is no loss, what a faulty mirror dropped is one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from drkit.audit.compare.scope import Scope, observe_scope
from drkit.audit.run import run_audit
from drkit.audit.salvage.replay import replay
from drkit.audit.salvage.salvage import salvage
from drkit.lab import Lab
from drkit.model.audit.audit_result import AuditRequest, AuditResult, Counts, TopicChoice, Verdict
from drkit.model.clock import now
from drkit.model.link_state import Direction, LinkControl
from tests.support.audits.damage import (
    LINK,
    STAMP,
    Bench,
    Damaged,
    Expected,
    Record,
    Stored,
    damaged,
    dense,
    records,
    seeded,
)
from tests.support.collection.sampling import some_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("audits of compacted topics", 2)]

COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.ms": "100",
    "delete.retention.ms": "0",
}


LATER = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
"""Compacted, but not in the time of a test."""


def is_tail(stored: Stored) -> bool:
    """Whether a record was only written to close a segment."""
    return stored.record.key is not None and stored.record.key.startswith(b"tail-")


class Cleaning:
    """Topics that brokers are compacting."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._waiting: dict[tuple[str, str], int] = {}
        self._closing = 1

    def produce(self, alias: str, topic: str, written: Sequence[Record]) -> None:
        """Produce what the cleaner is to go over, with all that it may take: tombstones too."""
        self._bench.produce(alias, topic, 0, written)
        newest = {record.key: record for record in written}
        self._waiting[alias, topic] = sum(record.value is not None for record in newest.values())

    def expect(self, alias: str, topic: str, staying: int) -> None:
        """Have the cleaner go over a topic that holds all it is to hold; so many records stay."""
        self._waiting[alias, topic] = staying

    def finish(self) -> dict[str, list[Stored]]:
        """Wait until all are clean; what is left, by topic. What closes segments has a key of its own."""
        left: dict[str, list[Stored]] = {}

        def cleaned() -> bool:
            self._closing += 1
            for (alias, topic), staying in list(self._waiting.items()):
                # A segment closes when a record comes in whose stamp is segment.ms later than its first record's, which
                # may be a transaction's marker and has the broker's time; the cleaner takes closed ones.
                stamp = int(time.time() * 1000) + self._closing * 1_000
                self._bench.produce(alias, topic, 0, [Record(b"tail-%d" % self._closing, b"", stamp)])
                found = self._bench.read(alias, topic, 0)
                if sum(not is_tail(each) for each in found) == staying:
                    left[topic] = found
                    del self._waiting[alias, topic]
            return not self._waiting

        wait_until(cleaned, timeout=120, what="the brokers to compact")
        return left


@dataclass
class Compacted:
    """Four topics and one audit of them."""

    result: AuditResult
    written: dict[str, list[Record]]
    left: dict[str, list[Stored]]
    damage: dict[str, Damaged]
    dropped: int

    def findings(self, topic: str) -> set[Expected]:
        return {
            (each.kind.value, each.source_offset, each.target_offset)
            for each in self.result.findings
            if each.topic.endswith(topic)
        }

    def counts(self, topic: str) -> Counts:
        return next(each.counts for each in self.result.partitions if each.topic.endswith(topic))


@pytest.fixture(scope="module")
def compacted(lab: Lab, spark, tmp_path_factory: pytest.TempPathFactory) -> Compacted:
    bench = Bench(lab)
    prefix = f"compacted-{uuid.uuid4().hex[:8]}"
    source, target, mixed, before = (f"{prefix}.{name}" for name in ("source", "target", "mixed", "before"))
    cleaning = Cleaning(bench)
    written: dict[str, list[Record]] = {}
    damage: dict[str, Damaged] = {}

    # `source`: mirrored, and compacted on the source afterwards.
    bench.create(source, on=["primary"], config=COMPACT)
    bench.create(source, on=["dr"])
    written["source"] = records(60, rng=seeded(1), keys=12)
    bench.produce("dr", source, 0, [*written["source"], Record(b"nobody", b"knows this key", STAMP)])
    cleaning.produce("primary", source, written["source"])

    # `target`: compacted on the target; the newest record of one key was never written there.
    bench.create(target, on=["dr"], config=COMPACT)
    bench.create(target, on=["primary"], config=LATER)
    valued = [replace(each, value=each.value or b"v") for each in records(60, rng=seeded(2), keys=12)]
    gone = [Record(b"gone", b"1", STAMP), Record(b"gone", b"2", STAMP), Record(b"gone", None, STAMP)]
    written["target"] = [*valued[:20], *gone[:2], *valued[20:40], gone[2], *valued[40:]]
    newest = {record.key: offset for offset, record in enumerate(written["target"])}
    dropped = min(offset for key, offset in newest.items() if key != b"gone")
    bench.produce("primary", target, 0, written["target"])
    cleaning.produce("dr", target, [each for offset, each in enumerate(written["target"]) if offset != dropped])

    # `mixed`: not compacted yet on either side, and damaged.
    bench.create(mixed, config=LATER)
    bench.produce("primary", mixed, 0, records(300, rng=seeded(3), keys=20))
    stored = bench.read("primary", mixed, 0)
    damage["mixed"] = damaged(stored, {"lost": 6, "duplicated": 4, "swapped": 3, "moved": 3}, seeded(3))
    bench.produce("dr", mixed, 0, damage["mixed"].target)
    bench.remember(mixed, {0: dense(stored)})

    # `before`: compacted on the source before it was mirrored, and damaged.
    bench.create(before, on=["primary"], config=COMPACT)
    bench.create(before, on=["dr"], config=LATER)
    cleaning.produce("primary", before, records(500, rng=seeded(4), keys=150))

    left = cleaning.finish()
    bench.remember(source, {0: {offset: offset for offset in range(60)}})
    size = len(written["target"])
    bench.remember(target, {0: {offset: offset for offset in range(size)}}, target_end={0: size - 1})
    damage["before"] = damaged(left[before], {"lost": 3, "duplicated": 2, "swapped": 2, "moved": 2}, seeded(5))
    bench.produce("dr", before, 0, damage["before"].target)
    bench.remember(before, {0: dense(left[before])})
    topics = tuple(TopicChoice(topic) for topic in (source, target, mixed, before))
    request = AuditRequest(bench.link, str(tmp_path_factory.mktemp("compacted") / "out"), topics)
    result = run_audit(request, bench.store, bench.config, spark)
    return Compacted(result, written, {name.rpartition(".")[2]: found for name, found in left.items()}, damage, dropped)


def test_what_the_source_compacted_after_it_was_mirrored_is_retired(compacted: Compacted):
    there = {each.offset for each in compacted.left["source"] if each.offset < 60}
    counts = compacted.counts("source")

    assert len(there) < 60
    # What is on the source beyond offset 60 was written to close its segments and never mirrored.
    assert compacted.findings("source") == {("foreign", None, 60)} | {
        ("unseen", each.offset, None) for each in compacted.left["source"] if each.offset >= 60
    }
    assert (counts.source_retired, counts.matched) == (60 - len(there), len(there))


def test_what_the_target_compacted_is_retired_and_the_newest_of_a_key_must_be_there(compacted: Compacted):
    written, dropped = compacted.written["target"], compacted.dropped
    kept = [each for each in compacted.left["target"] if not is_tail(each) and each.record.key != b"gone"]
    counts = compacted.counts("target")

    found = {kind for kind in compacted.findings("target") if kind[0] != "foreign"}  # what closed segments
    assert found == {("lost", dropped, None)}
    assert counts.matched == len(kept)
    assert counts.target_retired == len(written) - len(kept) - 1


def test_damage_of_a_compacted_topic_is_found_although_later_records_have_the_same_keys(compacted: Compacted):
    compacted.damage["mixed"].explains(compacted.findings("mixed"))


def test_a_compacted_source_mirrored_after_its_compaction_is_damaged_and_all_is_found(compacted: Compacted):
    left, counts = compacted.left["before"], compacted.counts("before")

    assert any(later.offset - each.offset > 1 for each, later in pairwise(left))
    compacted.damage["before"].explains(compacted.findings("before"))
    assert counts.source_retired == counts.target_retired == 0
    assert counts.matched > 0


def test_what_applications_wrote_after_a_failover_takes_older_values_away_and_is_no_loss(bench, audit, unique_name):
    bench.create(unique_name, on=["primary"], config=LATER)
    bench.create(unique_name, on=["dr"], config=COMPACT)
    source = [replace(each, value=each.value or b"v") for each in records(60, rng=seeded(6), keys=12)]
    newest = {record.key: offset for offset, record in enumerate(source)}
    dropped, since = min(newest.values()), sorted(newest, key=newest.__getitem__)[1:7]
    bench.produce("primary", unique_name, 0, source)
    bench.remember(unique_name, {0: {offset: offset for offset in range(60)}}, target_end={0: 59})
    control = LinkControl(LINK, Direction.SEALED, version=1, changed_at=now(), reason="failed over")
    assert bench.store.set_link_control(control, expected_version=None)
    cleaning = Cleaning(bench)
    mirrored = [each for offset, each in enumerate(source) if offset != dropped]
    cleaning.produce("dr", unique_name, [*mirrored, *(Record(key, b"written on dr", STAMP) for key in since)])
    left = [each for each in cleaning.finish()[unique_name] if not is_tail(each)]

    result = audit(unique_name)

    assert [(each.kind, each.source_offset) for each in result.findings] == [("lost", dropped)]
    matched = sum(each.offset < 59 for each in left)
    assert matched == len(newest) - len(since) - (source[dropped].key not in {each.record.key for each in left})
    assert (result.counts.matched, result.counts.target_retired) == (matched, 60 - matched - 1)


def test_a_tombstone_that_was_never_mirrored_explains_no_loss(bench, audit, unique_name):
    """A faulty mirror wrote something else where `gone` was to stand. After the failover applications wrote where its
    tombstone would have come, and the cleaner took that, and what the mirror wrote, since: both places are empty."""
    bench.create(unique_name, on=["primary"], config=LATER)
    bench.create(unique_name, on=["dr"], config=COMPACT)
    others = [Record(b"key-%d" % number, b"v", STAMP + number) for number in range(1, 20)]
    gone = Record(b"gone", b"1", STAMP)
    bench.produce("primary", unique_name, 0, [gone, *others, replace(gone, value=None, stamp=STAMP + 20)])
    bench.remember(unique_name, {0: {offset: offset for offset in range(20)}}, target_end={0: 20})
    control = LinkControl(LINK, Direction.SEALED, version=1, changed_at=now(), reason="failed over")
    assert bench.store.set_link_control(control, expected_version=None)
    cleaning = Cleaning(bench)
    strange = Record(b"strange", b"0", STAMP)
    cleaning.produce(
        "dr", unique_name, [strange, *others, replace(strange, value=b"on dr"), replace(strange, value=b"again")]
    )
    left = [each for each in cleaning.finish()[unique_name] if not is_tail(each)]
    assert [each.offset for each in left] == [*range(1, 20), 21]

    result = audit(unique_name)

    assert {(each.kind.value, each.source_offset) for each in result.findings} == {("lost", 0), ("unseen", 20)}
    assert result.verdict is Verdict.DEVIATED


@pytest.mark.parametrize("side", ["dr", pytest.param("primary", marks=pytest.mark.long)])
def test_what_came_after_the_audit_began_takes_older_values_away_and_is_no_loss(
    bench, audit, unique_name, monkeypatch, side
):
    """The cleaner comes by between the audit's look at the logs and its reading: of a target whose mirror is running,
    or of a source whose producers are."""
    other = {"dr": "primary", "primary": "dr"}[side]
    bench.create(unique_name, on=[other], config=LATER)
    bench.create(unique_name, on=[side], config=COMPACT)
    written = [replace(each, value=each.value or b"v") for each in records(60, rng=seeded(7), keys=12)]
    newest = {record.key: offset for offset, record in enumerate(written)}
    dropped, since = min(newest.values()), sorted(newest, key=newest.__getitem__)[1:7]
    bench.produce(other, unique_name, 0, written)
    short = [each for offset, each in enumerate(written) if offset != dropped]
    bench.produce(side, unique_name, 0, short)
    if side == "dr":
        bench.remember(unique_name, {0: {offset: offset for offset in range(60)}}, target_end={0: 59})
    else:  # what is on the target only was never on the source
        bench.remember(unique_name, {0: {offset: offset + (offset >= dropped) for offset in range(59)}})
    looked: list[Scope] = []

    def observed(*given, **options):
        scope = observe_scope(*given, **options)
        if not looked:
            bench.produce(side, unique_name, 0, [Record(key, b"since", STAMP) for key in since])
            cleaning = Cleaning(bench)
            older = any(each.key == written[dropped].key for each in short)
            cleaning.expect(side, unique_name, len(newest) - (not older))
            cleaning.finish()
        looked.append(scope)
        return scope

    monkeypatch.setattr("drkit.audit.run.observe_scope", observed)

    result = audit(unique_name)

    found = [(each.kind, each.source_offset, each.target_offset) for each in result.findings]
    assert found == ([("lost", dropped, None)] if side == "dr" else [("foreign", None, dropped)])
    retired = result.counts.target_retired if side == "dr" else result.counts.source_retired
    assert retired == 60 - result.counts.matched - 1
    assert retired > 0


@pytest.mark.parametrize("side", ["dr", pytest.param("primary", marks=pytest.mark.long)])
def test_what_had_no_key_goes_once_a_topic_is_compacted_and_each_partition_is_judged_by_its_own_keys(
    bench, audit, unique_name, side
):
    """Brokers refuse records without a key to a compacted topic; the cleaner drops those that it held before."""
    bench.create(unique_name, partitions=2)
    keyed = [Record(b"k%d" % (n % 6), b"v%d" % n, STAMP + n) for n in range(30)]
    written = [each for n, record in enumerate(keyed) for each in (record, Record(None, b"%d" % n, STAMP + n))]
    dropped = len(written) - 2  # the newest of its key in partition 0; partition 1 has a newer one
    written += [Record(b"last-%d" % n, b"v", STAMP + 50) for n in range(5)]
    newer = [Record(each.key, b"newer", STAMP + 100) for each in keyed[-6:]]
    for alias in ("primary", "dr"):
        short = [each for offset, each in enumerate(written) if alias == "primary" or offset != dropped]
        bench.produce(alias, unique_name, 0, short)
        bench.produce(alias, unique_name, 1, newer)
    with bench.admin(side) as admin:
        admin.set_topic_configs(unique_name, COMPACT)
    if side == "dr":  # else nothing explains what is missing there
        with bench.admin("primary") as admin:
            admin.set_topic_configs(unique_name, LATER)
    cleaning = Cleaning(bench)
    cleaning.expect(side, unique_name, 6 + 5)
    left = [each for each in cleaning.finish()[unique_name] if not is_tail(each)]
    places = {0: {offset: offset for offset in range(len(written))}, 1: {offset: offset for offset in range(6)}}
    bench.remember(unique_name, places, target_end={0: len(written) - 1})

    result = audit(unique_name)

    tails = "foreign" if side == "dr" else "unseen"
    found = {(each.kind.value, each.partition, each.source_offset) for each in result.findings if each.kind != tails}
    assert found == {("lost", 0, dropped)}
    retired = result.counts.target_retired if side == "dr" else result.counts.source_retired
    assert retired == len(written) - len(left) - (side == "dr")
    assert result.counts.matched == 6 + len(left) - (side == "primary")


def test_what_the_target_s_cleaner_took_is_lost_unless_the_source_is_compacted_too(bench, audit, unique_name):
    bench.create(unique_name, on=["primary"])
    bench.create(unique_name, on=["dr"], config=COMPACT)
    written = [Record(b"k%d" % (n % 3), b"v%d" % n, STAMP + n) for n in range(30)]
    bench.produce("primary", unique_name, 0, written)
    cleaning = Cleaning(bench)
    cleaning.produce("dr", unique_name, written)
    left = [each for each in cleaning.finish()[unique_name] if not is_tail(each)]
    bench.remember(unique_name, {0: {offset: offset for offset in range(30)}})

    lost = audit(unique_name)
    with bench.admin("primary") as admin:
        admin.set_topic_configs(unique_name, LATER)
    retired = audit(unique_name)

    taken = 30 - len(left)
    assert taken > 20
    assert (lost.verdict, lost.counts.lost, lost.counts.target_retired) == (Verdict.DEVIATED, taken, 0)
    assert (retired.counts.lost, retired.counts.target_retired) == (0, taken)


def test_a_replay_writes_nothing_again_that_a_cleaner_took_for_a_later_record_of_its_key(
    bench, spark, unique_name, tmp_path
):
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"], config=COMPACT)
    written = [Record(b"k", b"older", STAMP), Record(b"other", b"v", STAMP), Record(b"k", b"newer", STAMP)]
    bench.produce("primary", topic, 0, written)
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))
    assert salvage(request, bench.store, bench.config, spark).total == 3
    what = (tmp_path / "kept", into, bench.link.id, bench.config, bench.store)
    assert replay(*what).written == 3
    cleaning = Cleaning(bench)
    cleaning.expect("dr", into, 2)
    cleaning.finish()

    again = replay(*what)

    assert (again.written, again.there_already) == (0, 3)
    there = {each.record.key: each.record.value for each in bench.read("dr", into, 0)}
    assert (there[b"k"], there[b"other"]) == (b"newer", b"v")

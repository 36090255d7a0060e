"""What an audit must tell apart, one topic a case, all of them audited in one run of Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from drkit.audit.run import run_audit
from drkit.lab import Lab
from drkit.model.audit.audit_result import AuditRequest, AuditResult, Counts, PlacementBasis, TopicChoice
from drkit.model.topology import TopicPartition
from tests.support.audits.damage import RETAINED, STAMP, Bench, Expected, Record, Stored, dense, records, seeded
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

CASES: dict[str, Callable[[Bench, str], None]] = {}


def case(prepare: Callable[[Bench, str], None]) -> Callable[[Bench, str], None]:
    CASES[prepare.__name__] = prepare
    return prepare


@dataclass
class Cases:
    result: AuditResult
    prefix: str
    bench: Bench

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def counts(self, name: str, partition: int = 0) -> Counts:
        return next(
            each.counts
            for each in self.result.partitions
            if (each.topic, each.partition) == (self.topic(name), partition)
        )

    def findings(self, name: str) -> set[Expected]:
        return {
            (each.kind.value, each.source_offset, each.target_offset)
            for each in self.result.findings
            if each.topic == self.topic(name)
        }


@pytest.fixture(scope="module")
def cases(lab: Lab, spark, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    bench = Bench(lab)
    prefix = f"case-{uuid.uuid4().hex[:8]}"
    for name, prepare in CASES.items():
        prepare(bench, f"{prefix}.{name}")
    request = AuditRequest(
        link=bench.link,
        out=str(tmp_path_factory.mktemp("cases") / "out"),
        topics=tuple(TopicChoice(f"{prefix}.{name}") for name in CASES),
    )
    result = run_audit(request, bench.store, bench.config, spark)
    assert not result.findings_truncated
    for each in (result.counts, *(part.counts for part in result.partitions)):
        assert each.broken_identity() is None
    assert result.counts == Counts.total(each.counts for each in result.partitions)
    return Cases(result, prefix, bench)


def mirrored(
    bench: Bench, topic: str, count: int, *, transactions: str = "", config: Mapping[str, str] | None = None
) -> list[Stored]:
    """A topic with `count` records, all on both sides."""
    bench.create(topic, config=config)
    bench.produce("primary", topic, 0, records(count, rng=seeded(topic)), transactions=transactions)
    source = bench.read("primary", topic, 0)
    bench.produce("dr", topic, 0, [each.record for each in source])
    bench.remember(topic, {0: dense(source)})
    return source


# -- nothing wrong ---------------------------------------------------------------------------------


@case
def clean(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 60)


def test_equal_sides_are_clean(cases: Cases):
    assert cases.counts("clean") == Counts(source_records=60, target_records=60, matched=60)
    assert cases.findings("clean") == set()


@case
def aborted(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 70, transactions="ca")


def test_aborted_transactions_and_markers_are_no_losses(cases: Cases):
    assert cases.counts("aborted") == Counts(source_records=35, target_records=35, matched=35)


@case
def empty(bench: Bench, topic: str) -> None:
    bench.create(topic)


def test_an_empty_topic_is_clean(cases: Cases):
    assert cases.counts("empty") == Counts()


@case
def constant(bench: Bench, topic: str) -> None:
    bench.create(topic)
    same = [Record(b"k", b"v", STAMP)] * 50
    bench.produce("primary", topic, 0, same)
    bench.produce("dr", topic, 0, same)
    bench.remember(topic, {0: {offset: offset for offset in range(50)}})


def test_records_that_are_all_equal_are_clean(cases: Cases):
    assert cases.counts("constant") == Counts(source_records=50, target_records=50, matched=50)


@case
def constant_lost(bench: Bench, topic: str) -> None:
    bench.create(topic)
    same = [Record(None, None, STAMP)] * 50
    bench.produce("primary", topic, 0, same)
    bench.produce("dr", topic, 0, same[1:])
    bench.remember(topic, {0: {offset: offset for offset in range(50)}})


def test_of_equal_records_one_missing_is_one_lost(cases: Cases):
    assert cases.counts("constant_lost") == Counts(source_records=50, target_records=49, matched=49, lost=1)


@case
def constant_twice(bench: Bench, topic: str) -> None:
    bench.create(topic)
    same = [Record(b"", b"", STAMP)] * 50
    bench.produce("primary", topic, 0, same)
    bench.produce("dr", topic, 0, [*same, same[0]])
    bench.remember(topic, {0: {offset: offset for offset in range(50)}}, target_end={0: 51})


def test_of_equal_records_one_more_is_one_duplicate(cases: Cases):
    assert cases.counts("constant_twice") == Counts(source_records=50, target_records=51, matched=50, duplicated=1)


# -- what the mirror had not reached ------------------------------------------------------------------


@case
def behind(bench: Bench, topic: str) -> None:
    bench.create(topic)
    bench.produce("primary", topic, 0, records(50, rng=seeded(1)))
    source = bench.read("primary", topic, 0)
    bench.produce("dr", topic, 0, [each.record for each in source[:40]])
    bench.remember(topic, {0: dense(source[:30])})  # the mirror died after 40 and had recorded 30


def test_beyond_the_highest_mirrored_record_is_unseen_whatever_was_recorded(cases: Cases):
    assert cases.counts("behind") == Counts(source_records=50, target_records=40, matched=40, unseen=10)
    assert cases.findings("behind") == {("unseen", offset, None) for offset in range(40, 50)}


@case
def behind_with_a_gap(bench: Bench, topic: str) -> None:
    bench.create(topic)
    bench.produce("primary", topic, 0, records(50, rng=seeded(2)))
    source = bench.read("primary", topic, 0)
    bench.produce("dr", topic, 0, [each.record for each in source[:40] if each.offset not in {38, 39}])
    bench.remember(topic, {0: dense(source[:40])})


def test_missing_below_the_watermark_is_lost_and_above_it_unseen(cases: Cases):
    assert cases.findings("behind_with_a_gap") == {("lost", 38, None), ("lost", 39, None)} | {
        ("unseen", offset, None) for offset in range(40, 50)
    }


@case
def overtaken(bench: Bench, topic: str) -> None:
    source = mirrored(bench, topic, 20)
    assert len(source) == 20
    bench.produce("primary", topic, 0, records(3, rng=seeded(20), first=100))
    bench.produce("dr", topic, 0, [Record(b"mine", b"written on dr", STAMP)])


def test_what_stands_where_the_mirror_had_not_got_is_foreign_not_corrupted(cases: Cases):
    assert cases.findings("overtaken") == {("foreign", None, 20)} | {("unseen", n, None) for n in (20, 21, 22)}


@case
def unrelated(bench: Bench, topic: str) -> None:
    bench.create(topic)
    bench.produce("primary", topic, 0, records(4, rng=seeded(21)))
    bench.produce("dr", topic, 0, records(3, rng=seeded(22), first=50))


def test_topics_of_one_name_that_have_nothing_in_common(cases: Cases):
    assert cases.counts("unrelated") == Counts(source_records=4, target_records=3, foreign=3, unseen=4)


@case
def never_mirrored(bench: Bench, topic: str) -> None:
    bench.create(topic, on=["primary"])
    bench.produce("primary", topic, 0, records(5, rng=seeded(3)))


def test_a_topic_that_the_target_never_had_is_unseen(cases: Cases):
    assert cases.counts("never_mirrored") == Counts(source_records=5, unseen=5)


@case
def deleted_on_target(bench: Bench, topic: str) -> None:
    bench.create(topic, on=["primary"])
    bench.produce("primary", topic, 0, records(9, rng=seeded(4)))
    bench.remember(topic, {0: {offset: offset for offset in range(6)}})


def test_a_topic_that_went_from_the_target_is_lost_as_far_as_it_was_mirrored(cases: Cases):
    assert cases.counts("deleted_on_target") == Counts(source_records=9, lost=6, unseen=3)
    assert any("deleted_on_target does not exist on dr" in note for note in cases.result.notes)


# -- retention ----------------------------------------------------------------------------------------


@case
def source_retention(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 40)
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})


def test_what_the_source_no_longer_has_is_not_foreign(cases: Cases):
    assert cases.counts("source_retention") == Counts(
        source_records=25, target_records=25, matched=25, source_retired=15
    )


@case
def target_retention(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 40, config=RETAINED)
    with bench.admin("dr") as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})


def test_what_the_target_no_longer_has_is_not_lost(cases: Cases):
    assert cases.counts("target_retention") == Counts(
        source_records=25, target_records=25, matched=25, target_retired=15
    )


@case
def target_purge(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 40)
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(topic, 0): 5})
    with bench.admin("dr") as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})


def test_what_somebody_removed_from_the_target_is_lost(cases: Cases):
    assert cases.findings("target_purge") == {("lost", offset, None) for offset in range(5, 15)}
    assert cases.counts("target_purge") == Counts(source_records=35, target_records=25, matched=25, lost=10)


def killed(bench: Bench, topic: str, through: int | None, purged: int, config: Mapping[str, str] | None = None) -> None:
    """Of 40 records that a mirror has written it had recorded so many (None: no watermark) when it was killed; then
    somebody removes some from the target."""
    bench.create(topic, config=config)
    source = records(40, rng=seeded(topic))
    for alias in ("primary", "dr"):
        bench.produce(alias, topic, 0, source)
    places = {0: {offset: offset for offset in range(40)}}
    recorded = {0: through or 0}
    bench.remember(topic, places, through=recorded, target_end=recorded, watermarks=through is not None)
    with bench.admin("dr") as admin:
        admin.delete_records({TopicPartition(topic, 0): purged})


@case
def emptied_before_anything_was_recorded(bench: Bench, topic: str) -> None:
    killed(bench, topic, None, 40)


@case
def emptied_when_nothing_counted_as_mirrored(bench: Bench, topic: str) -> None:
    killed(bench, topic, 0, 40)


@case
def purged_beyond_what_was_recorded(bench: Bench, topic: str) -> None:
    killed(bench, topic, 8, 25)


@case
def retired_beyond_what_was_recorded(bench: Bench, topic: str) -> None:
    killed(bench, topic, 8, 25, RETAINED)


def test_what_was_removed_beyond_what_a_killed_mirror_had_recorded_is_lost(cases: Cases):
    everything = Counts(source_records=40, lost=40)
    assert cases.counts("emptied_before_anything_was_recorded") == everything
    assert cases.counts("emptied_when_nothing_counted_as_mirrored") == everything
    left = Counts(source_records=15, target_records=15, matched=15)
    assert cases.counts("purged_beyond_what_was_recorded") == replace(left, source_records=40, lost=25)
    assert cases.counts("retired_beyond_what_was_recorded") == replace(left, target_retired=25)


@case
def both_retentions(bench: Bench, topic: str) -> None:
    bench.create(topic, config=RETAINED)
    source = records(40, rng=seeded(5))
    bench.produce("primary", topic, 0, source)
    bench.produce("dr", topic, 0, [*source[:20], *source[21:30], *source[31:]])  # 20 and 30 are lost
    bench.remember(topic, {0: {offset: offset for offset in range(40)}})
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})
    with bench.admin("dr") as admin:
        admin.delete_records({TopicPartition(topic, 0): 25})  # holds what source offset 26 held, and on


def test_a_loss_is_counted_even_where_retention_hides_which_record_it_was(cases: Cases):
    # Sixteen records (10 to 25) for the fifteen places before the target's start: the last has none left.
    assert cases.findings("both_retentions") == {("lost", 30, None), ("lost", 25, None)}
    assert cases.counts("both_retentions") == Counts(
        source_records=15, target_records=13, matched=13, lost=2, target_retired=15
    )


@case
def all_retired(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 12)
    for alias in ("primary", "dr"):
        with bench.admin(alias) as admin:
            admin.delete_records({TopicPartition(topic, 0): 12})


def test_a_topic_that_retention_emptied_on_both_sides_is_clean(cases: Cases):
    assert cases.counts("all_retired") == Counts()


# -- other incarnations and other origins ------------------------------------------------------------


@case
def deleted_on_source(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 8)
    with bench.admin("primary") as admin:
        admin.delete_topics([topic])


def test_a_topic_that_went_from_the_source_leaves_nothing_foreign(cases: Cases):
    assert cases.counts("deleted_on_source") == Counts(source_retired=8)


@case
def made_anew_on_source(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 8)
    with bench.admin("primary") as admin:
        admin.delete_topics([topic])
    wait_until(lambda: bench.create(topic, on=["primary"]), what="the topic's name to be free")
    bench.produce("primary", topic, 0, records(5, rng=seeded(6), first=100))


def test_a_topic_made_anew_on_the_source_is_unseen_and_the_old_one_retired(cases: Cases):
    assert cases.counts("made_anew_on_source") == Counts(source_records=5, unseen=5, source_retired=8)


@case
def second_epoch(bench: Bench, topic: str) -> None:
    mirrored(bench, topic, 8)
    with bench.admin("primary") as admin:
        admin.delete_topics([topic])
    wait_until(lambda: bench.create(topic, on=["primary"]), what="the topic's name to be free")
    again = records(6, rng=seeded(7), first=100)
    bench.produce("primary", topic, 0, again)
    bench.produce("dr", topic, 0, [*again[:3], replace(again[3], value=b"spoiled"), *again[4:]])
    bench.remember(topic, {0: {offset: 8 + offset for offset in range(6)}}, epoch=1)


def test_what_an_earlier_topic_of_the_name_left_is_retired(cases: Cases):
    assert cases.findings("second_epoch") == {("corrupted", 3, 11)}
    assert cases.counts("second_epoch") == Counts(
        source_records=6, target_records=6, matched=5, corrupted=1, source_retired=8
    )


@case
def mirrored_anew(bench: Bench, topic: str) -> None:
    source = mirrored(bench, topic, 20)
    bench.produce("dr", topic, 0, [each.record for each in source[:8] if each.offset != 3])
    places = {offset: 20 + offset for offset in range(3)} | {offset: 19 + offset for offset in range(4, 8)}
    bench.remember(topic, {0: places}, epoch=1)


def test_a_topic_that_is_mirrored_anew_is_unseen_as_far_as_its_new_copy_lacks_it(cases: Cases):
    unseen = {("unseen", offset, None) for offset in range(8, 20)}
    assert cases.findings("mirrored_anew") == {("lost", 3, None), *unseen}
    assert cases.counts("mirrored_anew") == Counts(
        source_records=20, target_records=7, matched=7, lost=1, unseen=12, source_retired=20
    )


@case
def unrecorded(bench: Bench, topic: str) -> None:
    bench.create(topic)
    source = records(40, rng=seeded(8))
    bench.produce("primary", topic, 0, source)
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})
    bench.produce("dr", topic, 0, [*source[10:20], *source[21:35], source[12]])


def test_without_a_record_of_the_mirror_content_tells(cases: Cases):
    part = next(each for each in cases.result.partitions if each.topic == cases.topic("unrecorded"))
    assert part.basis is PlacementBasis.CONTENT
    assert cases.result.basis is PlacementBasis.MIXED
    assert cases.findings("unrecorded") == {("lost", 20, None), ("duplicated", 12, 24)} | {
        ("unseen", offset, None) for offset in range(35, 40)
    }


@case
def long_before_the_mirror(bench: Bench, topic: str) -> None:
    bench.create(topic)
    source = records(30, rng=seeded(9))
    bench.produce("primary", topic, 0, source)
    bench.produce("dr", topic, 0, [Record(b"mine", b"before the mirror", STAMP), *source[10:]])
    bench.remember(topic, {0: {offset: offset - 9 for offset in range(10, 30)}})
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})


def test_what_stood_on_the_target_before_the_mirror_is_foreign(cases: Cases):
    assert cases.findings("long_before_the_mirror") == {("foreign", None, 0)}
    assert cases.counts("long_before_the_mirror").matched == 20

"""Logs that change under an audit, or were cleaned up in more than one way: what nobody lost is no deviation, what
somebody did is one, and every way of comparing says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from drkit.audit.compare.scope import Scope, observe_scope
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.audit.audit_result import AuditResult, Counts, PlacementBasis, Verdict
from drkit.model.errors import DrkitError
from drkit.model.topic_policy import TopicSettings
from drkit.model.topology import TopicPartition
from tests.integration.audit.comparing.test_altered import altering, as_altered
from tests.integration.audit.comparing.test_compaction import COMPACT, LATER, Cleaning, is_tail
from tests.support.audits.damage import RETAINED, STAMP, Bench, Expected, Record, Stored, dense, records, seeded
from tests.support.collection.sampling import some_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("audits of changing logs", 3)]

BOTH = {"cleanup.policy": "compact,delete"}


def valued(count: int, seed: int, keys: int = 12) -> list[Record]:
    return [replace(each, value=each.value or b"v") for each in records(count, rng=seeded(seed), keys=keys)]


@pytest.fixture
def every_way(audit, monkeypatch) -> Callable[..., dict[str, AuditResult]]:
    """One audit after the other: by batches, decoded, by digest where that is available, in Spark's tasks."""

    def audited(*topics: str, digests: bool = True, **options) -> dict[str, AuditResult]:
        found = {"default": audit(*topics, **options), "full": audit(*topics, full=True, **options)}
        if digests:
            found["digest"] = audit(*topics, from_digests=True, **options)
        with monkeypatch.context() as patch:
            patch.setattr("drkit.audit.compare.first_pass.MEMORY_BUDGET", 0)
            found["in tasks"] = audit(*topics, **options)
        return found

    return audited


def deviations(result: AuditResult) -> set[Expected]:
    return {
        (each.kind.value, each.source_offset, each.target_offset) for each in result.findings if each.kind != "unseen"
    }


def mirrored(bench: Bench, topic: str):
    link = replace(bench.link, topics=(re.escape(topic),))
    assert MirrorRuntime(bench.config, link, bench.store).run(until_caught_up=True).caught_up
    return link


# -- clean-up of more than one kind ----------------------------------------------------------------


@pytest.mark.long
def test_transactions_in_a_log_that_both_sides_compact_are_clean_at_every_moment(bench, every_way, unique_name):
    bench.create(unique_name, on=["primary"], config=COMPACT)
    written = valued(140, 8)
    bench.produce("primary", unique_name, 0, written, transactions="cca")  # of 7 records each
    link = mirrored(bench, unique_name)
    for hour in range(1, 4):  # each closes a segment more, on the source and then on the target; both clean meanwhile
        bench.produce("primary", unique_name, 0, [Record(b"tail-%d" % hour, b"", STAMP + hour * 3_600_000)])
        for way, result in every_way(unique_name, link=link).items():
            assert (result.verdict, deviations(result)) == (Verdict.CLEAN, set()), (hour, way)
        mirrored(bench, unique_name)


@pytest.mark.long
def test_what_a_compacted_log_of_transactions_lost_is_found(bench, every_way, unique_name):
    bench.create(unique_name, on=["primary"], config=COMPACT)
    bench.create(unique_name, on=["dr"], config=LATER)
    written = valued(140, 9)
    bench.produce("primary", unique_name, 0, written, transactions="cca")
    keys = {each.key for number, each in enumerate(written) if number // 7 % 3 != 2}
    cleaning = Cleaning(bench)
    cleaning.expect("primary", unique_name, len(keys))
    left = cleaning.finish()[unique_name]
    dropped = left[3]
    bench.produce("dr", unique_name, 0, [each.record for each in left if each is not dropped])
    bench.remember(unique_name, {0: dense(left)}, target_end={0: len(left) - 1})

    for way, result in every_way(unique_name).items():
        assert deviations(result) == {("lost", dropped.offset, None)}, way
        assert (result.counts.matched, result.counts.target_retired) == (len(left) - 1, 0), way


@pytest.mark.parametrize("purged", [False, True])
def test_a_log_that_is_compacted_and_has_retention_explains_what_either_takes(bench, every_way, unique_name, purged):
    overrides = () if purged else tuple(RETAINED.items())  # what the link means its target to have
    link = replace(bench.link, topic_settings=TopicSettings(overrides=overrides))
    bench.create(unique_name, on=["primary"], config=COMPACT | BOTH)
    bench.create(unique_name, on=["dr"], config=LATER | BOTH)
    written = valued(60, 10)
    bench.produce("dr", unique_name, 0, written)
    bench.remember(unique_name, {0: {offset: offset for offset in range(60)}})
    cleaning = Cleaning(bench)
    cleaning.produce("primary", unique_name, written)
    cleaning.finish()
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(unique_name, 0): 35})
    with bench.admin("dr") as admin:
        admin.delete_records({TopicPartition(unique_name, 0): 55})
    left = [each for each in bench.read("primary", unique_name, 0) if not is_tail(each)]
    gone = {each.offset for each in left if each.offset < 55}
    assert gone
    assert len(gone) < len(left)

    for way, result in every_way(unique_name, link=link).items():
        counts = result.counts
        assert deviations(result) == ({("lost", offset, None) for offset in gone} if purged else set()), way
        assert (counts.matched, counts.target_retired) == (len(left) - len(gone), 0 if purged else len(gone)), way
        assert counts.source_retired == 5 - counts.matched, way
        assert result.verdict is (Verdict.DEVIATED if purged else Verdict.CLEAN), way


def test_an_altered_link_whose_source_was_compacted_and_truncated_is_never_called_clean(bench, every_way, unique_name):
    link = altering(bench, filter="keeps_two_of_three", transform="redacts")
    topics = {name: f"{unique_name}.{name}" for name in ("whole", "damaged", "truncated")}
    written = valued(90, 11)
    altered = as_altered(unique_name, [Stored(offset, each) for offset, each in enumerate(written)])
    cleaning = Cleaning(bench)
    for name, topic in topics.items():
        bench.create(topic, on=["primary"], config=(LATER if name == "truncated" else COMPACT) | BOTH)
        bench.create(topic, on=["dr"])
        if name == "truncated":
            bench.produce("primary", topic, 0, written)
        else:
            cleaning.produce("primary", topic, written)
    cleaning.finish()
    with bench.admin("primary") as admin:
        admin.delete_records({TopicPartition(topic, 0): 15 for topic in topics.values()})
    there = {each.offset for each in bench.read("primary", topics["damaged"], 0)}
    places = dense(altered)
    spoilt = max(each.offset for each in altered if each.offset in there)
    for name, topic in topics.items():
        target = [
            replace(each.record, value=b"!") if name == "damaged" and each.offset == spoilt else each.record
            for each in altered
        ]
        bench.produce("dr", topic, 0, target)
        bench.remember(topic, {0: places})

    whole = every_way(topics["whole"], link=link, digests=False)
    damaged = every_way(topics["damaged"], link=link, digests=False)
    truncated = every_way(topics["truncated"], link=link, digests=False)

    for way, result in whole.items():
        assert (result.verdict, deviations(result)) == (Verdict.INCOMPLETE, set()), way
        assert any("is compacted on primary" in reason for reason in result.incomplete), way
    for way, result in damaged.items():
        assert (result.verdict, deviations(result)) == (
            Verdict.DEVIATED,
            {("corrupted", spoilt, places[spoilt])},
        ), way
    for way, result in truncated.items():
        assert (result.verdict, deviations(result)) == (Verdict.CLEAN, set()), way
        assert result.counts.source_retired == sum(each.offset < 15 for each in altered), way


# -- partitions and topics that are not there ----------------------------------------------------------


def test_partitions_that_the_target_lacks_are_lost_as_far_as_they_were_mirrored_and_never_clean(
    bench, every_way, unique_name
):
    bench.create(unique_name, partitions=3, on=["primary"])
    bench.create(unique_name, on=["dr"])
    source = {}
    for partition in range(3):
        bench.produce("primary", unique_name, partition, records(6, rng=seeded(partition)))
        source[partition] = bench.read("primary", unique_name, partition)
    bench.produce("dr", unique_name, 0, [each.record for each in source[0]])
    bench.remember(unique_name, {0: dense(source[0]), 1: dense(source[1][:4])})

    for way, result in every_way(unique_name).items():
        counts = {each.partition: each.counts for each in result.partitions}
        assert counts == {
            0: Counts(source_records=6, target_records=6, matched=6),
            1: Counts(source_records=6, lost=4, unseen=2),
            2: Counts(source_records=6, unseen=6),
        }, way
        assert result.verdict is Verdict.DEVIATED, way
        (reason,) = result.incomplete
        assert "has no partition 2" in reason, way
        assert result.partitions[2].basis is PlacementBasis.CONTENT, way
    only = every_way(f"{unique_name}:2")
    assert {result.verdict for result in only.values()} == {Verdict.INCOMPLETE}


class Meddling:
    """Something happens between an audit's first look at the logs and its reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], None]) -> None:
        self.looks = 0
        self._acts = acts
        monkeypatch.setattr("drkit.audit.run.observe_scope", self._observe)

    def _observe(self, *given, **options) -> Scope:
        scope = observe_scope(*given, **options)
        if self.looks < len(self._acts):
            self._acts[self.looks]()
        self.looks += 1
        return scope


WAYS = [{}, *(pytest.param(way, marks=pytest.mark.long) for way in ({"full": True}, {"from_digests": True}))]


def deletion(bench: Bench, alias: str, topic: str) -> Callable[[], None]:
    def delete() -> None:
        with bench.admin(alias) as admin:
            admin.delete_topics([topic])

    return delete


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["primary", "dr"])
def test_a_topic_that_is_deleted_meanwhile_is_judged_as_gone_and_the_others_as_ever(
    bench, audit, unique_name, monkeypatch, side, way
):
    beside = bench.create(f"{unique_name}.beside")
    topic = bench.create(f"{unique_name}.deleted", on=["primary"])
    source = records(50, rng=seeded(12))
    bench.produce("primary", topic, 0, source)
    link = mirrored(bench, topic)
    for alias in ("primary", "dr"):
        bench.produce(alias, beside, 0, source)
    bench.remember(beside, {0: {offset: offset for offset in range(50)}})
    link = replace(link, topics=(re.escape(unique_name) + "[.].*",))
    meddling = Meddling(monkeypatch, deletion(bench, side, topic))

    result = audit(topic, beside, link=link, **way)

    assert meddling.looks > 1
    counts = {each.topic: each.counts for each in result.partitions}
    assert counts[beside] == Counts(source_records=50, target_records=50, matched=50)
    gone = Counts(source_records=50, lost=50) if side == "dr" else Counts(source_retired=50)
    assert counts[topic] == gone
    assert result.verdict is (Verdict.DEVIATED if side == "dr" else Verdict.INCOMPLETE)
    assert any("no longer exists on primary" in reason for reason in result.incomplete) is (side == "primary")
    assert any(topic in note for note in result.notes)


@pytest.mark.parametrize("way", WAYS)
def test_a_source_topic_that_is_made_anew_meanwhile_is_not_taken_for_the_old_one(
    bench, audit, unique_name, monkeypatch, way
):
    bench.create(unique_name, on=["primary"])
    bench.produce("primary", unique_name, 0, records(50, rng=seeded(13)))
    link = mirrored(bench, unique_name)

    def make_anew() -> None:
        deletion(bench, "primary", unique_name)()
        wait_until(lambda: bench.create(unique_name, on=["primary"]), what="the topic's name to be free")
        bench.produce("primary", unique_name, 0, records(50, rng=seeded(14), first=1_000))

    meddling = Meddling(monkeypatch, make_anew)

    result = audit(unique_name, link=link, **way)

    assert meddling.looks > 1
    assert result.counts == Counts(source_records=50, unseen=50, source_retired=50)
    assert result.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("way", WAYS)
def test_retention_that_moves_the_source_meanwhile_makes_no_deviation(bench, audit, unique_name, monkeypatch, way):
    bench.create(unique_name, on=["primary"])
    bench.produce("primary", unique_name, 0, records(60, rng=seeded(15)), batched=5)
    link = mirrored(bench, unique_name)

    def retire(until: int) -> Callable[[], None]:
        def delete() -> None:
            with bench.admin("primary") as admin:
                admin.delete_records({TopicPartition(unique_name, 0): until})

        return delete

    meddling = Meddling(monkeypatch, retire(13), retire(27))
    result = audit(unique_name, link=link, **way)

    assert meddling.looks == 3
    assert result.counts == Counts(source_records=33, target_records=33, matched=33, source_retired=27)
    assert result.verdict is Verdict.CLEAN

    Meddling(monkeypatch, *(retire(until) for until in (30, 33, 36, 39, 42)))
    with pytest.raises(DrkitError, match="retention removed records") as refused:
        audit(unique_name, link=link, **way)
    assert refused.value.remedy


def test_a_log_that_is_purged_all_the_time_is_left_out_and_the_others_are_audited(
    bench, audit, unique_name, monkeypatch
):
    purged, beside = (bench.create(f"{unique_name}.{name}") for name in ("purged", "beside"))
    source = records(60, rng=seeded(17))
    for alias in ("primary", "dr"):
        bench.produce(alias, purged, 0, source)
    bench.produce("primary", beside, 0, source)
    bench.produce("dr", beside, 0, [*source[:7], *source[8:]])
    for topic in (purged, beside):
        bench.remember(topic, {0: {offset: offset for offset in range(60)}}, target_end={0: 59})

    def purge(until: int) -> Callable[[], None]:
        def delete() -> None:
            with bench.admin("primary") as admin:
                admin.delete_records({TopicPartition(purged, 0): until})

        return delete

    meddling = Meddling(monkeypatch, *(purge(5 * n) for n in range(1, 6)))

    result = audit(purged, beside)

    assert meddling.looks == 4
    assert [each.topic for each in result.partitions] == [beside]
    assert deviations(result) == {("lost", 7, None)}
    (reason,) = result.incomplete
    assert reason.startswith(f"{purged}:0 was not compared")


def test_a_move_that_changes_nothing_starts_nothing_again(bench, audit, unique_name):
    bench.create(unique_name)
    for alias in ("primary", "dr"):
        bench.produce(alias, unique_name, 0, records(60, rng=seeded(18)))
    bench.remember(unique_name, {0: {offset: offset for offset in range(60)}})
    said: list[str] = []

    def strike(text: str) -> None:
        said.append(text)
        if "batches are equal" in text:
            with bench.admin("primary") as admin:
                admin.delete_records({TopicPartition(unique_name, 0): 20})

    result = audit(unique_name, progress=strike)

    assert said.count("reading both sides") == 1
    assert result.counts == Counts(source_records=60, target_records=60, matched=60)


def test_a_record_that_retention_took_after_it_was_read_is_no_stranger(bench, audit, unique_name):
    """Where the driver itself asks a log again, which has lost its beginning by then, the audit starts again."""
    bench.create(unique_name)
    source = records(60, rng=seeded(16))
    bench.produce("primary", unique_name, 0, source)
    bench.produce("dr", unique_name, 0, [*source, Record(b"late", b"copy", STAMP)])
    bench.remember(unique_name, {0: {offset: offset for offset in range(60)}})
    struck: list[str] = []

    def said(text: str) -> None:
        if "batches are equal" in text and not struck:
            struck.append(text)
            with bench.admin("primary") as admin:
                admin.delete_records({TopicPartition(unique_name, 0): 20})

    result = audit(unique_name, progress=said)

    assert struck
    assert deviations(result) == {("foreign", None, 60)}
    assert result.counts == Counts(source_records=40, target_records=41, matched=40, foreign=1, source_retired=20)

"""`--from-digests`: what the mirror kept digests of is proven on the target alone, and damage is found all the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.kafka.protocol.record_batch import Batch, parse
from drkit.kafka.protocol.records import RawRecord as Encoded
from drkit.kafka.protocol.records import build, read
from drkit.lab import Lab
from drkit.mirror.engine import range_digests
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.audit.audit_result import Verdict
from drkit.model.digests import Uncovered
from drkit.model.topology import TopicPartition
from tests.integration.audit.command.test_verbs import document, drkit
from tests.support.audits.damage import Bench, forwarded, records, seeded, unowned
from tests.support.clusters import raw
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("audits from digests", 2)]

Rows = list[tuple[bytes, bytes | memoryview]]


@pytest.fixture(autouse=True)
def _short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranges even of a small topic."""
    monkeypatch.setattr(range_digests, "MOST_RECORDS", 400)


def mirror(bench: Bench, prefix: str):
    link = replace(bench.link, topics=(re.escape(prefix) + "[.].*",))
    assert MirrorRuntime(bench.config, link, bench.store).run(until_caught_up=True).caught_up
    return link


def digests(bench: Bench, topic: str, partition: int = 0):
    return bench.store.range_digests(bench.link.id, TopicPartition(topic, partition), 1)


@pytest.fixture
def without_source(lab: Lab) -> Iterator[Callable[[str], None]]:
    """Told what an audit does: the source's broker stands still while the target is read by digest."""
    stood: list[str] = []

    def say(text: str) -> None:
        if text.endswith("of which digests are kept"):
            lab.pause("primary-1")
            stood.append(text)
        elif text.endswith("are proven by digest"):
            lab.resume("primary-1")

    yield say
    lab.resume("primary-1")
    assert stood


def test_what_was_mirrored_is_proven_without_the_source(bench, audit, unique_name, without_source):
    plain, transactional, tiny = (f"{unique_name}.{name}" for name in ("plain", "transactional", "tiny"))
    for topic, how in (
        (plain, {"batched": 50}),
        (transactional, {"transactions": "cacca", "transaction": 30}),
        (tiny, {"batched": 2}),
    ):
        bench.create(topic, partitions=2, on=["primary"])
        for partition in range(2):
            bench.produce("primary", topic, partition, records(900, rng=seeded(topic[-5:])), **how)
    link = mirror(bench, unique_name)
    assert len(digests(bench, plain)) > 1
    said: list[str] = []

    def both(text: str) -> None:
        said.append(text)
        without_source(text)

    result = audit(plain, transactional, tiny, link=link, from_digests=True, progress=both)
    ordinary = audit(plain, transactional, tiny, link=link)

    assert result.verdict is Verdict.CLEAN
    assert result.partitions == ordinary.partitions
    assert ordinary.coverage is None
    kept = [digest for topic in (plain, transactional) for n in range(2) for digest in digests(bench, topic, n)]
    committed = sum(len(bench.read("primary", topic, n)) for topic in (plain, transactional) for n in range(2))
    forwarded = sum(each.records for each in kept)  # markers in between and all
    assert 0.8 * committed < forwarded <= committed  # a slow producer's batches may be so small that they are merged
    assert result.coverage.proven >= forwarded
    assert result.coverage.ranges >= len(kept)
    assert {each.reason for each in result.coverage.not_covered} <= {Uncovered.NO_DIGEST}
    merged = next(each for each in result.coverage.not_covered)
    assert merged.offsets > 1_000  # what was merged is compared on both sides


def altered(batches: Sequence[Batch]) -> Rows:
    return [_altered(each) if at == len(batches) // 2 else forwarded(each) for at, each in enumerate(batches)]


def _altered(batch: Batch) -> tuple[bytes, bytes | memoryview]:
    """The batch with another byte in one of its records."""
    held = [Encoded(each.offset, each.timestamp, bytes(each.body)) for each in read(batch)]
    body = bytearray(held[3].body)
    body[-2] ^= 1
    held[3] = held[3]._replace(body=bytes(body))
    built = build(held, batch.codec)
    return unowned(batch.attributes, built, built.payload)


def tail_dropped(batches: Sequence[Batch]) -> Rows:
    return [forwarded(each) for each in batches[:-3]]


def doubled(batches: Sequence[Batch]) -> Rows:
    return [forwarded(each) for each in (*batches[:9], batches[8], *batches[9:])]


def reordered(batches: Sequence[Batch]) -> Rows:
    return [forwarded(each) for each in (*batches[:5], batches[6], batches[5], *batches[7:])]


def left_out(batches: Sequence[Batch]) -> Rows:
    return [forwarded(each) for each in (*batches[:12], *batches[13:])]


def test_damage_to_the_target_is_found_as_without_digests(bench, audit, unique_name):
    acts = (altered, tail_dropped, doubled, reordered, left_out)
    topics = {f"{unique_name}.{act.__name__.strip('_')}": act for act in acts}
    for topic in topics:
        bench.create(topic, on=["primary"])
        bench.produce("primary", topic, 0, records(1_000, rng=seeded(topic[-4:])), batched=40)
    link = mirror(bench, unique_name)
    for topic, act in topics.items():
        assert len(digests(bench, topic)) > 1
        whole = raw.fetch(bench.lab.bootstrap("dr"), topic, 0)
        batches = [each for each in parse(memoryview(whole)) if not each.is_control]
        with bench.admin("dr") as admin:
            admin.delete_topics([topic])
        bench.create(topic, on=["dr"])
        raw.produce(bench.lab.bootstrap("dr"), topic, 0, *act(batches))

    first = audit(*topics, link=link, from_digests=True)
    ordinary = audit(*topics, link=link)

    assert first.verdict is ordinary.verdict is Verdict.DEVIATED
    assert first.partitions == ordinary.partitions
    assert set(first.findings) == set(ordinary.findings)
    assert first.findings_total == ordinary.findings_total
    kinds = {topic: {each.kind.value for each in first.findings if each.topic == topic} for topic in topics}
    assert [kinds[topic] for topic in topics] == [{"corrupted"}, {"lost"}, {"duplicated"}, {"reordered"}, {"lost"}]
    assert 0 < first.coverage.proven < first.counts.source_records  # what stands before the damage
    reasons = {each.reason for each in first.coverage.not_covered}
    assert {Uncovered.DIFFERS, Uncovered.BEYOND_END} <= reasons


@pytest.fixture
def mirrored(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    world = Mirrored(lab, tmp_path, unique_name)
    yield world
    world.close()


def test_a_mirror_that_was_killed_goes_on_to_cover_and_the_verb_says_how_much(mirrored, tmp_path, bench):
    topic = mirrored.name("killed")
    tp = TopicPartition(topic, 0)
    mirrored.source.create(topic)
    batch = {"batched": 500}
    for number, killed in enumerate((True, True, False)):
        rng = seeded(number)
        bench.produce("primary", topic, 0, records(2_000, rng=rng, first=2_000 * number), **batch)
        if killed:
            process = mirrored.process()
            mirrored.wait_through(topic)
            mirrored.kill(process)
        else:
            assert mirrored.catch_up().caught_up
    kept = mirrored.store.range_digests(mirrored.link.id, tp, 1)
    assert kept
    assert kept[-1].target_end == mirrored.target.end(topic)

    clean = drkit("audit", "--from-digests", "--topic", topic, config=mirrored.config_path, folder=tmp_path)
    refused = [
        drkit("audit", "--from-digests", *more, config=mirrored.config_path, folder=tmp_path)
        for more in (("--full",), ("--from", "-2m"))
    ]

    assert clean.returncode == 0, clean.stderr
    found = document(clean, "audit")
    assert found["digest"]["proven"] + found["digest"]["compared"] == found["totals"]["source_records"] == 6_000
    assert found["digest"]["proven"] >= 2_000
    assert [each.returncode for each in refused] == [2, 2]
    assert all("exclude each other" in each.stderr for each in refused)


KEPT, SECOND, THROUGH = 300, 600, 900
"""Where the source's copy ends, the second range, and what is mirrored."""


def write(mirrored: Mirrored, topic: str, what: str, first: int, until: int) -> None:
    """Fifty records a batch: they are forwarded as they are."""
    producer = mirrored.source.producer()
    for at in range(first, until, 50):
        for number in range(at, at + 50):
            producer.produce(topic, value=b"%s-%d" % (what.encode(), number), partition=0)
        assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("grown", "target_cut"), [(SECOND, SECOND), (SECOND + 100, None)], ids=["both end alike", "the target is whole"]
)
def test_what_a_source_that_was_set_back_no_longer_holds_is_not_proven(
    mirrored: Mirrored, audit, tmp_path: Path, grown: int, target_cut: int | None
) -> None:
    """Other records stand in the source where the second of three ranges was, up to its end: no leader epoch, log end
    or newest digest tells, but the batch that ended it."""
    topic, copy = mirrored.name("set-back"), tmp_path / "copy"
    mirrored.source.create(topic)
    for first, until in ((0, KEPT), (KEPT, SECOND), (SECOND, THROUGH)):
        write(mirrored, topic, "first", first, until)
        assert mirrored.catch_up().caught_up
        if until == KEPT:
            with stopped(mirrored.lab, "primary-1") as disk:
                disk.copy_to(copy)
    rows = mirrored.store.range_digests(mirrored.link.id, TopicPartition(topic, 0), 1)
    assert [each.source_end for each in rows] == [KEPT, SECOND, THROUGH]
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, "other", KEPT, grown)
    if target_cut is not None:
        with stopped(mirrored.lab, "dr-1") as disk:
            assert disk.cut(topic, 0, target_cut) == target_cut
    for halted in (False, True):  # a problem on record says from where on both sides differ, then
        if halted:
            assert mirrored.catch_up().halted
        by_digest, plain = (
            audit(topic, link=mirrored.link, store=mirrored.store, from_digests=way) for way in (True, False)
        )
        assert plain.verdict is by_digest.verdict is Verdict.DEVIATED
        assert by_digest.partitions == plain.partitions
        assert by_digest.counts.corrupted == grown - KEPT
        assert (by_digest.coverage.proven, by_digest.coverage.ranges) == (KEPT, 1), "what it still holds is proven"
        assert {each.reason for each in by_digest.coverage.not_covered} == {Uncovered.SOURCE_DIVERGED}


def test_a_transaction_that_is_aborted_where_it_was_committed_is_not_proven(
    mirrored: Mirrored, audit, tmp_path: Path
) -> None:
    """The source's copy holds all batches of the range, but not the marker behind them that made them count."""
    topic, copy = mirrored.name("undone"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, "first", 0, KEPT)
    assert mirrored.catch_up().caught_up
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(50):
        producer.produce(topic, value=b"decided-%d" % number, partition=0)
    assert producer.flush(30) == 0
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    producer.commit_transaction(30)
    assert mirrored.catch_up().caught_up
    rows = mirrored.store.range_digests(mirrored.link.id, TopicPartition(topic, 0), 1)
    assert [each.source_end for each in rows] == [KEPT, KEPT + 50], "the marker is behind it"
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    mirrored.source.producer(transactional_id=topic).init_transactions(60)  # ends what its predecessor left open
    write(mirrored, topic, "other", KEPT + 51, KEPT + 101)

    by_digest, plain = (
        audit(topic, link=mirrored.link, store=mirrored.store, from_digests=way) for way in (True, False)
    )

    assert plain.verdict is by_digest.verdict is Verdict.DEVIATED
    assert by_digest.partitions == plain.partitions
    assert by_digest.counts.matched == by_digest.coverage.proven == KEPT


def test_without_digests_both_sides_are_compared(bench, audit, unique_name):
    topic = bench.create(f"{unique_name}.none", on=["primary"])
    bench.produce("primary", topic, 0, records(300, rng=seeded(1)), batched=50)
    link = replace(bench.link, topics=(re.escape(unique_name) + "[.].*",), range_digests=False)
    assert MirrorRuntime(bench.config, link, bench.store).run(until_caught_up=True).caught_up

    result = audit(topic, link=link, from_digests=True)

    assert digests(bench, topic) == []
    assert result.verdict is Verdict.CLEAN
    assert (result.coverage.proven, result.coverage.ranges) == (0, 0)
    assert [(each.reason, each.offsets) for each in result.coverage.not_covered] == [(Uncovered.NO_DIGEST, 300)]

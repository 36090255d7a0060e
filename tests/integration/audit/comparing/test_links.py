"""Links in every state: sealed, prefixed, moving while they are audited; windows of time; large damage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from drkit.audit.classify import ordering
from drkit.audit.run import run_audit
from drkit.model.audit.audit_result import AuditRequest, Counts, TopicChoice, Verdict
from drkit.model.clock import from_millis, now
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_state import FOREIGN_WRITER, Direction, LinkControl, Problem
from drkit.model.topology import Isolation, LinkId, TopicPartition, TopicPolicy
from tests.support.audits.damage import LINK, RETAINED, STAMP, Record, damaged, dense, records, seeded
from tests.support.collection.sampling import sampled, some_of

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("audited links", 3)]


def found(result, topic=None):
    return {
        (each.kind.value, each.source_offset, each.target_offset)
        for each in result.findings
        if topic in {None, each.topic}
    }


def test_a_sealed_link_ends_where_its_mirror_ended(bench, audit, unique_name):
    topic, killed = bench.create(unique_name, partitions=2), bench.create(f"{unique_name}.killed")
    source = records(50, rng=seeded(1))
    after = records(20, rng=seeded(2), first=500)
    for partition in range(2):
        bench.produce("primary", topic, partition, source)
        bench.produce("dr", topic, partition, source[:40])
    bench.produce("dr", topic, 0, after)
    # An application repeats an unseen record on DR: that doesn't make the ones before it lost.
    bench.produce("dr", topic, 1, [*after[:5], source[48], *after[5:]])
    bench.remember(topic, {partition: {offset: offset for offset in range(40)} for partition in range(2)})
    # This mirror was killed after 40 records, of which it had recorded 30; the last but six is spoiled.
    bench.produce("primary", killed, 0, source)
    bench.produce("dr", killed, 0, [*source[:33], Record(b"stranger", b"", STAMP), *source[34:40], *after[:5]])
    bench.remember(killed, {0: {offset: offset for offset in range(50)}}, through={0: 30}, target_end={0: 30})
    control = LinkControl(LINK, Direction.SEALED, version=1, changed_at=now(), reason="failed over")
    assert bench.store.set_link_control(control, expected_version=None)

    result = audit(topic, killed)

    unseen = {("unseen", offset, None) for offset in range(40, 50)}
    assert found(result, topic) == unseen
    assert found(result, killed) == unseen | {("corrupted", 33, 33)}
    assert [each.target_bound for each in result.partitions] == [40, 40, 40]
    parts = [each.counts for each in result.partitions]
    clean = Counts(source_records=50, target_records=40, matched=40, unseen=10)
    assert parts == [
        replace(clean, target_appended=20),
        replace(clean, target_appended=21),
        replace(clean, matched=39, corrupted=1, target_appended=5),
    ]
    (left,) = (note for note in result.notes if "unseen" in note)
    assert left.startswith(
        "30 records of primary are not on dr (unseen): the mirror had not got there when primary->dr"
    )
    assert "drkit salvage --link 'primary->dr'" in left

    whole = audit(f"{topic}:0")
    assert whole.verdict is Verdict.CLEAN, "as the contract has it"
    assert whole.verdict_in_words == "clean as far as it was mirrored, 10 records unseen"
    # What a failover finds of a foreign writer it keeps: nobody can tell those records from the clients' any more.
    why = f"{topic}:0 on dr holds records that the mirror did not write, from target offset 40 on"
    bench.store.put_problem(LINK, Problem(FOREIGN_WRITER, topic, 0, why, "do", halted=True, since=now()))
    before, beside = audit(f"{topic}:0"), audit(f"{topic}:1")
    assert (before.verdict, [why in each for each in before.incomplete]) == (Verdict.INCOMPLETE, [True])
    assert beside.verdict is Verdict.CLEAN


def test_topics_go_by_their_prefixed_names_on_the_target(bench, audit, unique_name):
    link = replace(bench.link, policy=TopicPolicy.PREFIX)
    topic, name = unique_name, f"primary.{unique_name}"
    bench.create(topic, on=["primary"])
    bench.create(name, on=["dr"])
    source = records(30, rng=seeded(5))
    bench.produce("primary", topic, 0, source)
    bench.produce("dr", name, 0, [*source[:7], *source[8:]])
    bench.remember(topic, {0: {offset: offset for offset in range(30)}}, target_topic=name)

    result = audit(topic, link=link)

    assert found(result) == {("lost", 7, None)}
    assert {(each.topic, each.target_topic) for each in result.findings} == {(topic, name)}


def test_a_link_is_audited_the_other_way_round(bench, audit, unique_name):
    topic = bench.create(unique_name)
    source = records(30, rng=seeded(6))
    bench.produce("dr", topic, 0, source)
    bench.produce("primary", topic, 0, source[:-2])

    result = audit(topic, link=bench.link.reversed())

    assert result.link == LinkId("dr", "primary")
    assert found(result) == {("unseen", 28, None), ("unseen", 29, None)}
    assert not [note for note in result.notes if "unseen" in note], "its mirror may get there yet"


def test_a_time_window_judges_the_records_stamped_within_it(bench, audit, unique_name):
    topic = bench.create(unique_name)
    source = [Record(b"k%d" % n, b"v%d" % n, STAMP + n * 1000) for n in range(100)]
    target = [replace(each, value=b"spoiled") if n in {10, 50} else each for n, each in enumerate(source)]
    target = [each for n, each in enumerate(target) if n not in {20, 60, 90}]
    bench.produce("primary", topic, 0, source)
    bench.produce("dr", topic, 0, target)
    bench.remember(topic, {0: {offset: offset for offset in range(100)}})

    result = audit(topic, since=from_millis(STAMP + 40_000), until=from_millis(STAMP + 80_000))

    assert found(result) == {("corrupted", 50, 49), ("lost", 60, None)}
    assert result.counts == Counts(source_records=40, target_records=39, matched=38, lost=1, corrupted=1)


@pytest.mark.parametrize("full", sampled("aborted transactions that a link mirrors", [False, True], 1))
def test_what_a_link_mirrors_of_aborted_transactions_is_its_own(bench, audit, unique_name, full):
    link = replace(bench.link, isolation=Isolation.READ_UNCOMMITTED)
    topic = bench.create(unique_name)
    source = records(70, rng=seeded(12))
    bench.produce("primary", topic, 0, source, transactions="ca", transaction=7)  # each ends with a marker
    target = [*source[:8], *source[9:]]  # one of an aborted transaction is missing
    bench.produce("dr", topic, 0, target)
    places = {number + number // 7: number - (number > 8) for number in range(70) if number != 8}
    bench.remember(topic, {0: places})

    result = audit(topic, link=link, full=full)

    assert found(result) == {("lost", 9, None)}
    assert result.counts == Counts(source_records=70, target_records=69, matched=69, lost=1)


def test_some_partitions_of_a_topic(bench, audit, unique_name):
    topic = bench.create(unique_name, partitions=3)
    for partition in range(3):
        bench.produce("primary", topic, partition, records(5, rng=seeded(partition)))

    result = audit(f"{topic}:0,2")

    assert [each.partition for each in result.partitions] == [0, 2]
    assert result.counts.unseen == 10
    with pytest.raises(ConfigError, match="no partition 3"):
        audit(f"{topic}:3")
    with pytest.raises(ConfigError, match="no such topic"):
        audit(f"{topic}-which-is-not")


def test_retention_that_strikes_during_the_audit_makes_no_losses(bench, spark, unique_name, tmp_path: Path):
    topic = bench.create(unique_name, config=RETAINED)
    source = records(50, rng=seeded(7))
    for alias in ("primary", "dr"):
        bench.produce(alias, topic, 0, source)
    bench.remember(topic, {0: {offset: offset for offset in range(50)}})
    starts = iter((10, 20))
    said: list[str] = []

    def strike(text: str) -> None:
        said.append(text)
        if text == "reading both sides" and (start := next(starts, None)) is not None:
            with bench.admin("dr") as admin:
                admin.delete_records({TopicPartition(topic, 0): start})

    request = AuditRequest(bench.link, str(tmp_path / "out"), (TopicChoice(topic),))
    result = run_audit(request, bench.store, bench.config, spark, progress=strike)

    assert said.count("reading both sides") == 3
    assert result.counts == Counts(source_records=30, target_records=30, matched=30, target_retired=20)


def test_findings_are_never_overwritten(bench, spark, unique_name, tmp_path: Path):
    topic = bench.create(unique_name)
    request = AuditRequest(bench.link, str(tmp_path / "out"), (TopicChoice(topic),))
    run_audit(request, bench.store, bench.config, spark)

    with pytest.raises(Refused, match="already"):
        run_audit(request, bench.store, bench.config, spark)


def test_large_and_dense_damage(bench, audit, unique_name):
    front = bench.create(f"{unique_name}.front")
    long = records(20_000, rng=seeded(8))
    bench.produce("primary", front, 0, long)
    bench.produce("dr", front, 0, long[1:])
    bench.remember(front, {0: {offset: offset for offset in range(20_000)}})
    dense_damage = {f"{unique_name}.{seed}": crowded(seed) for seed in (11, 12)}
    for topic, (source, target) in dense_damage.items():
        bench.create(topic)
        bench.produce("primary", topic, 0, source)
        bench.produce("dr", topic, 0, target)
        bench.remember(topic, {0: {offset: offset for offset in range(400)}}, target_end={0: len(target)})

    result = audit(front, *dense_damage)

    assert found(result, front) == {("lost", 0, None)}
    for topic, (source, target) in dense_damage.items():
        counts = next(each.counts for each in result.partitions if each.topic == topic)
        both = Counter(source) & Counter(target)
        strangers = sum(record.key == b"stranger" for record in target)
        assert counts.matched == both.total()
        assert counts.lost + counts.corrupted == len(source) - both.total()
        assert counts.foreign + counts.corrupted == strangers
        assert counts.duplicated == len(target) - both.total() - strangers
        assert counts.reordered < counts.matched


def crowded(seed: int) -> tuple[list[Record], list[Record]]:
    """Damage without room between, of records many of which are equal.

    It can be told in more than one way; what one side has more or less of can't.
    """
    rng = seeded(seed)
    source = [Record(b"k", b"v%d" % rng.randrange(30), STAMP + rng.randrange(3)) for _ in range(400)]
    target = list(source)
    for _ in range(60):
        at, act = rng.randrange(len(target)), rng.randrange(4)
        if act == 0:
            del target[at]
        elif act == 1:
            target.insert(at, rng.choice(source))
        elif act == 2:
            target[at] = Record(b"stranger", rng.randbytes(4), STAMP)
        else:
            target.insert(rng.randrange(len(target)), target.pop(at))
    return source, target


def test_a_partition_in_more_pieces_than_are_put_in_order_says_so(bench, audit, unique_name, monkeypatch):
    monkeypatch.setattr(ordering, "MOST_RUNS", 5)
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(200, rng=seeded(9)))
    source = bench.read("primary", topic, 0)
    damage = damaged(source, {"swapped": 4, "lost": 3, "corrupted": 3}, seeded(10))
    bench.produce("dr", topic, 0, damage.target)
    bench.remember(topic, {0: dense(source)})

    result = audit(topic)

    damage.explains((each.kind.value, each.source_offset, each.target_offset) for each in result.findings)
    assert any("pieces" in note for note in result.notes)

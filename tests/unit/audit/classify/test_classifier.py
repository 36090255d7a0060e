"""What happened to each residual, against damage done on purpose: no brokers, no Spark, the same definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drkit.audit.classify import classification_tasks, displaced_runs
from tests.support.audits.audit_in_memory import InMemory, Log
from tests.support.audits.damage import STAMP, Record, Stored, damaged, damaged_here_and_there, records, seeded

ACTS = {"lost": 3, "corrupted": 4, "duplicated": 3, "foreign": 3, "swapped": 2, "moved": 2}


@pytest.fixture(autouse=True)
def short_tasks(monkeypatch):
    monkeypatch.setattr("drkit.audit.read.offset_ranges._OFFSETS_WORTH_A_TASK", 50)


def stored(made: list[Record]) -> list[Stored]:
    return [Stored(offset, record) for offset, record in enumerate(made)]


def identity(count: int) -> dict[int, int]:
    return {offset: offset for offset in range(count)}


@settings(deadline=None, max_examples=60)  # a busy machine is no failure
@given(st.integers(0, 10_000), st.sampled_from([1, 7, 40]), st.integers(1, 3), st.booleans())
def test_all_damage_is_found_and_nothing_else(seed, size, parallel, full):
    source = stored(records(400, rng=seeded(seed)))
    damage = damaged(source, ACTS, seeded(seed + 1))
    assume(not any(kind == "duplicated" and s == t for kind, s, t in damage.findings))  # a copy just in its place
    logs = InMemory(Log.of([each.record for each in source], size), Log.of(damage.target, size), identity(400))

    damage.explains(logs.classified(parallel=parallel, full=full)[1])
    damage.explains(logs.in_a_task(parallel=parallel, full=full)[1])


@settings(deadline=None, max_examples=40)  # a busy machine is no failure
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_damage_that_leaves_the_rest_at_its_place_is_found(seed, parallel):
    source = stored(records(640, rng=seeded(seed), keys=40))
    damage = damaged_here_and_there(source, seeded(seed + 1))
    logs = InMemory(Log.of([each.record for each in source], 20), Log.of(damage.target, 20), identity(640))

    damage.explains(logs.classified(parallel=parallel)[1])


def test_a_log_that_is_displaced_as_a_whole_lacks_one_record():
    made = records(3_000, rng=seeded(3))
    logs = InMemory(Log.of(made, 100), Log.of(made[1:], 100), identity(3_000))

    result, found = logs.classified()

    assert found == {("lost", 0, None)}
    assert len(result.pairs) == 2_999


@settings(deadline=None, max_examples=60)  # a busy machine is no failure
@given(st.integers(0, 10_000), st.sampled_from([3, 20]), st.integers(1, 3), st.booleans())
def test_a_task_that_pairs_runs_as_they_come_finds_the_same(seed, size, parallel, early):
    rng = seeded(seed)
    source = stored(records(600, rng=rng))
    damage = damaged(source, ACTS, rng)
    assume(not any(kind == "duplicated" and s == t for kind, s, t in damage.findings))
    there = damage.target[rng.randrange(1, 4) :] if early else damage.target
    logs = InMemory(Log.of([each.record for each in source], size), Log.of(there, size), identity(600), through=600)

    with runs_of(5, 40):
        rows, found = logs.in_a_task(parallel=parallel)

    result, expected = logs.classified(parallel=parallel)
    kinds = Counter(kind for kind, _, _ in expected)
    assert {kind: rows[kind] for kind in kinds} == kinds
    assert rows["pair"] == len(result.pairs)
    if not early:
        damage.explains(found)


@contextmanager
def runs_of(shortest: int, ahead: int) -> Iterator[None]:
    before = displaced_runs.SHORTEST_RUN, displaced_runs._AHEAD
    displaced_runs.SHORTEST_RUN, displaced_runs._AHEAD = shortest, ahead
    try:
        yield
    finally:
        displaced_runs.SHORTEST_RUN, displaced_runs._AHEAD = before


def test_a_task_holds_what_differs_of_a_displaced_log_not_the_log(monkeypatch):
    made = records(3_000, rng=seeded(3))
    there = [*made[2:900], Record(b"stranger", b"!", STAMP), *made[900:2_000], *made[2_001:]]
    logs = InMemory(Log.of(made, 100), Log.of(there, 70), {}, through=3_000)
    held: list[int] = []
    classify = classification_tasks.classify
    monkeypatch.setattr(
        classification_tasks, "classify", lambda *args: (held.append(len(args[1]) + len(args[2])), classify(*args))[1]
    )

    rows, found = logs.in_a_task()

    assert found == {("lost", 0, None), ("lost", 1, None), ("foreign", None, 898), ("lost", 2_000, None)}
    assert rows["pair"] == 2_997
    assert sum(held) < 200


@settings(deadline=None, max_examples=40)  # a busy machine is no failure
@given(st.integers(0, 10_000))
def test_of_records_that_are_equal_what_one_side_has_more_of_is_told(seed):
    rng = seeded(seed)
    made = [Record(b"k", b"v%d" % rng.randrange(5), STAMP + rng.randrange(2)) for _ in range(120)]
    there = list(made)
    for _ in range(12):
        at = rng.randrange(len(there))
        if rng.random() < 0.5:
            del there[at]
        else:
            there.insert(at, rng.choice(made))
    logs = InMemory(Log.of(made, 10), Log.of(there, 10), identity(120), through=120)

    kinds = [kind for kind, _, _ in logs.classified()[1]]

    more = sum(max(0, there.count(each) - made.count(each)) for each in set(there))
    fewer = sum(max(0, made.count(each) - there.count(each)) for each in set(made))
    assert kinds.count("duplicated") == more
    assert kinds.count("lost") == fewer
    assert {"corrupted", "foreign"}.isdisjoint(kinds)


def compacted(made: list[Record], gone: set[int], size: int) -> Log:
    """A log of which compaction has taken these offsets."""
    log = Log()
    for base in range(0, len(made), size):
        run: list = []
        for offset in range(base, min(base + size, len(made))):
            if offset in gone:
                if run:
                    log.batches.append((offset - len(run), run))
                run = []
            else:
                each = made[offset]
                run.append((each.stamp, each.key, each.value, list(each.headers)))
        if run:
            log.batches.append((min(base + size, len(made)) - len(run), run))
    return log


@pytest.mark.parametrize("side", ["source", "target"])
def test_compaction_explains_what_a_later_record_of_the_key_replaced_and_no_more(side):
    made = [Record(b"key-%d" % (n % 50), b"value %d" % n, STAMP + n) for n in range(400)]
    superseded = {n for n in range(300) if n % 3}
    newest_missing = {399, 398}
    whole, short = Log.of(made, 20), compacted(made, superseded | newest_missing, 20)
    if side == "target":
        logs = InMemory(whole, short, identity(400), through=400, target_compacted=True)
        expected = {("lost", 398, None), ("lost", 399, None)}
    else:
        logs = InMemory(short, whole, identity(400), through=400, source_compacted=True)
        expected = {("foreign", None, 398), ("foreign", None, 399)}

    result, found = logs.classified()

    assert found == expected
    kind = f"{side}_retired"
    assert sum(each.outcome == kind for each in result.classifications) == len(superseded)


@pytest.mark.parametrize(("side", "since"), [("source", True), ("target", True), ("target", False)])
def test_a_later_record_of_the_key_takes_older_ones_away_whenever_it_came_and_whoever_wrote_it(side, since):
    """`since`: behind the log's end of when the audit began; else somebody else's."""
    made = [Record(b"key-%d" % (n % 50), b"value %d" % n, STAMP + n) for n in range(400)]
    superseded = {n for n in range(300) if n % 3}
    whole, short = Log.of(made, 20), compacted(made, superseded | {398, 399}, 20)
    short.batches.append((400, [(STAMP + 400, b"key-49", b"newer", [])]))
    bound = 400 if since else None
    if side == "source":
        logs = InMemory(short, whole, identity(400), through=400, source_compacted=True, source_bound=bound)
        left = {("foreign", None, 398)}
    else:
        logs = InMemory(whole, short, identity(400), through=400, target_compacted=True, target_bound=bound)
        left = {("lost", 398, None)} | (set() if since else {("foreign", None, 400)})

    result, found = logs.classified()

    assert found == left
    assert sum(each.outcome == f"{side}_retired" for each in result.classifications) == len(superseded) + 1
    assert logs.in_a_task()[1] == found


@pytest.mark.parametrize(
    ("how", "outcome"), [({"aborted": True}, "source_retired"), ({"altered": True}, "uncompared"), ({}, "foreign")]
)
def test_what_a_compacted_source_may_have_taken_is_foreign_only_where_its_key_can_tell(how, outcome):
    made = [Record(b"key-%d" % n, b"value %d" % n, STAMP + n) for n in range(60)]
    source = compacted(made, {10, 31}, 20)  # without a later record of their keys: as an aborted transaction goes
    logs = InMemory(source, Log.of(made, 20), identity(60), through=60, source_compacted=True, **how)

    result, found = logs.classified()

    assert {(str(each.outcome), each.t) for each in result.classifications} == {(outcome, 10), (outcome, 31)}
    assert found == ({("foreign", None, 10), ("foreign", None, 31)} if outcome == "foreign" else set())


def test_what_is_asked_of_the_source_doesn_t_grow_with_the_damage():
    rounds = set()
    for times in (1, 8):
        source = stored(records(900, rng=seeded(times)))
        damage = damaged(source, dict.fromkeys(ACTS, times), seeded(5))
        logs = InMemory(Log.of([each.record for each in source], 30), Log.of(damage.target, 30), identity(900))
        damage.explains(logs.classified()[1])
        rounds.add(len(logs.requests))
    assert rounds == {3}


def test_runs_that_changed_places_are_reordered_and_copies_of_their_records_are_copies():
    made = [Record(b"k%d" % n, b"v", STAMP + n) for n in range(900)]
    there = [*made[600:], *made[:600], made[700], made[20]]
    logs = InMemory(Log.of(made, 50), Log.of(there, 30), identity(900), through=900)

    rows, found = logs.in_a_task()

    copies = {("duplicated", 700, 900), ("duplicated", 20, 901)}
    assert found == {("reordered", n, n - 600) for n in range(600, 900)} | copies
    assert rows["pair"] == 900
    assert logs.classified()[1] == found

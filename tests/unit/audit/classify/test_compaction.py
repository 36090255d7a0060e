"""Compacted topics against a cleaner in memory that takes what Kafka's takes, on either side and at any time.

What it took is no finding, and what a mirror never wrote, or wrote otherwise, is one. The truth is what was done.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drkit.audit.compare.log_lookups import NewestOfKeys
from tests.support.audits.audit_in_memory import InMemory, Log
from tests.support.audits.damage import STAMP, Record, seeded

Held = dict[int, Record]
"""A partition's log: the records by offset."""


@pytest.fixture(autouse=True)
def short_tasks(monkeypatch):
    monkeypatch.setattr("drkit.audit.read.offset_ranges._OFFSETS_WORTH_A_TASK", 50)


def clean(held: Held, until: int, *, tombstones: bool) -> None:
    """What Kafka's cleaner does to closed segments: the newest of each key stays, what has no key goes, and
    tombstones go once `delete.retention.ms` is over."""
    newest = {held[offset].key: offset for offset in sorted(held) if offset < until}
    for offset in [each for each in held if each < until]:
        record = held[offset]
        stays = record.key is not None and newest[record.key] == offset
        if not stays or (record.value is None and tombstones):
            del held[offset]


def log(held: Mapping[int, Record], size: int) -> Log:
    """The records in batches, none across a hole."""
    made = Log()
    for offset in sorted(held):
        record = held[offset]
        row = (record.stamp, record.key, record.value, list(record.headers))
        if made.batches and len(made.batches[-1][1]) < size and made.end == offset:
            made.batches[-1][1].append(row)
        else:
            made.batches.append((offset, [row]))
    return made


def identity(offsets) -> dict[int, int]:
    return {offset: offset for offset in offsets}


def keyed(number: int, key: bytes | None, value: bytes | None = b"") -> Record:
    return Record(key, b"v%d" % number if value == b"" else value, STAMP + number)


@dataclass
class Trial:
    """A partition that was written, cleaned, mirrored and damaged; what happened to each record is known."""

    rng: random.Random
    keyless: bool
    written: Held = field(default_factory=dict)
    source: Held = field(default_factory=dict)
    target: Held = field(default_factory=dict)
    mirrored: Held = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    altered: set[int] = field(default_factory=set)
    until: int = 0
    """What the mirror had reached."""

    def __post_init__(self) -> None:
        rng = self.rng
        count, keys = rng.randrange(20, 60), rng.randrange(2, 12)
        self.source_compacted, self.target_compacted = rng.random() < 0.6, rng.random() < 0.6
        for number in range(count):
            key = None if self.keyless and rng.random() < 0.05 else b"k%d" % rng.randrange(keys)
            value = None if key is not None and rng.random() < 0.15 else b"v%d" % number
            headers = (("h", b"%d" % number),) if rng.random() < 0.2 else ()
            self.written[number] = Record(key, value, STAMP + number, headers)
        self.source = dict(self.written)
        if rng.random() < 0.3:
            self.clean()
        self.until = rng.choice([count, count, rng.randrange(count // 2, count + 1)])
        self.mirrored = {offset: each for offset, each in self.source.items() if offset < self.until}
        self.target = dict(self.mirrored)
        for offset, record in self.mirrored.items():
            chance = rng.random()
            if chance < 0.03:
                del self.target[offset]
                self.dropped.add(offset)
            elif chance < 0.05:
                self.target[offset] = Record(record.key, record.value, record.stamp, (*record.headers, ("x", b"")))
                self.altered.add(offset)
        for _ in range(rng.randrange(3)):
            self.clean()

    def clean(self) -> None:
        """The cleaners come by, as far as segments are closed."""
        for held, compacted in ((self.source, self.source_compacted), (self.target, self.target_compacted)):
            if compacted:
                clean(held, self.rng.randrange(len(self.written) + 1), tombstones=self.rng.random() < 0.5)

    def judge(self, outcomes: Mapping[tuple[str, int], str], through: int) -> list[tuple[object, ...]]:
        """Every record whose outcome isn't the truth, or one of those that can't be told apart."""
        wrong: list[tuple[object, ...]] = []
        for offset, record in self.source.items():
            outcome = outcomes.get(("s", offset), "matched")
            if outcome not in self._of_source(offset, record, through):
                wrong.append(("source", offset, record, outcome))
        for offset, record in self.target.items():
            if offset not in self.source:
                outcome = outcomes.get(("t", offset), "matched")
                if outcome not in self._of_target(offset, record):
                    wrong.append(("target", offset, record, outcome))
        return wrong

    def _of_source(self, offset: int, record: Record, through: int) -> set[str]:
        beyond = {"unseen"} if offset >= through else set()
        if offset >= self.until:
            return {"unseen"}
        if self.target.get(offset) == record:
            return {"matched"}
        if offset in self.target:
            return {"corrupted"} | beyond
        unproven = {"target_unproven"} if self._only_by_unrecorded(offset, record, through) else set()
        if offset not in self.dropped:
            return {"target_retired"} | unproven | beyond
        return ({"lost"} | unproven | beyond) | ({"target_retired"} if self._hidden(offset, record) else set())

    def _only_by_unrecorded(self, offset: int, record: Record, through: int) -> bool:
        """Whether nothing but a tombstone that the mirror had not recorded explains that a record is gone."""
        later = [each for each in self.source if each >= offset and self.source[each].key == record.key]
        gone = [each for each in later if each not in self.target and self.source[each].value is None]
        return record.key is not None and bool(gone) and min(gone) >= through

    def _hidden(self, offset: int, record: Record) -> bool:
        """Whether the cleaner would have taken a dropped record, too: nobody can tell then which of them it was."""
        if not self.target_compacted:
            return False
        later = [each for each in self.mirrored if each >= offset and self.mirrored[each].key == record.key]
        written = any(each > offset and each not in self.dropped for each in later)
        return record.key is None or written or any(self.mirrored[each].value is None for each in later)

    def _of_target(self, offset: int, record: Record) -> set[str]:
        """What stands for a record that the source's cleaner took. A key that the source has deleted since, of whose
        tombstone neither side has anything left, is on the target only: that is a finding."""
        later = [each for each in self.written if each > offset and self.written[each].key == record.key]
        nowhere = not any(
            each in self.source or (each in self.target and self.target[each].value is None) for each in later
        )
        resurrected = bool(later) and nowhere and None not in (record.key, record.value)
        return {"source_retired"} | ({"foreign"} if resurrected else set())


@settings(deadline=None, max_examples=150)  # a busy machine is no failure
@example(seed=516, keyless=False, killed=True, preserved=False)  # a tombstone was copied, not recorded, and cleaned
@example(seed=171, keyless=True, killed=True, preserved=True)
@given(st.integers(0, 1_000_000), st.booleans(), st.booleans(), st.booleans())
def test_what_cleaners_took_is_no_finding_and_what_a_mirror_did_is_one(seed, keyless, killed, preserved):
    """`preserved`: target offsets are the source's; else they have no holes before the target's cleaner comes by."""
    rng = seeded(seed)
    trial = Trial(rng, keyless)
    if not trial.mirrored:
        return
    through = max(0, trial.until - rng.randrange(6)) if killed else trial.until
    places = {s: s if preserved else t for t, s in enumerate(sorted(trial.mirrored))}
    there = {places[s]: record for s, record in trial.target.items()}
    logs = InMemory(
        log(trial.source, 7), log(there, 5), places, through=through,
        source_compacted=trial.source_compacted, target_compacted=trial.target_compacted,
        source_bound=len(trial.written), target_bound=max(places.values()) + 1,
    )  # fmt: skip
    stood = {t: s for s, t in places.items()}

    result, _ = logs.classified()

    outcomes = {("s", each.s): str(each.outcome) for each in result.classifications if each.s is not None}
    outcomes |= {("t", stood[each.t]): str(each.outcome) for each in result.classifications if each.t is not None}
    assert trial.judge(outcomes, through) == []


def test_what_has_no_key_goes_once_a_topic_is_compacted():
    """Kafka takes no record without a key for a compacted topic, and drops those that it held before."""
    written = {n: keyed(n, None if n % 3 else b"k%d" % n) for n in range(30)}
    short = dict(written)
    clean(short, 30, tombstones=False)
    places = identity(written)
    on_target = InMemory(log(written, 7), log(short, 7), places, through=30, target_compacted=True, target_bound=30)
    on_source = InMemory(log(short, 7), log(written, 7), places, through=30, source_compacted=True, source_bound=30)

    for logs, outcome in ((on_target, "target_retired"), (on_source, "source_retired")):
        result, found = logs.classified()
        assert found == set()
        assert [str(each.outcome) for each in result.classifications] == [outcome] * 20


def test_what_a_killed_mirror_wrote_beyond_its_watermark_is_the_source_s_that_was_compacted_since():
    written = {n: keyed(n, b"k%d" % (n % 4)) for n in range(20)}
    source = dict(written) | {n: keyed(n, b"k%d" % (n % 4)) for n in range(20, 24)}
    clean(source, 24, tombstones=False)
    logs = InMemory(log(source, 7), log(written, 7), identity(range(20)), through=17, source_compacted=True)

    result, found = logs.classified()

    assert found == {("unseen", n, None) for n in range(20, 24)}
    assert sum(each.outcome == "source_retired" for each in result.classifications) == 20


def test_a_tombstone_that_went_explains_what_it_deleted_although_the_key_was_lost_later():
    written = {0: keyed(0, b"k"), 1: keyed(1, b"k", None), 2: keyed(2, b"a"), 3: keyed(3, b"k"), 4: keyed(4, b"b")}
    target = {n: each for n, each in written.items() if n != 3}
    clean(target, 2, tombstones=True)
    logs = InMemory(log(written, 7), log(target, 7), identity(written), through=5, target_compacted=True)

    assert logs.classified()[1] == {("lost", 3, None)}
    assert not any(isinstance(each, NewestOfKeys) and each.of_target for each in logs.requests)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_tombstone_that_nothing_shows_to_have_been_mirrored_explains_nothing(sealed):
    """Its place is empty: a killed mirror had copied it there, or (a sealed link) others wrote there, or did before."""
    written = {0: keyed(0, b"k"), 1: keyed(1, b"a"), 2: keyed(2, b"b"), 3: keyed(3, b"k", None), 4: keyed(4, b"a")}
    target = {1: written[1], 2: written[2]}
    if sealed:  # 3 held a record of the key that stands at 5
        target |= {4: keyed(9, b"y"), 5: keyed(9, b"z")}
    places = identity(range(3))
    logs = InMemory(
        log(written, 7), log(target, 7), places, through=3, target_compacted=True,
        target_bound=6 if sealed else 4, sealed_at=3 if sealed else None,
    )  # fmt: skip

    result, found = logs.classified()

    unseen = {("unseen", 3, None), ("unseen", 4, None)}
    assert found == unseen | ({("lost", 0, None)} if sealed else set())
    outcomes = {each.s: str(each.outcome) for each in result.classifications if each.s is not None}
    assert outcomes[0] == ("lost" if sealed else "target_unproven")


def test_what_is_not_proven_has_the_empty_places_that_are_left():
    """Two are missing between the same records and one place is empty: what is shown to be taken has it."""
    written = {0: keyed(0, b"k"), 1: keyed(1, b"a"), 2: keyed(2, b"b"), 3: keyed(3, b"a"), 4: keyed(4, b"k", None)}
    target = {1: written[2], 2: written[3]}  # one of the first two was never written, so these came earlier
    logs = InMemory(
        log(written, 7), log(target, 7), identity(range(4)), through=4, target_compacted=True, target_bound=5
    )

    result, _ = logs.classified()

    outcomes = {each.s: str(each.outcome) for each in result.classifications if each.s in {0, 1}}
    assert outcomes == {0: "lost", 1: "target_retired"}


@pytest.mark.parametrize("tombstone", [False, True])
def test_what_both_cleaners_take_while_an_audit_is_at_work_is_no_finding(tombstone):
    """The target's has taken what a later record replaced, then the source's takes that later record, too: for one that
    the mirror has not reached, or, of a tombstone, because `delete.retention.ms` is over."""
    written = {0: keyed(0, b"k"), 1: keyed(1, b"a"), 2: keyed(2, b"k", None if tombstone else b""), 3: keyed(3, b"b")}
    short = {n: each for n, each in written.items() if n != 0}
    since = {1: written[1], 3: written[3]} | ({} if tombstone else {4: keyed(4, b"k")})
    places, compacted = identity(written), {"source_compacted": True, "target_compacted": True}
    if tombstone:  # the source's cleaner took both, one after the other; the target's was not there yet
        logs = InMemory(log(short, 7), log(written, 7), places, through=4, **compacted)
    else:
        logs = InMemory(log(written, 7), log(short, 7), places, through=4, source_bound=4, **compacted)

    def meanwhile() -> None:
        logs.source = log(since, 7)

    if tombstone:
        logs.source_bound = 4
    assert logs.classified(meanwhile=meanwhile)[1] == set()


def test_a_key_that_the_source_deleted_while_nobody_mirrored_is_told():
    """Its tombstone went after `delete.retention.ms`, before a mirror saw it: the target keeps the key for ever."""
    written = {0: keyed(0, b"k"), 1: keyed(1, b"a"), 2: keyed(2, b"k", None), 3: keyed(3, b"a")}
    source = dict(written)
    clean(source, 4, tombstones=True)
    target = {0: written[0], 1: written[1]}
    logs = InMemory(log(source, 7), log(target, 7), identity(target), through=2, source_compacted=True, source_bound=4)

    assert logs.classified()[1] == {("foreign", None, 0), ("unseen", 3, None)}

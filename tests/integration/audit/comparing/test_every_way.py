"""Every kind of damage, by every way of comparing: the findings that follow from what was done, row for row.

Each topic was mirrored, so that digests are kept of it; then its target is recreated with one kind of damage. The
default, `--full`, `--from-digests` and partitions that stay in tasks must find the same rows, and the continuous audit
the same numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drkit.drill.environment.log_surgery import flip
from drkit.kafka.protocol.record_batch import CRC_FROM
from drkit.mirror.engine import range_digests
from drkit.model.audit.audit_result import DEVIATIONS
from drkit.model.audit.continuous_audit import AuditProgress
from drkit.store import open_store
from tests.support.audits.audit_ways import continuously, every_way, mirrored, rows
from tests.support.audits.damage import STAMP, Bench, Expected, Record

pytestmark = [pytest.mark.lab, pytest.mark.spark]

COUNT, BATCH = 1_000, 25
CRC_AT = CRC_FROM - 4
Damage = tuple[list[Record], set[Expected]]
STRANGER = Record(b"stranger", b"of nobody", STAMP + 500)


def made() -> list[Record]:
    odd = {100: STAMP * 1_000, 101: 5, 102: 1_795_366_980_000_000}  # microseconds, 1970, the year 58863
    return [
        Record(b"key %d" % n, b"value %d" % n, odd.get(n, STAMP + n), (("h", b"%d" % n), ("g", None)))
        for n in range(COUNT)
    ]


def lost(*gone: int) -> Callable[[list[Record]], Damage]:
    return lambda rows: (
        [each for n, each in enumerate(rows) if n not in gone],
        {("lost", n, None) for n in gone},
    )


def altered(at: int, alter: Callable[[Record], Record]) -> Callable[[list[Record]], Damage]:
    return lambda rows: ([*rows[:at], alter(rows[at]), *rows[at + 1 :]], {("corrupted", at, at)})


def copied(first: int, until: int, to: int) -> Callable[[list[Record]], Damage]:
    """Copies of [first, until) stand at `to`."""
    return lambda rows: (
        [*rows[:to], *rows[first:until], *rows[to:]],
        {("duplicated", n, to + n - first) for n in range(first, until)},
    )


def strange(count: int, at: int) -> Callable[[list[Record]], Damage]:
    return lambda rows: (
        [*rows[:at], *[STRANGER] * count, *rows[at:]],
        {("foreign", None, at + n) for n in range(count)},
    )


def moved(first: int, until: int, to: int) -> Callable[[list[Record]], Damage]:
    """[first, until) stand later, from `to` on."""
    return lambda rows: (
        [*rows[:first], *rows[until : to + until - first], *rows[first:until], *rows[to + until - first :]],
        {("reordered", n, to + n - first) for n in range(first, until)},
    )


def unharmed(rows: list[Record]) -> Damage:
    return rows, set()


def several(rows: list[Record]) -> Damage:
    there = list(rows)
    there[900] = replace(there[900], value=b"!")
    there.insert(700, STRANGER)
    del there[300]
    return [*there, rows[10]], {
        ("lost", 300, None),
        ("foreign", None, 699),
        ("corrupted", 900, 900),
        ("duplicated", 10, 1_000),
    }


ACTS: dict[str, Callable[[list[Record]], Damage]] = {
    "unharmed": unharmed,
    "first-lost": lost(0),
    "last-lost": lost(COUNT - 1),
    "one-lost": lost(512),
    "batch-lost": lost(*range(500, 525)),
    "tail-lost": lost(*range(800, COUNT)),
    "head-lost": lost(*range(200)),
    "lost-here-and-there": lost(*range(7, COUNT, 97)),
    "all-lost-but-one": lost(*range(COUNT - 1)),
    "value": altered(312, lambda each: replace(each, value=b"value 312.")),
    "value-emptied": altered(312, lambda each: replace(each, value=b"")),
    "value-null": altered(312, lambda each: replace(each, value=None)),
    "key": altered(312, lambda each: replace(each, key=b"another")),
    "key-null": altered(312, lambda each: replace(each, key=None)),
    "stamp": altered(312, lambda each: replace(each, stamp=each.stamp + 1)),
    "odd-stamp": altered(100, lambda each: replace(each, stamp=each.stamp + 1)),
    "header-value": altered(312, lambda each: replace(each, headers=(("h", b"!"), ("g", None)))),
    "header-null": altered(312, lambda each: replace(each, headers=(each.headers[0], ("g", b"")))),
    "header-order": altered(312, lambda each: replace(each, headers=each.headers[::-1])),
    "header-more": altered(312, lambda each: replace(each, headers=(*each.headers, ("h", b"")))),
    "header-less": altered(312, lambda each: replace(each, headers=each.headers[:1])),
    "copy-beside": copied(400, 401, 401),
    "copy-far": copied(100, 101, 700),
    "batch-twice": copied(200, 225, 225),
    "late-copies": copied(300, 400, COUNT),
    "late-copy": copied(5, 6, COUNT),
    "one-strange": strange(1, 333),
    "many-strange": strange(60, 500),
    "late-stranger": strange(3, COUNT),
    "one-moved": moved(50, 51, 900),
    "batch-moved": moved(100, 125, 600),
    "several": several,
    "unreadable": unharmed,  # on the disk, below
}
SAMPLE = ("tail-lost", "late-copies", "many-strange", "batch-moved", "several", "unreadable")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("acts", [SAMPLE, pytest.param(tuple(ACTS), marks=pytest.mark.long)], ids=["sample", "all"])
def test_every_way_of_comparing_finds_what_was_done(lab, audit, spark, unique_name, tmp_path: Path, monkeypatch, acts):
    monkeypatch.setattr(range_digests, "MOST_RECORDS", 200)  # several digests of each topic
    url = f"sqlite:///{tmp_path / 'mapping.db'}"
    bench = Bench(lab, open_store(url))
    topics = {act: f"{unique_name}.{act}" for act in acts}
    source = made()
    unlimited = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    for topic in topics.values():
        bench.create(topic, on=["primary"], config=unlimited)
        bench.produce("primary", topic, 0, source, batched=BATCH)
    link = mirrored(bench, re.escape(unique_name) + "[.].*")
    with bench.admin("dr") as admin:
        admin.delete_topics(list(topics.values()))
    expected: dict[str, set[Expected]] = {}
    for act, topic in topics.items():
        target, expected[topic] = ACTS[act](source)
        bench.create(topic, on=["dr"], config=unlimited)
        bench.forward(topic, 0, bench.read("primary", topic, 0), target)
    spoilt = flip(lab.dir / "nodes" / "dr-1" / "data" / f"{topics['unreadable']}-0", 350, CRC_AT)
    expected[topics["unreadable"]] = {("unreadable", n, n) for n in range(spoilt.base_offset, spoilt.last_offset + 1)}

    found = every_way(audit, *topics.values(), link=link, store=bench.store)

    for topic in topics.values():
        for way, result in found.items():
            told = {(row["kind"], row["source_offset"], row["target_offset"]) for row in rows(result, topic)}
            assert told == expected[topic], f"{topic} by {way}: {told ^ expected[topic]}"
        first, *others = (rows(result, topic) for result in found.values())
        assert all(other == first for other in others)
    assert len({result.partitions for result in found.values()}) == 1
    numbers = {topic: Counter(kind for kind, _, _ in each) for topic, each in expected.items()}

    def agrees(progress: AuditProgress) -> None:
        counted = {
            topic: Counter({kind: getattr(counts, kind) for kind in DEVIATIONS if getattr(counts, kind)})
            for topic, counts in progress.topics.items()
        }
        assert counted == numbers

    continuously(bench, link, spark, tmp_path / "checkpoint", url, agrees)
    bench.store.close()

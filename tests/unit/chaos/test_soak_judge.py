"""The soak's judge sees what is wrong: a judge that says "clean" to everything would prove nothing."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.soak import faults
from chaos.soak.clusters import Content, Record, SoakError, digest
from chaos.soak.faults import WEIGHTS, schedule
from chaos.soak.judge import (
    Verdict,
    check_mapping,
    check_preserved,
    compare,
    compare_compacted,
    positions,
    status_faults,
)
from chaos.soak.load import COMPACTED, KINDS, PLAIN, Kind
from chaos.soak.mirrors import Worker
from chaos.soak.run import Soak, verdict
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store


def records(*values: tuple[int, bytes], key: bytes | None = None) -> list[Record]:
    return [Record(offset, key, value) for offset, value in values]


SOURCE = records((0, b"a"), (1, b"b"), (4, b"c"), (5, b"d"))


def test_the_same_in_the_same_order_is_clean() -> None:
    assert compare(SOURCE, records((7, b"a"), (8, b"b"), (9, b"c"), (10, b"d"))).clean


def test_missing_extra_and_disorder_are_told_apart() -> None:
    assert compare(SOURCE, records((0, b"a"), (1, b"b"), (2, b"d"))).missing == 1
    assert compare(SOURCE, [*SOURCE, *records((6, b"d"))]).extra == 1
    assert compare(SOURCE, records((0, b"a"), (1, b"c"), (2, b"b"), (3, b"d"))).disorder == 2
    changed = compare(SOURCE, records((0, b"a"), (1, b"B"), (2, b"c"), (3, b"d")))
    assert (changed.missing, changed.extra, changed.disorder) == (1, 1, 0)
    assert changed.examples == ["missing: the record at source 1", "extra: the record at target 1"]


def test_every_byte_counts() -> None:
    said = {
        digest(None, b"v", [], 1),
        digest(b"", b"v", [], 1),
        digest(b"v", None, [], 1),
        digest(None, b"v", [], 2),
        digest(None, b"v", [("h", None)], 1),
        digest(None, b"v", [("h", b"")], 1),
        digest(None, b"vh", [], 1),
    }
    assert len(said) == 7


def test_positions_name_every_edge_of_a_hole_and_the_end() -> None:
    assert positions([0, 1, 4, 5], 9, every=100) == [0, 1, 2, 3, 4, 5, 6, 9]


def test_a_wrong_translation_is_found() -> None:
    def check(answers: dict[int, tuple[str, int | None]]) -> int:
        verdict = Verdict()
        check_mapping(verdict, [0, 1, 4, 5], [10, 11, 12, 13], 14, answers, lambda commit: answers[commit])
        assert verdict.positions == len(answers)
        return verdict.wrong

    assert check({0: ("exact", 10), 1: ("exact", 11), 2: ("exact", 12), 4: ("exact", 12), 6: ("exact", 14)}) == 0
    assert check({4: ("exact", 13)}) == 1, "one record would be skipped"
    assert check({4: ("exact", 11)}) == 1, "one record would be read again"
    assert check({6: ("exact", 15)}) == 1, "beyond the end"
    assert check({4: ("conservative", 12), 5: ("unavailable", None)}) == 2


def test_offsets_that_moved_are_found() -> None:
    verdict = Verdict()
    check_preserved(verdict, [0, 1, 4], [0, 1, 3])
    assert verdict.moved == 1
    assert not verdict.clean


JOURNAL = {0: (b"k", b"a"), 1: (b"l", b"b"), 2: (b"k", b"c"), 3: (b"m", b"d")}


def entry(offset: int, source: int) -> Record:
    return Record(offset, *JOURNAL[source])


def test_a_cleaner_may_have_been_there_on_either_side() -> None:
    cleaned = [entry(1, 1), entry(2, 2), entry(3, 3)]
    whole = [entry(0, 0), *cleaned]
    for source, target in ((cleaned, whole), (whole, cleaned), (whole, whole)):
        verdict, came_from = compare_compacted(source, target, JOURNAL)
        assert verdict.clean, verdict
        assert came_from == [record.offset for record in target]


def test_what_no_cleaner_does_is_found() -> None:
    whole = [entry(number, number) for number in JOURNAL]
    assert compare_compacted(whole, whole[:3], JOURNAL)[0].missing == 1
    assert compare_compacted(whole[:3], whole, JOURNAL)[0].extra == 1
    assert compare_compacted(whole, [*whole, entry(4, 3)], JOURNAL)[0].extra == 1
    assert compare_compacted(whole, [whole[1], whole[0], *whole[2:]], JOURNAL)[0].disorder == 1
    assert compare_compacted(whole, [*whole, Record(4, b"z", b"z")], JOURNAL)[0].extra == 1


def test_a_seed_plays_the_same_faults_and_each_kind_comes() -> None:
    assert schedule(7, 30) == schedule(7, 30)
    assert schedule(7, 30) != schedule(8, 30)
    assert set(schedule(7, len(WEIGHTS))) == set(WEIGHTS)


CAUGHT_UP = {
    "state": "mirroring",
    "partitions": [{"topic": "s-plain", "partition": number, "lag_records": 0} for number in range(2)],
    "problems": [],
}
DIFFERS = {"kind": "offsets_differ", "topic": "s-compacted", "partition": 0, "reason": "a hole", "halted": False}
ELSEWHERE = {**DIFFERS, "topic": "s-plain"}
EXPECTED = [("s-plain", 0), ("s-plain", 1)]


def test_a_status_that_says_all_is_mirrored_and_well_has_no_faults() -> None:
    assert status_faults(CAUGHT_UP, EXPECTED, "s-compacted") == []
    assert status_faults({**CAUGHT_UP, "problems": [DIFFERS]}, EXPECTED, "s-compacted") == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "drkit status fails"),
        ({**CAUGHT_UP, "state": "degraded"}, "the link is degraded"),
        ({**CAUGHT_UP, "partitions": CAUGHT_UP["partitions"][:1]}, "s-plain:1 has lag None"),
        ({**CAUGHT_UP, "partitions": [{**CAUGHT_UP["partitions"][0], "lag_records": 17}] * 2}, "s-plain:0 has lag 17"),
        ({**CAUGHT_UP, "problems": [ELSEWHERE]}, "offsets_differ of s-plain:0: a hole"),
    ],
)
def test_what_status_says_otherwise_is_a_finding(status: dict, said: str) -> None:
    assert said in status_faults(status, EXPECTED, "s-compacted")


GOOD = {
    "exit_codes": [0],
    "ended_by_themselves": [],
    "status_faults": [],
    "problems": [],
    "faults": [{}, {}],
    "asked": 2,
    "partitions": [{"clean": True, "records": 1}] * sum(kind.partitions for kind in KINDS),
}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, "clean"),
        ({"problems": [DIFFERS]}, "clean"),
        ({"problems": [ELSEWHERE]}, "failed"),
        ({"status_faults": ["drkit status fails"]}, "failed"),
        ({"faults": [{}]}, "cut short"),
        ({"faults": [{}], "exit_codes": [1]}, "failed"),
    ],
)
def test_the_verdict_reads_what_the_mirror_says_and_counts_the_faults(changed: dict, word: str) -> None:
    assert verdict({**GOOD, **changed}, "s-compacted") == word


@pytest.mark.parametrize(
    ("offsets", "kind", "moved"), [("preserve", PLAIN, 2), ("translate", PLAIN, 0), ("preserve", COMPACTED, 0)]
)
def test_a_link_that_must_preserve_offsets_is_judged_by_them_whatever_its_rows_say(
    tmp_path: Path, offsets: str, kind: Kind, moved: int
) -> None:
    store, link, tp = open_store(f"sqlite:///{tmp_path}/s.db"), LinkId("primary", "dr"), TopicPartition("s", 1)
    store.append_mappings(link, [OffsetMapping(tp.topic, tp.partition, 0, 0, 5)])
    world = SimpleNamespace(
        topic={kind.name: "s"},
        offsets=offsets,
        cassandra=False,
        mirrors=SimpleNamespace(workers=[], ended=[]),
        source=SimpleNamespace(bootstrap=""),
    )
    soak = Soak(world, seed=1, faults=0, scale=1.0, gap=1.0, minutes=1.0, every=1, say=lambda _: None)
    soak._load.journal.update({0: (b"k", b"a"), 1: (b"l", b"b")})
    source = Content([Record(0, b"k", b"a"), Record(1, b"l", b"b")], 0, 2)
    target = Content([Record(5, b"k", b"a"), Record(6, b"l", b"b")], 5, 7)
    try:
        said = soak._judged(store, kind, 1, source, target)
    finally:
        store.close()
    assert said["moved"] == moved


def test_a_line_that_a_kill_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    writes = ("-c", 'import os; os.write(1, b\'{"type": "prob\')')
    worker = Worker(1, tmp_path / "none", tmp_path, writes)
    worker.process.wait(30)
    worker._program = ("-c", 'print(\'{"type": "progress"}\')')
    worker.again()
    worker.process.wait(30)
    assert worker.last() == {"type": "progress"}
    worker.end_now()


def test_a_reset_of_no_connection_is_no_fault_that_was_played() -> None:
    mirrors = SimpleNamespace(connected=lambda: True, pids=set)
    with pytest.raises(SoakError, match="no connection"):
        faults.connections_reset(SimpleNamespace(mirrors=mirrors), random.Random(1))  # noqa: S311 - repeatable

"""What a task hands over of a partition that it classifies: rows of residuals, of pairs, and one of facts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from drkit.audit.classify import classification_tasks
from drkit.audit.classify.classification_tasks import CLASSIFICATION_ARROW, _blocks, classification_row
from drkit.audit.classify.classifier import Classification
from drkit.audit.compare.merge_join import SourceLeft, TargetLeft
from drkit.model.audit.audit_result import FindingKind
from tests.support.audits.audit_in_memory import InMemory, Log
from tests.support.audits.damage import STAMP, Record

SOURCE = SourceLeft(3, 17, 18, True, 21, 22, 1_000, b"key", False)
TARGET = TargetLeft(3, 18, 31, 32, 2_000, b"other", True, b"needle")


def written(count: int) -> list[Record]:
    return [Record(b"k%d" % n, b"value %d" % n, STAMP + n) for n in range(count)]


def identity(count: int) -> dict[int, int]:
    return {n: n for n in range(count)}


def columns(classified: Classification) -> dict:
    return dict(zip(CLASSIFICATION_ARROW, classification_row(classified), strict=True))


def facts(rows: list[dict]) -> dict:
    (row,) = [row for row in rows if row["outcome"] == "facts"]
    return {"through": row["s"], "source": row["e"], "target": row["t"], "exact": row["placed"]}


def test_a_row_has_the_residuals_of_both_sides_in_their_columns():
    assert columns(Classification("corrupted", 3, 17, 18, SOURCE, TARGET)) == {
        "outcome": "corrupted", "p": 3, "s": 17, "e": 18, "placed": True, "s1": 21, "s2": 22, "s_ts": 1_000,
        "s_key": b"key", "s_null": False, "t": 18, "t1": 31, "t2": 32, "t_ts": 2_000, "t_key": b"other", "t_null": True,
    }  # fmt: skip


def test_a_side_without_a_part_is_null():
    lost = columns(Classification("lost", 3, 17, None, SOURCE, None))
    assert [name for name in CLASSIFICATION_ARROW if lost[name] is None] == ["t", "t1", "t2", "t_ts", "t_key", "t_null"]
    foreign = columns(Classification("foreign", 3, None, 18, None, TARGET))
    assert all(foreign[name] is None for name in ("s", "e", "placed", "s1", "s2", "s_ts", "s_key", "s_null"))


def test_a_classification_goes_by_the_source_s_timestamp_else_the_target_s():
    assert Classification(FindingKind.CORRUPTED, 3, 17, 18, SOURCE, TARGET).stamp == 1_000
    assert Classification(FindingKind.FOREIGN, 3, None, 18, None, TARGET).stamp == 2_000


def test_rows_come_in_blocks_of_bounded_size(monkeypatch):
    monkeypatch.setattr(classification_tasks, "_A_BLOCK", 3)
    rows = [classification_row(Classification("lost", n, n, None, SOURCE, None)) for n in range(7)]
    blocks = list(_blocks(rows))
    assert [block.num_rows for block in blocks] == [3, 3, 1]
    assert [row["p"] for block in blocks for row in block.to_pylist()] == list(range(7))
    assert blocks[0].schema == pa.schema(list(CLASSIFICATION_ARROW.items()))
    assert [block.num_rows for block in _blocks(rows[:6])] == [3, 3]


def test_the_facts_of_a_partition_are_its_residuals_and_its_highest_mirrored_position():
    made = written(60)
    there = [*made[:10], *made[12:30], Record(b"x", b"!", STAMP), Record(b"y", b"!", STAMP), *made[30:]]
    logs = InMemory(Log.of(made, 20), Log.of(there, 20), identity(60), through=40)
    rows = logs.task_rows()
    compared = logs.compared(1, full=False)
    assert facts(rows) == {
        "through": 60,
        "source": len(compared.source_left),
        "target": len(compared.target_left),
        "exact": True,
    }
    pairs = [row for row in rows if row["outcome"] == "pair"]
    assert {(row["s"], row["t"]) for row in pairs} == {(n, n - 2) for n in range(12, 30)}
    assert all(row["s_ts"] == STAMP + row["s"] for row in pairs)


def test_what_others_appended_behind_a_sealed_link_is_counted_and_told_apart():
    made = written(20)
    there = [*made, made[3], Record(b"new", b"!", STAMP)]
    logs = InMemory(Log.of(made, 20), Log.of(there, 11), identity(20), through=20, sealed_at=20)
    rows = logs.task_rows()
    assert [(row["outcome"], row["s"], row["t"]) for row in rows if row["outcome"] != "facts"] == [
        ("target_appended", None, 20),
        ("target_appended", None, 21),
    ]
    assert facts(rows) == {"through": 20, "source": 0, "target": 2, "exact": True}


@pytest.mark.parametrize("parallel", [1, 3])
def test_records_that_only_the_source_has_are_judged_by_their_own_place(parallel):
    made = written(400)
    logs = InMemory(Log.of(made, 20), Log.of(made[:380], 20), identity(400), through=390)
    rows = logs.task_rows(parallel=parallel, alone=True)
    assert {(row["outcome"], row["s"]) for row in rows if row["outcome"] != "facts"} == {
        *(("lost", n) for n in range(380, 390)),
        *(("unseen", n) for n in range(390, 400)),
    }
    assert facts(rows) == {"through": 390, "source": 20, "target": 0, "exact": True}


def test_records_of_long_ranges_that_are_out_of_order_are_told_one_by_one(monkeypatch):
    monkeypatch.setattr(classification_tasks, "_RANGE", 7)
    made = written(900)
    there = [*made[600:], *made[:600]]
    logs = InMemory(Log.of(made, 50), Log.of(there, 30), identity(900), through=900)
    rows = [row for row in logs.task_rows() if row["outcome"] == "reordered"]
    assert sorted((row["s"], row["t"]) for row in rows) == [(n, n - 600) for n in range(600, 900)]
    assert {row["p"] for row in rows} == {0}


def test_where_the_fewest_out_of_order_are_not_sought_that_is_a_fact(monkeypatch):
    monkeypatch.setattr("drkit.audit.classify.ordering.MOST_RUNS", 1)
    made = written(30)
    there = [*made[:5], made[20], *made[5:20], *made[21:]]
    rows = InMemory(Log.of(made, 10), Log.of(there, 10), identity(30), through=30).task_rows()
    assert facts(rows)["exact"] is False


def test_only_what_is_out_of_order_is_told_where_the_next_record_stayed():
    """Records 10 to 42 were written behind those from 48 to 79, which are the fewer; 80 stands right behind them."""
    made = written(100)
    rows = {n: made[n] for n in (*range(10, 43), *range(48, 100))}
    there = {n: made[n] for n in range(48, 80)} | {n + 80: made[n] for n in range(10, 43)}
    there |= {n + 100: made[n] for n in range(80, 100)}
    places = {n: n for n in range(80)} | {n: n + 100 for n in range(80, 100)}
    logs = InMemory(at_offsets(rows), at_offsets(there), places, through=100)
    told = {(row["s"], row["t"]) for row in logs.task_rows() if row["outcome"] == "reordered"}
    assert told == {(n, n) for n in range(48, 80)}


def test_of_a_compacted_topic_every_record_is_in_the_way_also_of_long_runs():
    """The lost record has no key, so an empty place would explain it; where it would stand a moved run stands."""
    made = [Record(None if n == 164 else b"k%d" % n, b"value %d" % n, STAMP + n) for n in range(265)]
    there = [*made[64:164], *made[:64], *made[165:]]
    logs = InMemory(Log.of(made, 50), Log.of(there, 50), identity(265), through=265, target_compacted=True)
    expected = {("lost", 164, None), *(("reordered", n, n + 100) for n in range(64))}
    assert logs.in_a_task()[1] == logs.classified()[1] == expected


def at_offsets(records: dict[int, Record]) -> Log:
    log = Log()
    for offset, record in sorted(records.items()):
        row = (record.stamp, record.key, record.value, [])
        if log.batches and log.end == offset:
            log.batches[-1][1].append(row)
        else:
            log.batches.append((offset, [row]))
    return log

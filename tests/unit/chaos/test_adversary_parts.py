"""What the adversary's verdict rests on, without brokers: its oracle, its plans, how it minimises, where it patches."""

import asyncio
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.adversary.fault_points import PLACES, LateAnswers
from chaos.adversary.oracle import DEAD, PURGED, Journal, Seen, Written, deviation, failed_over, findings, to_excuse
from chaos.adversary.plan import FAULT_POINTS, make, minimise
from chaos.adversary.plants import PLANTS
from chaos.soak.clusters import Content, Record

ROOT = Path(__file__).resolve().parents[3]


def record(offset: int, name: str) -> Record:
    return Record(offset, None, name.encode())


def content(names: str, start: int = 0) -> Content:
    """One record a letter; a dot is a hole."""
    records = [record(start + at, name) for at, name in enumerate(names) if name != "."]
    return Content(records, start, start + len(names))


def journal(names: str, **gone: str) -> Journal:
    found = Journal()
    for offset, name in enumerate(names):
        found.write(name.encode(), Written(0, name.encode(), gone=gone.get(name), offset=offset))
    found.write(b"-", Written(0, None))  # the link's filter leaves it out
    return found


def problem(kind, begin=None, end=None, *, halted=False, copies=()):
    """`copies`: the first and the last target offset of each stretch that is there a second time."""
    words = "; then ".join(
        f"target offsets {a} to {b} hold records that are there a second time later" for a, b in copies
    )
    return {
        "kind": kind,
        "halted": halted,
        "partition": 0,
        "unsure_from": begin,
        "unsure_until": end,
        "reason": words,
    }


HALTED = problem("source_truncated", 1, halted=True)
STUCK = problem("not_moving", halted=True)
LOST = problem("target_lost_data")
COPIED = problem("records_misplaced", 0, 1, copies=[(1, 2)])
GONE = problem("target_purged", 0, 2)
RETURNED = problem("records_returned", 1, 3)
DIFFER = problem("offsets_differ")
BLAMED = problem("foreign_writer", 2, halted=True)
DISOWNED = problem("alignment_refused", halted=True)
ANEW = problem("topic_recreated", halted=True)
NOT_THERE = problem("target_recreated", halted=True)


def judge(source, target, **options):
    seen, known = looked_at(source, target, **options)
    return findings(seen, known)


def looked_at(source, target, *, gone=None, problems=(), lag=0, answers=None, before=None, history=0, **known):
    seen = Seen(
        0,
        content(source),
        content(target),
        {
            "lag_records": lag,
            "mirrored_through": len(source) - lag,
            "source_end": len(source),
            "target_end": len(target),
        },
        problems,
        lambda offset: answers(offset) if answers else {"translation": "unavailable", "target_offset": None},
        history,
        before,
        **known,
    )
    return seen, journal("abcdefgh", **(gone or {}))


def conservative(offset):
    return {"translation": "conservative", "target_offset": offset}


BEHIND = conservative(3)


def exact(offset):
    return {"translation": "exact", "target_offset": offset}


def skips_below_2(offset):
    return conservative(3) if offset < 2 else exact(offset)


def at_most(end):
    """Exact up to the end of what is mirrored, conservative beyond it."""
    return lambda offset: exact(offset) if offset <= end else conservative(end)


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("abc", "abc", {"answers": exact}),
        ("ab.c", "ab.c", {"answers": exact}),
        ("abc", "a", {"problems": [HALTED], "lag": 2, "answers": at_most(1)}),
        ("..bc", "a.bc", {"gone": {"a": PURGED}, "answers": exact}),
        ("abd", "abc", {"gone": {"c": DEAD}, "problems": [HALTED], "lag": 1}),
        ("abc", "ab", {"problems": [HALTED], "lag": 1}),
        ("abc", "ababc", {"history": 2}),
        ("abc", "X", {"problems": [STUCK], "lag": 3}),
        ("abcd", "acdbcd", {"problems": [COPIED]}),
        ("abcd", "acdbcd", {"problems": [COPIED, BLAMED]}),
        ("abd", "abc", {"gone": {"c": DEAD}, "problems": [BLAMED], "lag": 1}),
        ("abd", "abc", {"gone": {"c": DEAD}, "problems": [STUCK], "lag": 1}),
        ("de", "abc", {"gone": dict.fromkeys("abc", DEAD), "problems": [ANEW], "lag": 2}),
        ("abcd", "acd", {"problems": [COPIED, STUCK], "lag": 3}),
        ("..cd", "..cd", {"answers": lambda at: conservative(min(at, 2))}),
        ("abcd", "..cd", {"problems": [GONE], "lag": 4, "answers": lambda at: conservative(min(at, 2))}),
        ("abcd", "acdbcd", {"excused": frozenset({b"c", b"d"})}),
        ("abc", "..c", {"problems": [GONE], "lag": 3}),
        ("abc", "..c", {"given_up": frozenset({b"a", b"b"})}),
        (
            "-abc",
            "...c",
            {"problems": [RETURNED], "lag": 4, "answers": lambda at: BEHIND if at in {1, 2} else exact(at)},
        ),
    ],
)
def test_what_holds_is_no_finding(source, target, options):
    assert judge(source, target, **options) == []


@pytest.mark.parametrize(
    ("source", "target", "options", "said"),
    [
        ("abc", "ab", {"lag": 1}, "1 records of the source are missing"),
        ("abc", "ab", {"lag": 1, "problems": [COPIED]}, "are missing"),
        ("abc", "abcb", {}, "more than once"),
        ("abc", "abcb", {"problems": [DIFFER]}, "more than once"),
        ("abc", "abcb", {"problems": [BLAMED]}, "blamed on a foreign writer"),
        ("abc", "abcb", {"problems": [GONE]}, "more than once"),
        ("abc", "abcb", {"problems": [LOST]}, "more than once"),
        ("abc", "abcb", {"problems": [HALTED]}, "more than once"),
        ("abc", "abcb", {"problems": [ANEW]}, "more than once"),
        ("abcd", "acdbcdb", {"problems": [COPIED]}, "1 records are on the target more than once"),
        ("abcd", "acdbcdb", {"excused": frozenset({b"c", b"d"})}, "1 records are on the target more than once"),
        ("abc", "acb", {"problems": [STUCK]}, "out of order"),
        ("abc", "acb", {}, "out of order"),
        ("ab", "abc", {"gone": {"c": DEAD}}, "the source lost"),
        ("ab", "abc", {"gone": {"c": DEAD}, "problems": [DIFFER]}, "the source lost"),
        ("ab", "abc", {"gone": {"c": DEAD}, "problems": [COPIED]}, "the source lost"),
        ("ab", "abc", {"gone": {"c": DEAD}, "problems": [problem("target_purged", 0, 9)]}, "the source lost"),
        ("ad", "abd", {"gone": {"b": DEAD}, "problems": [BLAMED]}, "the source lost"),
        ("ad", "abd", {"gone": {"b": DEAD}, "problems": [STUCK]}, "the source lost"),
        ("ab", "abc", {"gone": {"c": DEAD}, "excused": frozenset({b"c"})}, "the source lost"),
        ("abc", "abcX", {}, "none of the source's"),
        ("abc", "X", {"problems": [DISOWNED], "lag": 3}, "none of the source's"),
        ("abc", "abc", {"before": [b"h"]}, "vanished"),
        ("abc", "ab", {"problems": [HALTED]}, "status says lag 0"),
        ("abc", "..c", {"problems": [GONE]}, "status says lag 0"),
        ("abc", "..c", {"problems": [GONE], "lag": 1}, "status says lag 1, but 2 records are missing"),
        ("abc", "..c", {"problems": [GONE], "lag": 2}, "status says mirrored through 1"),
        ("abcd", "...d", {"problems": [GONE], "lag": 4}, "1 records of the source are missing"),
        ("abc", "..c", {"problems": [GONE], "lag": 3, "answers": exact}, "called exact"),
        ("abc", "..c", {"given_up": frozenset({b"a", b"b"}), "answers": exact}, "called exact"),
        ("-abc", "...c", {"problems": [RETURNED], "lag": 4, "answers": exact}, "called exact"),
        ("abc", "abc", {"answers": lambda offset: exact(offset + 1)}, "called exact"),
        ("abc", "a", {"lag": 2, "answers": at_most(1)}, "called exact"),
        ("abc", "a.c", {"problems": [HALTED], "lag": 1, "answers": lambda _: exact(3)}, "called exact"),
        ("ab", "abc", {"gone": {"c": DEAD}, "problems": [HALTED], "answers": exact}, "called exact"),
        (
            "abc",
            "abc",
            {"answers": lambda offset: conservative(offset + 1)},
            "skips the record",
        ),
        ("abcd", "..cd", {"problems": [GONE], "lag": 4, "answers": skips_below_2}, "position 0 goes to 3, which skips"),
        (
            "abcd",
            "..cd",
            {"given_up": frozenset({b"a", b"b"}), "answers": skips_below_2},
            "position 0 goes to 3, which skips the record at 2",
        ),
        ("abcd", "ab", {"problems": [STUCK], "lag": 2, "answers": lambda _: conservative(3)}, "the target ends at 2"),
        ("ab", "ab", {"answers": lambda at: exact(at) if at < 2 else exact(9)}, "the target ends at 2"),
    ],
)
def test_what_does_not_hold_is_found(source, target, options, said):
    assert any(said in each for each in judge(source, target, **options))


@pytest.mark.parametrize(
    ("source", "target", "options", "arrived"),
    [
        ("abc", "abc", {}, "abc"),
        ("abc", "ab", {"problems": [STUCK], "lag": 1}, "ab"),
        ("abc", "", {"problems": [NOT_THERE], "lag": 3}, ""),
        ("ab", "cdab", {"history": 2}, "ab"),
    ],
)
def test_what_an_audit_may_call_clean(source, target, options, arrived):
    seen, known = looked_at(source, target, **options)
    known.arrived.update(each.encode() for each in arrived)
    assert deviation(seen, known) is None


@pytest.mark.parametrize(
    ("source", "target", "options", "arrived", "said"),
    [
        ("abc", "ab", {}, "", "1 records are missing"),
        ("abcd", "abd", {"problems": [BLAMED], "lag": 1}, "", "1 records are missing on the target, from 2"),
        ("abcd", "ab", {"problems": [BLAMED], "lag": 1}, "", "1 records are missing on the target, from 2"),
        ("abcd", "ab", {"problems": [STUCK], "lag": 2}, "abc", "1 records are missing on the target, from 2"),
        ("abc", "", {"problems": [NOT_THERE], "lag": 3}, "ab", "2 records are missing"),
        ("d", "abc", {"gone": dict.fromkeys("abc", DEAD), "problems": [ANEW], "lag": 1}, "", "the source lost"),
        ("abc", "abcb", {"problems": [ANEW]}, "", "more than once"),
    ],
)
def test_what_no_audit_may_call_clean(source, target, options, arrived, said):
    seen, known = looked_at(source, target, **options)
    known.arrived.update(each.encode() for each in arrived)
    assert said in (deviation(seen, known) or "")


@pytest.mark.parametrize(
    ("source", "target", "problems", "committed", "moved", "said"),
    [
        ("abcd", "ab", [], 1, (1, 1, True), ""),
        ("abcd", "ab", [], 3, (3, 2, False), ""),
        ("abcd", "ab", [], 2, (2, 2, True), ""),
        ("abcd", "ab", [], 2, (1, 1, True), ""),
        ("abcd", "", [], 2, None, ""),
        ("abcd", "abX", [STUCK], 1, None, ""),
        ("abcd", "abX", [], 1, None, "1 records that consumers read are none of the source's, at 2"),
        ("abcd", "abX", [DISOWNED], 1, None, "none of the source's"),
        ("abcd", "abc", [], 1, (1, 2, True), "source position 1 is called exact at 2"),
        ("abcd", "abc", [], 1, (1, 2, False), "source position 1 goes to 2, which skips the record at 1"),
        ("abcd", "abc", [], 1, (2, 2, True), "source position 1 goes to 2, which skips the record at 1"),
        ("abcd", "ab", [], 3, (3, 3, False), "the target ends at 2"),
    ],
)
def test_what_consumers_find_after_a_failover(source, target, problems, committed, moved, said):
    seen, known = looked_at(source, target, problems=problems, paused=True)
    found = failed_over(seen, known, committed, moved)
    assert any(said in each for each in found) if said else not found


def test_a_group_that_stands_below_the_log_after_a_failover_is_found():
    seen, known = looked_at("", "", paused=True)
    seen = replace(seen, source=content("c", 2), target=content("c", 2))
    said = ["partition 0, failed over: the group stands at 0, but the log begins at 2"]
    assert failed_over(seen, known, 2, (2, 0, True)) == said
    assert failed_over(seen, known, 1, (1, 0, True)) == []  # so it did on the source


def test_only_copies_that_a_problem_names_are_excused_once_it_is_acknowledged():
    seen, _ = looked_at("abcd", "acdbcdb", problems=[COPIED])
    assert to_excuse(seen) == {b"c", b"d"}
    seen, _ = looked_at("abcd", "acdbcdb", problems=[GONE, LOST])
    assert to_excuse(seen) == set()


def test_an_aborted_record_on_the_target_is_found_whatever_problem_there_is():
    known = journal("ab")
    known.of_due[b"b"].aborted = True
    claims = {"lag_records": 0, "mirrored_through": 1, "source_end": 1, "target_end": 2}
    seen = Seen(0, content("a"), content("ab"), claims, [HALTED], lambda _: {"target_offset": None, "translation": ""})
    assert any("aborted" in each for each in findings(seen, known))


def test_a_record_that_comes_back_is_gone_no_longer():
    known = journal("ab")
    known.look(0, content("a").records, DEAD)
    assert known.records[b"b"].gone == DEAD
    known.look(0, content("ab").records, DEAD)
    assert known.records[b"b"].gone is None


@given(st.integers(0, 120_000))
def test_a_seed_is_a_plan(seed):
    plan = make(seed)
    assert plan == make(seed)
    assert plan.only(plan.numbers) == plan
    assert plan.actions[-1].kind != "quiet" or seed >= 40_000  # one is a part of a purge that is undone
    assert [str(a) for a in plan.only(plan.numbers[1:]).actions] == [str(a) for a in plan.actions[1:]]


def test_plans_of_lower_seeds_do_not_change():
    said = "\n".join(line for seed in range(0, 100_000, 97) for line in make(seed).lines())
    assert hashlib.blake2b(said.encode(), digest_size=8).hexdigest() == "4e63009b903c439f"


@given(st.sets(st.integers(0, 30), min_size=1, max_size=4))
def test_what_is_minimised_fails_and_nothing_of_it_can_be_left_out(culprits):
    tried = []

    def fails(numbers):
        tried.append(numbers)
        return culprits <= set(numbers)

    assert minimise(range(31), fails) == sorted(culprits)
    assert len(tried) < 31 * 31


def test_every_fault_point_and_every_plant_is_somewhere_in_drkit(tmp_path):
    """In a process of its own: what is patched stays patched."""
    assert tuple(PLACES) == FAULT_POINTS
    planted = ",".join(PLANTS) or "-"
    done = subprocess.run(
        [sys.executable, "-m", "chaos.adversary.worker", str(tmp_path / "control"), planted, "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.startswith("drkit "), done.stderr


def test_every_defect_that_a_drill_is_to_find_can_be_planted():
    """In a process of its own, as above. A drill whose defect isn't there passes."""
    plant = "from tests.support.drills.drill_plants import PLANTS, put\nfor name in PLANTS: put(name)\nprint('all')"
    done = subprocess.run(
        [sys.executable, "-c", plant], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "all", done.stderr


def test_answers_that_come_late_stay_in_order(tmp_path):
    """Also those that come when lateness is over."""
    heard, over = [], asyncio.Event()
    late = LateAnswers(tmp_path / "late")

    def hear(_, answer):
        heard.append(answer)
        if len(heard) == 5:
            over.set()

    answered = late._around(hear)

    async def work():
        answered("sender", 0)
        assert heard == [0]
        (tmp_path / "late").write_text("0.05")
        answered("sender", 1)
        answered("sender", 2)
        (tmp_path / "late").unlink()
        answered("sender", 3)
        answered("another", 4)
        assert heard == [0, 4]
        await asyncio.wait_for(over.wait(), 30)

    asyncio.run(work())
    assert [each for each in heard if each != 4] == [0, 1, 2, 3]

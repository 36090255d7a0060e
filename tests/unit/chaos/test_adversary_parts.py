"""What the adversary's verdict rests on, without brokers: its oracle, its plans, how it minimises, where it patches."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.adversary.fault_points import PLACES, LateAnswers
from chaos.adversary.oracle import DEAD, PURGED, Journal, Seen, Written, findings
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
    for name in names:
        found.write(name.encode(), Written(0, name.encode(), gone=gone.get(name)))
    found.write(b"-", Written(0, None))  # the link's filter leaves it out
    return found


HALTED = {"kind": "source_truncated", "halted": True, "partition": 0}
COPIED = {"kind": "target_lost_data", "halted": False, "partition": 0}
GONE = {"kind": "target_purged", "halted": False, "partition": 0, "unsure_from": 0, "unsure_until": 2}
RETURNED = {"kind": "records_returned", "halted": False, "partition": 0, "unsure_from": 1, "unsure_until": 3}
DIFFER = {"kind": "offsets_differ", "halted": False, "partition": 0}
BLAMED = {"kind": "foreign_writer", "halted": True, "partition": 0}


def judge(source, target, *, gone=None, problems=(), lag=0, answers=None, before=None, history=0, **known):
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
    return findings(seen, journal("abcdefgh", **(gone or {})))


BEHIND = {"translation": "conservative", "target_offset": 3}


def exact(offset):
    return {"translation": "exact", "target_offset": offset}


def at_most(end):
    """Exact up to the end of what is mirrored, conservative beyond it."""
    return lambda offset: exact(offset) if offset <= end else {"translation": "conservative", "target_offset": end}


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
        ("abcd", "acdbcd", {"problems": [COPIED]}),
        ("abcd", "acdbcd", {"problems": [COPIED, BLAMED]}),
        ("abd", "abc", {"gone": {"c": DEAD}, "problems": [BLAMED], "lag": 1}),
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
        ("abc", "acb", {}, "out of order"),
        ("ab", "abc", {"gone": {"c": DEAD}}, "the source lost"),
        ("ab", "abc", {"gone": {"c": DEAD}, "problems": [DIFFER]}, "the source lost"),
        ("abc", "abcX", {}, "none of the source's"),
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
            {"answers": lambda offset: {"translation": "conservative", "target_offset": offset + 1}},
            "skips the record",
        ),
    ],
)
def test_what_does_not_hold_is_found(source, target, options, said):
    assert any(said in each for each in judge(source, target, **options))


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


@given(st.integers(0, 20_000))
def test_a_seed_is_a_plan(seed):
    plan = make(seed)
    assert plan == make(seed)
    assert plan.only(plan.numbers) == plan
    assert plan.actions[-1].kind != "quiet"
    assert [str(a) for a in plan.only(plan.numbers[1:]).actions] == [str(a) for a in plan.actions[1:]]


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

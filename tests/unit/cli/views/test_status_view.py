"""A thousand partitions and hundreds of groups fit on a screen of any width, the worst first."""

from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from drkit.cli.views.layout import Column, FittingTable, shortened
from drkit.cli.views.status_view import group_sums, render_statuses
from drkit.model.clock import now
from drkit.model.link_state import Problem
from drkit.model.offsets import Certainty
from drkit.model.topology import Link, LinkId
from drkit.observe.link_status import GroupStatus, LinkStatus, PartitionStatus, RecoveryPoint

TOPIC = "europe.payments.authorisations.with-a-name-that-goes-on-and-on.v2"
TEAM = "team-settlement-and-reconciliation-consumers-of-the-nightly-batch"


def partition(number, lag=0):
    end = 9_876_543_210 + number
    return PartitionStatus(TOPIC, TOPIC, number, 0, end, end - (lag or 0), 0, end, 0, lag, 0.0 if lag == 0 else 1.5)


def group(number, certainty=Certainty.EXACT, reason=None, partition=0):
    at = now() - timedelta(seconds=number)
    return GroupStatus(f"{TEAM}-{number}", TOPIC, partition, 12_345_678_901, 12_345_678_902, certainty, reason, at)


def status(partitions, groups, problems=(), link="primary->dr"):
    known = [each.lag_records for each in partitions]
    point = RecoveryPoint(None if None in known else sum(known), 1.5, reason="a lag isn't known")
    state = "degraded" if problems else "mirroring"
    return LinkStatus(
        Link(LinkId.parse(link), topics=(".*",)), state, None, True, True, None, now(),
        tuple(partitions), tuple(groups), tuple(problems), point,
    )  # fmt: skip


def shown(*statuses, width=80, **how):
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_statuses(statuses, **how))
    return console.file.getvalue().splitlines()


MANY = status(
    [*(partition(n) for n in range(997)), partition(997, 400), partition(998, None), partition(999, 12)],
    [
        *(group(n) for n in range(400)),
        group(400, Certainty.CONSERVATIVE, "offset 17 lies in a hole"),
        group(401, Certainty.CONSERVATIVE, "offset 21 lies in a hole"),
        group(402, Certainty.UNAVAILABLE, "nothing of it is mirrored"),
    ],
)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_large_link_fits_on_a_screen_and_every_row_keeps_its_partition(width):
    lines = shown(MANY, width=width)
    assert len(lines) < 30
    assert all(len(line) <= width for line in lines)
    (behind,) = [line for line in lines if ":997 " in line]
    assert "400" in behind
    rows = [line for line in lines if line.startswith(("europe", "team"))]
    assert [line.split()[0][-4:] for line in rows if line.startswith("europe")] == [":998", ":997", ":999"]
    assert [line.split()[0][-4:] for line in rows if line.startswith("team")] == ["-402", "-400", "-401"]


def test_what_counts_is_said_first():
    lines = shown(MANY)
    text = " ".join(" ".join(lines).split())
    assert "known 1,000 partitions: 1 with a lag that isn't known, 2 behind by 412 records, 997 caught up" in text
    assert "403 groups, 403 positions: 1 with a position that has no place on the target, 2 would read" in text
    assert "(and 1 position alike): offset 17 lies in a hole" in text
    assert "· europe" not in text, "no lag has a reason here"


def test_all_rows_are_shown_where_they_are_wanted_or_few():
    assert len([line for line in shown(MANY, every=True) if line.startswith("europe")]) == 1000
    few = shown(status([partition(n) for n in range(3)], [group(1)]))
    assert len([line for line in few if line.startswith("europe")]) == 3
    assert any("all caught up" in line for line in few)
    assert any("all exact" in line for line in few)


def test_what_nobody_could_look_at_is_not_caught_up():
    seen = replace(status([partition(0)], []), source_reachable=False)
    lines = shown(seen)
    assert any(line.startswith("1 partition: as last seen, all caught up") for line in lines)
    assert any("primary does not answer" in line for line in lines)
    refused = shown(replace(seen, refused={"primary": "cluster primary rejected the credentials"}))
    text = " ".join(" ".join(refused).split())
    assert "primary answers, but drkit can't work with it: its offsets are as last seen" in text


def test_a_link_where_all_is_well_needs_four_lines():
    lines = shown(status([partition(n) for n in range(500)], [group(n) for n in range(50)]))
    assert [line for line in lines if line] == lines[:3]


def test_more_bad_rows_than_fit_are_counted():
    problem = [Problem("retention_gap", "t", n, "gone", "Do", halted=n == 30, since=now()) for n in range(31)]
    bad = status(
        [partition(n, n + 1) for n in range(50)], [group(n, Certainty.CONSERVATIVE) for n in range(40)], problem
    )
    text = "\n".join(shown(bad))
    assert "… 38 more of them: --all shows every row" in text
    assert "… 28 more of them" in text
    assert "! t:0 gone (retention_gap) and 29 problems alike: --all shows each" in text
    assert text.index("! t:30 halted: gone") < text.index("! t:0 gone"), "what halts comes first"


def test_problems_that_differ_are_counted_where_they_are_more_than_fit():
    found = [Problem("retention_gap", f"t{'x' * n}", 0, "gone", "Do", halted=False, since=now()) for n in range(15)]
    assert "… 3 more problems" in "\n".join(shown(status([partition(0)], [], found)))


def test_a_problem_names_its_place_once_and_its_lines_are_indented():
    where = "orders.payments-of-a-team-with-a-long-name"
    gone = Problem("target_recreated", where, None, f"{where} on dr was deleted", "Find it " * 20, True, now())
    lines = shown(status([partition(0)], [], [gone]))
    begin = next(n for n, line in enumerate(lines) if line.startswith("!"))
    assert lines[begin].startswith(f"! halted: {where} on dr")
    assert all(line.startswith("  ") for line in lines[begin + 1 :] if line)
    assert any(line.startswith("  → Find it") for line in lines)


def test_of_several_links_each_has_a_line_before_all_else():
    lines = shown(status([partition(0, 5)], [], link="a->b"), status([partition(0, None)], [], link="c->d"))
    assert lines[0].split() == ["link", "state", "at", "stake", "oldest", "groups", "not", "exact", "problems"]
    assert [line.split()[0] for line in lines[1:3]] == ["c->d", "a->b"], "what isn't known comes first"


def test_groups_are_summed_up():
    found = group_sums([group(1), group(1, Certainty.UNAVAILABLE, partition=1), group(0)])
    assert [(each.positions, each.exact, each.unavailable) for each in found] == [(2, 1, 1), (1, 1, 0)]


@pytest.mark.parametrize("width", range(8, 120))
def test_a_table_is_never_wider_than_its_room_unless_numbers_alone_are(width):
    columns = (Column("name", name=True), Column("much", right=True, needed=1), Column("n", right=True))
    table = FittingTable(columns)
    table.add("a-name-of-thirty-characters:123", "1,234,567", "12")
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2
    assert all(len(line) <= width for line in lines)
    assert ("1,234,567" in lines[1]) == (width >= 31)


def test_a_name_is_shortened_in_the_middle():
    assert shortened("orders.v2:12", 12) == "orders.v2:12"
    assert shortened("europe.orders.v2:12", 12) == "europe…v2:12"

"""Progress at a terminal of 80 columns: each drawing covers the one before, so it takes one row."""

import io
import re

import pytest
from rich.console import Console

from drkit.cli.output import OutputMode, OutputWriter
from drkit.cli.views.failover_view import StagePrinter
from drkit.cli.views.layout import OneRow
from drkit.cli.wiring.spark_options import spark_progress
from drkit.failover.context.state_machine import StageOutcome
from drkit.failover.journal.journal import StageRecord
from tests.support.wait import wait_until

LONG = "primary->dr: 12,000 records, 80,000 to go; waiting: none of the source's addresses has answered for 12 s [1]"
UP = "\x1b[1A"


@pytest.fixture
def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def writer_on(console: Console) -> OutputWriter:
    return OutputWriter(OutputMode.HUMAN, console, console)


def drawn(terminal: Console) -> str:
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


def test_a_stage_that_has_much_to_say_is_drawn_in_a_row(terminal):
    printer = StagePrinter(writer_on(terminal))
    try:
        printer("reseed", None, "short")
        wait_until(lambda: "reseed short" in drawn(terminal), what="the first drawing")
        printer("reseed", None, LONG)
        terminal.print("a remark", soft_wrap=True)  # the spinner is drawn again below it
        wait_until(lambda: "reseed primary->dr: 12,000 records" in drawn(terminal), what="the next drawing")
        seen = drawn(terminal)
    finally:
        printer.stop()
    assert "…" in seen
    assert UP not in seen, "a drawing of one row is covered without going up"


def test_in_a_log_a_stage_has_a_line_when_it_begins_and_now_and_then_while_it_lasts():
    console, at = Console(file=io.StringIO(), width=80), 0.0
    printer = StagePrinter(writer_on(console), lambda: at)
    printer("fence", None, "close primary to clients")
    printer("fence", StageRecord("fence", StageOutcome.OK, "closed", 0.4), "closed")
    printer("reseed", None, "bring over what primary lacks")
    for second in range(95):
        at = float(second)
        printer("reseed", None, f"primary->dr: {second} records")
    printer("reseed", StageRecord("reseed", StageOutcome.OK, "95 records", 95.0), "95 records")
    assert drawn(console).splitlines() == [
        "… fence     close primary to clients",
        "✓ fence     closed 0.4 s",
        "… reseed    bring over what primary lacks",
        *(f"… reseed    primary->dr: {second} records" for second in (30, 60, 90)),
        "✓ reseed    95 records 95.0 s",
    ]


def test_a_step_of_spark_leaves_room_for_how_far_it_is(terminal):
    class Run:
        writer = writer_on(terminal)

    with spark_progress(Run(), "audit primary->dr") as shown:
        shown.step("reading both sides side by side, and comparing them record by record in Spark's tasks")
        assert shown.tasks is not None
        shown.tasks(3, 12)
        terminal.print("a remark")
        wait_until(lambda: re.search(r"reading both .*25% +3/12 ", drawn(terminal)) is not None, what="how far it is")
        seen = drawn(terminal)
    assert UP not in seen


@pytest.mark.parametrize("width", [20, 40, 200])
def test_a_row_is_cut_to_the_terminal(width):
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    lines = console.render_lines(OneRow(console.render_str(LONG, markup=False)), pad=False)
    assert [sum(segment.cell_length for segment in line) for line in lines] == [min(width, len(LONG))]

"""Text in the width of a terminal: hanging paragraphs, and checks of readiness."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from drkit.cli.views.checks_view import print_checks
from drkit.cli.views.layout import Hanging
from drkit.observe.readiness.check import Check, CheckOutcome

WORDS = [f"word{n}" for n in range(60)]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_first_line_uses_the_whole_width_and_no_word_is_lost(width):
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(Hanging.markup(f"[bold]{' '.join(WORDS)}[/]\nsecond", 12))
    first, *rest, last = console.file.getvalue().splitlines()
    assert width - len("word00 ") <= len(first) <= width
    assert all(line.startswith(" " * 12 + "word") and len(line) <= width for line in rest)
    assert " ".join([first, *rest]).split() == WORDS
    assert last == "second", "a line of its own begins at the left"


REASON = "orders.payments-of-a-team-with-a-rather-long-name does not move: no broker of it answers"


def shown(checks, width):
    console = Console(file=StringIO(), width=width, color_system=None)
    print_checks(console, [("", each) for each in checks])
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_name_that_fits_on_a_line_is_not_broken(width):
    text = shown([Check("problem: not_moving", CheckOutcome.FAIL, REASON, "Start the brokers")], width)
    assert "orders.payments-of-a-team-with-a-rather-long-name" in text
    assert all(len(line) <= width for line in text.splitlines())
    assert "→ Start the brokers" in text


@pytest.mark.parametrize("width", [80, 120])
def test_checks_that_differ_in_numbers_only_are_one(width):
    stuck = [Check("problem: not_moving", CheckOutcome.FAIL, f"t:{n} does not move", "Look") for n in range(3)]
    text = shown([Check("mirror", CheckOutcome.OK, "running"), *stuck], width)
    assert "t:0 does not move (and 2 checks alike)" in text
    assert text.index("FAIL") < text.index("running"), "the worst comes first"
    assert text.count("Look") == 1


@pytest.mark.parametrize("outcome", CheckOutcome)
@pytest.mark.parametrize("width", [80, 120])
def test_an_outcome_stands_apart_from_the_name_of_its_check(width, outcome):
    first, *_ = shown([Check("recovery point", outcome, REASON)], width).splitlines()
    assert first.split()[1:3] == ["recovery", "point"]

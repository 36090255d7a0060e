"""Paragraphs whose further lines are indented."""

from io import StringIO

import pytest
from rich.console import Console

from drkit.cli.views.layout import Hanging

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

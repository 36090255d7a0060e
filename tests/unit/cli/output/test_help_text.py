"""How the help of every command looks on a terminal of 80 columns."""

import pytest
from typer.testing import CliRunner

from drkit.cli.application import VERBS, application
from drkit.cli.help import reflowed


def test_a_paragraph_is_one_line_and_a_list_stays_one():
    text = """Summary.

    A paragraph of
    --two lines.

    - a list
    - of two
    """
    assert reflowed(text) == "Summary.\n\nA paragraph of --two lines.\n\n- a list\n- of two"


@pytest.mark.parametrize("verb", VERBS)
def test_no_flag_seems_to_want_a_value_and_no_example_is_shown_twice(verb):
    shown = CliRunner().invoke(application((verb,)), [verb, "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert shown.exit_code == 0
    assert "<bool>" not in shown.output
    examples = [line.strip() for line in shown.output.splitlines() if line.strip().startswith("drkit ")]
    assert len(set(examples)) == len(examples)


def test_drkit_itself_and_subcommands_have_no_flag_that_seems_to_want_a_value():
    for called in (["--help"], ["drill", "run", "--help"], ["audit", "--help"]):
        assert "<bool>" not in CliRunner().invoke(application(("drill", "audit")), called).output

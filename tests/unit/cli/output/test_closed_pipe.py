"""stdout whose reader has gone (`drkit … | head -1`): what a command does, and its exit code, stay what they are."""

import os
import subprocess
import sys

import pytest

BEGIN = "import time\nfrom drkit.cli.output import OutputMode, OutputWriter\n"


def unread(program):
    """Run it with a stdout that nobody reads: its exit code, and stderr."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + program], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize("mode", ["HUMAN", "JSON"])
def test_a_result_that_nobody_reads_leaves_the_command_its_exit_code(mode):
    program = (
        f"writer = OutputWriter.for_mode(OutputMode.{mode})\n"
        "writer.emit({'run': 'x' * 100_000}, lambda console: [console.print('x' * 70) for _ in range(9_999)])\n"
        "assert writer.emitted\n"
        "raise SystemExit(6)\n"
    )
    assert unread(program) == (6, "")


def test_a_plan_that_nobody_reads_does_not_end_what_follows_it():
    program = (
        "writer = OutputWriter.for_mode(OutputMode.HUMAN)\n"
        "writer.console.print('the plan')\n"
        "assert writer.unread\n"
        "writer.console.print('more of it')\n"
        "raise SystemExit(7)\n"
    )
    assert unread(program) == (7, "")


def test_a_mirror_goes_on_without_a_reader_of_its_events():
    program = (
        "writer = OutputWriter.for_mode(OutputMode.JSON, lines=True)\n"
        "for number in range(3):\n"
        "    writer.line_if_read({'number': number})\n"
        "raise SystemExit(5)\n"
    )
    assert unread(program) == (5, "")


@pytest.mark.parametrize("output", ["human", "json"])
def test_a_command_whose_output_nobody_reads_is_no_failure(output, tmp_path):
    (tmp_path / "drkit.toml").write_text('[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n')
    run = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.argv[1:] = ['config', 'show', '--output', {output!r}]\n"
    assert unread(f"{run}from drkit.cli.main import main\nmain()\n") == (0, "")

"""Every command of every runbook is one that the real CLI takes. A mistyped flag is found here, not at 04:03."""

import re
from pathlib import Path

import pytest

from drkit.drill.runbook import Command, read_runbook
from drkit.model.errors import ConfigError, ExitCode
from tests.support.commands.runbooks import NotAccepted, parse

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = sorted((ROOT / "runbooks").glob("*.md"))
OTHER_PROGRAMS = {"mkdir", "kafka-consumer-groups.sh", "kafka-cluster.sh"}
"""What else a runbook may call: Kafka's own tools, as the independent witness."""


def drkit_commands() -> list[Command]:
    return [command for file in RUNBOOKS for command in read_runbook(file).of_drkit()]


def test_the_runbooks_are_there():
    assert {file.name for file in RUNBOOKS} >= {"unplanned-failover.md", "failback.md", "store-lost.md"}
    assert all(len(read_runbook(file).of_drkit()) >= 10 for file in RUNBOOKS)


@pytest.mark.parametrize("command", drkit_commands(), ids=lambda c: f"{c.place} {' '.join(c.argv[:3])}")
def test_the_cli_takes_the_command(command):
    parse(command.argv)


@pytest.mark.parametrize("command", drkit_commands(), ids=lambda c: f"{c.place} {' '.join(c.argv[:3])}")
def test_a_mistyped_word_or_flag_is_found(command):
    """The check itself is checked: each flag and the verb, with one letter changed, must not be taken."""
    for number, word in enumerate(command.argv):
        if number == 1 or word.startswith("--"):
            wrong = (*command.argv[:number], word + "x", *command.argv[number + 1 :])
            with pytest.raises(NotAccepted):
                parse(wrong)


@pytest.mark.parametrize("file", RUNBOOKS, ids=lambda file: file.name)
def test_only_known_programs_are_called(file):
    called = {command.argv[0] for command in read_runbook(file).commands}
    assert called <= {"drkit"} | OTHER_PROGRAMS


@pytest.mark.parametrize("file", RUNBOOKS, ids=lambda file: file.name)
def test_kafkas_own_tools_are_told_how_to_log_in(file):
    for command in read_runbook(file).commands:
        if command.argv[0].startswith("kafka-"):
            assert {"--config", "--command-config"} & set(command.argv), command.place


@pytest.mark.parametrize("name", ["unplanned-failover.md", "failback.md"])
def test_every_exit_code_that_can_come_has_its_row(name):
    text = (ROOT / "runbooks" / name).read_text()
    for code in ExitCode:
        assert f"| {int(code)} |" in text or f"({int(code)} is for audits only" in text, code


@pytest.mark.parametrize("file", RUNBOOKS, ids=lambda file: file.name)
def test_links_lead_somewhere(file):
    for part in file.read_text().split("](")[1:]:
        target = part.split(")")[0].split("#")[0]
        assert (file.parent / target).exists(), target


# --- the reader of runbooks -----------------------------------------------------------------------


def read(tmp_path, text):
    file = tmp_path / "book.md"
    file.write_text(text)
    return read_runbook(file)


def test_variables_continuations_operators_and_inline_code(tmp_path):
    book = read(
        tmp_path,
        "See `drkit status`.\n"
        '```sh one\nDR=dr # the name\nexport A="b c"\n# a remark\n'
        'drkit doctor \\\n  --to "$DR" && drkit status --link "p->${DR}" > out.txt\n```\n'
        "```console\n$ drkit runs\nsome output\n```\n```text\ndrkit nonsense\n```\n",
    )
    assert [(command.line, command.block, command.argv) for command in book.commands] == [
        (1, "", ("drkit", "status")),
        (6, "one", ("drkit", "doctor", "--to", "dr")),
        (6, "one", ("drkit", "status", "--link", "p->dr")),
        (10, "", ("drkit", "runs")),
    ]
    assert book.variables == {"DR": "dr", "A": "b c"}
    assert book.block("one").lines[0] == "DR=dr # the name"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\ndrkit status --link $LINK\n```\n", "2: $LINK is used and never set"),
        ("```sh\ndrkit status\n", "1: the block is not closed"),
        ("```sh\ndrkit status 'x\n```\n", "2: a shell would not take this"),
        ("```sh\ndrkit status \\\n```\n", "2: the last line continues"),
        ("```sh\nX=$(date)\n```\n", "2: write it without $(…)"),
    ],
)
def test_what_a_shell_would_not_take_is_found(tmp_path, text, said):
    with pytest.raises(ConfigError, match=re.escape(f"book.md:{said}")):
        read(tmp_path, text)


def test_a_link_without_quotes_is_a_redirection_as_in_a_shell(tmp_path):
    book = read(tmp_path, "```sh\ndrkit status --link primary->dr\n```\n")
    assert book.commands[0].argv == ("drkit", "status", "--link", "primary-")

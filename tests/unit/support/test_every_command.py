"""The commands of drkit are collected from its command line, whatever their form."""

from __future__ import annotations

from drkit.cli.application import VERBS
from tests.support.commands.every_command import command_of, every_command


def test_each_verb_is_there_alone_or_with_its_subverbs() -> None:
    assert {each.partition(" ")[0] for each in every_command()} == set(VERBS)
    assert {"status", "link pause", "audit", "audit watch"} <= every_command()
    assert not {"link", "store"} & every_command(), "these only show their help"


def test_arguments_name_the_longest_command_that_they_begin_with() -> None:
    assert command_of(["audit", "history", "--last", "1"]) == "audit history"
    assert command_of(["audit", "--full"]) == "audit"
    assert command_of(["runs", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]) == "runs"

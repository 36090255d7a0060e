"""Two more runbooks, executed block by block: a planned switch on clusters that can be fenced, and a lagging mirror."""

import json
from pathlib import Path

import pytest

from drkit.drill.runbook import read_runbook
from tests.support.clusters.secured import allow, put, with_writer
from tests.support.commands.runbooks import run_block
from tests.support.links.estates import mirror, mirroring, own_link, texts

RUNBOOKS = Path(__file__).resolve().parents[2] / "runbooks"
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


def play(book, name, cwd, codes=(0,)):
    """Execute a block; each of its drkit commands ends with one of these codes. What they wrote, in their order."""
    ran = run_block(book, name, cwd)
    assert ran, f"{book.file.name} has no drkit command in block {name}"
    for each in ran:
        assert each.done.returncode in codes, f"{each.command.place}: {each.done.stderr}\n{each.done.stdout}"
    return [each.done.stdout for each in ran]


def test_planned_switch(secure_lab, tmp_path, unique_name):
    """Nothing is waived: no command of the page accepts anything, and the evidence says that the fence held."""
    own = with_writer(own_link(secure_lab, tmp_path, unique_name), secure_lab)
    for alias in ("primary", "dr"):
        put(own, alias, *(allow(own.name, kind, "all") for kind in ("topic", "group")))
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 50))
    group = own.commit("primary", "billing", topic, {0: 30, 1: 40})
    mirror(own)
    given = {"DRKIT_CONFIG": str(own.config_path), "PLAN": str(tmp_path / "plan.json")}
    book = read_runbook(RUNBOOKS / "planned-switch.md", given)
    assert not any("--accept" in word for command in book.of_drkit() for word in command.argv)
    with mirroring(own):
        play(book, "look", tmp_path)
        play(book, "dry-run", tmp_path)
        own.commit("primary", "billing", topic, {0: 31, 1: 42})  # it read on until it was stopped
        play(book, "go", tmp_path, codes=(4,))
        play(book, "dry-run-again", tmp_path)
        own.produce("primary", topic, texts("late", 7))  # a producer that nobody stopped, before it is turned away
        play(book, "go", tmp_path, codes=(0, 6))
    assert own.values("dr", topic) == own.values("primary", topic)
    assert own.committed("dr", group) == {(topic, 0): 31, (topic, 1): 42}
    listed, status, endpoint = play(book, "verify", tmp_path)
    assert "closed" in listed
    assert "sealed" in status
    assert endpoint.strip() == own.config.clusters["dr"].bootstrap_servers
    (run,) = [each for each in json.loads(play(book, "evidence", tmp_path)[0])["runs"] if each["kind"] == "failover"]
    assert run["state"] == "closed"
    play(book, "stop", tmp_path, codes=(0, 3))  # there is nothing left to take back
    own.store.close()


def test_mirror_lagging(lab, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 50))
    mirror(own)
    own.produce("primary", topic, texts("y", 20))
    book = read_runbook(RUNBOOKS / "mirror-lagging.md", {"DRKIT_CONFIG": str(own.config_path), "TOPIC": topic})
    play(book, "look", tmp_path, codes=(0, 3, 8))
    play(book, "pause", tmp_path)
    play(book, "resume", tmp_path)
    play(book, "catch-up", tmp_path)
    play(book, "verify", tmp_path, codes=(0, 3, 8))
    assert own.values("dr", topic) == own.values("primary", topic)
    own.store.close()

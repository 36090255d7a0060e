"""A run's journal that its store's writer has changed is found by what is anchored outside the store."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.failover.context.anchors import anchor_file, read_anchors
from drkit.model.runs import ChainState, JournalEntry, judge_chain, missing_runs, verify_chain
from drkit.store import codec
from drkit.store.open import store_identity
from tests.support.clusters.secured import killed_at, verb
from tests.support.collection.sampling import some_of
from tests.support.links.estates import OwnLink, mirror, texts

pytestmark = [pytest.mark.lab, some_of("anchors of journals", 2)]

PAGE = Path(__file__).parents[4] / "docs" / "journal.md"


def example() -> str:
    """The Python of docs/journal.md."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def rewrite(own: OwnLink, run: str, entries: list[JournalEntry]) -> None:
    """What somebody does who can write to the store: these are a run's entries now."""
    with sqlite3.connect(own.config_path.parent / "drkit.db", timeout=10) as database:
        database.execute("DELETE FROM journal WHERE run = ?", (run,))
        database.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(codec.entry_row, entries))
    database.close()


def forged(entries: list[JournalEntry], at: int) -> list[JournalEntry]:
    """The same run with another payload at one place, all later hashes computed again."""
    chain = entries[:at]
    for entry in entries[at:]:
        payload = json.dumps({"outcome": "ok"}) if entry.seq == at else entry.payload
        before = chain[-1] if chain else None
        chain.append(
            JournalEntry.chained(
                before, run=entry.run, at=entry.at, stage=entry.stage, event=entry.event, payload=payload
            )
        )
    return chain


def test_a_journal_that_was_written_anew_cut_or_deleted_is_noticed(own, tmp_path, monkeypatch):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 5))
    own.commit("primary", "g1", topic, {0: 3})
    mirror(own)
    run = verb(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", schema="failover")["run"]

    shown = verb(own, "runs", run, schema="runs")
    assert (shown["chain"]["state"], shown["chain"]["anchored_through"]) == ("holds", len(shown["entries"]) - 1)
    checked = subprocess.run(
        [sys.executable, "-c", example()], input=json.dumps(shown), capture_output=True, text=True, check=True
    )
    assert checked.stdout == f"the chain holds; its head is {shown['entries'][-1]['hash']}\n"

    entries = own.store.entries(run)
    rewrite(own, run, forged(entries, 2))
    assert verify_chain(own.store.entries(run)) is None, "by itself it holds"
    told = verb(own, "runs", run, code=1, schema="runs")["chain"]
    assert (told["state"], told["intact"]) == ("broken", False)
    assert re.match(r"broken at entry \d+: .* has another hash; ", told["verdict"])

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another operator"))  # what dr has is enough
    with own.estate() as estate:
        places = read_anchors(estate, ["primary", "dr"])
        mine = [any(anchor.run == run for anchor in place.anchors or ()) for place in places]
        assert mine == [False, False, True]
        assert judge_chain(run, own.store.entries(run), places).state is ChainState.BROKEN
        rewrite(own, run, entries[:-3])
        assert judge_chain(run, own.store.entries(run), places).words.startswith(
            "cut: anchored head not in the chain (__drkit_journal on dr has entry"
        )
        rewrite(own, run, [])
        assert judge_chain(run, own.store.entries(run), places).state is ChainState.CUT
        assert missing_runs([], places, store_identity(own.config.store.plain_url)) == [run]
        rewrite(own, run, entries)
        assert judge_chain(run, own.store.entries(run), places, "dr").state is ChainState.HOLDS


def test_without_the_cluster_that_has_the_anchors_it_cannot_be_told(own):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    run = verb(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", schema="failover")["run"]
    assert run in anchor_file().read_text()
    text = own.config_path.read_text()
    own.config_path.write_text(text.replace(own.config.clusters["dr"].bootstrap_servers, "127.0.0.1:1"))
    told = verb(own, "runs", run, schema="runs")["chain"]
    assert (told["state"], told["intact"]) == ("not anchored", True)
    assert told["verdict"].startswith("not anchored: __drkit_journal on dr can't be read: ")
    assert told["verdict"].endswith(f"{anchor_file()} agrees through entry {told['entries'] - 1}")
    with sqlite3.connect(own.config_path.parent / "drkit.db", timeout=10) as database:
        database.execute("DELETE FROM journal WHERE run = ?", (run,))
        database.execute("DELETE FROM run WHERE run = ?", (run,))
    database.close()
    listed = verb(own, "runs", schema="runs")
    assert (listed["runs"], listed["missing"]) == ([], [run])
    assert verb(own, "runs", run, code=1, schema="runs")["chain"]["state"] == "cut"


def test_a_run_is_not_resumed_on_the_word_of_a_journal_that_was_written_anew(own):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 5))
    own.commit("primary", "g1", topic, {0: 3})
    mirror(own)
    killed_at(own, "failover", ("translate", "outcome", "after"))
    (summary,) = own.store.runs()
    run, entries = summary.run, own.store.entries(summary.run)
    for written in (forged(entries, 2), entries[:2]):
        rewrite(own, run, written)
        assert verify_chain(own.store.entries(run)) is None, "by itself it holds"
        for words in (("resume", run, "--yes"), ("resume", run, "--cancel", "--yes")):
            told = verb(own, *words, code=1)["error"]
            assert f"the journal of run {run} is not what was written" in told["what"]
            assert f"drkit abandon {run}" in told["remedy"]
        assert own.store.entries(run) == written, "nothing was added to it"
        assert own.committed("dr", f"{own.name}.g1") == {}
    rewrite(own, run, entries)
    assert verb(own, "resume", run, "--yes", "--accept-unfenced", schema="failover")["state"] == "closed"


def test_a_run_whose_journal_was_written_anew_can_be_abandoned(own):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    killed_at(own, "failover", ("translate", "outcome", "after"))
    (summary,) = own.store.runs()
    rewrite(own, summary.run, own.store.entries(summary.run)[:2])
    done = verb(own, "abandon", summary.run, schema="abandon")
    assert "anchored head not in the chain" in done["journal_problem"]
    assert done["serves"] == "dr", "how far it had come is not known: what the link says counts"

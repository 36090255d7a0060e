"""What the page answers to "may I fail over now" is what `drkit failover --dry-run` says, before and after one."""

import json
import subprocess
import sys

import pytest

from drkit.cli.wiring.page_sources import page_sources
from drkit.observe.page.decision import Answer, Decision
from tests.support.estates import mirror, texts

pytestmark = pytest.mark.lab


def drkit(own, *words: str, codes: tuple[int, ...] = (0,)) -> dict:
    command = [sys.executable, "-m", "drkit", *words, "--config", str(own.config_path), "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode in codes, f"{ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return {"exit_code": ended.returncode, **json.loads(ended.stdout)}


def same(found: Decision, dry_run: dict) -> None:
    """The page's decision says what the command does: as a plan, or as a refusal."""
    if "error" in dry_run:
        assert (found.answer, [each.what for each in found.obstructions]) == (Answer.NO, [dry_run["error"]["what"]])
        return
    accepted = dry_run["exit_code"] == 0
    assert (found.answer in {Answer.YES, Answer.UNFENCED}) == accepted
    assert (found.answer is Answer.UNFENCED) == (accepted and "--accept-unfenced" in dry_run["needs"])
    refused = [each.what for each in found.obstructions if each.waived_by != "--accept-unfenced"]
    assert refused == [each["what"] for each in dry_run["refusals"]]
    assert found.records == dry_run["evidence"]["rpo_records"]
    assert found.digest == dry_run["digest"]
    assert [(row.group, row.partition, row.target_offset, row.reread) for row in found.positions] == [
        (each["group"], each["partition"], each["target_offset"], each["reread"]) for each in dry_run["groups"]
    ]


def test_the_page_says_what_the_dry_run_says(own):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 20))
    own.commit("primary", "g1", topic, {0: 20, 1: 12})
    sources = page_sources(own.config, own.store, [own.link], None)
    dry_run = ("failover", "--to", "dr", "--dry-run")
    same(sources.decisions()[0], drkit(own, *dry_run, codes=(3,)))  # nothing was mirrored yet
    mirror(own)
    same(sources.decisions()[0], drkit(own, *dry_run))
    assert sources.decisions()[0].answer is Answer.UNFENCED
    assert sources.earlier().durations == {}
    done = drkit(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", codes=(0, 6))
    same(sources.decisions()[0], drkit(own, *dry_run, codes=(0, 3)))
    before = sources.earlier()
    assert before.durations["dr"].seconds == pytest.approx(done["evidence"]["rto_seconds"], abs=0.01)
    run = sources.run(done["run"])
    assert run is not None
    assert [stage["name"] for stage in run["stages"]] == [stage["name"] for stage in done["stages"]]
    assert (run["intact"], run["unreadable"]) == (True, None)
    assert run["evidence"]["rto_seconds"] == done["evidence"]["rto_seconds"]
    assert sources.run("01NONE") is None

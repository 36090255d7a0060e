"""What the page and doctor answer to "may I fail over now" is what `drkit failover --dry-run` says."""

import json
import subprocess
import sys

import pytest

from drkit.cli.wiring.page_sources import page_sources
from drkit.observe.page.board import Sources
from drkit.observe.page.decision import Answer, headline
from tests.support.links.estates import mirror, texts
from tests.support.pages.page_decision import same, words_of

pytestmark = pytest.mark.lab


def drkit(own, *words: str, codes: tuple[int, ...] = (0,)) -> dict:
    command = [sys.executable, "-m", "drkit", *words, "--config", str(own.config_path), "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode in codes, f"{ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return {"exit_code": ended.returncode, **json.loads(ended.stdout)}


def compare(sources: Sources, own, *codes: int) -> None:
    (found,) = sources.decisions()
    told = drkit(own, *words_of(found), codes=codes)
    same(found, told, told["exit_code"])
    (asked,) = drkit(own, "doctor", "--to", "dr", codes=(told["exit_code"],))["links"]
    refusals = [each["reason"] for each in asked["checks"] if each["check"] == "failover" and each["outcome"] == "fail"]
    assert len(refusals) == (len(told["refusals"]) if "refusals" in told else 1)
    assert (asked["outcome"] == "fail") == bool(refusals)


def test_the_page_says_what_the_dry_run_says(own):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 20))
    own.commit("primary", "g1", topic, {0: 20, 1: 12})
    sources = page_sources(own.config, own.store, [own.link], None)
    compare(sources, own, 3)  # nothing was mirrored yet
    mirror(own)
    compare(sources, own, 0)
    assert sources.decisions()[0].answer is Answer.UNFENCED
    own.produce("primary", topic, texts("y", 5))
    compare(sources, own, 3)  # the primary answers, no mirror runs, and five records would be lost
    mirror(own)
    assert sources.earlier().durations == {}
    done = drkit(own, "failover", "--to", "dr", "--yes", "--accept-unfenced", codes=(0, 6))
    (after,) = sources.decisions()
    assert after.answer is Answer.MOVED
    assert headline(after) == "Failed over already: dr serves. To go back: `drkit failback --to primary`"
    told = drkit(own, *words_of(after), codes=(3,))
    same(after, told, told["exit_code"])
    before = sources.earlier()
    assert before.durations["dr"].seconds == pytest.approx(done["evidence"]["rto_seconds"], abs=0.01)
    run = sources.run(done["run"])
    assert run is not None
    assert [stage["name"] for stage in run["stages"]] == [stage["name"] for stage in done["stages"]]
    assert (run["intact"], run["unreadable"]) == (True, None)
    assert run["evidence"]["rto_seconds"] == done["evidence"]["rto_seconds"]
    assert sources.run("01NONE") is None

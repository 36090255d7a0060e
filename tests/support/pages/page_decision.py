"""Compares the page's answer with that of its command."""

from __future__ import annotations

import re
import shlex
from typing import Any

from drkit.model.clock import now
from drkit.model.errors import ExitCode
from drkit.observe.page.decision import Answer, Decision, decision_document


def same(found: Decision, dry_run: dict[str, Any], exit_code: int) -> None:
    """Assert that the page's decision agrees with `drkit failover --dry-run --output json`: a plan, or a refusal."""
    accepted = exit_code == 0
    if found.answer is Answer.MOVED:
        assert exit_code == ExitCode.REFUSED
        first = dry_run["error"] if "error" in dry_run else dry_run["refusals"][0]
        assert first["what"] in [each.what for each in found.obstructions]
        return
    assert (found.answer in {Answer.YES, Answer.UNFENCED}) == accepted
    if "error" in dry_run:
        assert (found.answer, [each.what for each in found.obstructions]) == (Answer.NO, [dry_run["error"]["what"]])
        return
    assert (found.answer is Answer.UNFENCED) == (accepted and "--accept-unfenced" in dry_run["needs"])
    refused = [
        (each.link, _timeless(each.what)) for each in found.obstructions if each.waived_by != "--accept-unfenced"
    ]
    assert refused == [(each.get("link"), _timeless(each["what"])) for each in dry_run["refusals"]]
    assert found.records == dry_run["evidence"]["rpo_records"]
    assert found.digest == dry_run["digest"]
    assert sorted((row.group, row.topic, row.partition, row.target_offset, row.reread) for row in found.positions) == (
        sorted(
            (each["group"], each["topic"], each["partition"], each["target_offset"], each["reread"])
            for each in dry_run["groups"]
        )
    )


def _timeless(text: str) -> str:
    """Remove numbers of seconds: the two were planned one after the other."""
    return re.sub(r"[0-9.,]+ s\b", "# s", text)


def words_of(found: Decision) -> list[str]:
    """The command that the page shows beside its answer, without `drkit`."""
    return shlex.split(decision_document(found, now())["command"])[1:]

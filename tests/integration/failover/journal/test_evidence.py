"""The bundle of a real failover: complete, signed, idempotent; and refused once anything of it is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drkit.evidence import verifier
from drkit.evidence.signing import Signer, make_key, open_signer
from tests.support.clusters.secured import verb
from tests.support.drills.bundles import ROOT, change_a_byte, document_of, problems_of
from tests.support.links.estates import mirror, texts

pytestmark = pytest.mark.lab


def tool(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The script as a stranger runs it: not in the repository, and without drkit on its path."""
    copy = folder.parent / "verify_evidence.py"
    shutil.copyfile(ROOT / "tools" / "verify_evidence.py", copy)
    without = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-P", str(copy), str(folder), *options],
        capture_output=True,
        text=True,
        check=False,
        env=without,
        cwd=folder.parent,
    )


def test_a_failover_leaves_evidence_that_a_stranger_verifies_and_nobody_changes(own, tmp_path):
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 5))
    own.commit("primary", "g1", topic, {0: 3})
    mirror(own)
    own.config_path.write_text(own.config_path.read_text() + "[objectives]\nrpo_records = 0\nrto_seconds = 600\n")
    told = verb(own, "failover", "--to", "dr", "--planned", "--yes", "--accept-unfenced", schema="failover")
    out, key = tmp_path / "bundle", tmp_path / "signer"
    public = make_key(key)
    export = ("evidence", "export", told["run"], "--out", str(out), "--key", str(key), "--witness", "Ada")
    export += ("--why", "the yearly exercise", "--runbook", str(ROOT / "runbooks" / "failback.md"))

    exported = verb(own, *export, schema="evidence")
    assert (exported["verified"], exported["changed"]) == (True, True)
    says_what_the_run_said(out, told)
    checked = tool(out, "--key", str(public))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith(f"verified: failover {told['run']}, verdict unknown, signed by key ")
    assert verb(own, "evidence", "verify", str(out), "--key", str(public), schema="evidence")["problems"] == []

    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert verb(own, *export, schema="evidence")["changed"] is False
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    verb(own, "evidence", "export", told["run"], "--out", str(tmp_path), code=3)
    for path in sorted(before):
        for place in (0, 0.5, 1):
            with change_a_byte(path, place) as changed:
                assert verifier.verify(out, None).problems, changed
    signer, _ = open_signer(own.config.evidence, key)
    is_refused_although_signed_again(out, tmp_path / "forged", signer, told["run"])
    (out / "report.html").write_text("nothing happened")
    refused = verb(own, "evidence", "verify", str(out), code=1, schema="evidence")
    assert refused["problems"] == ["report.html was changed after it was signed: its SHA-256 differs"]


def says_what_the_run_said(out: Path, told: dict[str, Any]) -> None:
    evidence = document_of(out)
    assert evidence["state"] == told["state"] == "closed"
    assert [step["name"] for step in evidence["steps"]] == [stage["name"] for stage in told["stages"]]
    for name in ("rpo_records", "rto_seconds"):
        assert evidence["measured"][name] == pytest.approx(told["evidence"][name], abs=0.002)
    judged = {each["name"]: each["outcome"] for each in evidence["objectives"]}
    assert judged == {"rpo_records": "met", "rto_seconds": "met"}
    checks = {each["check"]: each["outcome"] for each in evidence["checks"]}
    assert checks.pop("old_cluster_not_written") == "unknown", "the lab's clusters can't be fenced: it isn't shown"
    assert set(checks.values()) == {"passed"}
    assert evidence["verdict"] == "unknown"
    assert (evidence["who"]["witness"], evidence["why"]["statement"]) == ("Ada", "the yearly exercise")
    assert evidence["what"]["plan_digest"] == told["digest"]
    assert evidence["groups"]["groups"] == 1
    assert evidence["journals"][0]["chain"] == "holds"
    assert {oct(path.stat().st_mode & 0o777) for path in out.rglob("*") if path.is_file()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in (out, out / "journal")} == {"0o700"}
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in out.rglob("*") if path.is_file())


def is_refused_although_signed_again(out: Path, copy: Path, signer: Signer, run: str) -> None:
    swapped = problems_of(out, copy, signer, swap_verdict)
    assert any("verdict is said to be" in sentence for sentence in swapped)
    lost = problems_of(out, copy, signer, lambda folder: (folder / "runs.jsonl").write_text(""))
    assert any("missing from the list of runs: the store lost it" in sentence for sentence in lost)
    cut = problems_of(out, copy, signer, lambda folder: cut_journal(folder, run))
    assert any("was cut or written again" in sentence for sentence in cut)
    gap = problems_of(out, copy, signer, lambda folder: drop_entry(folder, run))
    assert any("is broken at entry 2" in sentence for sentence in gap)


def swap_verdict(copy: Path) -> None:
    text = (copy / "evidence.json").read_text()
    (copy / "evidence.json").write_text(text.replace('"verdict": "unknown"', '"verdict": "passed"'))


def cut_journal(copy: Path, run: str) -> None:
    file = copy / verifier.journal_of(run)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))


def drop_entry(copy: Path, run: str) -> None:
    file = copy / verifier.journal_of(run)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2] + lines[3:]))

"""`drkit drill …` as a child process: what it said, its exit code, its document, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from drkit.config.schema.config import EvidenceConfig
from drkit.drill.environment.clients import LinkProgress
from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.results.archive import Drills
from drkit.evidence import verifier
from drkit.evidence.bundle import write_bundle
from drkit.evidence.drill_evidence import gather_drill
from drkit.evidence.signing import make_key, open_signer
from drkit.evidence.statements import ExportStatements
from tests.support.drills.drill_plants import planted

ROOT = Path(__file__).resolve().parents[3]


class Drill:
    """`drkit drill …` as a child process, with a folder of kept drills and a temporary folder of its own.

    `plant`: a defect that its mirror has (`tests.support.drills.drill_plants`).
    """

    def __init__(self, tmp_path: Path, *arguments: str, plant: str | None = None) -> None:
        self.kept = tmp_path / "drills"
        self.temporary = tmp_path / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.errors = tmp_path / "stderr"
        defect = {} if plant is None else planted(tmp_path / "plant", plant)
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "drkit", "drill", *arguments, "--drills", str(self.kept), "--output", "json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.temporary), **defect},
            )

    def said(self, text: str) -> bool:
        """Whether it said this on stderr."""
        return text in self.errors.read_text()

    def end(self, seconds: float = 240) -> tuple[int, dict[str, Any]]:
        """Its exit code and its document; nothing of it is left on the machine."""
        stdout, _ = self.process.communicate(timeout=seconds)
        assert mine(self.temporary) == []
        assert not list(self.temporary.glob("drkit-drill-*")), "the lab's folder is still there"
        assert stdout, self.errors.read_text()
        return self.process.returncode, json.loads(stdout)

    def refused_evidence(self, run: str) -> list[str]:
        """Why the bundle of a drill that it played is refused; nothing where it is verified."""
        folder = self.kept.parent / "bundle"
        make_key(self.kept.parent / "signer")
        signer, _ = open_signer(EvidenceConfig(key=self.kept.parent / "signer"))
        write_bundle(folder, gather_drill(Drills(self.kept), run, ExportStatements()), signer)
        return verifier.verify(folder, signer.public_pem).problems


def link_of(env: DrillEnvironment) -> LinkProgress:
    """The only link of a drill."""
    (link,) = env.links.values()
    return link


def mine(folder: Path) -> list[str]:
    """Processes that name this folder, this one excepted."""
    found: list[str] = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if str(folder) in words and process.pid != os.getpid():
            found.append(words)
    return found


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Drill]]:
    """Start `drkit drill` with these arguments, and a defect in its mirror; what still runs at the end is ended."""
    started: list[Drill] = []

    def start(*arguments: str, plant: str | None = None) -> Drill:
        drill = Drill(tmp_path, *arguments, plant=plant)
        started.append(drill)
        return drill

    yield start
    for drill in started:
        if drill.process.poll() is None:
            drill.process.terminate()
            drill.process.wait(120)

"""Ctrl-C and SIGTERM while an audit works: it says what that means, ends, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from drkit.cli.wiring.spark_options import NOTHING_KEPT
from drkit.model.errors import ExitCode
from tests.support.audits.damage import damaged, dense, records, seeded
from tests.support.clusters.spark_cluster import spark_cluster
from tests.support.collection.sampling import sampled
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

ROOT = Path(__file__).parents[4]
STEPS = ("starting Spark", "reading both sides", "writing findings")
CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
BEFORE_ANYTHING = "Nothing was done yet"
"""Of a signal that comes while the command is still imported, which takes long on a busy machine."""
PATIENCE = 400
"""Seconds for a step, and for an end: an audit starts a JVM, and a busy machine is no failure."""
WORDS = {signal.SIGINT: "interrupted by the keyboard", signal.SIGTERM: "ended by SIGTERM"}


@pytest.fixture(scope="module")
def master(toolchain, tmp_path_factory):
    with spark_cluster(toolchain, tmp_path_factory.mktemp("cluster"), workers=1) as url:
        yield url


@pytest.fixture
def topic(bench, unique_name):
    """A topic that lost two records and has two moved."""
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(300, rng=seeded(1)))
    source = bench.read("primary", topic, 0)
    bench.produce("dr", topic, 0, damaged(source, {"lost": 2, "moved": 2}, seeded(2)).target)
    bench.remember(topic, {0: dense(source)})
    return topic


@dataclass
class Audit:
    """An audit in a process of its own, with folders that are nobody else's."""

    process: subprocess.Popen
    folder: Path
    out: Path

    def said(self) -> str:
        """What is on its stderr."""
        return (self.folder / "errors").read_text()

    def wait_for(self, step: str) -> None:
        """Wait until it says that it begins a step."""

        def told() -> bool:
            ended = self.process.poll() is not None
            said = self.said()
            if ended and step not in said:
                pytest.fail(f"it ended without beginning {step!r}: {said}")
            return step in said

        wait_until(told, timeout=PATIENCE, what=f"the step {step!r}")

    def wait_until_heard(self) -> None:
        """Wait until Python has handlers for the signals; before, they are the kernel's."""
        mask = sum(1 << (number - 1) for number in CODES)

        def caught() -> bool:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            return any(line.startswith("SigCgt") and int(line.split()[1], 16) & mask == mask for line in lines)

        wait_until(caught, timeout=PATIENCE, what="its handlers")

    def hold(self) -> bool:
        """Stop it where it is; whether it was still there: a zombie whose threads still end is not."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: self._state() != "runs", timeout=PATIENCE, what="the process to stop or to end")
        return self._state() == "stopped"

    def _state(self) -> str:
        if self.process.poll() is not None:
            return "ended"
        states = {psutil.STATUS_STOPPED: "stopped", psutil.STATUS_ZOMBIE: "ended"}
        return states.get(psutil.Process(self.process.pid).status(), "runs")

    def end(self, number: int) -> None:
        """Send a signal, and see that it ends as it should."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        assert self.process.wait(60) == CODES[number], self.said()
        written, document = self.said(), json.loads((self.folder / "answer").read_text())
        for word in ("Traceback", "py4j", "Exception", "ignored"):
            assert word not in written
        told = document["error"]["meaning"] if "error" in document else ""
        kept = NOTHING_KEPT not in told and BEFORE_ANYTHING not in told
        if "error" in document:
            assert document["error"]["what"] == WORDS[number]
            assert document["error"]["exit_code"] == CODES[number]
        assert self.out.exists() == kept, written
        self.leaves_nothing()
        wait_until(
            lambda: not any(each.is_running() for each in family), timeout=PATIENCE, what="what it started to end"
        )

    def leaves_nothing(self) -> None:
        """No temporary folder is left."""
        assert list((self.folder / "temporary").iterdir()) == []


@contextmanager
def audit(lab, topic, folder, master=None):
    """An audit that runs; ended with the block."""
    (folder / "temporary").mkdir(parents=True)
    command = [sys.executable, "-m", "drkit", "audit", "--topic", topic, "--config", str(lab.config_path)]
    command += ["--output", "json", "--out", str(folder / "out")]
    if master is not None:
        command += ["--master", master]
        for each in ("executor.memory=512m", "driver.host=127.0.0.1"):
            command += ["--spark-conf", f"spark.{each}"]
    environment = os.environ | {
        "TMPDIR": str(folder / "temporary"),
        "XDG_STATE_HOME": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }
    with (
        (folder / "answer").open("w") as answer,
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, stdout=answer, stderr=errors, text=True, cwd=folder, env=environment) as process,
    ):
        try:
            yield Audit(process, folder, folder / "out")
        finally:
            process.kill()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("number", "on_cluster", "step"),
    [
        *sampled(
            "an interrupted audit",
            [
                pytest.param(signal.SIGTERM, False, "reading both sides"),
                pytest.param(signal.SIGINT, True, "reading both sides"),
            ],
            1,
        ),
        *(
            pytest.param(number, on_cluster, step, marks=pytest.mark.long)
            for number in (signal.SIGINT, signal.SIGTERM)
            for on_cluster in (False, True)
            for step in STEPS
            if (number, on_cluster, step)
            not in {(signal.SIGTERM, False, "reading both sides"), (signal.SIGINT, True, "reading both sides")}
        ),
    ],
)
def test_an_interrupted_audit_leaves_nothing_behind(lab, topic, request, tmp_path: Path, number, on_cluster, step):
    with audit(lab, topic, tmp_path, request.getfixturevalue("master") if on_cluster else None) as running:
        running.wait_for(step)
        running.end(number)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("on_cluster", [False, True])
def test_at_any_moment_of_an_audit(lab, topic, request, tmp_path: Path, number, on_cluster):
    """Moments drawn from a seed: half of them anywhere, half between the last step and the end."""
    master = request.getfixturevalue("master") if on_cluster else None
    with audit(lab, topic, tmp_path / "whole", master) as running:
        running.wait_until_heard()
        began = time.monotonic()
        running.wait_for(STEPS[-1])
        last = time.monotonic()
        assert running.process.wait(PATIENCE) == ExitCode.DEVIATION
        ended = time.monotonic()
        running.leaves_nothing()
    drawn = random.Random(f"{number} {on_cluster}")  # noqa: S311 - no secret
    moments = [(None, 0.0)]
    moments += [(None, drawn.uniform(0, last - began)) for _ in range(int(os.environ.get("TEST_MOMENTS", "6")))]
    moments += [(STEPS[-1], drawn.uniform(0, ended - last)) for _ in range(len(moments))]
    for place, (step, seconds) in enumerate(moments):
        with audit(lab, topic, tmp_path / str(place), master) as running:
            running.wait_until_heard()
            if step is not None:
                running.wait_for(step)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(seconds)  # the moment itself
            if running.hold():
                running.end(number)
            else:  # it was faster than the one that was measured
                assert running.process.wait(PATIENCE) == ExitCode.DEVIATION
                running.leaves_nothing()

"""Ctrl-C and SIGTERM while an audit works: it says what that means, ends, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from drkit.model.errors import ExitCode
from tests.support.damage import damaged, dense, records, seeded
from tests.support.spark_cluster import spark_cluster
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

ROOT = Path(__file__).parents[3]
STEPS = ("starting Spark", "reading both sides", "writing findings")


@pytest.fixture(scope="module")
def master(toolchain, tmp_path_factory):
    with spark_cluster(toolchain, tmp_path_factory.mktemp("cluster"), workers=1) as url:
        yield url


@pytest.mark.parametrize(
    ("number", "on_cluster", "step"),
    [
        (signal.SIGTERM, False, "reading both sides"),
        (signal.SIGINT, True, "reading both sides"),
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
def test_an_interrupted_audit_leaves_nothing_behind(
    lab, bench, request, unique_name, tmp_path: Path, number, on_cluster, step
):
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(300, rng=seeded(1)))
    source = bench.read("primary", topic, 0)
    bench.produce("dr", topic, 0, damaged(source, {"lost": 2, "moved": 2}, seeded(2)).target)
    bench.remember(topic, {0: dense(source)})
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    command = [sys.executable, "-m", "drkit", "audit", "--topic", topic, "--config", str(lab.config_path)]
    command += ["--output", "json", "--out", str(out)]
    if on_cluster:
        command += ["--master", request.getfixturevalue("master")]
        for each in ("executor.memory=512m", "driver.host=127.0.0.1"):
            command += ["--spark-conf", f"spark.{each}"]
    environment = os.environ | {
        "TMPDIR": str(temporary),
        "XDG_STATE_HOME": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (
        (tmp_path / "errors").open("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment) as audit,
    ):

        def told() -> str:
            assert audit.poll() is None, (tmp_path / "errors").read_text()
            return (tmp_path / "errors").read_text()

        wait_until(lambda: step in told(), timeout=120, what=f"the step {step!r}")
        family = psutil.Process(audit.pid).children(recursive=True)
        audit.send_signal(number)
        document, _ = audit.communicate(timeout=60)

    written = (tmp_path / "errors").read_text()
    expected = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
    assert audit.returncode == expected, written
    error = json.loads(document)["error"]
    assert error["what"] == ("interrupted by the keyboard" if number == signal.SIGINT else "ended by SIGTERM")
    assert "Nothing is kept" in error["meaning"]
    assert "Traceback" not in written
    assert "py4j" not in written
    assert "Exception" not in written
    assert list(temporary.iterdir()) == []
    assert not out.exists()
    wait_until(lambda: not any(each.is_running() for each in family), what="what it started to end")

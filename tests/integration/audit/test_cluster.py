"""An audit on a Spark cluster of its own: a master and two workers as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.audit.log_source import read_batches
from drkit.audit.session import spark_session
from drkit.audit.spans import Span
from drkit.config.schema import ClusterConfig
from drkit.model.errors import ExitCode
from tests.support.damage import records, seeded
from tests.support.spark_cluster import spark_cluster

pytestmark = [pytest.mark.lab, pytest.mark.spark]


def test_a_standalone_cluster_audits_with_the_code_and_jars_it_is_sent(
    lab, bench, toolchain, unique_name, tmp_path: Path
):
    topic = bench.create(unique_name, partitions=2)
    for partition in range(2):
        bench.produce("primary", topic, partition, records(300, rng=seeded(partition)), batched=20)
    forwarded, rebuilt = bench.read("primary", topic, 0), bench.read("primary", topic, 1)
    bench.forward(topic, 0, forwarded, [each.record for each in forwarded])
    bench.produce("dr", topic, 1, [each.record for each in rebuilt[:270]], batched=30)  # and 30 are still to come
    folder = tmp_path / "elsewhere"  # nothing of drkit is found from there but through what is sent
    folder.mkdir()

    with spark_cluster(toolchain, tmp_path / "cluster") as master:
        command = [sys.executable, "-m", "drkit", "audit", "--topic", topic, "--config", str(lab.config_path)]
        command += ["--output", "json", "--out", str(tmp_path / "out"), "--master", master]
        for each in ("executor.memory=512m", "executor.cores=1", "driver.host=127.0.0.1"):
            command += ["--spark-conf", f"spark.{each}"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[3],
            env=os.environ | {"XDG_STATE_HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"},
            timeout=300,
            check=False,
        )

    assert done.returncode == ExitCode.OK, done.stderr
    totals = json.loads(done.stdout)["totals"]
    assert (totals["source_records"], totals["matched"], totals["unseen"]) == (600, 570, 30)
    assert "15 batches are equal" in done.stderr
    work = [list((tmp_path / "cluster" / f"worker-{number}").glob("app-*/*/drkit.zip")) for number in range(2)]
    assert any(work)  # executors ran there, with the code that was sent


def test_plans_show_no_secret(spark):
    cluster = ClusterConfig.model_validate(
        {
            "bootstrap_servers": "127.0.0.1:1",
            "client": {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "somebody",
                "sasl.password": "hunter2-hunter2",
            },
        }
    )

    frame = read_batches(spark_session(spark), "primary", cluster, [Span(0, "t", 0, 0, 10, 10)])

    execution = frame._jdf.queryExecution()
    for shown in (execution.toString(), execution.simpleString(), execution.explainString(modes(frame))):
        assert "hunter2" not in shown


def modes(frame):
    """Spark's `extended` mode of explaining."""
    return frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")

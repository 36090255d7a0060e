"""An audit on a Spark cluster of its own: a master and two workers as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drkit.audit.read.log_source import reached, read_records
from drkit.audit.read.offset_ranges import Span
from drkit.audit.run import run_audit
from drkit.audit.spark.session import SparkRuntime, spark_session, stop_session
from drkit.config.schema.config import ClusterConfig
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.model.audit.audit_result import AuditRequest, TopicChoice
from drkit.model.errors import ExitCode
from drkit.model.topology import TopicPartition
from tests.support.audits.damage import damaged, dense, records, seeded
from tests.support.clusters.spark_cluster import spark_cluster
from tests.support.collection.sampling import among
from tests.support.links.estates import mirror, own_link, texts
from tests.support.links.mirroring import Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

DRAWN = among("audits on a cluster", ["code", "callables"], 1)


@pytest.fixture(scope="module")
def cluster(toolchain, tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The master's URL of a cluster with two workers of a core each, and the folder that it works in."""
    folder = tmp_path_factory.mktemp("cluster")
    with spark_cluster(toolchain, folder) as master:
        yield master, folder


def on_cluster(master: str) -> list[str]:
    """Options of a verb that runs there."""
    options = ["--master", master]
    for each in ("executor.memory=512m", "executor.cores=1", "driver.host=127.0.0.1"):
        options += ["--spark-conf", f"spark.{each}"]
    return options


def surroundings(folder: Path) -> dict[str, str]:
    """Where nothing of drkit is found but through what is sent."""
    folder.mkdir(exist_ok=True)
    return os.environ | {"XDG_STATE_HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


@DRAWN("code")
def test_a_standalone_cluster_audits_with_the_code_it_is_sent(lab, bench, cluster, unique_name, tmp_path: Path):
    master, folder = cluster
    topic = bench.create(unique_name, partitions=2)
    for partition in range(2):
        bench.produce("primary", topic, partition, records(300, rng=seeded(partition)), batched=20)
    forwarded, rebuilt = bench.read("primary", topic, 0), bench.read("primary", topic, 1)
    bench.forward(topic, 0, forwarded, [each.record for each in forwarded])
    bench.produce("dr", topic, 1, [each.record for each in rebuilt[:270]], batched=30)  # and 30 are still to come
    command = [sys.executable, "-m", "drkit", "audit", "--topic", topic, "--config", str(lab.config_path)]
    command += ["--output", "json", "--out", str(tmp_path / "out"), *on_cluster(master)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[4],
        env=surroundings(tmp_path / "elsewhere"),
        timeout=400,
        check=False,
    )

    assert done.returncode == ExitCode.UNKNOWN, done.stderr  # no mapping is recorded: compared by content only
    totals = json.loads(done.stdout)["totals"]
    assert (totals["source_records"], totals["matched"], totals["unseen"]) == (600, 570, 30)
    assert "15 batches are equal" in done.stderr
    work = [list((folder / f"worker-{number}").glob("app-*/*/drkit.zip")) for number in range(2)]
    assert any(work)  # executors ran there, with the code that was sent


@DRAWN("callables")
def test_a_cluster_is_sent_the_callables_of_a_link_that_alters(lab, bench, cluster, unique_name, tmp_path: Path):
    """The module lies in a folder of the user's, which only the driver has on its path."""
    master, _ = cluster
    module = f"rules_{unique_name.replace('-', '_').replace('.', '_')}"
    (tmp_path / f"{module}.py").write_text("def keeps(record):\n    return record.offset % 2 == 0\n")
    written = lab.config_path.read_text()
    own = tmp_path / "drkit.toml"
    own.write_text(written.replace("[[links]]", f'[[links]]\nfilter = "{module}:keeps"', 1))
    topic = bench.create(unique_name)
    source = records(40, rng=seeded(5))
    bench.produce("primary", topic, 0, source)
    bench.produce("dr", topic, 0, source[::2])
    command = [sys.executable, "-m", "drkit", "audit", "--topic", topic, "--link", "primary->dr", "--config", str(own)]
    command += ["--output", "json", "--out", str(tmp_path / "out"), *on_cluster(master)]
    (tmp_path / "events").mkdir()
    for each in ("enabled=true", f"dir=file://{tmp_path}/events", "compress=false", "rolling.enabled=false"):
        command += ["--spark-conf", f"spark.eventLog.{each}"]
    path = f"{Path(__file__).parents[4]}:{tmp_path}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=surroundings(tmp_path / "elsewhere") | {"PYTHONPATH": path},
        timeout=400,
        check=False,
    )

    assert done.returncode == ExitCode.UNKNOWN, done.stderr  # no mapping is recorded: compared by content only
    totals = json.loads(done.stdout)["totals"]
    assert (totals["source_records"], totals["matched"], totals["target_records"]) == (20, 20, 20)
    (log,) = (tmp_path / "events").iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    jobs = [each["Properties"].get("spark.job.description") for each in events if each["Event"].endswith("JobStart")]
    assert jobs
    assert all((each or "").startswith("drkit audit of primary->dr: ") for each in jobs), jobs


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_audit_survives_executors_that_are_lost_at_each_stage(
    bench, cluster, toolchain, unique_name, tmp_path, monkeypatch
):
    """While both sides are read Spark itself runs the tasks again; what was kept for the findings is recreated."""
    monkeypatch.setattr("drkit.audit.compare.first_pass.MEMORY_BUDGET", 0)  # all that differs stays with the executors
    master, _ = cluster
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1"}
    runtime = SparkRuntime(toolchain.spark_java_home, master, settings=settings)
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(300, rng=seeded(1)), batched=20)
    source = bench.read("primary", topic, 0)
    damage = damaged(source, {"lost": 3, "moved": 2, "duplicated": 2}, seeded(2))
    bench.forward(topic, 0, source, damage.target)
    bench.remember(topic, {0: dense(source)})
    said: list[str] = []

    def kill_executors(step: str) -> None:
        said.append(step)
        stages = ("reading both sides", "writing findings")
        if (step in stages or "stay in Spark" in step) and said.count(step) == 1:
            application = spark_session(runtime).sparkContext.applicationId
            for process in psutil.process_iter(["cmdline"]):
                if "--app-id" in (process.info["cmdline"] or ()) and application in process.info["cmdline"]:
                    process.kill()

    try:
        request = AuditRequest(link=bench.link, out=str(tmp_path / "out"), topics=(TopicChoice(topic),))
        result = run_audit(request, bench.store, bench.config, runtime, progress=kill_executors)
    finally:
        stop_session()

    assert any("starting again" in step for step in said)
    damage.explains((each.kind.value, each.source_offset, each.target_offset) for each in result.findings)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_failback_seeded_by_the_cluster_survives_its_driver(lab, cluster, tmp_path: Path, unique_name):
    """The driver is killed while tasks write; `drkit resume` ends it. Nothing is lost, nothing comes twice."""
    master, _ = cluster
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "orders", partitions=3)
        own.produce("primary", topic, texts("before", 300, range(3)))
        mirror(own)
        with own.estate() as estate:
            assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
            known = estate.admin("primary").cluster_id()
        own.produce("dr", topic, texts(f"on-dr-{'x' * 80}", 3_000, range(3)))
        with own.estate() as estate:  # not all that was written to dr is there still, so the primary is scrubbed
            estate.admin("dr").delete_records({TopicPartition(topic, 1): 310})
        old, live = (Side(own.client(alias)["bootstrap.servers"]) for alias in ("primary", "dr"))
        kept = [[record.content for record in live.read(topic, partition)] for partition in range(3)]
        written, back = own.config_path.read_text(), own.link.reversed().id

        def drkit(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "drkit", *words, "--yes", "--config", str(own.config_path)]
            command += ["--salvage-dir", str(tmp_path / "salvage"), "--output", "json", *on_cluster(master)]
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[4],
                env=surroundings(tmp_path / "elsewhere"),
            )

        own.config_path.write_text(written.replace("[[links]]", "[[links]]\nmax_bytes_per_second = 150000"))
        accepted = ("--accept-unfenced", "--accept-salvage-only")  # the primary alone has what was deleted on dr
        with drkit("failback", "--engine", "spark", "--cluster-id", known, *accepted) as first:

            def midway() -> bool:
                assert first.poll() is None, first.communicate()[1]
                through = sum(mark.source_through for mark in own.store.watermarks(back).values())
                return 1_500 < through < 9_900

            try:
                wait_until(midway, timeout=300, what="a part of the seed")
            finally:
                first.kill()
        own.config_path.write_text(written)
        with drkit("resume") as second:
            try:
                told, said = second.communicate(timeout=400)
            finally:
                second.kill()
        assert second.returncode == ExitCode.OK, said
        assert json.loads(told)["state"] == "closed"
        assert "by Spark, then" in said
        back_again = [[record.content for record in old.read(topic, partition)] for partition in range(3)]
        assert back_again == kept  # keys, values, headers, timestamps, in order
        assert [len(each) for each in kept] == [3_300, 2_990, 3_300]
        assert mirror(own) == 0
    finally:
        own.store.close()


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

    frame = read_records(spark_session(spark), reached("primary", cluster), [Span(0, "t", 0, 0, 10, 10)])

    execution = frame._jdf.queryExecution()
    for shown in (execution.toString(), execution.simpleString(), execution.explainString(modes(frame))):
        assert "hunter2" not in shown


def modes(frame):
    """Spark's `extended` mode of explaining."""
    return frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")

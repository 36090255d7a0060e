"""Spark's life within drkit: quiet, reused, gone afterwards, and no mystery when it dies."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from drkit.audit.run import run_audit
from drkit.audit.spark import session
from drkit.audit.spark.session import session_starting, spark_session, stop_session
from drkit.model.audit.audit_result import AuditRequest, TopicChoice
from drkit.model.errors import ConfigError, DrkitError
from tests.support.audits.damage import records, seeded
from tests.support.collection.sampling import some_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("sessions of Spark", 2)]


def test_one_session_serves_all_and_leaves_nothing(spark, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "another spark"))  # must not be used
    stop_session()

    first = spark_session(spark)

    assert spark_session(spark) is first
    assert session._alive is not None
    folder, pid = session._alive.folder, session._alive.jvm.process.pid
    assert (folder / "spark.log").exists()
    stop_session()
    assert not folder.exists()
    assert not psutil.pid_exists(pid)
    assert (
        spark_session(spark).range(3).mapInArrow(lambda blocks: blocks, "id long").count() == 3
    )  # asks for the newest
    assert "JAVA_HOME" not in os.environ or os.environ["JAVA_HOME"] != str(spark.java_home)


def test_a_jvm_that_dies_is_named_and_the_next_audit_starts_another(bench, spark, unique_name, tmp_path, caplog):
    topic = bench.create(unique_name)
    for alias in ("primary", "dr"):
        bench.produce(alias, topic, 0, records(5, rng=seeded(1)))

    def strike(text: str) -> None:
        if text == "reading both sides":
            session._alive.jvm.kill()

    request = AuditRequest(bench.link, str(tmp_path / "one"), (TopicChoice(topic),))
    with pytest.raises(DrkitError, match="JVM"):
        run_audit(request, bench.store, bench.config, spark, progress=strike)
    assert not caplog.records

    request = AuditRequest(bench.link, str(tmp_path / "two"), (TopicChoice(topic),))
    assert run_audit(request, bench.store, bench.config, spark).counts.matched == 5


def test_what_was_started_beside_work_that_fails_is_ended(spark):
    stop_session()
    before = {each.pid for each in psutil.Process().children(recursive=True)}

    with pytest.raises(ConfigError, match="the look failed"), session_starting(spark):
        raise ConfigError("the look failed")

    assert session._alive is None
    assert {each.pid for each in psutil.Process().children(recursive=True)} <= before


def test_a_start_that_is_under_way_is_waited_for_by_all_who_need_it(spark):
    stop_session()

    with session_starting(spark) as outer, session_starting(spark) as inner:
        assert inner() is outer()

    assert session._starting is None
    assert spark_session(spark) is inner()


def test_files_that_spark_leaves_are_not_in_the_way(spark, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)

    spark_session(spark).range(10).count()

    assert wait_until(lambda: list(tmp_path.iterdir()) == [], what="the folder to be as it was")


def test_a_connection_of_sparks_that_is_cut_prints_no_trace(spark, capfd):
    spark_session(spark).sparkContext._accumulatorServer.handle_error(None, ("127.0.0.1", 1))

    assert capfd.readouterr().err == ""

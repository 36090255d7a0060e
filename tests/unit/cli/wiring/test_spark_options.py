"""What `--spark-conf` takes, and the progress of Spark's work on a log."""

from __future__ import annotations

import pytest

from drkit.audit.spark.session import watching
from drkit.cli.wiring.spark_options import _ProgressLines, spark_properties, spark_runtime
from drkit.model.errors import ConfigError
from tests.support.wait import wait_until


def test_properties_are_taken_as_spark_names_them():
    given = ["spark.executor.memory=2g", "spark.executor.extraJavaOptions=-Da=b"]

    assert spark_properties(given) == {"spark.executor.memory": "2g", "spark.executor.extraJavaOptions": "-Da=b"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("executor.memory=2g", "spark.NAME=VALUE"),
        ("spark.executor.memory", "NAME=VALUE"),
        ("spark.master=x", "--master"),
    ],
)
def test_others_are_refused_and_values_are_not_repeated(given: str, says: str):
    with pytest.raises(ConfigError, match=says) as refused:
        spark_properties([given])
    assert "=2g" not in refused.value.what


def test_what_spark_runs_on_is_never_downloaded(monkeypatch: pytest.MonkeyPatch):
    def download(*_: object) -> None:
        raise AssertionError("an audit at night must not need a registry")

    monkeypatch.setattr("drkit.lab.toolchain.fetch_missing", download)
    runtime = spark_runtime("local[*]", "1g", ["spark.executor.cores=1"])
    assert (runtime.java_home / "bin" / "java").exists()
    assert not [name for name in runtime.settings if "jars" in name or "packages" in name]


def test_a_log_has_a_line_for_each_step_and_each_quarter_of_its_tasks():
    said: list[str] = []
    lines = _ProgressLines(said.append)
    lines.step("reading both sides")
    for done in range(9):
        lines.tasks(done, 8)
    lines.step("writing findings")
    lines.tasks(1, 2)  # over before anybody reads it
    assert said == [
        "reading both sides",
        "reading both sides: 25% (2 of 8 tasks)",
        "reading both sides: 50% (4 of 8 tasks)",
        "reading both sides: 75% (6 of 8 tasks)",
        "reading both sides: 100% (8 of 8 tasks)",
        "writing findings",
    ]


def test_a_jvm_that_is_gone_ends_the_telling_and_is_in_the_log(caplog):
    """Whoever waits for its work says so: the thread that only tells of it must not end the audit."""

    class Gone:
        @property
        def sparkContext(self):  # noqa: N802 - as Spark has it
            return self

        def statusTracker(self):  # noqa: N802 - as Spark has it
            return self

        def getActiveStageIds(self):  # noqa: N802 - as Spark has it
            raise ConnectionRefusedError("the JVM is gone")

    caplog.set_level("DEBUG", logger="drkit.audit.spark.session")
    told = []
    with watching(Gone(), lambda *tasks: told.append(tasks)):
        wait_until(lambda: caplog.records, what="the log")
    assert told == []
    assert "ConnectionRefusedError: the JVM is gone" in caplog.text

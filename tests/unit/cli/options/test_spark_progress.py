"""Progress of Spark's work on a log."""

from __future__ import annotations

from drkit.audit.spark.spark_progress import watching
from drkit.cli.options.spark import _ProgressLines
from tests.support.wait import wait_until


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

    caplog.set_level("DEBUG", logger="drkit.audit.spark.spark_progress")
    told = []
    with watching(Gone(), lambda *tasks: told.append(tasks)):
        wait_until(lambda: caplog.records, what="the log")
    assert told == []
    assert "ConnectionRefusedError: the JVM is gone" in caplog.text

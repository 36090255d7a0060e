"""Shared by verbs that use Spark: the runtime, the results' folder, progress on stderr."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import platformdirs
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from drkit.cli.process.interrupts import check
from drkit.cli.wiring.context import Invocation
from drkit.model.errors import ConfigError, DrkitError
from drkit.model.link_state import Direction
from drkit.model.topology import Link

if TYPE_CHECKING:
    from drkit.audit.spark.session import SparkRuntime
    from drkit.failover.plan.failover_plan import Obstacle


MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark master: local[*], spark://host:7077, yarn …")
]
MemoryOption = Annotated[
    str, typer.Option("--driver-memory", metavar="SIZE", help="Heap of Spark's driver, e.g. 1g or 1500m.")
]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="NAME=VALUE", help="Another Spark property, e.g. for executors; repeat it."),
]


_BAR_WIDTH = 16


def require_spark(user: str) -> None:
    """Raise where Spark isn't installed; `user` is the command that needs it. Before anything is asked, or begun.

    Raises:
        ExtraMissing: it names what is missing, and the extra that brings it.
        ConfigError: `$DRKIT_JAVA_HOME` holds no Java that Spark runs on.
    """
    from drkit.config.extras import Extra, require
    from drkit.lab.toolchain.java import find_java_home

    require(Extra.SPARK, user)
    find_java_home()


def spark_obstacle(user: str) -> Obstacle | None:
    """What a dry run says where Spark isn't installed: its plan needs none, the run that it shows would be refused."""
    from drkit.failover.plan.failover_plan import Obstacle

    try:
        require_spark(user)
    except DrkitError as error:
        return Obstacle(error.what, "This plan was made without Spark; a run from here would be refused", error.remedy)
    return None


def spark_runtime(master: str, driver_memory: str, properties: list[str] | None = None) -> SparkRuntime:
    """Java for Spark's driver; `properties` as `--spark-conf` gives them.

    Raises:
        ConfigError: a master or a size that Spark doesn't know; a property isn't NAME=VALUE, or one that has an option
            of its own.
        ExtraMissing: Spark, or a Java that it runs on, is not installed.
    """
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"--master {master}: Spark knows no such master", remedy="For example local[*], spark://host:7077 or yarn"
        )
    if not _SIZE.fullmatch(driver_memory):
        raise ConfigError(f"--driver-memory {driver_memory}: not a size", remedy="For example 1g or 1500m")
    settings = spark_properties(properties or [])
    require_spark("this step")
    from drkit.audit.spark.session import SparkRuntime
    from drkit.lab.toolchain import ensure

    toolchain = ensure()
    return SparkRuntime(
        java_home=toolchain.spark_java_home,
        master=master,
        driver_memory=driver_memory,
        settings=settings,
    )


def spark_properties(given: list[str]) -> dict[str, str]:
    """Spark's properties from NAME=VALUE; see `spark_runtime` for what is refused."""
    settings: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(
                f"--spark-conf {name}: not of the form spark.NAME=VALUE",
                remedy="For example --spark-conf spark.executor.memory=2g",
            )
        if name in _OWN:
            raise ConfigError(f"--spark-conf {name}: it has an option of its own", remedy=f"Use {_OWN[name]}")
        settings[name] = value
    return settings


_TASKS_WORTH_REPORTING = 4
_MASTER = re.compile(
    r"local(\[(\*|[0-9]+)(, *[0-9]+)?\])?|local-cluster\[[0-9]+, *[0-9]+, *[0-9]+\]|yarn|(spark|k8s|mesos)://.+"
)
_SIZE = re.compile(r"[0-9]{1,6}[kmgtKMGT][bB]?")
_OWN = {"spark.master": "--master", "spark.driver.memory": "--driver-memory"}


NOTHING_KEPT = "None of its results are kept"
"""The effect of an interrupt on an audit or a salvage: they write their results at the end."""


def way_back(run: Invocation, name: str) -> Link | None:
    """The way back of a configured link, if that is what this name of the form target->source means."""
    wanted = re.sub(r"\s*->\s*", "->", name.strip())
    configured = run.links(None)
    if any(str(link.id) == wanted for link in configured):
        return None
    return next((link.reversed() for link in configured if str(link.id.reversed()) == wanted), None)


def flowing_links(run: Invocation, selected: str | None) -> list[Link]:
    """The links to look at, each in the direction in which its data flows now.

    Without `--link`, a link on its way back (reversed) is looked at as that way back. A name of the form
    target->source of a configured link asks for that direction in any case.
    """
    if selected is not None:
        return [found] if (found := way_back(run, selected)) is not None else run.links(selected)
    links = []
    for link in run.links(None):
        control = run.store().link_control(link.id)
        back = control is not None and control.direction is Direction.REVERSED
        links.append(link.reversed() if back else link)
    return links


def results_folder(at: datetime) -> Path:
    """A new folder's path for one audit's results, under the user's state directory."""
    return platformdirs.user_state_path("drkit") / "audits" / at.strftime("%Y%m%dT%H%M%S.%fZ")


@dataclass(frozen=True, slots=True)
class SparkProgressWriter:
    """What shows progress: `step` takes words, `tasks` Spark's tasks done and in all (None: not shown)."""

    step: Callable[[str], None]
    tasks: Callable[[int, int], None] | None = None


class _TasksColumn(MofNCompleteColumn):
    """Spark's tasks: what part of them is done, done and in all; nothing before there are any."""

    def render(self, task: Task) -> Text:
        """Of the task of Rich's that stands for the step."""
        if task.total is None:
            return Text("")
        return Text.assemble(f"{task.percentage:3.0f}% ", super().render(task))


class _ProgressLines:
    """Progress for a log: a line for each step, and for one that takes long a line at each quarter of its tasks."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._step = ""
        self._reported_quarter = 0

    def step(self, text: str) -> None:
        self._write(text)
        self._step, self._reported_quarter = text, 0

    def tasks(self, done: int, total: int) -> None:
        quarter = 4 * done // total if total >= _TASKS_WORTH_REPORTING else 0
        if quarter > self._reported_quarter:
            self._reported_quarter = quarter
            self._write(f"{self._step}: {25 * quarter}% ({done:,} of {total:,} tasks)")


@contextmanager
def spark_progress(run: Invocation, what: str) -> Iterator[SparkProgressWriter]:
    """Progress on stderr: a live line with Spark's tasks on a terminal, else a line for each step.

    Each step is a safe point: a signal that was lost is raised there.
    """
    log = run.writer.log
    if not log.is_terminal:
        lines = _ProgressLines(lambda text: run.writer.remark(Text(f"{what}: {text}")))
        yield SparkProgressWriter(_at_safe_points(lines.step), lines.tasks)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        BarColumn(_BAR_WIDTH),
        _TasksColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=log, transient=True, expand=True) as bar:
        line = bar.add_task(what, total=None)

        def step(text: str) -> None:
            bar.update(line, description=f"{what}: {text}", completed=0, total=None)

        def tasks(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total)

        yield SparkProgressWriter(_at_safe_points(step), tasks)


def _at_safe_points(step: Callable[[str], None]) -> Callable[[str], None]:
    def safely(text: str) -> None:
        check()
        step(text)

    return safely

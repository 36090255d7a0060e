"""What the verbs on Spark share: the runtime, where results go, progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import platformdirs
import typer

from drkit.cli.context import Invocation
from drkit.model.audit import TopicChoice
from drkit.model.errors import ConfigError

if TYPE_CHECKING:
    from drkit.audit.session import SparkRuntime

MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark master: local[*], spark://host:7077, yarn …")
]
MemoryOption = Annotated[
    str, typer.Option("--driver-memory", metavar="SIZE", help="Heap of Spark's driver, e.g. 1g or 1500m.")
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="T", help="A topic of the source, whole (t) or some partitions (t:0,1); repeat it."
    ),
]


def spark_runtime(master: str, driver_memory: str) -> SparkRuntime:
    """Java and the connector's jars, fetched at the first use."""
    from drkit.audit.session import SparkRuntime  # noqa: PLC0415 - PySpark loads only where it is used
    from drkit.lab.toolchain import ensure  # noqa: PLC0415 - as above

    toolchain = ensure("spark")
    return SparkRuntime(
        java_home=toolchain.spark_java_home,
        jars=tuple(toolchain.jars("spark")),
        master=master,
        driver_memory=driver_memory,
    )


def topic_choices(names: list[str] | None) -> tuple[TopicChoice, ...]:
    """The topics that `--topic` names.

    Raises:
        ConfigError: one isn't t or t:0,1.
    """
    try:
        return tuple(TopicChoice.parse(name) for name in names or ())
    except ValueError as error:
        raise ConfigError(f"--topic: {error}", remedy="For example --topic flights or --topic flights:0,1") from None


def results_folder(kind: str, at: datetime) -> Path:
    """A new folder's path for one run's results, under the user's state directory."""
    return platformdirs.user_state_path("drkit") / kind / at.strftime("%Y%m%dT%H%M%S.%fZ")


@contextmanager
def told(run: Invocation, what: str) -> Iterator[Callable[[str], None]]:
    """Progress on stderr: a live line on a terminal, else a line for each step."""
    log = run.writer.log
    if not log.is_terminal:
        yield lambda text: log.print(f"{what}: {text}", soft_wrap=True)
        return
    with log.status(what) as status:
        yield lambda text: status.update(f"{what}: {text}")

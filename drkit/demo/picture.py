"""The live picture of the demo: acts, both clusters, lag, groups, the last command typed.

On a terminal it is redrawn in place; elsewhere each act is a line when it begins and when it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from drkit.model.errors import DrkitError
from drkit.observe.link_status import LinkStatus

_REFRESH_A_SECOND = 4
_LOOK_SECONDS = 1.0


@dataclass(slots=True)
class Act:
    """One act of the story. `ended` is None while it plays."""

    title: str
    began: float
    note: str = ""
    ended: float | None = None
    failed: bool = False

    @property
    def seconds(self) -> float:
        """Its duration so far, or in total."""
        return (self.ended or time.monotonic()) - self.began


@dataclass(slots=True)
class ReaderLine:
    """The records that one consumer group has read, and its cluster."""

    group: str
    cluster: str
    read: int


@dataclass(slots=True)
class Scene:
    """The picture's content besides the acts; the story writes it, the picture reads it."""

    clusters: dict[str, str] = field(default_factory=dict)
    look: Callable[[], list[LinkStatus]] | None = None
    statuses: list[LinkStatus] = field(default_factory=list)
    readers: Callable[[], list[ReaderLine]] | None = None
    produced: Callable[[], int] | None = None
    command: str = ""


class Picture:
    """The picture on stderr. `with Picture(console) as picture:` then `with picture.act("…"):`."""

    def __init__(self, console: Console) -> None:
        self.scene = Scene()
        self.acts: list[Act] = []
        self._console = console
        self._began = time.monotonic()
        self._live: Live | None = None
        self._stop = threading.Event()
        self._looker = threading.Thread(target=self._keep_looking, name="demo-status", daemon=True)
        self._spinner = Spinner("dots")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                self, console=self._console, refresh_per_second=_REFRESH_A_SECOND, vertical_overflow="crop"
            )
            self._live.start()
        self._looker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._live is not None:
            self._live.stop()
        self._looker.join(timeout=2 * _LOOK_SECONDS)

    @contextmanager
    def act(self, title: str) -> Iterator[Act]:
        """Play an act: shown while it runs, with its time when it has ended."""
        act = Act(title, time.monotonic())
        self.acts.append(act)
        if self._live is None:
            self._console.print(f"… {title}")
        try:
            yield act
        except BaseException:
            act.failed = True
            raise
        finally:
            act.ended = time.monotonic()
            if self._live is None:
                mark = "✘" if act.failed else "✔"
                self._console.print(f"{mark} {title} ({act.seconds:.1f} s) {act.note}".rstrip())

    def typed(self, command: str) -> None:
        """Show the running command."""
        self.scene.command = command
        if self._live is None:
            self._console.print(f"  $ {command}")

    def _keep_looking(self) -> None:
        """Poll the status once a second; a failed poll keeps the last result."""
        while not self._stop.wait(_LOOK_SECONDS):
            look = self.scene.look
            if look is not None:
                try:
                    self.scene.statuses = look()
                except DrkitError as error:
                    self.scene.clusters["status"] = error.what

    def __rich__(self) -> RenderableType:
        """The whole current picture."""
        elapsed = int(time.monotonic() - self._began)
        parts: list[RenderableType] = [Rule(Text(f"drkit demo  {elapsed // 60}:{elapsed % 60:02d}", "bold"))]
        parts.append(self._acts())
        scene = self.scene
        if scene.clusters:
            parts.append(Padding(_clusters(scene), (1, 0, 0, 0)))
        parts.extend(_link(status) for status in scene.statuses)
        if scene.readers is not None:
            parts.append(_readers(scene.readers()))
        if scene.command:
            parts.append(Padding(Text(f"$ {scene.command}", "cyan", overflow="ellipsis", no_wrap=True), (1, 0, 0, 0)))
        return Group(*parts)

    def _acts(self) -> Table:
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True, style="dim", ratio=1)
        table.add_column(justify="right", no_wrap=True, width=7)
        for act in self.acts:
            mark: RenderableType = self._spinner
            if act.ended is not None:
                mark = Text("✘", "bold red") if act.failed else Text("✔", "green")
            table.add_row(mark, act.title, act.note, f"{act.seconds:.1f} s")
        return table


def _clusters(scene: Scene) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, state in scene.clusters.items():
        style = "bold red" if state.startswith("killed") else "green" if state.startswith("up") else "yellow"
        table.add_row(Text(name, "bold"), Text(state, style))
    if scene.produced is not None:
        table.add_row(Text("produced", "bold"), f"{scene.produced():,} records acknowledged")
    return table


def _link(status: LinkStatus) -> Text:
    mirrored = sum((p.mirrored_through or 0) - (p.source_start or 0) for p in status.partitions)
    lag = sum(p.lag_records or 0 for p in status.partitions)
    seconds = status.recovery_point.seconds
    line = Text.assemble((f"{status.link.id}  ", "bold"), f"{status.state}  mirrored {mirrored:,}  ")
    line.append(f"lag {lag:,} records", "yellow" if lag else "green")
    if lag and seconds is not None:
        line.append(f", {seconds:.1f} s", "yellow")
    return line


def _readers(readers: list[ReaderLine]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("group")
    table.add_column("reads on")
    table.add_column("records read", justify="right")
    for each in readers:
        table.add_row(each.group, each.cluster, f"{each.read:,}")
    return table

"""What the bench says while it runs: lines and progress bars, all on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """One bar. `advance` adds, `at` sets."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total)

    def advance(self, by: int) -> None:
        """So much more is done."""
        self._progress.advance(self._task, by)

    def at(self, done: int) -> None:
        """So much is done in all."""
        self._progress.update(self._task, completed=done)


class Screen:
    """Lines for people, and bars while something long continues (only lines where stderr is no terminal)."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)

    def say(self, line: str) -> None:
        """A line."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        """A bar, gone when the work is done."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        shown = self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=not shown, refresh_per_second=2) as made:
            yield Bar(made, title, total)

"""The link and the run that a thread's log events are about.

A new thread doesn't inherit them; `keeping_context` hands them on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_link: ContextVar[str | None] = ContextVar("drkit_link", default=None)
_run: ContextVar[str | None] = ContextVar("drkit_run", default=None)


class LogContext(NamedTuple):
    """Names of a link and of a run; None: no particular one."""

    link: str | None
    run: str | None


def log_context() -> LogContext:
    """The context of the calling thread."""
    return LogContext(_link.get(), _run.get())


@contextmanager
def working_on(*, link: str | None = None, run: str | None = None) -> Iterator[None]:
    """Within the block, this thread's log events name this link, this run, or both."""
    tokens = [(variable, variable.set(value)) for variable, value in ((_link, link), (_run, run)) if value is not None]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def keeping_context(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap `work` so that another thread runs it in this thread's context. Call the result once."""
    return partial(copy_context().run, work)

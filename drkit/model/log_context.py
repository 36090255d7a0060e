"""What events of the log are about besides their words: the link and the run that a thread works on.

Threads don't inherit it by themselves: `keeping_context` has a new one continue with what its maker works on.
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
    """Names of a link and of a run; None: it is about none, or about several."""

    link: str | None
    run: str | None


def log_context() -> LogContext:
    """Of the thread that asks."""
    return LogContext(_link.get(), _run.get())


@contextmanager
def working_on(*, link: str | None = None, run: str | None = None) -> Iterator[None]:
    """In the block this thread works on a link, or a run, or both."""
    tokens = [(variable, variable.set(value)) for variable, value in ((_link, link), (_run, run)) if value is not None]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def keeping_context(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """`work` for another thread, in the context of this one. To be called once."""
    return partial(copy_context().run, work)

"""SIGHUP of a command that runs until it is stopped: it reads its configuration again, and says what came of it.

A terminal that closes sends SIGHUP, too. A command that was started at one ends in order then, as by SIGTERM; one that
was started with `nohup` continues, and reads its configuration again.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from drkit.config import Config, load_config
from drkit.config.reload import reload_config
from drkit.model.errors import DrkitError
from drkit.model.log_context import keeping_context

log = logging.getLogger(__name__)


class Hangups:
    """The signals that came: each is answered by a thread, once somebody has said how."""

    def __init__(self) -> None:
        self._came: queue.SimpleQueue[bool] = queue.SimpleQueue()  # a signal handler may put into it at any moment

    def heard(self) -> None:
        """One more came."""
        self._came.put(True)

    def answer(self, reload: Callable[[], None]) -> None:
        """Call `reload` for each from now on, also for those that came before."""

        def work() -> None:
            while self._came.get():
                reload()

        threading.Thread(target=keeping_context(work), name="drkit-reload", daemon=True).start()

    def end(self) -> None:
        """Answer no more."""
        self._came.put(False)


@contextmanager
def hangups(stop: threading.Event) -> Iterator[Hangups]:
    """SIGHUP in the block, for its `answer`; where it says that the terminal is gone, `stop` is set instead."""
    found = Hangups()
    at_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def handler(*_: object) -> None:
        if at_terminal and not _has_terminal():
            stop.set()
        else:
            found.heard()

    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield found
    finally:
        signal.signal(signal.SIGHUP, before)
        found.end()


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class LiveConfig:
    """The configuration of a running command.

    Args:
        config: the one that it started with.
        command: its name, for people.
        fixed: tables that it can't change (`drkit.config.reload`).
        take: makes a new one take effect.
    """

    def __init__(self, config: Config, command: str, fixed: Mapping[str, str], take: Callable[[Config], None]) -> None:
        self._config = config
        self._command = command
        self._fixed = fixed
        self._take = take

    def reload(self) -> None:
        """Read the file again. What can't be used is logged with its remedy, and the old values stay."""
        try:
            found = reload_config(self._config, load_config(self._config.file), self._fixed)
            if found.changed:
                self._take(found.config)
        except DrkitError as error:
            log.error("the configuration is not reloaded, the old one stays: %s", error)  # noqa: TRY400 - not a defect
            return
        except Exception:  # the process must not lose its way to reload, nor end
            log.exception("the configuration is not reloaded, the old one stays: a defect of drkit")
            return
        self._config = found.config
        for each in found.refused:
            log.warning(
                "%s: %s is not changed while drkit runs: %s. The old value stays until `drkit %s` is restarted",
                self._config.file,
                each.key,
                each.reason,
                self._command,
            )
        if found.changed:
            log.info("%s is reloaded; changed: %s", self._config.file, ", ".join(found.changed))
        elif not found.refused:
            log.info("%s is read again: nothing in it changed", self._config.file)

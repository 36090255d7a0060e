"""The process's umask: what drkit writes is for its owner alone; programs of the user's own keep the user's umask."""

from __future__ import annotations

import os

_PRIVATE = 0o077
_UNCHANGED = -1
_given = _UNCHANGED


def keep_private() -> None:
    """From now on files that this process makes have mode 0600, and folders 0700, whatever the umask was."""
    global _given  # noqa: PLW0603 - as the umask itself, one for the whole process
    _given = os.umask(_PRIVATE)


def given_umask() -> int:
    """The umask that the process began with, as `subprocess.Popen` takes one (-1: as it is now)."""
    return _given

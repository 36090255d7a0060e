"""Errors of the operating system about files, explained in drkit's words."""

from __future__ import annotations

import errno
import os

from drkit.model.errors import ConfigError, DrkitError

_ELSEWHERE = "name another place"
_RIGHTS = f"Give drkit permission to use it (ls -ld shows who has it), or {_ELSEWHERE}"
_REASONS = {
    errno.ENOSPC: ("its disk is full", f"Free space there (df -h), or {_ELSEWHERE}; then run the command again"),
    errno.EDQUOT: ("the quota there is used up", f"Free space there, or {_ELSEWHERE}; then run the command again"),
    errno.EFBIG: ("it would be larger than files may be", "Raise the limit (ulimit -f), then run the command again"),
    errno.EROFS: ("its file system is read-only", f"Mount it for writing, or {_ELSEWHERE}"),
    errno.EACCES: ("the operating system denies it", _RIGHTS),
    errno.EPERM: ("the operating system denies it", _RIGHTS),
    errno.ENOENT: ("it isn't there", "Check the path, and create its folder where that is missing"),
    errno.ENOTDIR: ("a part of its path is not a folder", "Check the path"),
    errno.EISDIR: ("it is a folder", "Name a file"),
    errno.EEXIST: ("there is one already", "Name another"),
    errno.ELOOP: ("its symbolic links form a cycle", "Correct the links, or name the file itself"),
    errno.ENAMETOOLONG: ("its name is too long", "Give it a shorter name"),
    errno.EMFILE: ("drkit has too many files open", "Raise the limit (ulimit -n), then run the command again"),
    errno.ENFILE: ("the machine has too many files open", "End what holds them, then run the command again"),
    errno.EIO: ("the disk refuses", "Check the disk (dmesg)"),
}
_OF_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def explain_os_error(error: OSError | UnicodeEncodeError) -> DrkitError | None:
    """The error with its file, reason and remedy; None where it isn't about a file, or not of a known kind.

    A text that can't be written was given on the command line, as bytes that are no UTF-8.
    """
    if isinstance(error, UnicodeEncodeError):
        given = error.object[error.start : error.end]
        return ConfigError(
            f"{given!r} is not text: its bytes are not UTF-8", remedy="Give the name as it is on the cluster"
        )
    reason, remedy = _REASONS.get(error.errno or 0, (None, ""))
    if reason is None:
        return None
    if isinstance(error.filename, str | bytes):
        return DrkitError(f"{os.fsdecode(error.filename)} can't be used: {reason}", remedy=remedy)
    if error.errno not in _OF_OUTPUT:
        return None
    return DrkitError(
        f"stdout accepts no more: {reason}",
        meaning="The result is not written, or incomplete; what the command did remains in effect",
        remedy=f"{remedy}. `drkit runs` lists what was done",
    )

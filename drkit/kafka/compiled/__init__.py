"""The loops over single records as machine code, for sources that hardly batch. Optional: without it the same is done
in plain Python, at several times the cost.

    kernel.py       the loops, in the part of Python that Numba compiles
    codegen.py      makes machine code of them, with Numba and LLVM
    build.py        has that done once per machine and version, in a process of its own, and tries what comes out
    kept.py         where the machine code lies
    native.py       loads and calls it
    limits.py       what both ways of joining agree on
    castagnoli.py   the checksum's tables

Numba and LLVM are only in the process that compiles; drkit's own map some 5 KB of machine code into memory, once a
backlog of small batches is found (`want`): a steady stream doesn't need it. `DRKIT_COMPILED=0` in the environment
leaves it out; `python -m drkit.kafka.compiled` has it compiled beforehand.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

from drkit.kafka.compiled import kept
from drkit.kafka.compiled.native import Kernel, executable

log = logging.getLogger(__name__)

_BUILD_SECONDS = 120.0


class _State:
    """Of this process. `wanted`: somebody asked; whoever finds it unset loads."""

    kernel: Kernel | None = None
    wanted = False
    lock = threading.Lock()


def ready() -> Kernel | None:
    """The machine code, once it is loaded."""
    return _State.kernel


def want() -> None:
    """Have it loaded in the background; returns at once. What can't be had is said once, and nothing else happens."""
    if _State.wanted:
        return
    with _State.lock:
        if _State.wanted or os.environ.get("DRKIT_COMPILED") == "0":
            return
        _State.wanted = True
    try:
        threading.Thread(target=_load, name="drkit-compiled", daemon=True).start()
    except RuntimeError as error:  # no more threads
        _go_without(error)


def _go_without(why: Exception) -> None:
    log.warning("small batches are joined in plain Python, at several times the cost: %s", why)


def _load() -> None:
    try:
        _State.kernel = load()
    except Exception as error:  # noqa: BLE001 - whatever it is, plain Python goes on
        _go_without(error)
    else:
        log.info("small batches are joined by machine code from now on")


def load(*, again: bool = False) -> Kernel:
    """The machine code, built where there is none for this machine yet (seconds). `again`: also where the attempt to
    build it was killed once.

    Raises:
        Exception: of whatever kind, where this machine can't have it.
    """
    executable(b"\0")
    path = kept.place()
    code = kept.kept(path)
    if code is None:
        # -P: a numba.py in the folder where drkit was started isn't meant; a session of its own: nor is a Ctrl-C
        command = [sys.executable, "-P", "-m", "drkit.kafka.compiled.build", str(path), *["again"] * again]
        built = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_BUILD_SECONDS, start_new_session=True
        )
        code = kept.kept(path)
        if code is None:
            said = built.stderr.strip().splitlines()
            raise RuntimeError(f"it can't be compiled: {said[-1] if said else f'exit code {built.returncode}'}")
    return Kernel(code)

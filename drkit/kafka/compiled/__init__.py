"""The loops over single records, compiled by Numba, for producers with small batches. Optional: plain Python does the
same at several times the cost.

    kernel.py       the loops and the checksum's tables, in the part of Python that Numba compiles
    native.py       calls them with bytes

Numba is imported only once a long backlog of small batches is found (`found`): a steady stream needs none. It keeps
what it compiled in drkit's cache. `DRKIT_COMPILED=0` in the environment leaves it out; `python -m drkit.kafka.compiled`
compiles beforehand.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from drkit.config.environment import cache_dir
from drkit.config.extras import Extra, require

if TYPE_CHECKING:
    from drkit.kafka.compiled.native import Kernel


MOST = 4_000
"""Records that are joined into one batch."""
FEW = 16
"""Records in a batch that is joined with others."""
LEAST, SMALL = 56, 8 * 1024
"""Sizes of such a batch, as its length says: a record's length then takes at most two bytes."""
GROWTH = 24
"""Bytes by which a record can grow when it is stamped and numbered again, at most."""
BACKLOG = 100
"""Small batches of one partition in one answer from which on a partition has a backlog of them."""
ENOUGH = 20_000
"""Small batches in backlogs from which on machine code is loaded. Loading costs as much CPU as joining some 200,000 in
plain Python; a backlog that begins like this is a long one, and its first records are on the target by then."""
FARTHEST = 1 << 61
"""Timestamps beyond it, or farther apart, could overflow where they are subtracted: left to plain Python."""


log = logging.getLogger(__name__)


class _State:
    """Of this process. `found`: small batches in backlogs; `wanted`: they were enough; whoever finds it unset loads."""

    kernel: Kernel | None = None
    found = 0
    wanted = False
    lock = threading.Lock()


def ready() -> Kernel | None:
    """The compiled loops, once they are loaded."""
    return _State.kernel


def found(small: int) -> None:
    """So many small batches were found in one answer of one partition: load in the background once they make a backlog
    that is worth it (`ENOUGH`). Returns at once. A failure is logged once, and plain Python continues."""
    if _State.wanted or small < BACKLOG:
        return
    with _State.lock:
        _State.found += small
        if _State.wanted or _State.found < ENOUGH or os.environ.get("DRKIT_COMPILED") == "0":
            return
        _State.wanted = True
    try:
        threading.Thread(target=_load, name="drkit-compiled", daemon=True).start()
    except RuntimeError as error:  # no more threads
        _go_without(error)


def load() -> Kernel:
    """The compiled loops, from Numba's cache or compiled now (seconds).

    Raises:
        ExtraMissing: Numba is not installed.
        Exception: of whatever kind, where this machine can't have them.
    """
    require(Extra.NATIVE, "compiled code")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(numba_cache()))
    kernel: Kernel = importlib.import_module("drkit.kafka.compiled.native").Kernel()
    return kernel


def numba_cache() -> Path:
    """Numba's folder within drkit's cache.

    Numba notices a change of the file that a function is in, not of the modules whose constants it uses: so each state
    of the sources has a folder of its own.
    """
    digest = hashlib.sha256(version("numba").encode())
    here = Path(__file__).parent
    for source in (*sorted(here.glob("*.py")), here.parent / "protocol" / "record_batch.py"):
        digest.update(source.read_bytes())
    return cache_dir() / "numba" / digest.hexdigest()[:16]


def _load() -> None:
    try:
        _State.kernel = load()
    except Exception as error:  # noqa: BLE001 - whatever it is, plain Python continues
        _go_without(error)
    else:
        log.info("small batches are coalesced by compiled code from now on")


def _go_without(why: Exception) -> None:
    log.warning("small batches are coalesced in plain Python, at several times the cost: %s", why)

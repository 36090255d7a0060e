"""Makes mapping rows durable: while the store is down, the mirror waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from drkit.mirror.engine.interface import Stopped
from drkit.model.errors import Fenced, Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId
from drkit.store.api import Claims, MappingStore

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


class MappingWriter:
    """Stores the rows of one link before their records are produced.

    Args:
        link: the link.
        store: where rows are kept.
        may_write: whether this worker may produce; otherwise its rows are not stored.
        fenced: called with partitions that another worker has taken, or this one itself for a later start; and the
            claims of the rows.
        stop: ends the waiting.
    """

    def __init__(
        self,
        link: LinkId,
        store: MappingStore,
        may_write: Callable[[], bool],
        fenced: Callable[[Fenced, Claims], None],
        stop: threading.Event,
    ) -> None:
        self.stalled: str | None = None
        self._link = link
        self._store = store
        self._may_write = may_write
        self._fenced = fenced
        self._stop = stop

    def keep(self, rows: Sequence[OffsetMapping], claims: Claims) -> None:
        """Return once the rows are durable. `stalled` says why that takes long. `claims`: those with which the rows'
        partitions were started; they don't change however long the store is away.

        Raises:
            Stopped: told to stop meanwhile; the rows may or may not be stored.
            Fenced: partitions have newer claims: their rows are not stored, nothing may be produced.
            DrkitError: the store refuses them permanently.
        """
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            if self._may_write():
                try:
                    self._store.append_mappings(self._link, rows, claims)
                except Unreachable as error:
                    if self.stalled is None:
                        log.warning("%s: waiting for the store, mapping rows can't be kept: %s", self._link, error)
                    self.stalled = str(error)
                except Fenced as error:
                    self._fenced(error, claims)
                    raise
                else:
                    if self.stalled is not None:
                        log.info("%s: the store answers again", self._link)
                    self.stalled = None
                    return
            self._stop.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        raise Stopped

"""The permission that a worker needs to change the target besides producing: to create, configure or delete topics.

A worker can be stopped at any point (SIGSTOP, a hung virtual machine) and wake up after a failover: the link is sealed,
and the target now belongs to the applications. So right before each request that changes something it must have read
the link's state, not longer ago than three seconds; time in which it was stopped counts. A failover that has sealed the
link waits for longer than that: until the workers' notes have run out.

What remains: a worker that is stopped between that look at its clock and the operating system's taking the request,
some microseconds (where the connection to the broker has to be made first, the time that takes), still sends this one
request when it wakes up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from drkit.mirror.control import read_orders
from drkit.model.errors import Unreachable
from drkit.model.topology import Link
from drkit.store.api import LinkStore

_SECONDS = 3.0


class ChangePermission:
    """See the module docstring and `drkit.kafka.admin.admin_connection.Permission`. May be shared by threads.

    Args:
        link: the link.
        store: its state.
        valid: whether this worker's note or lease still holds.
        clock: monotonic seconds; it must continue while the process is stopped.
    """

    def __init__(
        self, link: Link, store: LinkStore, valid: Callable[[], bool], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._link = link
        self._store = store
        self._valid = valid
        self._clock = clock
        self._until = 0.0

    def renew(self) -> None:
        """Read the link's state.

        Raises:
            Unreachable: it is sealed or reversed, this worker no longer has the right, or the store doesn't answer.
        """
        asked = self._clock()
        refusal = read_orders(self._store, self._link).refusal
        if refusal is not None:
            raise Unreachable(f"nothing is changed on {self._link.id.target}: {refusal.what}")
        if not self._valid():
            raise Unreachable(
                f"nothing is changed on {self._link.id.target}: this worker's note in the store could not be renewed"
            )
        self._until = asked + _SECONDS

    def holds(self) -> bool:
        """Whether the link's state was read a moment ago, and this worker still has the right."""
        return self._clock() < self._until and self._valid()

"""The permission that a worker needs to create, configure or delete topics on the target.

A worker can be stopped at any point (SIGSTOP, a hung virtual machine) and wake up after a failover: the link is sealed,
and the target belongs to the applications. So it must have read the link's state at most three seconds before each
changing request; time in which its process was stopped counts. A failover that has sealed the link waits for longer
than that: until the workers' notes have expired.

Two gaps remain. A worker that is stopped in the microseconds between checking its clock and handing the request to the
operating system still sends this one request when it wakes up. And a machine that its hypervisor pauses, or that is
suspended, sees no time pass: its worker believes for up to three seconds more what it read before. So whatever removes
something (topics, rules, records), or changes settings, reads the link's state once more right before it is sent,
however recent that is (`AdminConnection.renew_permission`); and asks the store whether this worker has held its note
since its look began: what it saw before another took over may be about a topic that is another's now
(`Worker.may_write`).
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
    """See the module docstring and `drkit.kafka.admin.admin_connection.Permission`. Threads may share it.

    Args:
        link: the link.
        store: holds the link's state.
        valid: whether this worker's note still holds, as far as it knows. Sends no request.
        may_write: `Worker.may_write`.
        clock: monotonic seconds; it must run while the process is stopped (no clock does in a paused machine).
    """

    def __init__(
        self,
        link: Link,
        store: LinkStore,
        valid: Callable[[], bool],
        may_write: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._store = store
        self._valid = valid
        self._may_write = may_write
        self._clock = clock
        self._until = 0.0

    def renew(self) -> None:
        """Read the link's state, and whether this worker still has the right to what its thread is doing.

        Raises:
            Unreachable: the link is sealed or reversed, this worker lost the right, or the store doesn't answer.
        """
        asked = self._clock()
        refusal = read_orders(self._store, self._link).refusal
        if refusal is not None:
            raise Unreachable(f"drkit changes nothing on {self._link.id.target}: {refusal.what}")
        if not self._may_write():
            raise Unreachable(
                f"drkit changes nothing on {self._link.id.target}: this worker's note in the store could not be renewed"
            )
        self._until = asked + _SECONDS

    def holds(self) -> bool:
        """Whether the link's state was read recently, and this worker still has the right."""
        return self._clock() < self._until and self._valid()

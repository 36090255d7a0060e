"""A store that a worker changes only while it may.

What carries claims (mapping rows, watermarks, digests) is refused by the store itself where it comes late
(`drkit.mirror.workers.partition_claims`), and decisions and leases are compare-and-set. Everything else that a run
stores (states of topics, positions of groups, problems, notes) has no condition of its own. A worker that was stopped
within a look (SIGSTOP, a paused virtual machine) would continue with what it had read before: it would clear a problem
that the next worker still has, forget a topic that was made anew, or put groups back. So before each such write it
asks the store whether it is still the worker, or the leader, that it was when the look began (`Worker.one_look`).

What remains: a worker that is stopped in the microseconds between the answer and its request still sends this one
request when it wakes up. What it writes is what the next worker writes again when it looks: positions within seconds,
problems and topics at its next look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from drkit.mirror.workers.worker import Worker
from drkit.model.errors import Unreachable
from drkit.model.topology import LinkId
from drkit.store.api import Store

UNCONDITIONAL = frozenset(
    {
        "put_topic_states",
        "forget_link_data",
        "forget_topic",
        "put_notes",
        "forget_notes",
        "put_problem",
        "clear_problem",
        "clear_problems",
        "put_group_positions",
        "forget_group_positions",
        "put_group_states",
        "forget_expired_states",
    }
)
"""Methods of a store that change it whoever calls them, and whenever."""


def fenced_stores(store: Store, link: LinkId, worker: Callable[[], Worker]) -> tuple[Store, Store]:
    """The store for what a worker writes, and for what the leader writes.

    Args:
        store: the store.
        link: the link that is written about.
        worker: the worker of this run; called when something is written.
    """
    own = _FencedStore(store, link, lambda: worker().may_write(), "this worker's note could not be renewed")
    leading = _FencedStore(store, link, lambda: worker().may_write_as_leader(), "this worker doesn't lead any more")
    return cast("Store", own), cast("Store", leading)


class _FencedStore:
    def __init__(self, store: Store, link: LinkId, may_write: Callable[[], bool], lost: str) -> None:
        self._store = store
        self._link = link
        self._may_write = may_write
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        """Reads and conditional writes are the store's own."""
        found = getattr(self._store, name)
        return self._while_it_may(found) if name in UNCONDITIONAL else found

    def _while_it_may(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*values: Any, **named: Any) -> Any:
            if not self._may_write():
                raise Unreachable(f"drkit stores nothing about {self._link}: {self._lost}")
            return write(*values, **named)

        return written

"""A failover (planned or not), failback, `reprotect`, resume or cancel that kills itself at one point.

    python -m tests.support.killing.killed_run CONFIG NAME ACTION SALVAGE STAGE PLACE before|after [kill|freeze]

With `freeze` it is stopped there (SIGSTOP), and continues after SIGCONT. PLACE is an event of the journal (`intent`,
`outcome`), a method of the store or of `ClusterAdmin` that the stage calls, or `DeleteTopics`: the very last
moment before that request is sent. Store and clusters are real; the kill comes before or after that one call.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from drkit.failover.context.state_machine import Mode
from drkit.failover.journal.run_record import run_to_resume
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import cancel_run, resume_run, run_failback, run_failover
from drkit.kafka.admin import topic_requests
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.runs import JournalEntry
from drkit.state_topic.recorded_store import StateRecording
from drkit.store.api import Store
from tests.support.links.estates import open_link
from tests.support.recovery.failback_ports import reading_ports


class KillingStore:
    """A store that kills its process before or after one call."""

    def __init__(self, store: Store, stage: str, place: str, when: str, how: str) -> None:
        self._store = store
        self._signal = signal.SIGSTOP if how == "freeze" else signal.SIGKILL
        self._wanted = stage
        self._place = place
        self._when = when
        self._stage = ""
        self._struck = False

    def append_entry(self, entry: JournalEntry) -> bool:
        self._stage = entry.stage
        return bool(self._round(entry.event, self._store.append_entry)(entry))

    def watch_admin(self) -> None:
        """Kill before or after that method of `ClusterAdmin`, or that request, if it is one."""
        if self._place == "DeleteTopics":
            request = topic_requests.DeleteTopicsRequest
            setattr(request, "__init__", self._round(self._place, request.__init__))  # noqa: B010 - mypy allows no other way
        real = getattr(ClusterAdmin, self._place, None)
        if real is not None:
            setattr(ClusterAdmin, self._place, self._round(self._place, real))

    def __getattr__(self, name: str) -> Any:
        return self._round(name, getattr(self._store, name))

    def _round(self, place: str, real: Callable[..., Any]) -> Callable[..., Any]:
        if place != self._place:
            return real

        def killing(*given: Any, **named: Any) -> Any:
            here = self._stage == self._wanted
            if here and self._when == "before":
                self._strike()
            result = real(*given, **named)
            if here and self._when == "after":
                self._strike()
            return result

        return killing

    def _strike(self) -> None:
        """Only once: a process that was frozen here and woken continues, even past the same point."""
        if not self._struck:
            self._struck = True
            signal.pthread_kill(threading.get_ident(), self._signal)  # this thread does nothing more before it stops


def main(
    config: str, name: str, action: str, salvage: str, stage: str, place: str, when: str, how: str = "kill"
) -> None:
    """Execute the action until the kill; ends with 0 if that point was never reached."""
    own = open_link(Path(config), name)
    killing = KillingStore(own.store, stage, place, when, how)
    killing.watch_admin()
    own.store = StateRecording(own.config, cast("Store", killing)).store  # like a command's
    ports = reading_ports(own, Path(salvage))
    with own.estate() as estate:
        if action == "failover":
            result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
        elif action == "planned":
            planned = make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED))
            result = run_failover(estate, planned, accept_unfenced=False)
        elif action == "cancel":
            result = cancel_run(estate, run_to_resume(own.store, None))
        elif action in {"failback", "reprotect"}:
            plan = make_failback_plan(estate, "primary", for_good=action == "reprotect")
            result = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True)
        else:
            result = resume_run(estate, run_to_resume(own.store, None), ports)
    if result.error is not None:
        raise result.error


if __name__ == "__main__":
    main(*sys.argv[1:])

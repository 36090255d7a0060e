"""The mirror runtime of one link, in one of possibly several workers. A `Session` does the work.

**When the store is down** the mirror stalls: a record isn't produced before its mapping row is durable, and nothing is
produced once the worker's note has expired. Records wait on the source; when the store is back the mirror continues.
While the delta doesn't change no row is needed, so a short outage has no effect. The report says `waiting`, with the
reason.

**When a cluster is down** the mirror waits. The last observation of a dead source stays in the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from drkit.config import Config
from drkit.kafka.transform.record_transform import Alteration
from drkit.mirror.control import check_not_held, read_orders
from drkit.mirror.engine.interface import Engine
from drkit.mirror.runtime.events import DoneEvent, MirrorEvent, OnEvent
from drkit.mirror.runtime.session import MirrorReport, Options, Session
from drkit.mirror.workers.leader_lease import LeaderLease
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.topology import Link
from drkit.state_topic.recorded_store import StateRecording
from drkit.store.api import Store

__all__ = ["MirrorReport", "MirrorRuntime"]


class MirrorRuntime:
    """Mirrors one link until told to stop. Installs no signal handlers: any thread may run it.

    Args:
        config: the clusters.
        link: the link to run (`drkit.mirror.control.link_to_run` finds the direction).
        store: drkit's store.
        topic_seconds: time between looks at the topics.
        patience_seconds: with `until_caught_up`, how long nothing may move while a cluster is down.
        watchdog_seconds: how long a partition may be stuck before the run ends with an error; None: forever.
        engine: makes the engine, where records are moved outside of this process (`drkit.seed`).

    Raises:
        ConfigError: the link's filter or transform can't be used.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        store: Store,
        *,
        topic_seconds: float = 3.0,
        patience_seconds: float = 60.0,
        watchdog_seconds: float | None = None,
        engine: Callable[..., Engine] | None = None,
    ) -> None:
        Alteration.of(config, link)  # report an unusable callable now, not once others run
        self._config = config
        self._link = link
        self._store = store
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._reconfigured = False
        self._options = Options(
            topic_seconds=topic_seconds,
            patience_seconds=patience_seconds,
            watchdog_seconds=watchdog_seconds,
            engine=engine,
        )

    def reconfigure(self, config: Config, link: Link) -> None:
        """Continue with another configuration of the same link: the current session stops normally, then a new one
        starts. `drkit.config.reload` says what may change. Any thread may call it.
        """
        with self._lock:
            self._config, self._link, self._reconfigured = config, link, True
            if self._session is not None:
                self._session.leave()

    @property
    def stuck(self) -> DrkitError | None:
        """Why the watchdog ends the run, from the moment it does (the run may be too stuck to end), or None."""
        return None if self._session is None else self._session.stuck

    def run(
        self,
        until_caught_up: bool = False,
        stop: threading.Event | None = None,
        on_progress: OnEvent | None = None,
    ) -> MirrorReport:
        """Mirror until `stop` is set, or (`until_caught_up`) until everything that the source holds now is recorded.

        If other workers mirror the link, too, this one mirrors its share.

        Raises:
            Refused: the link is sealed, reversed or (catching up) paused; or the store has forgotten it, and the target
                has a copy of its state.
            Unreachable: catching up, and a cluster or the store stays down.
            DrkitError: the store failed permanently, or a partition is stuck.
        """
        stop, tell = stop or threading.Event(), on_progress or _ignore
        records = 0
        while True:
            with self._lock:
                self._session, self._reconfigured = None, False
                config, link = self._config, self._link
            report = self._run_once(config, link, stop, tell, until_caught_up=until_caught_up)
            records += report.records
            if stop.is_set() or not self._reconfigured:
                break
        report = replace(report, records=records)
        tell(DoneEvent(report.link.id, now(), report.records, report.caught_up, report.halted))
        return report

    def _run_once(
        self, config: Config, link: Link, stop: threading.Event, tell: OnEvent, *, until_caught_up: bool
    ) -> MirrorReport:
        """One session, until it is told to stop or is replaced by one with another configuration."""
        orders = read_orders(self._store, link)
        if orders.refusal is not None:
            raise orders.refusal
        if until_caught_up:
            check_not_held(link, orders)
        lease = LeaderLease(self._store, link.id)
        recording = StateRecording(config, self._store, link.id)
        try:
            options = replace(self._options, until_caught_up=until_caught_up)
            session = Session(config, link, recording.store, lease, options, stop, tell)
            with self._lock:
                self._session = session
                if self._reconfigured:  # since its configuration was read
                    session.leave()
            return session.run()
        finally:
            recording.close()
            lease.release()


def _ignore(_: MirrorEvent) -> None:
    """No listener."""

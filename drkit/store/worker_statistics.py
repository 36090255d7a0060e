"""The newest numbers of each worker of a link, kept as notes: a few hundred bytes a worker.

A worker writes its own every few seconds, and takes it away when it ends in order. What a worker that
was killed leaves behind is told by its age, and removed by another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from drkit.model.statistics import WorkerStatistics
from drkit.model.topology import LinkId
from drkit.store.api import LinkStore

KIND = "statistics"
FRESH_SECONDS = 15.0
"""Numbers older than this are of a worker that is no more, or can't write."""
FORGET_SECONDS = 3600.0

_ADAPTER = TypeAdapter(WorkerStatistics)


def put_worker_statistics(store: LinkStore, link: LinkId, statistics: WorkerStatistics) -> None:
    """Replace the numbers of one worker."""
    store.put_notes(link, KIND, {statistics.worker: _ADAPTER.dump_json(statistics).decode()})


def worker_statistics(store: LinkStore, link: LinkId) -> list[WorkerStatistics]:
    """The newest numbers of every worker that wrote any, by name. What another version wrote is left out."""
    found = []
    for body in store.notes(link, KIND).values():
        try:
            found.append(_ADAPTER.validate_json(body))
        except ValidationError:
            continue
    return found


def fresh(found: Iterable[WorkerStatistics], at: datetime) -> list[WorkerStatistics]:
    """Of those, the workers that are running at `at`."""
    return [each for each in found if at - each.at <= timedelta(seconds=FRESH_SECONDS)]


def forget_worker_statistics(store: LinkStore, link: LinkId, worker: str, at: datetime) -> None:
    """Remove the numbers of this worker (it ends), and of those not heard of for long."""
    old = at - timedelta(seconds=FORGET_SECONDS)
    names = [each.worker for each in worker_statistics(store, link) if each.worker == worker or each.at < old]
    store.forget_notes(link, KIND, names)

"""Workers of a link: each has a note in the store, which it renews every few seconds.

The note names the worker and says whether it leads, whether it mirrors all partitions regardless of the group, and how
many it has. A note that isn't renewed expires by the store's clock, like a lease. Each worker also keeps its newest
statistics (a few hundred bytes) and removes them when it stops; another worker removes those of a killed one.

A worker that didn't leave in order (it died, was cut off, or left requests without an answer) may still have requests
on their way to the target: it stays on record for a day, longer than any connection outlives its process.

`users` reads who uses a store, whatever its schema version: a process that changes a store holds a lease in it (a
mirror's leader, a run) or has a worker's note; both are renewed every few seconds, and expire if the process dies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from drkit.model.errors import Refused
from drkit.model.statistics import WorkerStatistics
from drkit.model.topology import LinkId
from drkit.model.wording import and_more
from drkit.store.api import LinkStore, Store
from drkit.store.codec import from_micros
from drkit.store.producers import PRODUCER_LEASES

KIND = "worker"
LOST = "lost-worker"
"""Kind of the notes of workers that did not leave in order."""
STATISTICS = "statistics"
FRESH_SECONDS = 15.0
"""Older statistics belong to a worker that is gone, or can't write."""
FORGET_SECONDS = 3600.0
_LOST_FOR = timedelta(days=1)

_ADAPTER = TypeAdapter(WorkerStatistics)


@dataclass(frozen=True, slots=True)
class WorkerNote:
    """One worker. `owner`: `host:pid:start:machine:token`. `leads`: it also keeps topics and groups in step.

    `everything`: it mirrors all partitions, as a sole worker may; others wait until it stops doing so.
    `partitions`: how many it mirrors now.
    """

    owner: str
    leads: bool
    everything: bool
    partitions: int
    seen_at: datetime
    expires_at: datetime


def put_worker(store: LinkStore, link: LinkId, worker: WorkerNote) -> None:
    """Store a worker's note, or renew it."""
    body = {
        "leads": worker.leads,
        "everything": worker.everything,
        "partitions": worker.partitions,
        "seen_at": worker.seen_at.isoformat(),
        "expires_at": worker.expires_at.isoformat(),
    }
    store.put_notes(link, KIND, {worker.owner: json.dumps(body)})


def read_workers(store: LinkStore, link: LinkId) -> list[WorkerNote]:
    """All notes, expired or not, by owner."""
    found = []
    for owner, text in store.notes(link, KIND).items():
        body = json.loads(text)
        found.append(
            WorkerNote(
                owner,
                body["leads"],
                body["everything"],
                body["partitions"],
                datetime.fromisoformat(body["seen_at"]),
                datetime.fromisoformat(body["expires_at"]),
            )
        )
    return found


def live_workers(store: LinkStore, link: LinkId, at: datetime) -> list[WorkerNote]:
    """The workers whose notes are valid at `at`, by the store's clock."""
    return [worker for worker in read_workers(store, link) if worker.expires_at > at]


def lease_name(link: LinkId) -> str:
    """The name of the lease of a link's leader."""
    return f"mirror:{link}"


def mirror_at_work(store: Store, link: LinkId) -> str | None:
    """The leader of the link's mirror, or else one of its workers; None: no mirror runs."""
    at, lease = store.time(), store.lease(lease_name(link))
    if lease is not None and lease.expires_at > at:
        return lease.owner
    return next((worker.owner for worker in live_workers(store, link, at)), None)


def forget_workers(store: LinkStore, link: LinkId, owners: list[str]) -> None:
    """Remove the notes of workers that stopped."""
    store.forget_notes(link, KIND, owners)


def lose_workers(store: LinkStore, link: LinkId, owners: list[str], at: datetime) -> None:
    """Note that these workers didn't leave in order, and remove their notes; forget such workers of long ago. `at`: by
    the store's clock."""
    if not owners:
        return
    store.put_notes(link, LOST, dict.fromkeys(owners, at.isoformat()))
    forget_workers(store, link, owners)
    old = [name for name, when in store.notes(link, LOST).items() if datetime.fromisoformat(when) < at - _LOST_FOR]
    store.forget_notes(link, LOST, old)


BEFORE = "a mirror of before the store was lost"
"""The lost worker of a store that was filled from a copy or a backup: nobody knows how the mirror ended."""


def lost_workers(store: LinkStore, link: LinkId, at: datetime) -> list[str]:
    """The workers that may still have requests on their way to the target at `at`, by the store's clock, while no
    worker is alive: their notes weren't removed, or say so."""
    noted = store.notes(link, LOST).items()
    lost = {name for name, when in noted if datetime.fromisoformat(when) >= at - _LOST_FOR}
    return sorted(lost | {note.owner for note in read_workers(store, link) if note.expires_at <= at})


def forget_lost_workers(store: LinkStore, link: LinkId, owners: list[str]) -> None:
    """Whatever these still send is refused."""
    store.forget_notes(link, LOST, owners)
    forget_workers(store, link, owners)


def put_worker_statistics(store: LinkStore, link: LinkId, statistics: WorkerStatistics) -> None:
    """Replace the statistics of one worker."""
    store.put_notes(link, STATISTICS, {statistics.worker: _ADAPTER.dump_json(statistics).decode()})


def worker_statistics(store: LinkStore, link: LinkId) -> list[WorkerStatistics]:
    """The newest statistics of every worker, by name. Those that another version wrote are left out."""
    found = []
    for body in store.notes(link, STATISTICS).values():
        try:
            found.append(_ADAPTER.validate_json(body))
        except ValidationError:
            continue
    return found


def fresh(found: Iterable[WorkerStatistics], at: datetime) -> list[WorkerStatistics]:
    """The statistics of workers that are running at `at`."""
    return [each for each in found if at - each.at <= timedelta(seconds=FRESH_SECONDS)]


def forget_worker_statistics(store: LinkStore, link: LinkId, worker: str, at: datetime) -> None:
    """Remove the statistics of this worker (it stops), and of those that were silent for long."""
    old = at - timedelta(seconds=FORGET_SECONDS)
    names = [each.worker for each in worker_statistics(store, link) if each.worker == worker or each.at < old]
    store.forget_notes(link, STATISTICS, names)


def users(
    leases: Iterable[tuple[str, str | None, int]], workers: Iterable[tuple[str, str, str]], at: datetime
) -> list[str]:
    """Descriptions of the store's users at `at`.

    Args:
        leases: name, owner and expiry (microseconds) of each.
        workers: link, owner and body of each worker's note.
        at: now, by the store's clock.
    """
    found = [
        f"{name} by {owner}"
        for name, owner, expires_at in leases
        if owner and not name.startswith(PRODUCER_LEASES) and from_micros(expires_at) > at
    ]
    for link, owner, body in workers:
        if datetime.fromisoformat(json.loads(body)["expires_at"]) > at:
            found.append(f"{KIND} of {link} {owner}")
    return sorted(found)


MISREAD = "Mirrors and commands of the older drkit would write rows that this one could misread. Nothing changed"


def in_use(where: str, found: list[str], meaning: str = MISREAD) -> Refused:
    """The error that a store in use can't be migrated, or restored."""
    return Refused(
        f"{where} is in use: {and_more(found, shown=1)}",
        meaning=meaning,
        remedy="Stop every mirror and let runs end (drkit runs); a killed process is forgotten after 15 s. Then run "
        "this again",
    )

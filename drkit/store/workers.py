"""The workers of a link, as each announces itself: a note in the store, renewed every few seconds.

The note says who works, whether it leads, whether it mirrors all partitions whatever the group says, and
how many it has. A note that isn't renewed expires, judged by the reader's clock, like a lease.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from drkit.model.topology import LinkId
from drkit.store.api import LinkStore

KIND = "worker"


@dataclass(frozen=True, slots=True)
class WorkerNote:
    """One worker. `owner`: `host:pid:start:token`. `leads`: it keeps topics and groups in step, too.

    `everything`: it mirrors all partitions, as the only worker may; others wait until it doesn't.
    `partitions`: how many it mirrors now.
    """

    owner: str
    leads: bool
    everything: bool
    partitions: int
    seen_at: datetime
    expires_at: datetime


def put_worker(store: LinkStore, link: LinkId, worker: WorkerNote) -> None:
    """Announce a worker, or renew its note."""
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
    """Those whose notes hold at `at`."""
    return [worker for worker in read_workers(store, link) if worker.expires_at > at]


def forget_workers(store: LinkStore, link: LinkId, owners: list[str]) -> None:
    """Remove the notes of workers that ended."""
    store.forget_notes(link, KIND, owners)

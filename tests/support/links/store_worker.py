"""A separate process that uses a store: `python -m tests.support.links.store_worker VERB URL NAME ID COUNT`.

Each line on stdout is written after the store's call returned.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from drkit.model.link_state import Direction, LinkControl
from drkit.model.offsets import OffsetMapping
from drkit.model.runs import JournalEntry
from drkit.model.topology import LinkId
from drkit.store import Store, open_store

AT = datetime(2026, 11, 20, 4, 3, 10, tzinfo=UTC)


def append(store: Store, name: str, worker: int, count: int) -> None:
    """Write `count` rows to the worker's own partition, one after the other."""
    link = LinkId("primary", name)
    for number in range(count):
        store.append_mappings(link, [OffsetMapping("t", worker, 0, number, 2 * number)])
        say(number)


def change(store: Store, name: str, worker: int, count: int) -> None:
    """Change a link's control `count` times; retry if another process was first."""
    link = LinkId("primary", name)
    done = 0
    while done < count:
        kept = store.link_control(link)
        version = 0 if kept is None else kept.version
        control = LinkControl(link, Direction.ACTIVE, version + 1, AT, f"worker {worker} change {done}")
        if store.set_link_control(control, expected_version=None if kept is None else version):
            say(f"{control.version} {control.reason}")
            done += 1


def lease(store: Store, name: str, worker: int, count: int) -> None:
    """Compete for `count` leases; prints the holder of each."""
    for number in range(count):
        say(store.acquire_lease(f"{name}-{number}", f"worker {worker}", 60, AT).owner)


def journal(store: Store, name: str, worker: int, count: int) -> None:
    """Compete to append each of `count` entries; prints those that it appended."""
    for seq in range(count):
        entry = JournalEntry(name, seq, AT, "stage", "event", f"worker {worker}", "", "")
        if store.append_entry(entry):
            say(seq)


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


VERBS = {"append": append, "change": change, "lease": lease, "journal": journal}

if __name__ == "__main__":
    verb, url, where, number, times = sys.argv[1:]
    VERBS[verb](open_store(url), where, int(number), int(times))

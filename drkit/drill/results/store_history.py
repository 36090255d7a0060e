"""Drills in the store of a configuration: one at a time for all machines that share it, and each as a run.

The lease is that of runs (`drkit.failover.run.lease`), under the drills' own name. Each drill has one entry in the
store's journals; a drill on a lab has the same content there as in the chain of drills. `drkit runs` lists it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from drkit.config import Config
from drkit.drill.judge.result import DrillResult, Verdict
from drkit.drill.results.archive import Drills
from drkit.drill.results.recording import chained_body
from drkit.failover.run.lease import RunLease
from drkit.model.errors import DrkitError, PartlyDone
from drkit.model.runs.journal import JournalEntry, RunSummary
from drkit.observe.drill_history import DRILL
from drkit.observe.drill_surroundings import KEY, surroundings_now
from drkit.store.api import LeaseStore, Store

ALL_DRILLS = "the drills of this store"


def drill_lease(store: LeaseStore, name: str) -> RunLease:
    """The drills' lease, with one holder at a time. Enter it, and call `lost` before each step.

    Raises (on entering):
        Refused: another drill holds it; the message names its holder.
    """
    return RunLease(store, ALL_DRILLS, name, what=DRILL)


def lost(lease: RunLease) -> str | None:
    """Why the lease may be lost; None: it is held."""
    try:
        lease.check()
    except PartlyDone as error:
        return error.what
    return None


def last_began(title: str, drills: Drills, runs: Iterable[RunSummary]) -> datetime | None:
    """When the newest drill of an experiment began, by its title; None: none is known.

    `drills`: the folder of this machine; `runs`: the store's, which have the drills of all machines.
    """
    here = (each.started_at for each in drills.summaries() if each.title == title)
    anywhere = (each.started_at for each in runs if (each.kind, each.detail) == (DRILL, title))
    return max((at for at in (*here, *anywhere) if at is not None), default=None)


def keep_in_store(config: Config, store: Store, drills: Path, result: DrillResult) -> str | None:
    """Keep a drill as a run of the store of `config`; returns why it couldn't. Keeping it again changes nothing."""
    when = (result.started_at, result.ended_at)
    return keep_run(config, store, result.run, result.title, result.verdict, when, chained_body(drills, result))


def keep_run(
    config: Config,
    store: Store,
    run: str,
    title: str,
    verdict: Verdict,
    when: tuple[datetime, datetime],
    body: Mapping[str, Any],
) -> str | None:
    """Like `keep_in_store`, for the parts of a drill. `when`: start and end; `body`: the content of its entry."""
    started_at, ended_at = when
    try:
        whole = {**body, KEY: surroundings_now(config, store).document()}
        payload = json.dumps(whole, separators=(",", ":"))
        entry = JournalEntry.chained(None, run=run, at=ended_at, stage=DRILL, event="done", payload=payload)
        store.append_entry(entry)
        store.put_run(RunSummary(run, DRILL, verdict, started_at, ended_at, title))
    except DrkitError as error:
        return error.what
    return None

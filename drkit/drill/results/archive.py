"""The archive of drills: a folder for each run under the user's state directory, and an entry in the store.

drills/RUN/experiment.yaml    the experiment's file as played
drills/RUN/result.json        the result; missing while it runs, and if it was killed
drills/RUN/*.sqlite           the ledger of each client
drills/RUN/lab                the folder of the drill's own lab
drills/RUN/*.log              stderr of the mirror, the failover, the clients
drills/RUN/history, …         the raw data of evidence (`recording.py`)
drills/chain.jsonl            an entry for each drill that begins, and one once it is kept, hash-chained
drills/found/*.yaml           experiments with which random drills found something

In the store of a configuration each drill has the same entries in the journals as one on a lab has in the chain of
drills; `drkit runs` lists it. The lease, one drill at a time for all machines that share the store, is
that of runs (`drkit.failover.context.lease`), under the drills' own name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import ValidationError

from drkit.config import Config
from drkit.drill.judge.result import DrillResult, DrillSummary, Verdict
from drkit.drill.results.recording import BEGUN, KEPT, add_to_chain, chained_body
from drkit.failover.context.lease import Owner, RunLease
from drkit.model.errors import ConfigError, DrkitError, PartlyDone, Refused
from drkit.model.runs import JournalEntry, RunSummary
from drkit.observe.drill_history import DRILL, KEY, surroundings_now
from drkit.store.api import LeaseStore, Store

RESULT = "result.json"
EXPERIMENT = "experiment.yaml"
LAB_NOTE = "lab"
_RUN = re.compile(r"drill-(\d{8}T\d{6})Z-[0-9a-f]{6}")
LEASE = ".lease"


def default_drills() -> Path:
    """The default folder of kept drills."""
    return Path(platformdirs.user_state_dir("drkit")) / "drills"


def new_run(at: datetime) -> str:
    """The name of a run: its start to the second, and random characters. Sorts by time."""
    return f"drill-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class Drills:
    """The folder that holds all kept drills."""

    path: Path

    def begin(self, run: str, experiment: Path) -> Path:
        """Create the folder of a run, with a copy of the experiment's file.

        Raises:
            DrkitError: the folder can't be written.
        """
        folder = self.path / run
        try:
            folder.mkdir(parents=True, mode=0o700)
            shutil.copyfile(experiment, folder / EXPERIMENT)
        except OSError as error:
            raise DrkitError(
                f"{folder} can't be written: {error.strerror or error}",
                remedy="Correct its permissions, or free some space",
            ) from error
        return folder

    def keep(self, result: DrillResult) -> None:
        """Write a result atomically, and add it to the chain of drills.

        Raises:
            DrkitError: the chain can't be read or written.
        """
        folder = self.path / result.run
        draft = folder / f".{RESULT}"
        with draft.open("w", encoding="utf-8") as file:
            file.write(result.model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(folder / RESULT)
        add_to_chain(self.path, result)

    def runs(self) -> list[str]:
        """All kept runs, newest first."""
        if not self.path.is_dir():
            return []
        return sorted((each.name for each in self.path.iterdir() if _RUN.fullmatch(each.name)), reverse=True)

    def played(self, run: str) -> Path:
        """The experiment's file as played in a run."""
        return self.path / run / EXPERIMENT

    @property
    def found(self) -> Path:
        """The folder of experiments with which random drills found something."""
        return self.path / "found"

    def find(self, name: str) -> str:
        """The run with this name: the whole name, a unique beginning or end of it, or `last`.

        Raises:
            ConfigError: no run matches, or several do.
        """
        runs = self.runs()
        if name == "last":
            found = runs[:1]
        else:
            found = [run for run in runs if run == name] or [r for r in runs if r.startswith(name) or r.endswith(name)]
        if len(found) == 1:
            return found[0]
        said = "no drill" if not found else f"{len(found)} drills"
        raise ConfigError(f"{said} of the name {name!r} in {self.path}", remedy="See `drkit drill history`")

    def result(self, run: str) -> DrillResult:
        """The result of a run.

        Raises:
            DrkitError: it left none, or it can't be read.
        """
        file = self.path / run / RESULT
        try:
            return DrillResult.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DrkitError(
                f"{run} left no result",
                meaning="It still runs, or it was killed",
                remedy=f"Its logs are in {file.parent}{self._lab_left(run)}",
            ) from None
        except (OSError, ValidationError) as error:
            raise DrkitError(f"{file} can't be read: {error}", remedy="The logs beside it are whole") from error

    def _lab_left(self, run: str) -> str:
        note = self.path / run / LAB_NOTE
        if not note.exists():
            return ""
        return f"; if it was killed, take its lab down: drkit lab down --dir {note.read_text(encoding='utf-8').strip()}"

    def summaries(self) -> list[DrillSummary]:
        """Summaries of all kept runs, newest first; one without a readable result has the reason."""
        return [self.summary(run) for run in self.runs()]

    def summary(self, run: str) -> DrillSummary:
        """The summary of a kept run; one without a readable result has the reason."""
        try:
            result = self.result(run)
        except DrkitError as error:
            return DrillSummary(
                run=run,
                title=None,
                verdict=None,
                started_at=_started(run),
                seconds=None,
                rpo_records=None,
                rto_seconds=None,
                folder=str(self.path / run),
                reason=error.what,
            )
        return DrillSummary(
            run=run,
            title=result.title,
            verdict=result.verdict,
            started_at=result.started_at,
            seconds=result.seconds,
            rpo_records=result.measured.rpo_records,
            rto_seconds=result.measured.rto_seconds,
            folder=result.folder,
            reason=result.reasons[0] if result.reasons else None,
        )


def _started(run: str) -> datetime | None:
    match = _RUN.fullmatch(run)
    return None if match is None else datetime.strptime(f"{match[1]}+0000", "%Y%m%dT%H%M%S%z")


@contextmanager
def folder_lease(drills: Path) -> Iterator[None]:
    """Hold the lock of a folder of drills: one drill at a time, with or without a lease of the store.

    The operating system releases it when the process ends.

    Raises:
        Refused: another process holds it; the message names the process.
        DrkitError: the folder can't be written.
    """
    try:
        drills.mkdir(parents=True, mode=0o700, exist_ok=True)
        handle = os.open(drills / LEASE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DrkitError(
            f"{drills} can't be written: {error.strerror or error}",
            remedy="Correct its permissions, or free some space",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 1_000, 0).decode(errors="replace").strip()
            raise Refused(
                f"another drill is running with results in {drills}: {holder or 'it has just begun'}",
                meaning="Two drills on one machine disturb each other's measurements",
                remedy="Wait until it has ended, or give this one its own folder (--drills DIR)",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{Owner.this_process(DRILL)}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


# --- in the store --------------------------------------------------------------------------------------------------

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
        begun = next((each for each in store.entries(run) if each.event == BEGUN), None)
        _put(store, RunSummary(run, DRILL, verdict, started_at, ended_at, title), KEPT, whole, begun)
    except DrkitError as error:
        return error.what
    return None


def begin_in_store(store: Store, run: str, title: str, at: datetime) -> str | None:
    """Note a drill that begins as a run whose verdict is unknown, also if it is killed; returns why it couldn't."""
    try:
        _put(store, RunSummary(run, DRILL, "unknown", at, at, title), BEGUN, {"run": run, "title": title}, None)
    except DrkitError as error:
        return error.what
    return None


def _put(store: Store, summary: RunSummary, event: str, body: Mapping[str, Any], before: JournalEntry | None) -> None:
    payload = json.dumps(body, separators=(",", ":"))
    at, run = summary.updated_at, summary.run
    store.append_entry(JournalEntry.chained(before, run=run, at=at, stage=DRILL, event=event, payload=payload))
    store.put_run(summary)

"""Records a drill for evidence: its raw history, the journals of its runs, and its entry in the chain of drills.

RUN/experiment.json         the experiment as played, with the configured objectives, and the lines of its steps
RUN/history/*.jsonl         one row per line, with the columns that history.json names
RUN/history/history.json    of each link: both clusters, the important times, the incomplete parts, what the failover
                            stated of the group's positions and the loss, the ends of the target's partitions, and when
                            a failback brought it back, with the ends of the source's partitions
RUN/origin.json             who ran it, with which drkit, on which clusters
RUN/journal/, anchors.json, runs.jsonl    journals of the drill's runs, whose store is removed with the lab
chain.jsonl                 beside all drills: an entry when a drill begins, and one when it is kept, in the form of a
                            run's journal (docs/journal.md)

The latter has the digest of every file above. A drill that was killed has the first one only. A drill that is removed
from the folder is still in the chain, with its verdict; removing an entry breaks the chain; its end is anchored in the
operator's file of anchors.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from drkit import __version__
from drkit.config import Config, load_config
from drkit.config.effective import configuration_digest
from drkit.drill.experiment.reader import ExperimentFile
from drkit.drill.experiment.steps import Parallel
from drkit.drill.judge.history import Attempt, ConfirmedPosition, Landed, LinkHistory, Poll, Returned
from drkit.drill.judge.result import DrillResult
from drkit.failover.context.anchors import append_anchor, read_anchor_file
from drkit.failover.context.lease import Owner
from drkit.failover.journal.files import ANCHORS, RUNS, entry_document, journal_files, json_lines
from drkit.failover.journal.run_record import KINDS
from drkit.files import sha256_of
from drkit.lab import Lab
from drkit.model.clock import iso, now
from drkit.model.errors import DrkitError
from drkit.model.runs import Anchor, JournalEntry
from drkit.store import open_store

CHAIN = "chain.jsonl"
CHAIN_NAME = "drills"
"""The name of the chain of drills, in place of a journal's run."""
BEGUN, KEPT = "begun", "kept"
"""The events of a drill in its chain, and in the store."""
PARTS = ("attempts", "polls", "positions", "landed", "lag")
CHAINED_FILES = (
    *("result.json", "experiment.yaml", "experiment.json", "origin.json", "anchors.json", "runs.jsonl"),
    *("history/history.json", *(f"history/{part}.jsonl" for part in PARTS)),
)
"""The files of every drill; its entry in the chain has their digests, and those of the journals of its runs."""
MIRROR_LOG = "mirror.log"


def write_experiment(folder: Path, file: ExperimentFile) -> None:
    """Write the experiment as played: a verifier reads neither YAML nor a configuration."""
    experiment = file.experiment
    lines = {
        "method": [file.line("method", number) for number in range(len(experiment.method))],
        "rollbacks": [file.line("rollbacks", number) for number in range(len(experiment.rollbacks))],
        "branches": [
            [
                [file.line("method", number, "branches", at, one) for one in range(len(branch))]
                for at, branch in enumerate(step.branches if isinstance(step, Parallel) else ())
            ]
            for number, step in enumerate(experiment.method)
        ],
    }
    about = {"experiment": experiment.model_dump(mode="json"), "lines": lines}
    (folder / "experiment.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def write_history(folder: Path, links: Sequence[LinkHistory], *, interrupted: str | None) -> None:
    """Write the history of each link's clients, and the lags that the mirror reported; each row begins with its link.

    Times are seconds of CLOCK_MONOTONIC, except for those of the mirror's reports.
    """
    target = folder / "history"
    target.mkdir(mode=0o700, exist_ok=True)
    histories = [each.history for each in links]
    found = [(one.link, one.target, row) for one in histories for row in one.landed]
    found += [(one.link, one.source, row) for one in histories if one.returned for row in one.returned.landed]
    parts: dict[str, tuple[type, Iterable[list[Any]]]] = {
        "attempts": (Attempt, ([one.link, *_row(row)] for one in histories for row in one.attempts)),
        "polls": (Poll, ([one.link, *_row(row)] for one in histories for row in one.polls)),
        "positions": (ConfirmedPosition, ([one.link, *_row(row)] for one in histories for row in one.positions)),
        "landed": (Landed, ([link, cluster, *_row(row)] for link, cluster, row in found)),
    }
    for part, (_, rows) in parts.items():
        (target / f"{part}.jsonl").write_bytes(json_lines(rows))
    (target / "lag.jsonl").write_bytes(json_lines(_mirror_lag(folder / MIRROR_LOG, {one.link for one in histories})))
    about = {
        "links": [
            {
                "source": each.history.source,
                "target": each.history.target,
                "disaster_at": each.disaster_at,
                "moved": each.moved,
                "incomplete": {str(part): why for part, why in each.history.incomplete.items()},
                "stated": [asdict(one) for one in each.history.stated],
                "stated_loss": None if each.history.stated_loss is None else asdict(each.history.stated_loss),
                "ends": [asdict(one) for one in each.history.ends],
                "returned": None if each.history.returned is None else _returned(each.history.returned),
            }
            for each in links
        ],
        "interrupted": interrupted,
        "columns": {
            part: ["link", *(["cluster"] if kind is Landed else ()), *_columns(kind)]
            for part, (kind, _) in parts.items()
        }
        | {"lag": ["link", "at", "lag_records"]},
    }
    (target / "history.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _returned(one: Returned) -> dict[str, Any]:
    """What `landed` doesn't have of it."""
    incomplete = {str(part): why for part, why in one.incomplete.items()}
    return {"at": one.at, "ends": [asdict(end) for end in one.ends], "incomplete": incomplete}


def _mirror_lag(log: Path, links: Collection[str]) -> Iterator[list[Any]]:
    """Each link's lag in records, with the time of the report; nothing if there is no log.

    What is reported of a link that was turned round by a reprotect is of the same link.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("type") == "progress" and said.get("lag_records") is not None:
                at, lag, (source, _, target) = said["at"], said["lag_records"], said["link"].partition("->")
                link = next((name for name in (said["link"], f"{target}->{source}") if name in links), None)
                if link is not None:
                    yield [link, iso(datetime.fromisoformat(at)), int(lag)]
        except (ValueError, KeyError, TypeError):  # a line that a kill cut short
            continue


def _columns(kind: type) -> list[str]:
    names = [field.name for field in fields(kind)]
    return [name for each in names for name in (("key", "seq") if each == "record" else (each,))]


def _row(one: Attempt | Poll | ConfirmedPosition | Landed) -> list[Any]:
    row: list[Any] = []
    for field in fields(one):
        value = getattr(one, field.name)
        if field.name == "record":
            row += [None, None] if value is None else [*value]
        else:
            row.append(value)
    return row


def begin_in_chain(drills: Path, run: str, title: str, at: datetime) -> None:
    """Add to the chain that a drill begins.

    Raises:
        DrkitError: the chain can't be read or written.
    """
    _add(drills, BEGUN, {"run": run, "title": title, "started_at": iso(at)})


def add_to_chain(drills: Path, result: DrillResult) -> None:
    """Add a kept drill to the chain; adding it again changes nothing.

    Raises:
        DrkitError: the chain can't be read or written.
    """
    _add(drills, KEPT, chained_body(drills, result))


def _add(drills: Path, event: str, body: dict[str, Any]) -> None:
    try:
        handle = os.open(drills / CHAIN, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            entries = read_chain(drills)
            if any(each.event == event and json.loads(each.payload)["run"] == body["run"] for each in entries):
                return
            entry = JournalEntry.chained(
                entries[-1] if entries else None,
                run=CHAIN_NAME,
                at=now(),
                stage="drill",
                event=event,
                payload=json.dumps(body, separators=(",", ":")),
            )
            os.write(handle, json_lines([entry_document(entry)]))
            os.fsync(handle)
        finally:
            os.close(handle)
        append_anchor(Anchor(CHAIN_NAME, entry.seq, entry.hash, entry.at, chain_identity(drills), ""))
    except OSError as error:
        raise DrkitError(
            f"{body['run']} can't be added to {drills / CHAIN}: {error.strerror or error}",
            meaning="No evidence of it can be exported",
            remedy="Free some space or correct permissions, and play it again",
        ) from error


def chained_body(drills: Path, result: DrillResult) -> dict[str, Any]:
    """The content of a drill's entry in the chain: verdict, measurements, the digest of each of its files."""
    folder = drills / result.run
    names = [*CHAINED_FILES, *sorted(f"journal/{path.name}" for path in (folder / "journal").glob("*"))]
    digests = {name: sha256_of(folder / name) for name in names if (folder / name).is_file()}
    return {
        "run": result.run,
        "title": result.title,
        "verdict": result.verdict,
        "started_at": iso(result.started_at),
        "objectives": {each.name: each.objective for each in result.objectives},
        "measured": {"rpo_records": result.measured.rpo_records, "rto_seconds": result.measured.rto_seconds},
        "files": digests,
    }


def read_chain(drills: Path) -> list[JournalEntry]:
    """The chain of all drills.

    Raises:
        DrkitError: it can't be read, or is broken.
    """
    file = drills / CHAIN
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [
            JournalEntry(
                run=row["run"],
                seq=row["seq"],
                at=datetime.fromisoformat(row["at"]),
                stage=row["stage"],
                event=row["event"],
                payload=row["payload_text"],
                previous=row["previous"],
                hash=row["hash"],
            )
            for row in rows
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DrkitError(
            f"{file} can't be read: {error}",
            meaning="It is the chain of all drills; without it no drill has evidence",
            remedy="Restore it from a copy",
        ) from error


def chain_anchors(drills: Path) -> list[Anchor]:
    """The heads of this chain in the operator's file of anchors."""
    identity = chain_identity(drills)
    return [anchor for anchor in read_anchor_file() if (anchor.run, anchor.store) == (CHAIN_NAME, identity)]


def other_chain_anchors(drills: Path) -> dict[str, list[Anchor]]:
    """The heads of other chains of drills in the operator's file of anchors, by the chain's identity."""
    identity, found = chain_identity(drills), dict[str, list[Anchor]]()
    for anchor in read_anchor_file():
        if anchor.run == CHAIN_NAME and anchor.store != identity:
            found.setdefault(anchor.store, []).append(anchor)
    return found


def chain_identity(drills: Path) -> str:
    """The identity of this folder of drills in anchors."""
    return sha256(f"drills|{os.uname().nodename}|{drills.resolve()}".encode()).hexdigest()[:16]


# --- who ran it, with what, on what --------------------------------------------------------------------------------

ORIGIN = "origin.json"


def write_origin(folder: Path, run: str, *, witness: str | None, began: float) -> None:
    """Write what is known before anything runs, so without the drill's runs.

    `began`: CLOCK_MONOTONIC seconds at the drill's start.
    """
    _write_origin(folder, first_origin(run, witness=witness, began=began))
    (folder / ANCHORS).write_text(json.dumps({"store": None, "places": []}, indent=1) + "\n", encoding="utf-8")
    (folder / RUNS).write_bytes(b"")


def first_origin(run: str, *, witness: str | None, began: float) -> dict[str, Any]:
    """The origin before there is a lab."""
    return {
        "operator": Owner.this_process(run).who,
        "witness": witness,
        "drkit": __version__,
        "python": platform.python_version(),
        "began": began,
        "clusters": None,
        "configuration_digest": None,
        "lab": None,
        "journals_missing": "the lab did not come up",
    }


def add_lab(folder: Path, lab: Lab) -> None:
    """Add the lab's clusters, and copy the journals in its store, before the lab is removed."""
    origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
    config = load_config(lab.config_path)
    origin["clusters"] = [{"alias": alias, "cluster_id": lab.cluster_id(alias)} for alias in lab.clusters]
    origin["configuration_digest"] = configuration_digest(config)
    origin["lab"] = {"nodes": [node.name for node in lab.nodes], "machine": platform.node()}
    origin["journals_missing"] = _copy_journals(folder, config)
    _write_origin(folder, origin)


def _copy_journals(folder: Path, config: Config) -> str | None:
    """Copy them; returns why there are none, else None."""
    try:
        store = open_store(config.store.plain_url)
        try:
            runs = [summary.run for summary in store.runs() if summary.kind in KINDS]
            found = journal_files(config, store, runs)
        finally:
            store.close()
    except DrkitError as error:
        return error.what
    for name, content in found.files.items():
        (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
        (folder / name).write_bytes(content)
    return None


def _write_origin(folder: Path, origin: dict[str, Any]) -> None:
    (folder / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")

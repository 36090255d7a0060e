"""Writes `origin.json`: who ran a drill, with which drkit, on which clusters, while its lab is up."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

from drkit import __version__
from drkit.config import Config, load_config
from drkit.config.effective import configuration_digest
from drkit.failover.run.journal.files import ANCHORS, RUNS, journal_files
from drkit.failover.run.journal.run_record import KINDS
from drkit.failover.run.lease import Owner
from drkit.lab import Lab
from drkit.model.errors import DrkitError
from drkit.store import open_store

ORIGIN = "origin.json"


def write_origin(folder: Path, run: str, *, witness: str | None, began: float) -> None:
    """Write what is known before anything runs, so without the drill's runs.

    `began`: CLOCK_MONOTONIC seconds at the drill's start.
    """
    _write(folder, first_origin(run, witness=witness, began=began))
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
    _write(folder, origin)


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


def _write(folder: Path, origin: dict[str, Any]) -> None:
    (folder / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")

"""Journals as files, verbatim, with their anchors: evidence for use outside of the store.

journal/RUN.jsonl    the entries, one JSON object a line, in the form that docs/journal.md states
anchors.json         the anchors of this store's runs, by place
runs.jsonl           the runs that the store lists, oldest first
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from drkit.config import Config
from drkit.failover.context.anchors import read_anchors
from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import iso
from drkit.model.runs import Anchor, AnchorPlace, JournalEntry, RunSummary
from drkit.store.api import Store
from drkit.store.open import store_identity

ANCHORS = "anchors.json"
RUNS = "runs.jsonl"


@dataclass(frozen=True, slots=True)
class JournalFiles:
    """The files by name, and the parts that they were made from."""

    files: dict[str, bytes]
    entries: dict[str, tuple[JournalEntry, ...]]
    places: tuple[AnchorPlace, ...]


def journal_files(config: Config, store: Store, runs: Sequence[str]) -> JournalFiles:
    """The journals of these runs; asks every configured cluster for anchors.

    Raises:
        Unreachable: the store doesn't answer. The file names clusters that don't answer.
    """
    identity = store_identity(config.store.plain_url)
    aliases = list(dict.fromkeys(alias for link in config.links for alias in (link.source, link.target)))
    with Clusters(config.clusters) as clusters:
        places = tuple(read_anchors(clusters, aliases))
    entries = {run: tuple(store.entries(run)) for run in runs}
    listed = sorted(store.runs(), key=lambda summary: (summary.started_at, summary.run))
    files = {f"journal/{run}.jsonl": json_lines(map(entry_document, found)) for run, found in entries.items()}
    anchored = {"store": identity, "places": [_place(place, identity, runs) for place in places]}
    files[ANCHORS] = (json.dumps(anchored, indent=1) + "\n").encode()
    files[RUNS] = json_lines(map(_listed, listed))
    return JournalFiles(files, entries, places)


def entry_document(entry: JournalEntry) -> dict[str, Any]:
    """An entry as it is hashed: docs/journal.md."""
    return {
        "run": entry.run,
        "seq": entry.seq,
        "at": iso(entry.at),
        "stage": entry.stage,
        "event": entry.event,
        "previous": entry.previous,
        "payload_text": entry.payload,
        "hash": entry.hash,
    }


def json_lines(documents: Iterable[Any]) -> bytes:
    """One JSON document a line."""
    return "".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents).encode()


def anchor_document(anchor: Anchor) -> dict[str, Any]:
    """An anchor as evidence shows it."""
    return {"run": anchor.run, "seq": anchor.seq, "hash": anchor.hash, "at": iso(anchor.at)}


def _place(place: AnchorPlace, identity: str, runs: Collection[str]) -> dict[str, Any]:
    """Anchors of this store's runs, and all anchors of the given runs: the store may have been moved since."""
    mine = None
    if place.anchors is not None:
        kept = (anchor for anchor in place.anchors if anchor.store == identity or anchor.run in runs)
        mine = [anchor_document(anchor) for anchor in kept]
    return {"place": place.name, "cluster": place.cluster, "reason": place.reason or None, "anchors": mine}


def _listed(summary: RunSummary) -> dict[str, Any]:
    return {
        "run": summary.run,
        "kind": str(summary.kind),
        "state": str(summary.state),
        "started_at": iso(summary.started_at),
        "detail": summary.detail,
    }

"""Anchors of journal heads, where a writer of the store can't change them.

These are a file on the operator's machine, and a topic of the cluster that the run leads to.

A run neither waits nor fails because of anchors: a thread writes them, and `close` waits with a deadline. The
comparison (`drkit runs RUN`) reports missing anchors.

An anchor is one JSON object, a line of the file or the value of a record whose key is `RUN/SEQ`:
`{"run", "seq", "hash", "at", "store", "cluster"}`. Readers ignore unknown keys, so that a signature can be added.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import platformdirs

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.client.small_topic import APPEND_ONLY, SmallTopicRecord, SmallTopicWriter, make_topic, read_topic
from drkit.model.clock import Deadline, iso
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs import JOURNAL_TOPIC, Anchor, AnchorPlace, JournalEntry

log = logging.getLogger(__name__)

_ASK_SECONDS = 5.0
_CLOSE_SECONDS = 3.0


def anchor_file() -> Path:
    """The operator's file of anchors: `drkit/journal.anchor` in the user's state directory."""
    return platformdirs.user_state_path("drkit") / "journal.anchor"


class Anchors:
    """Writes anchors. Any thread may submit heads.

    Args:
        clusters: connections to the clusters.
        store: the store's id in anchors (`store_identity`).
        file: where they are kept on this machine.
    """

    def __init__(self, clusters: Clusters, store: str, file: Path | None = None) -> None:
        self._clusters = clusters
        self._store = store
        self._file = file
        # one thread each: while a cluster is slow, the file still gets the heads of a killed run
        self._for_file: queue.SimpleQueue[Anchor | None] = queue.SimpleQueue()
        self._for_clusters: queue.SimpleQueue[Anchor | None] = queue.SimpleQueue()
        self._threads: tuple[threading.Thread, ...] = ()
        self._lock = threading.Lock()
        self._writers: dict[str, SmallTopicWriter] = {}
        self._gone: set[str] = set()

    def on(self, alias: str) -> Callable[[JournalEntry], None]:
        """A callable for the heads of a run that leads to this cluster."""
        return lambda entry: self.put(alias, entry)

    def put(self, alias: str, entry: JournalEntry) -> None:
        """Anchor a head soon."""
        with self._lock:
            if not self._threads:
                works = (self._write_file, self._write_clusters)
                self._threads = tuple(
                    threading.Thread(target=each, name="drkit-anchors", daemon=True) for each in works
                )
                for thread in self._threads:
                    thread.start()
        anchor = Anchor(entry.run, entry.seq, entry.hash, entry.at, self._store, alias)
        self._for_file.put(anchor)
        self._for_clusters.put(anchor)

    def close(self) -> None:
        """Wait, with a deadline, until all submitted heads are anchored."""
        with self._lock:
            threads, self._threads = self._threads, ()
        if threads:
            self._for_file.put(None)
            self._for_clusters.put(None)
            deadline = Deadline.after(_CLOSE_SECONDS)
            for thread in threads:
                thread.join(deadline.left)
            if any(thread.is_alive() for thread in threads):
                log.warning("the journal's last heads may not be anchored: a cluster doesn't answer")

    def _write_file(self) -> None:
        told = False
        while (anchor := self._for_file.get()) is not None:
            try:
                append_anchor(anchor, self._file)
            except OSError as error:
                why = f"the journal's head isn't anchored in {self._file or anchor_file()}: {error}"
                log.log(logging.INFO if told else logging.WARNING, "%s", why)
                told = True

    def _write_clusters(self) -> None:
        while (anchor := self._for_clusters.get()) is not None:
            alias = anchor.cluster
            if alias in self._gone:
                continue
            try:
                self._writer(alias).write([_record(anchor)])
            except Exception as error:  # noqa: BLE001 - whatever it is: no run fails for it, and `drkit runs` tells
                what = error.what if isinstance(error, DrkitError) else f"{type(error).__name__}: {error}"
                right = (
                    f". Give drkit's principal Create, Describe, Read and Write on topic {JOURNAL_TOPIC} there"
                    if isinstance(error, Refused)
                    else ""
                )
                log.warning("the journal's head isn't anchored on %s: %s%s", alias, what, right)
                self._gone.add(alias)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, alias: str) -> SmallTopicWriter:
        if alias not in self._writers:
            make_topic(self._clusters.admin(alias, may_be_gone=True), JOURNAL_TOPIC, APPEND_ONLY)
            self._writers[alias] = SmallTopicWriter(alias, self._clusters.config_of(alias), JOURNAL_TOPIC, _ASK_SECONDS)
        return self._writers[alias]


def read_anchors(clusters: Clusters, aliases: Sequence[str], file: Path | None = None) -> list[AnchorPlace]:
    """All anchors: in the file, and on each of these clusters, read concurrently. Raises nothing."""
    file = file or anchor_file()
    with ThreadPoolExecutor(max(1, len(aliases)), "drkit-anchors") as pool:
        found = list(pool.map(lambda alias: _on_cluster(clusters, alias), aliases))
    return [_in_file(file), *found]


def read_anchor_file() -> tuple[Anchor, ...]:
    """The operator's file of anchors; empty if it can't be read."""
    return _in_file(anchor_file()).anchors or ()


def _in_file(file: Path) -> AnchorPlace:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return AnchorPlace(str(file), ())
    except (OSError, UnicodeDecodeError) as error:
        return AnchorPlace(str(file), None, reason=str(error))
    return AnchorPlace(str(file), tuple(anchor for line in lines if (anchor := _anchor(line)) is not None))


def _on_cluster(clusters: Clusters, alias: str) -> AnchorPlace:
    name = f"{JOURNAL_TOPIC} on {alias}"
    try:
        if JOURNAL_TOPIC not in clusters.admin(alias, may_be_gone=True).topics([JOURNAL_TOPIC]):
            return AnchorPlace(name, (), alias)
        found: list[SmallTopicRecord] = []
        read_topic(alias, clusters.config_of(alias), JOURNAL_TOPIC, _ASK_SECONDS, found.append)
    except DrkitError as error:
        return AnchorPlace(name, None, alias, error.what)
    anchors = (_anchor(record.value) for record in found if record.value is not None)
    return AnchorPlace(name, tuple(anchor for anchor in anchors if anchor is not None), alias)


def append_anchor(anchor: Anchor, file: Path | None = None) -> None:
    """Write an anchor to the operator's file.

    Raises:
        OSError: it can't be written.
    """
    file = file or anchor_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"  # after a full disk or a power cut
        line = f"{chr(10) if torn else ''}{_text(anchor)}\n".encode()
        if os.write(handle, line) != len(line):  # one write: lines of several operators don't mix
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)


def _record(anchor: Anchor) -> tuple[bytes, bytes]:
    return f"{anchor.run}/{anchor.seq}".encode(), _text(anchor).encode()


def _text(anchor: Anchor) -> str:
    body = {
        "run": anchor.run,
        "seq": anchor.seq,
        "hash": anchor.hash,
        "at": iso(anchor.at),
        "store": anchor.store,
        "cluster": anchor.cluster,
    }
    return json.dumps(body, separators=(",", ":"))


def _anchor(text: str | bytes) -> Anchor | None:
    """Parse an anchor; None: a truncated line, or something else."""
    try:
        body = json.loads(text)
        at = datetime.fromisoformat(body["at"])
        return Anchor(
            str(body["run"]), int(body["seq"]), str(body["hash"]), at, str(body["store"]), str(body["cluster"])
        )
    except (ValueError, KeyError, TypeError):
        return None

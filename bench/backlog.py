"""A backlog case: load the source once, then let each mirror copy it onto an empty target."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import BacklogCase
from bench.clusters import Clusters
from bench.load import load
from bench.peers.base import Job, Peer
from bench.peers.drkit import STORE, Drkit
from bench.processes import MeasurementFailed
from bench.progress import Screen
from bench.results import BacklogRun
from bench.watch import Watched, watch
from bench.wire import Connection
from drkit.store import open_store

_QUIET_SECONDS = 120.0
_LIMIT_SECONDS = 180.0
_MIB = 1 << 20
_PROGRESS_POINTS = 60


@dataclass(frozen=True, slots=True)
class Backlog:
    """Runs backlog cases on a pair of clusters; nothing else may run there. `work`: for files of each run."""

    clusters: Clusters
    work: Path
    screen: Screen

    def load(self, case: BacklogCase, records: int) -> None:
        """Make the case's source topic and fill it; what was there before, on either side, is deleted."""
        self.clusters.source.delete_topics()
        self.clusters.target.delete_topics()
        shape = case.shape(records)
        with self.screen.bar(f"{case.name}: loading", shape.loaded_records) as bar:
            self.clusters.source.create_topic(case.topic, shape.partitions)
            load(self.clusters.source.address, case.topic, shape, bar.advance)

    def run(self, case: BacklogCase, records: int, peer: Peer, repeat: int) -> BacklogRun:
        """One mirror over the loaded topic. The target's topics are deleted afterwards.

        Raises:
            MeasurementFailed: it ended or got stuck; its last lines are in the message.
        """
        expected = case.shape(records).loaded_records
        with TemporaryDirectory(dir=self.work) as folder:
            job = Job(Path(folder), self.clusters.source, self.clusters.target, case.topic, case.codec)
            running = peer.launch(job)
            try:
                with self.screen.bar(f"{case.name}: {peer.title}", expected) as bar:
                    watched = watch(
                        job.target.address,
                        {case.topic: case.partitions},
                        expected=expected,
                        launched_at=running.launched_at,
                        process=running.process,
                        quiet_seconds=_QUIET_SECONDS,
                        limit_seconds=_LIMIT_SECONDS,
                        progress=bar.at,
                    )
                peer.check(job, running)
                running.stop()
                uneven = self._uneven(case) if watched.complete else 0
            except MeasurementFailed as error:
                raise MeasurementFailed(f"{case.name}, {peer.title}: {error}\n{running.last_words()}") from error
            finally:
                running.stop()
                self._clean(case)
            run = replace(summary(case, peer.name, repeat, expected, watched), uneven_partitions=uneven)
            return _with_store(run, job.folder) if isinstance(peer, Drkit) else run

    def _uneven(self, case: BacklogCase) -> int:
        """Partitions whose log ends differ between source and target."""
        with Connection(self.clusters.source.address) as source, Connection(self.clusters.target.address) as target:
            numbers = range(case.partitions)
            ours, theirs = source.ends(case.topic, numbers), target.ends(case.topic, numbers)
        return sum(ours[number] != theirs.get(number) for number in ours)

    def _clean(self, case: BacklogCase) -> None:
        """Delete what a mirror made: on the target everything, on the source its own bookkeeping."""
        self.clusters.target.delete_topics()
        self.clusters.source.delete_topics(keep=[case.topic])


def summary(case: BacklogCase, peer: str, repeat: int, expected: int, watched: Watched) -> BacklogRun:
    """The figures of a run from what was watched."""
    first, last = watched.first, watched.last
    seconds, mirrored = last.seconds - first.seconds, last.records - first.records
    cpu = last.cpu_seconds - first.cpu_seconds
    rate = mirrored / seconds if seconds > 0 and mirrored > 0 else None  # all within one look: no rate
    half = first.seconds + seconds / 2
    early = [moment.rss_bytes for moment in watched.moments if moment.seconds <= half]
    late = [moment.rss_bytes for moment in watched.moments if moment.seconds > half]
    thinned = watched.moments[:: max(1, len(watched.moments) // _PROGRESS_POINTS)]
    return BacklogRun(
        case=case.name,
        peer=peer,
        repeat=repeat,
        records=expected,
        record_bytes=case.record_bytes,
        mirrored_records=last.records,
        complete=watched.complete,
        seconds=round(seconds, 3),
        records_per_second=rate,
        mb_per_second=None if rate is None else rate * case.record_bytes / 1e6,
        cpu_seconds=round(cpu, 3),
        cpu_seconds_per_million=cpu / mirrored * 1e6 if mirrored else None,
        launch_seconds=round(first.seconds, 3),
        launch_cpu_seconds=round(first.cpu_seconds, 3),
        peak_rss_mib=round(watched.peak_rss_bytes / _MIB, 1),
        rss_first_half_mib=round(max(early) / _MIB, 1),
        rss_second_half_mib=round(max(late or early) / _MIB, 1),
        progress=tuple((round(moment.seconds, 2), moment.records) for moment in thinned),
    )


def _with_store(run: BacklogRun, folder: Path) -> BacklogRun:
    """Add what the run left in drkit's store, against a store in which nothing was ever recorded."""
    with TemporaryDirectory(dir=folder) as fresh:
        empty = Path(fresh) / STORE
        open_store(f"sqlite:///{empty}").close()
        before = _settled_bytes(empty)
    after = _settled_bytes(folder / STORE)
    with closing(sqlite3.connect(folder / STORE)) as database:
        (rows,) = database.execute("SELECT count(*) FROM mapping").fetchone()
        (payload,) = database.execute("SELECT coalesce(sum(payload), 0) FROM dbstat WHERE name = 'mapping'").fetchone()
    return replace(run, mapping_rows=rows, mapping_bytes=payload, store_growth_bytes=after - before)


def _settled_bytes(path: Path) -> int:
    """The size of a SQLite file once its write-ahead log is in it."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size

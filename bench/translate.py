"""Translated positions, judged: what 1,000 groups would read again or skip with each mirror's answers.

Each mirror gets source topics of its own, made the same way: half of the records lie there (and are
compacted) before it starts, half come while it runs. When all is on the target, a thousand groups commit
a random position each; the mirror carries them, its answers are taken (`drkit translate --all-groups`;
MirrorMaker 2's checkpoints topic), and an independent reader of the target says what each would cost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import Extent
from bench.checkpoints import read_checkpoints
from bench.clusters import Clusters
from bench.judge import Commit, Copied, Place, judge
from bench.peers.base import Job, Peer, Running
from bench.peers.drkit import Drkit
from bench.processes import MeasurementFailed, drkit, run
from bench.progress import Screen
from bench.reader import read
from bench.results import TranslateRun
from bench.translate_source import KINDS, Source
from bench.wire import Connection
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.topology import TopicPartition

_CAUGHT_UP_SECONDS = 120.0
_CALM_SECONDS = 5.0
_ANSWER_SECONDS = 90.0
_NO_MORE_SECONDS = 20.0  # both mirrors look at groups at least every few seconds here
_PARTS = 5
_POLL_SECONDS = 0.5
_ASK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Translate:
    """Runs the comparison on a pair of clusters; nothing else may run there."""

    clusters: Clusters
    work: Path
    screen: Screen
    extent: Extent

    def run(self, peer: Peer) -> list[TranslateRun]:
        """One mirror's figures, by kind of topic.

        Raises:
            MeasurementFailed: it ended, didn't catch up, or the source could not be made.
        """
        source = Source(self.clusters.source, f"bench-translate-{peer.name}")
        self.screen.say(f"translate: {peer.title}, {self.extent.commits:,} commits")
        try:
            source.create()
            source.write(self.extent.translate_records // 2)
            source.compact()
            source.half_ends = source.ends()
            with TemporaryDirectory(dir=self.work) as folder:
                job = Job(Path(folder), source.cluster, self.clusters.target, f"{source.prefix}-.*", "lz4", groups=True)
                running = peer.launch(job)
                try:
                    return self._judged(peer, source, job, running)
                except MeasurementFailed as error:
                    raise MeasurementFailed(f"translate, {peer.title}: {error}\n{running.last_words()}") from error
                finally:
                    running.stop()
        finally:
            self.clusters.target.delete_topics()
            self.clusters.source.delete_topics()

    def _judged(self, peer: Peer, source: Source, job: Job, running: Running) -> list[TranslateRun]:
        self._await_quiet(source, running, lambda before, now: any(now.values()) and now == before)
        for _ in range(_PARTS):
            source.write(self.extent.translate_records // 2 // _PARTS)
        self._await_quiet(source, running, lambda before, now: now == before)
        commits = source.commits(self.extent.commits, source.ends())
        _commit(source, list(chain.from_iterable(commits.values())))
        ask = _ask_drkit if isinstance(peer, Drkit) else _ask_mirrormaker
        answers = _settled(lambda: ask(job, {c.group: c for c in chain.from_iterable(commits.values())}))
        logs = self._logs(source)
        return [judge(peer.name, kind, commits[kind], answers, logs) for kind in KINDS]

    def _await_quiet(
        self, source: Source, running: Running, done: Callable[[dict[Place, int], dict[Place, int]], bool]
    ) -> None:
        """Wait until the target's ends have stood still for five seconds and nothing plain is missing."""
        deadline = time.monotonic() + _CAUGHT_UP_SECONDS
        before: dict[Place, int] = {}
        still_since = time.monotonic()
        with Connection(self.clusters.target.address) as connection:
            while True:
                now: dict[Place, int] = {}
                for kind in KINDS:
                    topic, places = source.topic(kind), source.places(kind)
                    found = connection.ends(topic, [place.partition for place in places])
                    now |= {Place(topic, number): end for number, end in found.items()}
                plain = source.places(KINDS[0])
                ends = source.ends()
                whole = all(now.get(place, 0) >= ends[place] for place in plain)
                if not (whole and done(before, now)):
                    still_since = time.monotonic()
                elif time.monotonic() - still_since > _CALM_SECONDS:
                    return
                before = now
                if running.process.poll() is not None or time.monotonic() > deadline:
                    raise MeasurementFailed("it ended or did not catch up")
                time.sleep(_POLL_SECONDS)

    def _logs(self, source: Source) -> dict[Place, list[Copied]]:
        logs: dict[Place, list[Copied]] = {}
        for kind in KINDS:
            for record in read(self.clusters.target.address, source.topic(kind)):
                if record.value not in source.offsets:
                    raise MeasurementFailed(f"{record.place} holds a record at {record.offset} that was never written")
                logs.setdefault(record.place, []).append(Copied(record.offset, source.offsets[record.value]))
        return logs


def _commit(source: Source, commits: Sequence[Commit]) -> None:
    config = ClusterConfig(bootstrap_servers=source.cluster.address)
    with GroupAdmin(source.cluster.alias, config) as admin:
        for commit in commits:
            admin.commit(commit.group, {TopicPartition(*commit.place): (commit.offset, "")})


def _settled(ask: Callable[[], dict[str, int | None]]) -> dict[str, int]:
    """Ask until every group has an answer, or no further one has come for a while; only the groups answered."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    most, more_at = 0, time.monotonic()
    while True:
        answers = ask()
        known = {group: offset for group, offset in answers.items() if offset is not None}
        now = time.monotonic()
        if len(known) > most:
            most, more_at = len(known), now
        if len(known) == len(answers) or now > deadline or (known and now - more_at > _NO_MORE_SECONDS):
            return known
        time.sleep(_ASK_SECONDS)


def _ask_drkit(job: Job, commits: Mapping[str, Commit]) -> dict[str, int | None]:
    said = run(drkit(job.folder, "translate", "--all-groups", "--output", "json"), job.folder)
    answers: dict[str, int | None] = dict.fromkeys(commits)
    for position in json.loads(said.stdout)["positions"]:
        commit = commits.get(position["group"])
        place = Place(position["topic"], position["partition"])
        if commit is not None and (place, position["source_offset"]) == (commit.place, commit.offset):
            answers[commit.group] = position["target_offset"]
    return answers


def _ask_mirrormaker(job: Job, commits: Mapping[str, Commit]) -> dict[str, int | None]:
    answers: dict[str, int | None] = dict.fromkeys(commits)
    for checkpoint in read_checkpoints(job.target.address, job.source.alias).values():
        commit = commits.get(checkpoint.group)
        if commit is not None and (checkpoint.place, checkpoint.source_offset) == (commit.place, commit.offset):
            answers[commit.group] = checkpoint.target_offset
    return answers

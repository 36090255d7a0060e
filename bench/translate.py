"""Judges translated positions: how many records 1,000 groups would read again or skip with each mirror's positions.

Each mirror gets its own source topics, created the same way: half of the records are there (and compacted) before it
starts, half come while it runs. When everything is on the target, a thousand groups commit a random position each; the
mirror translates them (`drkit translate --all-groups`; MirrorMaker 2's checkpoints topic), and an independent reader
of the target determines the cost of each.

A record is identified by its offset on the source, which its value on the target gives. A group that had read
everything below the commit `c` on the source and continues at position `p` of the target reads again the records below
`c` and at or after `p`, and skips those at or above `c` and before `p`.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from bench.cases import Scene
from bench.group_positions import commit
from bench.mirrors import Drkit, Job, Mirror
from bench.processes import MeasurementFailed, Running, drkit, run
from bench.results import TranslateRun
from bench.translate_source import KINDS, PLAIN, Commit, Source
from drkit.kafka.groups.mirrormaker import checkpoints_topic, decode_checkpoint
from drkit.model.topology import TopicPartition
from tests.support.links.log_reader import read_topic

_CAUGHT_UP_SECONDS = 120.0
_CALM_SECONDS = 5.0
_ANSWER_SECONDS = 90.0
_NO_MORE_SECONDS = 20.0  # both mirrors read groups at least every few seconds here
_PARTS = 5
_POLL_SECONDS = 0.5
_ASK_SECONDS = 2.0
_Answers = dict[str, int | None]
"""Target positions by group; None if a mirror has none."""


def measure(scene: Scene, mirror: Mirror) -> list[TranslateRun]:
    """One mirror's figures on the pair of clusters, by kind of topic.

    Raises:
        MeasurementFailed: it ended, didn't catch up, or the source could not be created.
    """
    source = Source(scene.clusters.source, f"bench-translate-{mirror.name}")
    scene.say(f"translate: {mirror.title}, {scene.extent.commits:,} commits")
    try:
        source.create()
        source.write(scene.extent.translate_records // 2)
        source.compact()
        source.half_ends = source.ends()
        job = Job(scene.work, source.cluster, scene.clusters.target, f"{source.prefix}-.*", "lz4", groups=True)
        running = mirror.launch(job)
        with running.watched(f"translate, {mirror.title}"):
            _wait_for_calm(source, job, running)
            for _ in range(_PARTS):
                source.write(scene.extent.translate_records // 2 // _PARTS)
            _wait_for_calm(source, job, running)
            by_kind = source.commits(scene.extent.commits, source.ends())
            commits = {each.group: each for each in chain.from_iterable(by_kind.values())}
            commit(source.cluster, {each.group: {each.tp: (each.offset, "")} for each in commits.values()})
            ask = _ask_drkit if isinstance(mirror, Drkit) else _ask_mirrormaker
            answers = _settled(lambda: ask(job, commits))
            logs = _logs(source, job)
            return [judge(mirror.name, kind, by_kind[kind], answers, logs) for kind in KINDS]
    finally:
        scene.clusters.delete_topics()


# --- judging ------------------------------------------------------------------------------------


class Copied(NamedTuple):
    """A record of the target."""

    target_offset: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The records that a group would read again, and those that it would never read."""

    reread: int
    skipped: int


def cost(log: Sequence[Copied], committed: int, position: int) -> Cost:
    """The cost of continuing at `position` of a target partition with `log`, in the order of target offsets."""
    at = bisect_left(log, (position, -1))
    return Cost(
        reread=sum(record.source_offset < committed for record in log[at:]),
        skipped=sum(record.source_offset >= committed for record in log[:at]),
    )


def judge(
    peer: str,
    kind: str,
    commits: Sequence[Commit],
    answers: Mapping[str, int],
    logs: Mapping[TopicPartition, Sequence[Copied]],
) -> TranslateRun:
    """The sums and maxima for a mirror; `answers`: target positions by group, without groups that have none."""
    costs = [cost(logs.get(each.tp, ()), each.offset, answers[each.group]) for each in commits if each.group in answers]
    return TranslateRun(
        peer=peer,
        kind=kind,
        commits=len(commits),
        answered=len(costs),
        exact=costs.count(Cost(0, 0)),
        reread_sum=sum(each.reread for each in costs),
        reread_max=max((each.reread for each in costs), default=0),
        skipped_sum=sum(each.skipped for each in costs),
        skipped_max=max((each.skipped for each in costs), default=0),
    )


# --- the running mirror -------------------------------------------------------------------------


def _wait_for_calm(source: Source, job: Job, running: Running) -> None:
    """Wait until the target's ends are constant for five seconds and no plain record is missing."""
    deadline = time.monotonic() + _CAUGHT_UP_SECONDS
    before: dict[TopicPartition, int] = {}
    still_since = time.monotonic()
    while True:
        there, ends = source.ends(job.target), source.ends()
        whole = all(there.get(tp, 0) >= ends[tp] for tp in source.partitions(PLAIN))
        if not whole or there != before or not any(there.values()):
            still_since = time.monotonic()
        elif time.monotonic() - still_since > _CALM_SECONDS:
            return
        before = there
        if running.ended or time.monotonic() > deadline:
            raise MeasurementFailed("it ended or did not catch up")
        time.sleep(_POLL_SECONDS)


def _logs(source: Source, job: Job) -> dict[TopicPartition, list[Copied]]:
    logs: dict[TopicPartition, list[Copied]] = {}
    for kind in KINDS:
        for partition, records in read_topic(job.target.address, source.topic(kind)).items():
            tp = TopicPartition(source.topic(kind), partition)
            for record in records:
                if record.value not in source.offsets:
                    raise MeasurementFailed(f"{tp} holds a record at {record.offset} that was never written")
                logs.setdefault(tp, []).append(Copied(record.offset, source.offsets[record.value]))
    return logs


def _settled(ask: Callable[[], _Answers]) -> dict[str, int]:
    """Poll until every group has a position, or none has come for a while; returns only groups with a position."""
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


def _ask_drkit(job: Job, commits: Mapping[str, Commit]) -> _Answers:
    said = run(drkit(job.folder, "translate", "--all-groups", "--output", "json"), job.folder)
    answers: _Answers = dict.fromkeys(commits)
    for position in json.loads(said.stdout)["positions"]:
        tp = TopicPartition(position["topic"], position["partition"])
        if commits.get(position["group"]) == (position["group"], tp, position["source_offset"]):
            answers[position["group"]] = position["target_offset"]
    return answers


def _ask_mirrormaker(job: Job, commits: Mapping[str, Commit]) -> _Answers:
    answers: _Answers = dict.fromkeys(commits)
    newest = {}
    for record in read_topic(job.target.address, checkpoints_topic(job.source.alias)).get(0, []):  # its only partition
        if record.key is not None and record.value is not None:
            checkpoint = decode_checkpoint(record.key, record.value, datetime.now(UTC))
            newest[checkpoint.group, checkpoint.tp] = checkpoint
    for each in newest.values():
        if commits.get(each.group) == (each.group, each.tp, each.upstream):
            answers[each.group] = each.downstream
    return answers

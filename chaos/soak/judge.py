"""Judges two partitions that an independent reader has read, and the mapping between them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from chaos.soak.clusters import Record

_SHOWN = 10

Translate = Callable[[int], tuple[str, int | None]]
"""Source offset → (certainty, target offset): the translation to judge."""


@dataclass(slots=True)
class Verdict:
    """The errors of a partition. `missing`, `extra`, `disorder`: records; `wrong`: wrongly translated positions;
    `moved`: records whose offset should be preserved and isn't. `examples` names some of each.
    """

    records: int = 0
    missing: int = 0
    extra: int = 0
    disorder: int = 0
    positions: int = 0
    wrong: int = 0
    moved: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether there is no error."""
        return not (self.missing or self.extra or self.disorder or self.wrong or self.moved)

    def note(self, text: str) -> None:
        """Keep one of the first examples."""
        if len(self.examples) < _SHOWN:
            self.examples.append(text)


def compare(source: Sequence[Record], target: Sequence[Record]) -> Verdict:
    """Check that the target has every record of the source once, in order, and nothing else."""
    verdict = Verdict(records=len(source))
    ours, theirs = [record.digest for record in source], [record.digest for record in target]
    if ours == theirs:
        return verdict
    missing, extra = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    verdict.missing, verdict.extra = missing.total(), extra.total()
    for what, records, surplus in (("missing", source, missing), ("extra", target, extra)):
        for record in records:
            if surplus[record.digest] > 0:
                verdict.note(f"{what}: the record at {'source' if records is source else 'target'} {record.offset}")
    if not verdict.missing and not verdict.extra:
        wrong = [index for index, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
        verdict.disorder = len(wrong)
        verdict.note(f"out of order from source offset {source[wrong[0]].offset} on")
    return verdict


def compare_compacted(
    source: Sequence[Record], target: Sequence[Record], journal: Mapping[int, tuple[bytes, bytes]]
) -> tuple[Verdict, list[int]]:
    """Like `compare`, for a compacted topic: the cleaner of either side may have removed records that a later one of
    the same key supersedes. `journal`: offset → (key, digest) of every record that the source accepted. Also returns
    the source offset of each of the target's records.
    """
    offset_of = {said: offset for offset, (_, said) in journal.items()}
    verdict = Verdict(records=len(source))
    came_from: list[int] = []
    for record in target:
        offset = offset_of.get(record.digest)
        if offset is None:
            verdict.extra += 1
            verdict.note(f"extra: target {record.offset} holds a record that the source never accepted")
            came_from.append(-1)
        else:
            came_from.append(offset)
    known = [offset for offset in came_from if offset >= 0]
    verdict.extra += len(known) - len(set(known))
    verdict.disorder = sum(1 for one, other in pairwise(known) if other < one)
    verdict.missing += _gone(
        verdict, source, {record.key: offset for record, offset in _with(target, came_from)}, known
    )
    newest = {record.key: record.offset for record in source}
    for record, offset in _with(target, came_from):
        if offset >= 0 and newest.get(record.key, -1) < offset:
            verdict.extra += 1
            verdict.note(f"extra: target {record.offset} is the copy of source {offset}, which the source lost")
    return verdict, came_from


def _with(target: Sequence[Record], came_from: Sequence[int]) -> Iterable[tuple[Record, int]]:
    return zip(target, came_from, strict=True)


def _gone(verdict: Verdict, source: Sequence[Record], newest: Mapping[bytes | None, int], known: Sequence[int]) -> int:
    """How many of the source's records are missing on the target, without a newer one of their key there."""
    there = set(known)
    gone = 0
    for record in source:
        if record.offset not in there and newest.get(record.key, -1) <= record.offset:
            gone += 1
            verdict.note(f"missing: the record at source {record.offset}")
    return gone


def positions(source: Sequence[int], end: int, every: int) -> list[int]:
    """Offsets that a group may have committed: every `every`-th record, both edges of each hole, the end."""
    chosen = set(source[::every])
    before = None
    for offset in source:
        if before is not None and offset != before + 1:
            chosen.update((before, before + 1, (before + 1 + offset) // 2, offset))
        before = offset
    if before is not None:
        chosen.update((before, before + 1, end))
    return sorted(chosen)


def check_mapping(
    verdict: Verdict,
    came_from: Sequence[int],
    target: Sequence[int],
    target_end: int,
    commits: Iterable[int],
    translate: Translate,
) -> None:
    """Each position must translate to an offset after the record before it, and not beyond the next one.

    Args:
        verdict: collects the errors.
        came_from: the source offset of each record of the target, ascending.
        target: the target offset of each.
        target_end: the target's end.
        commits: source positions.
        translate: the translation to judge.
    """
    for commit in commits:
        following = bisect_left(came_from, commit)
        first = target[following - 1] + 1 if following else 0
        last = target[following] if following < len(target) else target_end
        verdict.positions += 1
        certainty, answer = translate(commit)
        if certainty != "exact" or answer is None or not first <= answer <= last:
            verdict.wrong += 1
            verdict.note(f"wrong: source {commit} translates to {answer} ({certainty}), expected is {first} to {last}")


def check_preserved(verdict: Verdict, source: Sequence[int], target: Sequence[int]) -> None:
    """Offsets are the same on both sides."""
    for one, other in zip(source, target, strict=False):
        if one != other:
            verdict.moved += 1
            verdict.note(f"moved: source {one} is at target {other}")


def harmless(problem: Mapping[str, Any], compacted: str) -> bool:
    """Whether a problem may be on record: compaction left a hole in its topic that is too large to match."""
    return problem["kind"] == "offsets_differ" and problem["topic"] == compacted


def status_faults(status: Mapping[str, Any] | None, expected: Iterable[tuple[str, int]], compacted: str) -> list[str]:
    """Why what `drkit status` says of a link isn't that everything is mirrored and well.

    Args:
        status: its document; None: it fails.
        expected: topic and partition of all that must be mirrored.
        compacted: the compacted topic.
    """
    if status is None:
        return ["drkit status fails"]
    lags = {(each["topic"], each["partition"]): each["lag_records"] for each in status["partitions"]}
    found = [] if status["state"] == "mirroring" else [f"the link is {status['state']}"]
    found += [
        f"{topic}:{number} has lag {lags.get((topic, number))}"
        for topic, number in expected
        if lags.get((topic, number)) != 0
    ]
    return found + [
        f"{each['kind']} of {each['topic']}:{each['partition']}: {each['reason']}"
        for each in status["problems"]
        if not harmless(each, compacted)
    ]

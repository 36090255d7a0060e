"""What is known of a link's target that has other writers too, as notes of the link: where each partition's log begins
(`drkit.mirror.resume.shared_target_start`), and where the link's newest record stands
(`drkit.mirror.resume.shared_target`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore

_STARTS = "shared_target_start"
_NEWEST = "shared_target_newest"


class JudgedStart(NamedTuple):
    """Of a partition of this epoch whose target's log begins at `target_start`, source offsets [`begin`, `until`) were
    mirrored and are gone; the range may hold others, too. It is empty where none is."""

    epoch: int
    target_start: int
    begin: int
    until: int


def judged_start(store: LinkStore, link: LinkId, tp: TopicPartition) -> JudgedStart | None:
    """What was found last of a partition (by its source topic); None: its target's log was never judged."""
    return judged_starts(store, link).get(tp)


def judged_starts(store: LinkStore, link: LinkId) -> dict[TopicPartition, JudgedStart]:
    """Of all partitions."""
    return {tp: JudgedStart(*numbers) for tp, numbers in _read(store, link, _STARTS)}


def put_judged_start(store: LinkStore, link: LinkId, tp: TopicPartition, judged: JudgedStart) -> None:
    """Keep it; durable on return."""
    _write(store, link, _STARTS, {tp: judged})


class NewestOwn(NamedTuple):
    """Where the link's newest record of a partition of this epoch stood when a mirror last took it up: at `place`, -1
    where there was none. The target's log ended at `log_end` then: what is acknowledged beyond that landed since."""

    epoch: int
    log_end: int
    place: int

    def now(self, mark: Watermark) -> int | None:
        """Where it stands by this watermark: behind it nothing of the link's was acknowledged. -1: there is none;
        None: it isn't known."""
        if self.epoch != mark.epoch:
            return None
        return mark.target_end - 1 if mark.target_end > self.log_end else self.place


def newest_own(store: LinkStore, link: LinkId) -> dict[TopicPartition, NewestOwn]:
    """Of all partitions, by the source's names."""
    return {tp: NewestOwn(*numbers) for tp, numbers in _read(store, link, _NEWEST)}


def put_newest_own(store: LinkStore, link: LinkId, found: Mapping[TopicPartition, NewestOwn]) -> None:
    """Keep them; durable on return."""
    _write(store, link, _NEWEST, found)


def _read(store: LinkStore, link: LinkId, kind: str) -> Iterator[tuple[TopicPartition, Iterator[int]]]:
    for name, note in store.notes(link, kind).items():
        topic, _, number = name.rpartition(":")
        yield TopicPartition(topic, int(number)), map(int, note.split(":"))


def _write(store: LinkStore, link: LinkId, kind: str, notes: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    store.put_notes(link, kind, {str(tp): ":".join(map(str, numbers)) for tp, numbers in notes.items()})

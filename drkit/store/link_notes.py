"""Facts about a link that the store keeps as notes of it.

| fact | a note for each |
|---|---|
| offset alignments | partition |
| the cluster id of the source, which can't be asked once it is gone | link |
| groups that can't be moved, as the mirror last saw them | group |
| which offsets the source removed last before they were mirrored | partition |
| where a shared target's log begins (`drkit.mirror.resume.shared_target_start`) | partition |
| where the link's newest record is in it (`drkit.mirror.resume.shared_target`) | partition |

Workers' notes: `drkit.store.workers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from drkit.model.alignment import Alignment, note_name, read_alignment
from drkit.model.errors import NotShown, Refused
from drkit.model.groups.unmovable_groups import UnmovableGroup
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore

ALIGNMENTS = "alignments"
_SOURCE = "source"
_CLUSTER_ID = "cluster_id"
_UNMOVABLE = "unmovable-group"
_STARTS = "shared_target_start"
_NEWEST = "shared_target_newest"
_NEVER_MIRRORED = "never_mirrored"


def put_alignment(store: LinkStore, link: LinkId, alignment: Alignment) -> None:
    """Keep an alignment; durable on return."""
    store.put_notes(link, ALIGNMENTS, {alignment.name: alignment.note()})


def alignments(store: LinkStore, link: LinkId) -> dict[TopicPartition, Alignment]:
    """All alignments, by source partition."""
    found = (read_alignment(text) for text in store.notes(link, ALIGNMENTS).values())
    return {each.tp: each for each in found}


def forget_alignments(store: LinkStore, link: LinkId, tps: Iterable[TopicPartition]) -> None:
    """Remove the alignments of these partitions."""
    store.forget_notes(link, ALIGNMENTS, [note_name(tp) for tp in tps])


def keep_source_cluster(store: LinkStore, link: LinkId, cluster_id: str, target_id: str) -> None:
    """Note that the mirror reads from this cluster, unless it is noted already.

    Raises:
        Refused: it read from another one. Nothing of the link would be there, so that nothing would seem to be missing
            on the target; and where that is its target now, it would write to its source.
    """
    known = known_source_cluster(store, link)
    if known == cluster_id:  # also where source and target are one cluster
        return
    if known == target_id:
        raise Refused(
            f"{link.source} and {link.target} changed places: {link.target} is cluster {target_id} now, from which "
            f"link {link} read as {link.source}",
            meaning=f"A mirror would write to the cluster that it is to read from, and create topics of {link.target} "
            "there. Nothing was changed",
            remedy=f"Correct bootstrap_servers of {link.source} and {link.target}. Where cluster {target_id} is to be "
            "the standby for good, configure a link under other aliases",
        )
    if known is not None:
        raise Refused(
            other_source_cluster(link, cluster_id, known),
            meaning=f"What {link} mirrored isn't there, and what is there isn't what {link} mirrored. Nothing was "
            "changed",
            remedy=other_source_remedy(link),
        )
    note_source_cluster(store, link, cluster_id)


def note_source_cluster(store: LinkStore, link: LinkId, cluster_id: str) -> None:
    """Note that this cluster is the link's source from now on: the first one, or the one that a failback went to."""
    store.put_notes(link, _SOURCE, {_CLUSTER_ID: cluster_id})


def check_source_cluster(store: LinkStore, link: LinkId, cluster_id: str) -> None:
    """Make sure that the cluster that answers at the source's address is the link's source.

    Raises:
        NotShown: it is another one, so nothing there says anything about the link.
    """
    known = known_source_cluster(store, link)
    if known is not None and known != cluster_id:
        raise NotShown(other_source_cluster(link, cluster_id, known), remedy=other_source_remedy(link))


def other_source_cluster(link: LinkId, found: str, known: str) -> str:
    """What is said where another cluster answers at the source's address."""
    return f"{link.source} is another cluster now: its id is {found}, {link} mirrors from {known}"


def other_source_remedy(link: LinkId) -> str:
    """What to do then."""
    return (
        f"Correct bootstrap_servers of {link.source}. Where the cluster was replaced: `drkit failover --to "
        f"{link.target} --unplanned` serves from {link.target}, and `drkit failback` then seeds the new one; or "
        "configure a link under other aliases"
    )


def known_source_cluster(store: LinkStore, link: LinkId) -> str | None:
    """The id of the source's cluster as the mirror last found it; None: no mirror has run."""
    return store.notes(link, _SOURCE).get(_CLUSTER_ID)


def put_unmovable(store: LinkStore, link: LinkId, groups: Iterable[UnmovableGroup]) -> None:
    """Replace the note of each group."""
    notes = {
        each.group: json.dumps(
            {
                "type": each.type,
                "starts": [[*tp, start] for tp, start in sorted(each.starts.items())],
                "captured_at": each.captured_at.isoformat(),
            }
        )
        for each in groups
    }
    if notes:
        store.put_notes(link, _UNMOVABLE, notes)


def unmovable_groups(store: LinkStore, link: LinkId) -> list[UnmovableGroup]:
    """All of them, by name."""
    found = []
    for group, text in store.notes(link, _UNMOVABLE).items():
        body = json.loads(text)
        starts = {TopicPartition(topic, partition): start for topic, partition, start in body["starts"]}
        found.append(UnmovableGroup(group, body["type"], starts, datetime.fromisoformat(body["captured_at"])))
    return found


def forget_unmovable(store: LinkStore, link: LinkId, groups: Iterable[str]) -> None:
    """Remove the notes of groups that are gone from the source."""
    store.forget_notes(link, _UNMOVABLE, list(groups))


class NeverMirrored(NamedTuple):
    """Of a partition of this epoch the source removed offsets [`begin`, `until`) before they were mirrored."""

    epoch: int
    begin: int
    until: int


def put_never_mirrored(store: LinkStore, link: LinkId, tp: TopicPartition, lost: NeverMirrored) -> None:
    """Keep it, instead of what was lost so before; durable on return."""
    _write(store, link, _NEVER_MIRRORED, {tp: lost})


def never_mirrored(store: LinkStore, link: LinkId) -> dict[TopicPartition, NeverMirrored]:
    """What was lost so last, of all partitions, by the source's names."""
    return {tp: NeverMirrored(*numbers) for tp, numbers in _read(store, link, _NEVER_MIRRORED)}


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

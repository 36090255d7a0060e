"""Facts about a link that the store keeps as notes.

| fact | one note per |
|---|---|
| offset alignments | partition |
| the cluster id of the source, which can't be asked once it is gone, and that of the target | link |
| groups that can't be moved, as the mirror last saw them | group |
| the furthest offset from which a group's commits moved back | group and partition |
| the offsets that the source removed before they were mirrored | partition |
| the offsets of a purged target that an operator goes on without | partition |
| up to where gaps of the source's log are holes: it was compacted, or an operator says so | partition |
| the offsets that a source skips though its topic isn't compacted | partition |
| where a shared target's log begins (`drkit.mirror.resume.shared_target_start`) | partition |
| drkit's ACLs on the target, with their roles (`drkit.model.topics.acls`) | ACL |
| ACLs by which a cluster is fenced | ACL |
| the producer id that the target may refuse, so that no mirror uses it again | target cluster |
| where the link's newest record is in it, and its epoch begins (`drkit.mirror.resume.shared_target`) | partition |

Workers' notes are in `drkit.store.workers`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple, Protocol

from drkit.model.errors import NotShown, Refused
from drkit.model.groups import UnmovableGroup
from drkit.model.link_state import (
    FOREIGN_WRITER,
    PARTED,
    RECORDS_UNMAPPED,
    SOURCE_GAP,
    SOURCE_TRUNCATED,
    Alignment,
    Direction,
    Problem,
    note_name,
    read_alignment,
)
from drkit.model.offsets import MOST_RANGES, GroupPosition, Watermark, merged_ranges, without_ranges
from drkit.model.topics.acls import ACL_NOTES, REMOVED_ACL_NOTES, Acl, AclRole, fence_rules_kind, still_carried
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store.api import LinkStore, MappingStore

ALIGNMENTS = "alignments"
_SOURCE, _TARGET = "source", "target"
_CLUSTER_ID = "cluster_id"
_UNMOVABLE = "unmovable-group"
_MOVED_BACK = "group_moved_back"
_STARTS = "shared_target_start"
_NEWEST = "shared_target_newest"
NEVER_MIRRORED = "never_mirrored"
_ACCEPTED = "target_purged_accepted"
_HOLES = "source_holes"
_OF_AN_EPOCH = (
    *(ALIGNMENTS, _STARTS, _NEWEST, NEVER_MIRRORED, _ACCEPTED, _HOLES, SOURCE_GAP),
    *(FOREIGN_WRITER, RECORDS_UNMAPPED, SOURCE_TRUNCATED),  # which epoch such a problem halts
)
"""Kinds of notes that hold for one epoch of a partition, by its name `topic:partition`."""


def put_alignment(store: LinkStore, link: LinkId, alignment: Alignment) -> None:
    """Store an alignment; durable on return."""
    store.put_notes(link, ALIGNMENTS, {alignment.name: alignment.note()})


def alignments(store: LinkStore, link: LinkId) -> dict[TopicPartition, Alignment]:
    """All alignments, by source partition."""
    found = (read_alignment(text) for text in store.notes(link, ALIGNMENTS).values())
    return {each.tp: each for each in found}


def forget_alignments(store: LinkStore, link: LinkId, tps: Iterable[TopicPartition]) -> None:
    """Remove the alignments of these partitions."""
    store.forget_notes(link, ALIGNMENTS, [note_name(tp) for tp in tps])


def check_clusters(store: LinkStore, link: Link, source_id: str, target_id: str) -> None:
    """Check that a mirror may run between these clusters: the noted ones, where any are.

    Raises:
        Refused: it ran between others. The link's records would not be on another source, so none would seem to be
            missing on the target; on another target is nothing of what counts as mirrored.
    """
    known_source, known_target = known_source_cluster(store, link.id), known_target_cluster(store, link.id)
    ids = link.id
    if known_source not in {None, source_id} and known_source == target_id:
        raise Refused(
            f"{ids.source} and {ids.target} changed places: {ids.target} is cluster {target_id} now, from which "
            f"link {ids} read as {ids.source}",
            meaning=f"A mirror would write to the cluster that it should read from, and create topics of {ids.target} "
            "there. Nothing was changed",
            remedy=f"Correct bootstrap_servers of {ids.source} and {ids.target}. Where cluster {target_id} is to be "
            "the standby for good, configure a link under other aliases",
        )
    if known_source not in {None, source_id}:
        raise Refused(
            other_source_cluster(ids, source_id, known_source or ""),
            meaning=f"The records that {ids} mirrored aren't there, and {ids} mirrored none of the records there. "
            "Nothing was changed",
            remedy=other_source_remedy(ids),
        )
    if known_target not in {None, target_id}:
        raise Refused(
            other_target_cluster(ids, target_id, known_target or ""),
            meaning=f"Nothing of what {ids} mirrored is there. Nothing was changed",
            remedy=other_target_remedy(link, target_id),
        )


def note_clusters(store: LinkStore, link: LinkId, *, source: str | None = None, target: str | None = None) -> None:
    """Note that these clusters (by their ids; None: as noted) are the link's from now on: those of its first mirror, or
    others on purpose."""
    for kind, cluster_id in ((_SOURCE, source), (_TARGET, target)):
        if cluster_id is not None:
            store.put_notes(link, kind, {_CLUSTER_ID: cluster_id})


def check_source_cluster(store: LinkStore, link: LinkId, cluster_id: str) -> None:
    """Check that the cluster at the source's address is the link's source.

    Raises:
        NotShown: it is another cluster, so nothing there concerns the link.
    """
    known = known_source_cluster(store, link)
    if known is not None and known != cluster_id:
        raise NotShown(other_source_cluster(link, cluster_id, known), remedy=other_source_remedy(link))


def check_target_cluster(store: LinkStore, link: Link, cluster_id: str) -> None:
    """Check that the cluster at the target's address is the one that the link's mirror writes to.

    Raises:
        NotShown: it is another cluster, so nothing there concerns the link.
    """
    known = known_target_cluster(store, link.id)
    if known is None or known == cluster_id:
        return
    control = store.link_control(link.id)
    remedy = other_target_remedy(link, cluster_id, None if control is None else control.direction)
    raise NotShown(other_target_cluster(link.id, cluster_id, known), remedy=remedy)


def other_source_cluster(link: LinkId, found: str, known: str) -> str:
    """The message that another cluster answers at the source's address."""
    return f"{link.source} is another cluster now: its id is {found}, {link} mirrors from {known}"


def other_target_cluster(link: LinkId, found: str, known: str) -> str:
    """The message that another cluster answers at the target's address."""
    return f"{link.target} is another cluster than the one that was mirrored to: its id is {found}, was {known}"


def other_source_remedy(link: LinkId) -> str:
    """The remedy for another source."""
    return (
        f"Correct bootstrap_servers of {link.source}. Where the cluster was replaced: `drkit failover --to "
        f"{link.target} --unplanned` serves from {link.target}, and `drkit failback` then seeds the new one; or "
        "configure a link under other aliases"
    )


def other_target_remedy(link: Link, found: str, direction: Direction | None = None) -> str:
    """The remedy for another target. `direction`: the link's, which says whether clients were moved there; None: not
    decided yet."""
    ids = link.id
    correct = f"Correct bootstrap_servers of {ids.target}. Where the cluster was replaced: "
    if link.inverse:
        return f"{correct}`drkit doctor` names the command that ends this failback"
    if direction is Direction.REVERSED:
        return (
            f"{correct}`drkit doctor` names the command by which clients use what {ids.source} has of it: all that a "
            "failback or a reprotect has brought back"
        )
    if direction is not None and not direction.serves_source:
        return (
            f"{correct}`drkit fence --lift --cluster {ids.source} --yes --link '{ids}'` opens {ids.source}, which has "
            "its records of before the failover, or what was brought back since; or configure a link under other "
            "aliases"
        )
    return (
        f"{correct}`drkit link resume '{ids}' --accept-recreated --cluster-id {found}`, and `drkit mirror` begins anew"
    )


def known_source_cluster(store: LinkStore, link: LinkId) -> str | None:
    """The cluster id of the source as the mirror last found it; None: no mirror has run."""
    return store.notes(link, _SOURCE).get(_CLUSTER_ID)


def known_target_cluster(store: LinkStore, link: LinkId) -> str | None:
    """The cluster id of the target that the mirror writes to; None: no mirror has run."""
    return store.notes(link, _TARGET).get(_CLUSTER_ID)


def noted_rules(store: LinkStore, link: LinkId) -> dict[Acl, AclRole]:
    """The ACLs that drkit has put on the link's target, or will put there at the switch, with their roles."""
    return {Acl.parse(key): AclRole(role) for key, role in store.notes(link, ACL_NOTES).items()}


def removed_rules(store: LinkStore, link: LinkId) -> set[Acl]:
    """The ACLs that drkit took from the link's target, because the source no longer had them."""
    return {Acl.parse(key) for key in store.notes(link, REMOVED_ACL_NOTES)}


def returned_rules(
    store: LinkStore, link: Link, links: Iterable[LinkId], there: Collection[Acl], own: Collection[str]
) -> set[Acl]:
    """Those of the target's ACLs (`there`) that drkit once took from it, and that no link has put there. `links`: the
    configuration's; `own`: drkit's principals."""
    beside = {link.id, *(each for each in links if each.target == link.id.target)}
    put = set().union(*(noted_rules(store, each) for each in beside))
    return {rule for rule in (removed_rules(store, link.id) & set(there)) - put if still_carried(rule, link, own)}


def fence_rules(store: LinkStore, links: Iterable[LinkId], cluster: str) -> set[Acl]:
    """The ACLs by which drkit fences a cluster for any of these links: they concern only that cluster."""
    kind = fence_rules_kind(cluster)
    return {Acl.parse(key) for link in links for key in store.notes(link, kind)}


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
    """All unmovable groups, by name."""
    found = []
    for group, text in store.notes(link, _UNMOVABLE).items():
        body = json.loads(text)
        starts = {TopicPartition(topic, partition): start for topic, partition, start in body["starts"]}
        found.append(UnmovableGroup(group, body["type"], starts, datetime.fromisoformat(body["captured_at"])))
    return found


def forget_unmovable(store: LinkStore, link: LinkId, groups: Iterable[str]) -> None:
    """Remove the notes of groups that no longer exist on the source."""
    store.forget_notes(link, _UNMOVABLE, list(groups))


class PositionStore(MappingStore, LinkStore, Protocol):
    """What has both captured positions and notes."""


def replace_positions(
    store: PositionStore, link: LinkId, before: Iterable[GroupPosition], after: Sequence[GroupPosition]
) -> None:
    """Store captured positions; first note the furthest offset of each group that has moved back: somebody reset it, or
    the source was set back, which is found later. Durable on return.

    `before`: positions as the store has them, `after`: those that replace them.
    """
    known = {(position.group, position.tp): position for position in before}
    back = []
    for position in after:
        further = known.get((position.group, position.tp))
        if further is not None and position.offset < further.offset:
            back.append(further)
    if back:
        furthest = _furthest(store, link, back)
        names = {json.dumps([each.group, *each.tp]): (each.group, each.tp) for each in back}
        store.put_notes(link, _MOVED_BACK, {name: json.dumps(furthest[key]) for name, key in names.items()})
    store.put_group_positions(link, after)


def forget_moved_back(store: LinkStore, link: LinkId, ended: Container[tuple[str, str]]) -> None:
    """Forget it of these groups, each on a topic."""
    names = [json.dumps([group, *tp]) for group, tp in _furthest(store, link) if (group, tp.topic) in ended]
    if names:
        store.forget_notes(link, _MOVED_BACK, names)


def behind_captured(
    store: LinkStore,
    link: LinkId,
    positions: Iterable[GroupPosition],
    problems: Iterable[Problem],
    captured: Iterable[GroupPosition] = (),
) -> dict[tuple[str, TopicPartition], int]:
    """Where the source may have been set back, the further offset at which each of these positions was captured before,
    by group and partition. On a source that wasn't, somebody has reset the group.

    `captured`: positions as the store has them.
    """
    if not any(problem.kind in PARTED for problem in problems):
        return {}
    furthest = _furthest(store, link, captured)
    found = {}
    for position in positions:
        offset, topic_id = furthest.get((position.group, position.tp), (0, ""))
        if position.offset < offset and (not position.topic_id or topic_id in {"", position.topic_id}):
            found[position.group, position.tp] = offset
    return found


def _furthest(
    store: LinkStore, link: LinkId, positions: Iterable[GroupPosition] = ()
) -> dict[tuple[str, TopicPartition], tuple[int, str]]:
    """The furthest offset that is noted or one of these, and the source's id of the topic that it is in."""
    found = {}
    for name, note in store.notes(link, _MOVED_BACK).items():
        group, topic, partition = json.loads(name)
        offset, topic_id = json.loads(note)
        found[group, TopicPartition(topic, partition)] = (offset, topic_id)
    for each in positions:
        offset, topic_id = found.get((each.group, each.tp), (0, ""))
        if topic_id != each.topic_id or offset < each.offset:
            found[each.group, each.tp] = (each.offset, each.topic_id)
    return found


class NeverMirrored(NamedTuple):
    """Ranges of offsets [begin, end) of a partition in this epoch that its source removed before they were mirrored,
    ascending."""

    epoch: int
    ranges: tuple[tuple[int, int], ...]


def add_never_mirrored(store: LinkStore, link: LinkId, tp: TopicPartition, epoch: int, begin: int, until: int) -> None:
    """Store one more such range; durable on return. Beyond `MOST_RANGES` of them the oldest two become one."""
    known = never_mirrored(store, link).get(tp)
    ranges = [*(known.ranges if known is not None and known.epoch == epoch else ()), (begin, until)]
    if len(ranges) > MOST_RANGES:
        ranges[:2] = [(ranges[0][0], ranges[1][1])]
    _write(store, link, NEVER_MIRRORED, {tp: (epoch, *chain.from_iterable(ranges))})


def give_up_never_mirrored(store: LinkStore, link: LinkId, tp: TopicPartition, begin: int, until: int) -> None:
    """Forget of such ranges what lies in [`begin`, `until`): an operator goes on without it. Durable on return."""
    known = never_mirrored(store, link).get(tp)
    if known is None:
        return
    if left := without_ranges(known.ranges, [(begin, until)]):
        _write(store, link, NEVER_MIRRORED, {tp: (known.epoch, *chain.from_iterable(left))})
    else:
        store.forget_notes(link, NEVER_MIRRORED, [str(tp)])


def never_mirrored(store: LinkStore, link: LinkId) -> dict[TopicPartition, NeverMirrored]:
    """Such losses of all partitions, by the source's names."""
    return {
        tp: NeverMirrored(next(numbers), tuple(zip(numbers, numbers, strict=True)))
        for tp, numbers in _read(store, link, NEVER_MIRRORED)
    }


def accepted_purges(store: LinkStore, link: LinkId) -> dict[tuple[TopicPartition, int], tuple[tuple[int, int], ...]]:
    """The source offsets that an operator accepted as removed from the target, by partition (the source's names) and
    epoch: ranges [begin, end), ascending and apart."""
    return {
        (tp, next(numbers)): tuple(zip(numbers, numbers, strict=True)) for tp, numbers in _read(store, link, _ACCEPTED)
    }


def accept_purge(store: LinkStore, link: LinkId, tp: TopicPartition, epoch: int, begin: int, until: int) -> None:
    """Store one more such range; durable on return. Of more than `MOST_RANGES` the lowest are accepted no longer."""
    ranges = merged_ranges([*accepted_purges(store, link).get((tp, epoch), ()), (begin, until)])
    _write(store, link, _ACCEPTED, {tp: (epoch, *chain.from_iterable(ranges[-MOST_RANGES:]))})


def accept_no_longer(store: LinkStore, link: LinkId, ends: Mapping[tuple[TopicPartition, int], int]) -> None:
    """The targets of these partitions, each in an epoch, have what is at or above a source offset again: no more of
    that is accepted as removed. Durable on return."""
    accepted = accepted_purges(store, link)
    for (tp, epoch), end in ends.items():
        ranges = accepted.get((tp, epoch), ())
        if ranges and ranges[-1][1] > end:
            left = ((first, min(until, end)) for first, until in ranges if first < end)
            _write(store, link, _ACCEPTED, {tp: (epoch, *chain.from_iterable(left))})


class SourceHoles(NamedTuple):
    """Gaps of a source's log in this epoch are holes below offset `until` (`HOLES_ANYWHERE` while it is compacted)."""

    epoch: int
    until: int


def source_holes(store: LinkStore, link: LinkId) -> dict[TopicPartition, SourceHoles]:
    """What is noted of the partitions whose logs may have holes, by the source's names."""
    return {tp: SourceHoles(*numbers) for tp, numbers in _read(store, link, _HOLES)}


def put_source_holes(store: LinkStore, link: LinkId, found: Mapping[TopicPartition, SourceHoles]) -> None:
    """Store it; durable on return."""
    if found:
        _write(store, link, _HOLES, found)


class SkippedOffsets(NamedTuple):
    """A source skips offsets [`first`, `end`) in this epoch, and no operator has accepted it."""

    epoch: int
    first: int
    end: int


def put_source_gap(store: LinkStore, link: LinkId, tp: TopicPartition, epoch: int, gap: tuple[int, int]) -> None:
    """Store the offsets [first, end) that a source skips; durable on return."""
    _write(store, link, SOURCE_GAP, {tp: (epoch, *gap)})


def source_gaps(store: LinkStore, link: LinkId) -> dict[TopicPartition, SkippedOffsets]:
    """What a source skips and no operator has accepted, by the source's names."""
    return {tp: SkippedOffsets(*numbers) for tp, numbers in _read(store, link, SOURCE_GAP)}


def accept_source_gap(
    store: PositionStore, link: LinkId, tp: TopicPartition, epoch: int, *, compacted: bool
) -> tuple[int, int] | None:
    """An operator goes on without what the source skips. Durable on return.

    Args:
        store: the store.
        link: the link.
        tp: the partition, by the source's name.
        epoch: its topic's.
        compacted: the topic was compacted: every gap of what the source held when it was last observed is a hole.

    Returns:
        the noted offsets [first, end); None: none are noted of this epoch.
    """
    noted = source_gaps(store, link).get(tp)
    if noted is None or noted.epoch != epoch:
        return None
    mark = store.watermarks(link).get(tp) if compacted else None
    put_source_holes(store, link, {tp: SourceHoles(epoch, max(noted.end, 0 if mark is None else mark.source_end))})
    store.forget_notes(link, SOURCE_GAP, [str(tp)])
    return noted.first, noted.end


class JudgedStart(NamedTuple):
    """The target's log of a partition in this epoch begins at `target_start`: source offsets [`begin`, `until`) were
    mirrored and are gone. The range may include offsets that never were; it is empty where nothing is gone."""

    epoch: int
    target_start: int
    begin: int
    until: int


def judged_start(store: LinkStore, link: LinkId, tp: TopicPartition) -> JudgedStart | None:
    """The last judgement of a partition (by its source topic); None: its target's log was never judged."""
    return judged_starts(store, link).get(tp)


def judged_starts(store: LinkStore, link: LinkId) -> dict[TopicPartition, JudgedStart]:
    """The judgements of all partitions."""
    return {tp: JudgedStart(*numbers) for tp, numbers in _read(store, link, _STARTS)}


def put_judged_start(store: LinkStore, link: LinkId, tp: TopicPartition, judged: JudgedStart) -> None:
    """Store it; durable on return."""
    _write(store, link, _STARTS, {tp: judged})


class NewestOwn(NamedTuple):
    """Where the link's newest record of a partition in this epoch was when a mirror last took it up: at `place`, or -1
    where there was none. The target's log ended at `log_end` then: records acknowledged beyond that came later. The
    epoch began at the target's offset `begin`: own records below it are of a former topic with the name."""

    epoch: int
    log_end: int
    place: int
    begin: int

    def now(self, mark: Watermark) -> int | None:
        """The offset of the link's newest acknowledged record, by this watermark. -1: there is none; None: unknown."""
        if self.epoch != mark.epoch:
            return None
        return mark.target_end - 1 if mark.target_end > self.log_end else self.place


def newest_own(store: LinkStore, link: LinkId) -> dict[TopicPartition, NewestOwn]:
    """The newest own records of all partitions, by the source's names."""
    return {tp: NewestOwn(*numbers) for tp, numbers in _read(store, link, _NEWEST)}


def put_newest_own(store: LinkStore, link: LinkId, found: Mapping[TopicPartition, NewestOwn]) -> None:
    """Store them; durable on return."""
    _write(store, link, _NEWEST, found)


def forget_topic_notes(store: LinkStore, link: LinkId, topic: str) -> None:
    """The link forgets a topic: remove what is noted of its partitions by their epoch, because the next topic of that
    name begins at the first epoch again. Durable on return."""
    for kind in _OF_AN_EPOCH:
        names = [name for name in store.notes(link, kind) if name.rpartition(":")[0] == topic]
        if names:
            store.forget_notes(link, kind, names)


def is_source_cluster(kind: str, name: str) -> bool:
    """Whether a note of this kind and name is the cluster id of a link's source."""
    return (kind, name) == (_SOURCE, _CLUSTER_ID)


def _read(store: LinkStore, link: LinkId, kind: str) -> Iterator[tuple[TopicPartition, Iterator[int]]]:
    for name, note in store.notes(link, kind).items():
        topic, _, number = name.rpartition(":")
        yield TopicPartition(topic, int(number)), map(int, note.split(":"))


def _write(store: LinkStore, link: LinkId, kind: str, notes: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    store.put_notes(link, kind, {str(tp): ":".join(map(str, numbers)) for tp, numbers in notes.items()})

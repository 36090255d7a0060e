"""Deletes topics on the target that were deleted on the source: late, exactly, and never many at once.

A topic is deleted on the target only if:

- drkit created it there, and it still has the topic id that drkit knows;
- the source has lacked it for `LOOKS` looks and `SECONDS` seconds, on every one of its brokers,
  and it lists as many brokers as before;
- the source is still the same cluster (by its id), and still has topics that aren't drkit's;
- what the source took while it had the topic is still there (`source_growth`), and no partition of the link has parted
  from its source: a cluster that is restored or formatted lacks topics, too;
- it is one of at most `deletion_limit` within an hour. More at once look like a disaster or a mistake.

Others are held, each with a problem, until an operator names them. What only waits until every broker answers, or says
the same, has a problem, too, which says so, and is deleted by itself then.

The store forgets the topic only after its deletion on the target.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.source_growth import SourceGrowth
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import DELETION_HELD, FOLLOWED_SETTINGS, SETTINGS_HELD, SOURCE_TOPIC_DELETED
from drkit.model.topics.standby import SOURCE_SETTINGS
from drkit.model.topology import Link
from drkit.model.wording import and_more, counted
from drkit.store.api import Store
from drkit.store.link_notes import (
    forget_topic_notes,
    known_source_cluster,
    other_source_cluster,
    other_source_remedy,
)

log = logging.getLogger(__name__)

LOOKS = 3
SECONDS = 5.0
_REFUSED = "deletion_refused"
_DELETED = "deleted"
"""Kind of the notes that say when each topic was deleted: whoever leads keeps to the limit."""
_WINDOW = timedelta(hours=1)
_FEWER_BROKERS_SECONDS = 600.0


@dataclass(slots=True)
class _Missed:
    """Since when, and for how many looks, the source has lacked a topic."""

    since: float
    looks: int = 0


@dataclass(slots=True)
class _Brokers:
    """The most brokers seen on the source, and since when there have been fewer."""

    most: int = 0
    fewer_since: float | None = None

    def all_there(self, count: int, at: float) -> bool:
        """Whether it lists as many brokers as before; if fewer for long, those are all."""
        if count >= self.most:
            self.most, self.fewer_since = count, None
        elif self.fewer_since is None:
            self.fewer_since = at
        elif at - self.fewer_since > _FEWER_BROKERS_SECONDS:
            self.most, self.fewer_since = count, None
        return self.fewer_since is None


@dataclass(slots=True)
class _Book:
    """State between looks."""

    missed: dict[str, _Missed] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    brokers: _Brokers = field(default_factory=_Brokers)


class TopicDeletions:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link; it mirrors deletions.
        source: is asked whether it really lacks the topic.
        target: where topics are deleted.
        store: forgets them.
        problems: where held deletions go; an operator names the topic in a note (`drkit.mirror.control.acknowledge`).
        growth: what the source took, which whoever doesn't lead notes, too.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: Store,
        problems: Problems,
        growth: SourceGrowth,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._problems = problems
        self._clock = clock
        self._book = _Book()
        self._growth = growth

    def sync(self, look: TopicSnapshot, gone: Collection[str]) -> list[str]:
        """Delete the topics that the source no longer lists, if they are due.

        Returns those that stay permanently because drkit did not create them.
        """
        book = self._book
        brokers = len(self._source.brokers())
        whole = book.brokers.all_there(brokers, self._clock())
        mine = [topic for topic in gone if self._is_ours(look, topic)]
        book.missed = {topic: book.missed.get(topic, _Missed(self._clock())) for topic in mine}
        self._read_named(look)
        for missed in book.missed.values():
            missed.looks += 1
        ripe = self._ripe(look)
        if not whole:
            source, most = self._link.id.source, book.brokers.most
            self._wait(
                ripe,
                f"{source} lists {counted(brokers, 'broker')} and listed {most}: one that is missing may still have it",
                f"Bring the missing brokers of {source} back; where they are gone for good, drkit goes by the others "
                f"after {_FEWER_BROKERS_SECONDS / 60:.0f} minutes",
            )
        elif ripe:
            self._delete_ripe(look, ripe)
        self._problems.keep_only({*look.source, *look.source_denied, *look.states})
        return [topic for topic in gone if topic not in mine]

    def _is_ours(self, look: TopicSnapshot, topic: str) -> bool:
        """Whether the target's topic is the one that drkit created (or is already gone)."""
        state = look.states[topic]
        target = look.target.get(state.target_topic)
        return state.created_by_drkit and (target is None or target.topic_id == state.target_topic_id)

    def _read_named(self, look: TopicSnapshot) -> None:
        """Read which topics an operator named, also while no mirror ran. Who did so didn't mean the next one of that
        name."""
        noted = self._store.notes(self._link.id, DELETION_HELD)
        over = [topic for topic in noted if topic in look.source or topic not in look.states]
        if over:
            self._store.forget_notes(self._link.id, DELETION_HELD, over)
        states = look.states
        self._book.named = {t for t, its in noted.items() if t not in over and its == states[t].target_topic_id}

    # -- deciding ----------------------------------------------------------------------------------

    def _ripe(self, look: TopicSnapshot) -> list[str]:
        """The topics that the source has lacked for long enough, without those that stay held."""
        at = self._clock()
        return [
            topic
            for topic, missed in self._book.missed.items()
            if missed.looks >= LOOKS and at - missed.since >= SECONDS and not self._stays_held(look, topic)
        ]

    def _delete_ripe(self, look: TopicSnapshot, ripe: Collection[str]) -> None:
        try:
            absent, silent = self._absent(ripe)  # before: whoever says so is to be who had it
            holds = self._why_held(look, ripe)
        except Unreachable as error:
            self._wait(ripe, f"nobody knows yet whether it may go: {error.what}", error.remedy or self._answer())
            return
        go = [topic for topic in ripe if self._may_go(look, topic, holds.get(topic))]
        for topic in ripe:
            hold = holds.get(topic)
            if topic not in go and hold is not None:
                remedy = hold.remedy.replace("NAME", topic)
                self._problems.settle(topic, kinds=frozenset({SOURCE_TOPIC_DELETED}))
                self._problems.put(
                    DELETION_HELD, topic, None, f"{self._where(topic)}; {hold.reason}", remedy, halted=False
                )
        source = self._link.id.source
        self._wait(
            [topic for topic in go if topic not in absent],
            f"a broker of {source} still has it" if silent is None else f"a broker of {source} is silent: {silent}",
            self._answer(),
        )
        self._delete(look, [topic for topic in go if topic in absent])

    def _absent(self, topics: Collection[str]) -> tuple[set[str], str | None]:
        """Those of these topics that no broker of the source knows; none while one is silent, and what it says of
        that."""
        try:
            return self._source.absent_everywhere(topics), None
        except Unreachable as error:
            return set(), error.what

    def _answer(self) -> str:
        return (
            f"See that every broker of {self._link.id.source} runs and reaches its controllers: once each says that it "
            "has applied the deletion, drkit deletes the topic there, too"
        )

    def _wait(self, topics: Collection[str], why: str, remedy: str) -> None:
        """Say why topics aren't deleted now, that aren't held: they are by themselves, once that is over."""
        for topic in topics:
            if not self._problems.knows(DELETION_HELD, topic):
                reason = f"{self._where(topic)}; {why}"
                self._problems.put(SOURCE_TOPIC_DELETED, topic, None, reason, remedy, halted=False)

    def _stays_held(self, look: TopicSnapshot, topic: str) -> bool:
        """Whether a topic was held before, and nobody has decided since: no broker is asked about it again."""
        return self._problems.knows(DELETION_HELD, topic) and not self._is_named(look, topic)

    def _is_named(self, look: TopicSnapshot, topic: str) -> bool:
        """Whether an operator has named a topic, or it is gone from the target, too: then nothing is left to lose, and
        `_delete` asks all brokers."""
        name = look.states[topic].target_topic
        return topic in self._book.named or (name not in look.target and name not in look.target_denied)

    def _may_go(self, look: TopicSnapshot, topic: str, hold: _Hold | None) -> bool:
        """Whether a topic that isn't held yet, or was named, may be deleted now."""
        return hold is None or (self._is_named(look, topic) and not hold.always)

    def _where(self, topic: str) -> str:
        return f"{topic} is gone on {self._link.id.source}; on {self._link.id.target} it stays for now"

    def _why_held(self, look: TopicSnapshot, ripe: Collection[str]) -> dict[str, _Hold]:
        """Why deletions of these topics aren't mirrored automatically now; others may be.

        Raises:
            Unreachable: the source or the store doesn't answer.
        """
        hold = self._why_all_held(look)
        if hold is not None:
            return dict.fromkeys(ripe, hold)
        source, ids = self._link.id.source, {topic: look.states[topic].source_topic_id for topic in ripe}
        unshown = ids.keys() - self._growth.shows_deletion(ids, look.source)
        unproven = _Hold(
            f"nothing shows that it was deleted: {source}, or its controllers, may have been restored from an older "
            f"copy of its disks, or formatted (drkit believes a deletion where {source} still holds records that other "
            f"topics took while this mirror saw the topic there, and has had the same active controller since; and "
            "where a broker has run, and this mirror's connection to it has held, since before those records came)"
            f"{self._growth.blind}",
            self._name_it(),
        )
        return dict.fromkeys(unshown, unproven)

    def _name_it(self) -> str:
        return f"To delete it there too: `drkit link acknowledge '{self._link.id}' {DELETION_HELD} --topic NAME`"

    def _why_all_held(self, look: TopicSnapshot) -> _Hold | None:
        link = self._link
        cluster, known = self._source.cluster_id(), known_source_cluster(self._store, link.id)
        if known is not None and known != cluster:
            return _Hold(other_source_cluster(link.id, cluster, known), other_source_remedy(link.id), always=True)
        if look.source_topics == 0:
            return _Hold(f"{link.id.source} has no other topics, so drkit deletes none", self._name_it())
        parted = self._problems.parted()
        if parted:
            return _Hold(
                f"{and_more([str(tp) for tp in parted])} may hold other records on {link.id.source} than were mirrored "
                f"(see its problem), so {link.id.source} may have been restored from an older copy of its disks",
                self._name_it(),
            )
        count = len(self._book.missed) + self._deleted_within_the_hour()
        if count > link.deletion_limit:
            return _Hold(
                f"{counted(count, 'topic')} {'was' if count == 1 else 'were'} deleted within the hour, more than the "
                f"deletion_limit of {link.deletion_limit}",
                self._name_it(),
            )
        return None

    def _deleted_within_the_hour(self) -> int:
        since = now() - _WINDOW
        notes = self._store.notes(self._link.id, _DELETED)
        former = [name for name, when in notes.items() if datetime.fromisoformat(when) < since]
        self._store.forget_notes(self._link.id, _DELETED, former)
        return len(notes) - len(former)

    # -- deleting ----------------------------------------------------------------------------------

    def _delete(self, look: TopicSnapshot, topics: Collection[str]) -> None:
        states = {topic: look.states[topic] for topic in topics}
        there = {s.target_topic: s.target_topic_id for s in states.values() if s.target_topic in look.target}
        unseen = [s.target_topic for s in states.values() if s.target_topic not in look.target]
        failures = self._target.delete_exact(there)
        gone = self._target.absent_everywhere(unseen) if unseen else set()
        for topic, state in states.items():
            name = state.target_topic
            if name in failures:
                self._problems.put(
                    _REFUSED,
                    topic,
                    None,
                    f"{name} can't be deleted on {self._link.id.target}: {failures[name]}",
                    "Allow drkit's principal to delete it, or delete it by hand",
                    halted=False,
                )
            elif name in there or name in gone:
                self._forget(look, topic)

    def _forget(self, look: TopicSnapshot, topic: str) -> None:
        name = look.states[topic].target_topic
        log.warning(
            "%s: %s was deleted on %s, as %s was on the source", self._link.id, name, self._link.id.target, topic
        )
        # by its id: the next topic of that name may be deleted, too
        self._store.put_notes(self._link.id, _DELETED, {look.states[topic].source_topic_id: now().isoformat()})
        self._problems.forget(topic)
        for kind in (SOURCE_SETTINGS, FOLLOWED_SETTINGS, SETTINGS_HELD):
            self._store.forget_notes(self._link.id, kind, [topic])
        forget_topic_notes(self._store, self._link.id, topic)
        self._store.forget_topic(self._link.id, topic)
        del look.states[topic]
        look.changed.pop(topic, None)
        self._book.missed.pop(topic, None)
        self._book.named.discard(topic)
        self._store.forget_notes(self._link.id, DELETION_HELD, [topic])


@dataclass(frozen=True, slots=True)
class _Hold:
    """Why deletions are held. ``NAME`` in the remedy is the topic. `always`: also those that an operator named."""

    reason: str
    remedy: str
    always: bool = False

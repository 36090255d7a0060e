"""Topic sync: the target's topics follow the source's partitions and configuration, before any record.

One look compares all topics of the link on both sides (with a handful of batched requests), changes the target where
needed, and decides which topics may be mirrored, or why not. It deletes nothing on the target unless the link says so
(`topic_deletions`), and mirrors nothing into or out of a topic with another topic id than before.

An unlisted topic counts as gone only when looks have missed it for two seconds: a broker that has just started may know
less than the cluster. A topic that a side doesn't show to drkit's principal is not gone but unknown, and halted until
it is shown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.admin.logs.source_divergence import topic_recreated
from drkit.kafka.admin.topic_requests import Teller, first_within
from drkit.lag.problems_now import source_topic_deleted, target_recreated
from drkit.lag.set_back_check import why_maybe_set_back
from drkit.lag.unmirrored_tail import LinkSides
from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.offset_alignment.aligned_topics import AlignedTopics
from drkit.mirror.topics.acl_sync import AclSync
from drkit.mirror.topics.removing_changes import RemovingChanges
from drkit.mirror.topics.source_growth import SourceGrowth
from drkit.mirror.topics.topic_deletions import TopicDeletions
from drkit.mirror.topics.topic_snapshot import ReadyTopic, TopicSnapshot
from drkit.mirror.topics.topic_writer import PARTITION_MISSING, TopicWriter
from drkit.mirror.transform.rebuild_reasons import PHRASES, how_forwarded
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import (
    SOURCE_TOPIC_DELETED,
    SOURCE_TOPIC_DENIED,
    TARGET_RECREATED,
    TOPIC_RECREATED,
    TopicState,
)
from drkit.model.topic_policy import AclMode
from drkit.model.topics.removing import is_compacted
from drkit.model.topics.standby import READ, SOURCE_SETTINGS, note_of
from drkit.model.topology import Link, LinkId, OffsetMode, TopicPartition, is_canary
from drkit.store.api import Store

__all__ = ["TOPIC_KINDS", "ReadyTopic", "TopicSync"]

log = logging.getLogger(__name__)

_GONE_SECONDS = 2.0
_FRESH_SECONDS = 10.0
"""How long one look creates topics: partitions are started only while both topics are still the observed ones."""

TOPIC_KINDS = frozenset(
    {
        TOPIC_RECREATED,
        TARGET_RECREATED,
        SOURCE_TOPIC_DELETED,
        SOURCE_TOPIC_DENIED,
        "target_topic_denied",
        "target_topic_refused",
        "deletion_held",
        "deletion_refused",
    }
)
"""Problems that a look at the topics finds, and settles when they are over."""
_CREATING = "creating"
"""Kind of the notes that say, by source topic, with which source topic id its target topic is about to be created:
what a mirror has created that is killed before it stores the topic's state is drkit's own."""
FIRST_PARTITIONS = 200
LEAST_PARTITIONS, MOST_PARTITIONS = 25, 1_000
_FAST_SECONDS, _SLOW_SECONDS = 1.0, 2.0


class TopicSync:
    """Keeps the target's topics in step with the source's.

    `in_step`: whether the last look left the leader no topic to bring in step. `decided`: whether each covered topic
    of the source may be mirrored, or a problem says why not; else a topic that isn't listed may be there all the same.

    Args:
        link: which topics, and their names on the target.
        source: the source cluster.
        target: the target cluster.
        store: where topic states are kept, for as long as this worker leads.
        problems: where facts for an operator go.
        links: the configuration's.
        sides: connects to both clusters; None: the target has other writers.
        lease_epoch: that of the leader's lease: at another one, another worker may have led meanwhile.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: Store,
        problems: Problems,
        *,
        links: Sequence[LinkId] = (),
        sides: Callable[[], LinkSides] | None = None,
        lease_epoch: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.in_step = self.decided = False
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._problems = problems
        self._forwarding = how_forwarded(link)
        self._preserves = link.offsets is OffsetMode.PRESERVE and not link.alters
        self._clock = clock
        self._missed: dict[tuple[str, str], float] = {}
        self._briefly = False
        self._last: dict[str, ReadyTopic] = {}
        self._noted: dict[str, str] | None = None
        self._creating: dict[str, str] | None = None
        self._lease_epoch = lease_epoch
        self._read_in = lease_epoch()
        self._waiting = False
        self._tried: set[str] = set()
        self._pace = CreationPace(clock)
        self._growth = SourceGrowth(source)
        leading = problems.through(store)
        self._deletions = (
            TopicDeletions(link, source, target, store, leading, self._growth, clock=clock)
            if link.mirrors_deletions
            else None
        )
        self._acls = (
            AclSync(link, source, target, store, leading, self._growth, links=links, clock=clock)
            if link.acls is not AclMode.OFF
            else None
        )
        self._writer = TopicWriter(
            link,
            target,
            leading,
            lambda topics: why_maybe_set_back(source, link, store, topics, sides),
            RemovingChanges(link, source, store, leading),
        )
        self._aligning = AlignedTopics(link, source, target, store)

    def sync(self, offer: Callable[[dict[str, ReadyTopic]], object] = lambda _ready: None) -> dict[str, ReadyTopic]:
        """Bring the target's topics in step; returns the topics that may be mirrored now.

        Many new topics are created in portions; `offer` gets the topics that may be mirrored before each further
        portion. Topics not created in time are left to the next look (`in_step`), which should follow at once.

        Raises:
            Unreachable: a cluster or the store doesn't answer; completed changes stay.
        """
        began = self._clock()
        self._briefly = False
        if (epoch := self._lease_epoch()) != self._read_in:  # another one may have led, though nothing was followed
            self._read_again()
            self._read_in = epoch
        look = self._observe()
        self._recognize(look)
        missing = {topic for topic in look.source if topic not in look.states or self._must_exist(look, topic)}
        there = look.target.keys() | look.target_denied
        due = [t for t in look.source if t in missing and self._link.target_topic(t) not in there]
        left = [t for t in due if t not in self._tried] or due
        absent, in_time = self._create_some(look, left)
        for topic in look.source:
            self._judge(look, topic)
        self._writer.grow(look)
        self._aligning.settle(look.ready)
        self._writer.configure(look)
        self._aligning.give_back(look)
        self._note_source(look)
        self._note_gone(look)
        self._keep(look)
        if self._acls is not None:
            self._acls.sync(look)
        tried = len(absent)
        while in_time and tried < len(left) and self._clock() - began < _FRESH_SECONDS:
            offer(dict(look.ready))
            absent, in_time = self._create_some(look, left[tried:])
            tried += len(absent)
            for topic in absent:
                self._judge(look, topic)
            self._aligning.settle(look.ready)
            self._note_source(look)
            self._keep(look)
        self.in_step = in_time and tried == len(left)
        # a refused topic delays no other one
        self._tried = set() if self.in_step else {*self._tried, *left[:tried]}
        self.decided = self._all_decided(look)
        return dict(look.ready)

    def _all_decided(self, look: TopicSnapshot) -> bool:
        named = (
            any(self._problems.knows(kind, topic) for kind in TOPIC_KINDS) for topic in look.source.keys() - look.ready
        )
        return not self._briefly and all(named)

    def _create_some(self, look: TopicSnapshot, left: Sequence[str]) -> tuple[list[str], bool]:
        """Create the first of these topics, as many as the pace allows: which ones, and whether they existed in
        time."""
        absent = [info.name for info in first_within((look.source[t] for t in left), self._pace.partitions)]
        if self._preserves:
            self._aligning.begin(look, absent)
        else:
            self._aligning.give_up()
        self._writer.aligning = self._aligning.topics
        return absent, self._create(look, absent)

    def _keep(self, look: TopicSnapshot) -> None:
        """Store the decisions before anything is mirrored by them."""
        if look.changed:
            epochs = {each.topic: each.epoch for each in self._store.topic_states(self._link.id).values()}
            # what an operator accepted as a new topic since the look is decided anew by the next one
            anew = {name for name, state in look.changed.items() if epochs.get(name, state.epoch) > state.epoch}
            self._store.put_topic_states(self._link.id, [look.changed[name] for name in look.changed.keys() - anew])
            look.changed.clear()
            for name in anew:
                look.ready.pop(name, None)
                del look.states[name]
        known = {topic for topic, state in look.states.items() if state.target_topic_id}
        self._forget_announced(known.intersection(self._announced()))
        self._last = look.ready
        self._writer.created.difference_update(look.target)

    def _announced(self) -> dict[str, str]:
        """The notes of what is about to be created."""
        if self._creating is None:
            self._creating = self._store.notes(self._link.id, _CREATING)
        return self._creating

    def _forget_announced(self, topics: Collection[str]) -> None:
        """Forget these notes: the states are stored, or nothing was created."""
        if topics:
            self._store.forget_notes(self._link.id, _CREATING, sorted(topics))
            self._creating = {topic: known for topic, known in self._announced().items() if topic not in topics}

    def _recognize(self, look: TopicSnapshot) -> None:
        """Find the target topics that a mirror created that was killed (or lost the lead) before it stored their
        states: they were announced, and are still empty. Where that isn't known yet, a topic waits."""
        new = [t for t in look.source if t not in look.states or self._must_exist(look, t)]
        names = {topic: self._link.target_topic(topic) for topic in new}
        met = [t for t, name in names.items() if name in look.target and name not in self._writer.created]
        own = [names[topic] for topic in met if self._announced().get(topic) == look.source[topic].topic_id]
        tps = {name: [TopicPartition(name, number) for number in range(look.target[name].partitions)] for name in own}
        ends = self._target.log_ends([tp for its in tps.values() for tp in its], partial=True) if own else {}
        for name in own:
            found = {ends.get(tp) for tp in tps[name]}
            if found == {0}:
                self._writer.created.add(name)
            elif found <= {0, None}:
                log.info("%s: no leader says yet whether %s is empty", self._link.id, name)
                del look.target[name]

    def _create(self, look: TopicSnapshot, absent: Sequence[str]) -> bool:
        """Create topics that the target lacks; False if not all existed in time. Those that the target confirms are
        this mirror's own whenever they appear: the link's other topics don't wait for them.

        Raises:
            Unreachable: the target doesn't answer.
        """
        if not absent:
            return True
        ids = {topic: look.source[topic].topic_id for topic in absent}
        fresh = {topic: known for topic, known in ids.items() if self._announced().get(topic) != known}
        if fresh:
            self._store.put_notes(self._link.id, _CREATING, fresh)
            self._announced().update(fresh)
        try:
            with self._pace.measured(sum(look.source[topic].partitions for topic in absent)):
                created, refused = self._writer.create(look, absent)
        except Unreachable as error:
            log.info(
                "%s: %s is slow to make topics; fewer are asked for: %s", self._link.id, self._link.id.target, error
            )
            look.target.update(self._target.topics(self._writer.created, denied=look.target_denied))
            return False
        for topic in created:
            self._adopt(look, topic, created=True)
        # what is there in their place is somebody else's
        self._forget_announced(fresh.keys() & refused)
        return True

    def follow(self) -> dict[str, ReadyTopic]:
        """The topics that may be mirrored now, as the leading worker has brought them in step.

        Raises:
            Unreachable: a cluster or the store doesn't answer.
        """
        self._briefly = False
        self._read_again()
        look = self._observe()
        self._writer.watch(look)
        awaited = {t for t in look.source if t not in look.states or self._must_exist(look, t)}
        for topic in look.source:
            if topic not in awaited:
                self._judge(look, topic)
        refused = ("target_topic_refused", "target_topic_denied")
        created = all(any(self._problems.knows(kind, topic) for kind in refused) for topic in awaited)
        self.in_step = created and not any(self._awaited_partitions(look, topic) for topic in look.ready)
        self._last = look.ready
        self.decided = self._all_decided(look)
        return dict(look.ready)

    def _read_again(self) -> None:
        """Another worker leads, or has led, and changes the notes."""
        self._noted = self._creating = None
        self._aligning.read_again()
        self._writer.read_again()

    def _awaited_partitions(self, look: TopicSnapshot, topic: str) -> list[int]:
        """The partitions of the source that the leader still has to add on the target: no problem says why it can't."""
        if topic not in look.source:
            return []
        added = range(look.ready[topic].partitions, look.source[topic].partitions)
        return [number for number in added if not self._problems.has(PARTITION_MISSING, TopicPartition(topic, number))]

    def _observe(self) -> TopicSnapshot:
        listed = {name: info for name, info in self._source.topics().items() if not info.internal}
        covered = {name: info for name, info in listed.items() if self._link.mirrors_topic(name)}
        if not covered and not self._waiting:
            log.info("%s: no topic matches yet; waiting for one", self._link.id)
        self._waiting = not covered
        states = self._store.topic_states(self._link.id)
        wanted = {self._link.target_topic(topic) for topic in {*covered, *states}}
        ours: set[str] = set()
        theirs: set[str] = set()
        unlisted = [topic for topic in states if topic not in listed and self._link.mirrors_topic(topic)]
        self._source.topics(unlisted, denied=ours)
        target = self._target.topics(wanted, denied=theirs)
        tellers: set[Teller] = set()
        source_settings = self._source.topic_configs(covered, keys=READ, denied=ours, tellers=tellers)
        target_settings = self._target.topic_configs(target, keys=self._writer.keys(covered), denied=theirs)
        look = TopicSnapshot(
            source={topic: info for topic, info in covered.items() if topic not in ours},
            target={name: info for name, info in target.items() if name not in theirs},
            states=states,
            source_settings=source_settings,
            target_settings=target_settings,
            brokers=len(self._target.brokers()),
            source_topics=sum(not is_canary(topic) for topic in listed),
            source_denied=ours,
            target_denied=theirs,
            source_tellers=frozenset(tellers),
        )
        if self._deletions is not None or self._acls is not None:  # whoever leads later must know it, too
            self._growth.saw(look.source, {state.source_topic_id for state in states.values()})
        return look

    # -- incarnations ------------------------------------------------------------------------------

    def _must_exist(self, look: TopicSnapshot, topic: str) -> bool:
        """Whether an accepted new incarnation lacks its target and must be created again (its state names no
        target)."""
        return look.states[topic].target_topic_id == ""

    def _adopt(self, look: TopicSnapshot, topic: str, *, created: bool) -> None:
        """Note a topic's two incarnations; from now on they must not change."""
        info, target = look.source[topic], look.target[self._link.target_topic(topic)]
        known = look.states.get(topic)
        reason = f"{self._forwarding}; "
        reason += "offsets are preserved" if self._preserves and created else "offsets are translated"
        if self._link.shares_target:
            reason = f"{self._forwarding}; {target.name} has other writers too, so offsets are not translated"
        elif not created:
            reason += f"; {target.name} was on {self._link.id.target} before drkit, and is appended to"
        replicas, due = self._writer.replicas(look, topic)
        if created and replicas < due:
            reason += f"; {self._link.id.target} has brokers for {replicas} of {due} replicas"
        state = TopicState(
            topic=topic,
            target_topic=target.name,
            source_topic_id=info.topic_id,
            target_topic_id=target.topic_id,
            epoch=known.epoch if known is not None else 1,
            partitions=info.partitions,
            created_by_drkit=created,
            reason=reason,
        )
        look.keep(state)

    # -- judging -----------------------------------------------------------------------------------

    def _judge(self, look: TopicSnapshot, topic: str) -> None:
        """Decide whether a topic may be mirrored; if so it is ready."""
        info = look.source[topic]
        name = self._link.target_topic(topic)
        target = look.target.get(name)
        if name in look.target_denied:
            rights = "DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE"
            self._halt_denied("target_topic_denied", topic, f"{name} on {self._link.id.target}", rights)
            return
        if topic not in look.states or self._must_exist(look, topic):
            if target is None:
                return  # could not be created: its problem says why
            self._adopt(look, topic, created=name in self._writer.created)
        state = look.states[topic]
        if state.source_topic_id != info.topic_id:
            by_name = not self._source.reads_by_topic_id
            self._problems.report(topic_recreated(self._link.id, state, info.topic_id, now(), by_name=by_name))
            return
        if target is None or target.topic_id != state.target_topic_id:
            self._halt_target(look, state, target)
            return
        self._missed.pop(("target", topic), None)
        if not state.reason.startswith(self._forwarding):
            others = [each for each in state.reason.split("; ") if not each.startswith(PHRASES)]
            state = replace(state, reason="; ".join([self._forwarding, *others]))
            look.keep(state)
        self._problems.settle(topic, kinds=TOPIC_KINDS)
        settings = look.target_settings.get(target.name) or look.source_settings.get(topic, {})
        look.ready[topic] = ReadyTopic(
            state,
            min(info.partitions, target.partitions),
            int(settings.get("max.message.bytes", 1_048_588)),
            is_compacted(look.source_settings.get(topic, {})),
            preserve=self._preserves,
            alignable=self._preserves
            and state.created_by_drkit
            and (topic in self._aligning.topics or not is_compacted(settings)),
        )

    def _halt_target(self, look: TopicSnapshot, state: TopicState, target: TopicInfo | None) -> None:
        if target is None and self._may_be_there(look, "target", state.topic):
            return
        self._problems.report(target_recreated(self._link.id, state, deleted=target is None, at=now()))

    def _halt_denied(self, kind: str, topic: str, where: str, rights: str) -> None:
        self._problems.put(
            kind,
            topic,
            None,
            f"drkit's principal may not see {where} (TOPIC_AUTHORIZATION_FAILED): whether it is the topic that "
            "was mirrored, or exists at all, is unknown, and nothing of it is mirrored",
            f"Grant drkit's principal {rights} on it (docs/topics.md lists all rights); drkit retries it automatically",
            halted=True,
        )

    def _note_source(self, look: TopicSnapshot) -> None:
        """Store the source's values of the settings that the target gets only at the switch."""
        if self._noted is None:
            self._noted = self._store.notes(self._link.id, SOURCE_SETTINGS)
        policy = self._link.settings_policy
        fresh = {}
        for topic in look.ready:
            if topic in look.source_settings:
                settings = self._writer.as_followed(topic, look.source_settings[topic])
                fresh[topic] = note_of(settings, policy, topic)
        changed = {topic: text for topic, text in fresh.items() if self._noted.get(topic) != text}
        if changed:
            self._store.put_notes(self._link.id, SOURCE_SETTINGS, changed)
            self._noted.update(changed)

    def _note_gone(self, look: TopicSnapshot) -> None:
        for topic in look.source_denied:
            self._missed.pop(("source", topic), None)
            rights = "DESCRIBE, DESCRIBE_CONFIGS and READ"
            self._halt_denied(SOURCE_TOPIC_DENIED, topic, f"{topic} on {self._link.id.source}", rights)
        gone = []
        for topic in look.states:
            if topic in look.source or topic in look.source_denied:
                self._missed.pop(("source", topic), None)
            elif self._link.mirrors_topic(topic) and not self._may_be_there(look, "source", topic):
                gone.append(topic)
        if self._deletions is not None:
            gone = self._deletions.sync(look, gone)
        for topic in gone:
            self._problems.put(
                SOURCE_TOPIC_DELETED,
                topic,
                None,
                *source_topic_deleted(self._link.id, topic),
                halted=False,
            )

    def _may_be_there(self, look: TopicSnapshot, side: str, topic: str) -> bool:
        """Whether an unlisted topic has been missed for a short time only; then its state stays."""
        at = self._clock()
        briefly = at - self._missed.setdefault((side, topic), at) < _GONE_SECONDS
        self._briefly |= briefly
        if briefly and topic in self._last:
            look.ready[topic] = self._last[topic]
        return briefly


class CreationPace:
    """How many partitions are created in one look at the topics, by how long the last ones took. Used by one thread.

    A broker takes from one to fifteen milliseconds to create a partition. What is requested at once must exist before
    the call times out, and the first topics of a large link are mirrored while the others are still being created.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.partitions = FIRST_PARTITIONS
        """So many now (or one topic)."""
        self._clock = clock

    @contextmanager
    def measured(self, asked: int) -> Iterator[None]:
        """Within it so many partitions are created; an error means that they were not there in time."""
        begun = self._clock()
        try:
            yield
        except BaseException:
            self.partitions = max(LEAST_PARTITIONS, self.partitions // 4)
            raise
        took = self._clock() - begun
        if took > _SLOW_SECONDS:
            self.partitions = max(LEAST_PARTITIONS, self.partitions // 2)
        elif took < _FAST_SECONDS and asked > self.partitions // 2:
            self.partitions = min(MOST_PARTITIONS, self.partitions * 2)

"""Topic sync: the target's topics follow the source's, in partitions and configuration, before any record.

One look compares all topics of the link on both sides (a handful of batched requests, however many
topics there are), changes the target where it must, and says which topics may be mirrored and which
stand still and why. Nothing is ever deleted on the target, and nothing is mirrored into or out of a
topic that isn't the one that was mirrored before (Kafka's topic ids tell).

A topic that isn't listed counts as gone only when two looks in a row miss it: a broker that has
just started may know less than the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from drkit.kafka.admin import ClusterAdmin, NewTopic, TopicInfo
from drkit.mirror.problems import Problems
from drkit.mirror.topic_settings import READ, is_compacted, standby_settings
from drkit.model.errors import Refused
from drkit.model.links import TopicState
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import LinkStore

log = logging.getLogger(__name__)

TOPIC_KINDS = frozenset({"topic_recreated", "target_recreated", "source_topic_deleted", "target_topic_refused"})
"""Problems that a look at the topics finds, and settles when they are over."""
_PARTITION_KINDS = frozenset({"partitions_differ", "target_partition_missing"})


@dataclass(frozen=True, slots=True)
class ReadyTopic:
    """A topic that may be mirrored, with what the engine must know of it."""

    state: TopicState
    partitions: int
    max_message_bytes: int
    compacted: bool

    def tps(self) -> list[TopicPartition]:
        """Its partitions, by the source's name."""
        return [TopicPartition(self.state.topic, number) for number in range(self.partitions)]


@dataclass(slots=True)
class _Look:
    """One look: what both sides have, and what comes of it."""

    source: dict[str, TopicInfo]
    target: dict[str, TopicInfo]
    states: dict[str, TopicState]
    source_settings: dict[str, dict[str, str]]
    target_settings: dict[str, dict[str, str]]
    brokers: int
    ready: dict[str, ReadyTopic] = field(default_factory=dict)
    changed: list[TopicState] = field(default_factory=list)


class TopicSync:
    """Keeps the target's topics in step with the source's.

    Args:
        link: which topics, and their names on the target.
        source: the source cluster.
        target: the target cluster.
        store: where topic states are kept.
        problems: where what an operator must know goes.
        engine: the engine's name, for the topic states.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: LinkStore,
        problems: Problems,
        *,
        engine: str,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._problems = problems
        self._engine = engine
        self._missed: set[tuple[str, str]] = set()
        self._last: dict[str, ReadyTopic] = {}
        self._said: set[str] = set()

    def look(self) -> dict[str, ReadyTopic]:
        """Bring the target's topics in step; returns the topics that may be mirrored now.

        Raises:
            Unreachable: a cluster or the store doesn't answer; what was done stays done.
        """
        look = self._observe()
        missing = {topic for topic in look.source if topic not in look.states or self._must_exist(look, topic)}
        self._create(look, [t for t in look.source if t in missing and self._link.target_topic(t) not in look.target])
        for topic in look.source:
            self._judge(look, topic)
        self._grow(look)
        self._configure(look)
        self._note_gone(look)
        if look.changed:
            self._store.put_topic_states(self._link.id, look.changed)
        self._last = look.ready
        return dict(look.ready)

    def _observe(self) -> _Look:
        covered = {
            name: info
            for name, info in self._source.topics().items()
            if self._link.covers_topic(name) and not info.internal
        }
        if not covered:
            self._say_once("nothing", f"{self._link.id}: no topic matches yet; waiting for one")
        states = self._store.topic_states(self._link.id)
        wanted = {self._link.target_topic(topic) for topic in {*covered, *states}}
        target = self._target.topics(wanted)
        return _Look(
            source=covered,
            target=target,
            states=states,
            source_settings=self._source.topic_configs(covered, keys=READ),
            target_settings=self._target.topic_configs(target, keys=READ),
            brokers=len(self._target.brokers()),
        )

    # -- creating ----------------------------------------------------------------------------------

    def _must_exist(self, look: _Look, topic: str) -> bool:
        """An accepted new incarnation whose target is gone is created again (its state names no target)."""
        return look.states[topic].target_topic_id == ""

    def _create(self, look: _Look, topics: Iterable[str]) -> None:
        new = {}
        for topic in topics:
            info = look.source[topic]
            replicas = max(1, min(info.replication_factor, look.brokers))
            settings = standby_settings(look.source_settings.get(topic, {}), None, target_replicas=replicas)
            name = self._link.target_topic(topic)
            new[name] = NewTopic(name, info.partitions, replicas, settings)
            if replicas < info.replication_factor:
                log.info(
                    "%s: %s gets %d replicas, the source has %d", self._link.id, name, replicas, info.replication_factor
                )
        if not new:
            return
        failures = self._target.create_topics(list(new.values()))
        created = self._target.topics([name for name in new if name not in failures])
        look.target.update(created)
        for topic in [topic for topic in look.source if self._link.target_topic(topic) in new]:
            name = self._link.target_topic(topic)
            if name in created:
                log.info("%s: created %s on %s", self._link.id, name, self._link.id.target)
                self._adopt(look, topic, created=True)
            elif name in failures and "ALREADY_EXISTS" not in failures[name]:
                self._problems.put(
                    "target_topic_refused",
                    topic,
                    None,
                    f"{name} can't be created on {self._link.id.target}: {failures[name]}",
                    "Remove the cause named; it is tried again by itself",
                    halted=True,
                )

    def _adopt(self, look: _Look, topic: str, *, created: bool) -> None:
        """Note a topic's two incarnations; from here on they must stay the same."""
        info, target = look.source[topic], look.target[self._link.target_topic(topic)]
        known = look.states.get(topic)
        reason = "offsets are translated"
        if not created:
            reason += f"; {target.name} was on {self._link.id.target} before drkit, and is appended to"
        state = TopicState(
            topic=topic,
            target_topic=target.name,
            source_topic_id=info.topic_id,
            target_topic_id=target.topic_id,
            epoch=known.epoch if known is not None else 1,
            partitions=info.partitions,
            created_by_drkit=created,
            engine=self._engine,
            reason=reason,
        )
        look.states[topic] = state
        look.changed.append(state)

    # -- judging -----------------------------------------------------------------------------------

    def _judge(self, look: _Look, topic: str) -> None:
        """Whether a topic may be mirrored; if so it is ready."""
        info = look.source[topic]
        target = look.target.get(self._link.target_topic(topic))
        if topic not in look.states or self._must_exist(look, topic):
            if target is None:
                return  # could not be created: its problem says why
            self._adopt(look, topic, created=False)
        state = look.states[topic]
        if state.source_topic_id != info.topic_id:
            self._halt_recreated(state, info)
            return
        if target is None or target.topic_id != state.target_topic_id:
            self._halt_target(look, state, target)
            return
        self._missed.discard(("target", topic))
        self._problems.settle(topic, kinds=TOPIC_KINDS)
        settings = look.target_settings.get(target.name) or look.source_settings.get(topic, {})
        look.ready[topic] = ReadyTopic(
            state,
            min(info.partitions, target.partitions),
            int(settings.get("max.message.bytes", 1_048_588)),
            is_compacted(look.source_settings.get(topic, {})),
        )

    def _halt_recreated(self, state: TopicState, info: TopicInfo) -> None:
        self._problems.put(
            "topic_recreated",
            state.topic,
            None,
            f"{state.topic} on {self._link.id.source} is a new topic of the same name "
            f"(id {info.topic_id}, mirrored was {state.source_topic_id}); what was read of it before this was "
            "noticed may be on the target already",
            f"Where that is meant: `drkit link resume '{self._link.id}' --topic {state.topic} --accept-recreated` "
            "mirrors the new topic from its start, behind what the target holds",
            halted=True,
        )

    def _halt_target(self, look: _Look, state: TopicState, target: TopicInfo | None) -> None:
        where = f"{state.target_topic} on {self._link.id.target}"
        if target is None and self._first_miss(look, "target", state.topic):
            return
        self._problems.put(
            "target_recreated",
            state.topic,
            None,
            f"{where} was deleted" if target is None else f"{where} was deleted and created anew, not by drkit",
            f"Find out who did it; then `drkit link resume '{self._link.id}' --topic {state.topic} "
            "--accept-recreated` mirrors the topic from its start again",
            halted=True,
        )

    def _note_gone(self, look: _Look) -> None:
        for topic in look.states:
            if topic in look.source:
                self._missed.discard(("source", topic))
            elif self._link.covers_topic(topic) and not self._first_miss(look, "source", topic):
                self._problems.put(
                    "source_topic_deleted",
                    topic,
                    None,
                    f"{topic} was deleted on {self._link.id.source}; on {self._link.id.target} it stays",
                    "Delete it there by hand if it is to go",
                    halted=False,
                )

    def _first_miss(self, look: _Look, side: str, topic: str) -> bool:
        """Whether a topic is missed for the first time; then it stays as it was in the last look."""
        first = (side, topic) not in self._missed
        self._missed.add((side, topic))
        if first and topic in self._last:
            look.ready[topic] = self._last[topic]
        return first

    # -- following ---------------------------------------------------------------------------------

    def _grow(self, look: _Look) -> None:
        """Partitions added on the source are added on the target."""
        for topic, ready in list(look.ready.items()):
            info, target = look.source.get(topic), look.target.get(ready.state.target_topic)
            if info is None or target is None:
                continue  # not listed this time: it stays as it was
            if target.partitions > info.partitions:
                self._problems.put(
                    "partitions_differ",
                    topic,
                    None,
                    f"{target.name} has {target.partitions} partitions on {self._link.id.target}, "
                    f"{info.partitions} on {self._link.id.source}",
                    "Keys may go to other partitions after a failover: give the source as many",
                    halted=False,
                )
            elif target.partitions < info.partitions:
                try:
                    self._target.add_partitions(target.name, info.partitions)
                except Refused as error:
                    for number in range(target.partitions, info.partitions):
                        self._problems.put(
                            "target_partition_missing",
                            topic,
                            number,
                            error.what,
                            "Remove the cause named; it is tried again by itself",
                            halted=True,
                        )
                    continue
                log.info("%s: %s has %d partitions now", self._link.id, target.name, info.partitions)
                look.ready[topic] = replace(ready, partitions=info.partitions)
            else:
                self._problems.settle(topic, kinds=_PARTITION_KINDS, everywhere=True)
            if ready.state.partitions != info.partitions:
                state = replace(ready.state, partitions=info.partitions)
                look.ready[topic] = replace(look.ready[topic], state=state)
                look.changed = [s for s in look.changed if s.topic != topic] + [state]

    def _configure(self, look: _Look) -> None:
        """Settings changed on the source are set on the target, all topics in one request."""
        wanted: dict[str, Mapping[str, str]] = {}
        for topic, ready in look.ready.items():
            name = ready.state.target_topic
            if name in look.target_settings and topic in look.source_settings:
                replicas = look.target[name].replication_factor
                settings = standby_settings(
                    look.source_settings[topic], look.target_settings[name], target_replicas=replicas
                )
                if settings:
                    wanted[name] = settings
        if not wanted:
            return
        failures = self._target.set_many_topic_configs(wanted)
        for topic, ready in look.ready.items():
            name = ready.state.target_topic
            if name in failures:
                self._problems.put(
                    "target_config_refused",
                    topic,
                    None,
                    f"{self._link.id.target} refuses settings of the source, {dict(wanted[name])}: {failures[name]}",
                    "Remove the cause named; it is tried again by itself",
                    halted=False,
                )
            elif name in wanted:
                changes = ", ".join(f"{key}={value}" for key, value in sorted(wanted[name].items()))
                self._say_once(f"{name}:{changes}", f"{self._link.id}: {name} follows its source: {changes}")
                self._problems.settle(topic, kinds=frozenset({"target_config_refused"}))

    def _say_once(self, key: str, message: str) -> None:
        if key not in self._said:
            self._said.add(key)
            log.info("%s", message)

"""Topic sync's changes to the target: create topics, add partitions, set settings.

Each change is made for all topics at once. If the target refuses one, that is a problem of its topic; the others
continue. A refused override doesn't keep a topic from being created or from following: it is left out, and the refusal
is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from drkit.kafka.admin.cluster_admin import ClusterAdmin, NewTopic
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.removing_changes import RemovingChanges
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.errors import Refused
from drkit.model.link_state import TopicState
from drkit.model.topics.removing import REMOVING
from drkit.model.topics.standby import SettingChanges, settings_to_put, settings_to_read
from drkit.model.topology import Link

log = logging.getLogger(__name__)

PARTITION_MISSING = "target_partition_missing"
_PARTITION_KINDS = frozenset({"partitions_differ", PARTITION_MISSING})
_CONFIG_KINDS = frozenset({"target_config_refused"})
_AGAIN = "Remove the cause named; drkit retries it automatically"


class TopicWriter:
    """See the module docstring. Not thread-safe.

    Args:
        link: names and policies.
        target: the cluster that is changed.
        problems: where refusals go.
        why_set_back: why the source of these topics may have been set back; None: it wasn't.
        changes: which settings that remove more were set on the source.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterAdmin,
        problems: Problems,
        why_set_back: Callable[[Mapping[str, TopicState]], str | None],
        changes: RemovingChanges,
    ) -> None:
        self._link = link
        self._target = target
        self._problems = problems
        self._why_set_back = why_set_back
        self._changes = changes
        self.aligning: set[str] = set()
        """Source topics that must not be compacted yet (`drkit.mirror.resume.offset_alignment.aligned_topics`)."""
        self._said: set[str] = set()
        self.created: set[str] = set()
        """Topics that the target confirmed to have created for this writer; the reader that sees them removes them."""

    def keys(self, topics: Iterable[str]) -> tuple[str, ...]:
        """The settings to read of the target's topics (`settings_to_read`)."""
        return settings_to_read(self._link, topics)

    def replicas(self, look: TopicSnapshot, topic: str) -> tuple[int, int]:
        """How many replicas a new topic gets, and how many it should have."""
        due = self._link.settings_policy.replicas_of(topic) or look.source[topic].replication_factor
        return max(1, min(due, look.brokers)), due

    # -- creating ----------------------------------------------------------------------------------

    def create(self, look: TopicSnapshot, topics: Iterable[str]) -> tuple[list[str], set[str]]:
        """Create these topics on the target, in one request; returns those that exist now, and those that it refused
        to create (or had already)."""
        wanted = {topic: self._new(look, topic) for topic in topics}
        names = {new.name: topic for topic, (new, _) in wanted.items()}
        failures = self._target.create_topics([new for new, _ in wanted.values()], confirmed=self.created)
        plain = [
            NewTopic(new.name, new.partitions, new.replication_factor, settings.followed)
            for new, settings in wanted.values()
            if settings.overridden and failures.get(new.name, "").startswith("INVALID_CONFIG")
        ]
        if plain:
            for new in plain:
                del failures[new.name]
            failures.update(self._target.create_topics(plain, confirmed=self.created))
        denied = look.target_denied
        look.target.update(self._target.topics([name for name in names if name not in failures], denied=denied))
        for name, topic in names.items():
            if name in failures and "ALREADY_EXISTS" not in failures[name]:
                self._problems.put(
                    "target_topic_refused",
                    topic,
                    None,
                    f"{name} can't be created on {self._link.id.target}: {failures[name]}",
                    _AGAIN,
                    halted=True,
                )
            elif name not in failures and name in look.target:
                log.info("%s: created %s on %s", self._link.id, name, self._link.id.target, extra={"topic": topic})
        created = [topic for name, topic in names.items() if name not in failures and name in look.target]
        return created, {topic for name, topic in names.items() if name in failures}

    def _new(self, look: TopicSnapshot, topic: str) -> tuple[NewTopic, SettingChanges]:
        info = look.source[topic]
        replicas, due = self.replicas(look, topic)
        settings = self._settings(look, topic, None, replicas)
        name = self._link.target_topic(topic)
        if replicas < due:
            log.info("%s: %s gets %d replicas instead of %d", self._link.id, name, replicas, due)
        return NewTopic(name, info.partitions, replicas, settings.all), settings

    def _settings(
        self, look: TopicSnapshot, topic: str, target: dict[str, str] | None, replicas: int, *, aligned: bool = False
    ) -> SettingChanges:
        """The settings to put; `aligned`: once nothing is being aligned."""
        return settings_to_put(
            self._link,
            topic,
            look.source_settings.get(topic, {}),
            target,
            target_replicas=replicas,
            aligning=topic in self.aligning and not aligned,
        )

    # -- following ---------------------------------------------------------------------------------

    def grow(self, look: TopicSnapshot) -> None:
        """Add partitions on the target that were added on the source."""
        for topic, ready in list(look.ready.items()):
            info, target = look.source.get(topic), look.target.get(ready.state.target_topic)
            if info is None or target is None:
                continue  # not listed this time: leave it
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
                        self._problems.put(PARTITION_MISSING, topic, number, error.what, _AGAIN, halted=True)
                    continue
                about = {"topic": topic}
                log.info("%s: %s has %d partitions now", self._link.id, target.name, info.partitions, extra=about)
                look.ready[topic] = replace(ready, partitions=info.partitions)
            else:
                self._problems.settle(topic, kinds=_PARTITION_KINDS, everywhere=True)
            if ready.state.partitions != info.partitions:
                state = replace(ready.state, partitions=info.partitions)
                look.ready[topic] = replace(look.ready[topic], state=state)
                look.keep(state)

    def configure(self, look: TopicSnapshot) -> None:
        """Set settings on the target that changed on the source, for all topics in one request.

        Those by which records are removed only once the source was compared, just before, with what was mirrored: it
        may be an older copy of its disks, with older settings, and the target may hold all that is left. The log of its
        controllers may be, alone: so what removes more follows where it was set (`removing_changes`).
        """
        due: dict[str, SettingChanges] = {}
        judged: dict[str, SettingChanges] = {}
        for topic, ready in look.ready.items():
            name = ready.state.target_topic
            if name in look.target_settings and topic in look.source_settings:
                replicas = look.target[name].replication_factor
                due[topic] = self._settings(look, topic, look.target_settings[name], replicas)
                # what doesn't follow while a topic is aligned follows afterwards, or at the switch
                judged[topic] = self._settings(look, topic, look.target_settings[name], replicas, aligned=True)
                self._note_unknown(topic, due[topic])
                if not due[topic].all:
                    self._problems.settle(topic, kinds=_CONFIG_KINDS)
        withheld = self._changes.withheld(look, judged)
        wanted = {
            look.ready[topic].state.target_topic: settings
            if topic in self.aligning
            else settings.without(withheld.get(topic, frozenset()))
            for topic, settings in due.items()
        }
        wanted = {name: settings for name, settings in self._without_removing(look, wanted).items() if settings.all}
        if not wanted:
            return
        failures = self._target.set_many_topic_configs({name: settings.all for name, settings in wanted.items()})
        held_up = {name: s.followed for name, s in wanted.items() if name in failures and s.overridden and s.followed}
        refused = {name: settings.all for name, settings in wanted.items()}
        if held_up:  # retry without the overrides
            again = self._target.set_many_topic_configs(held_up)
            refused.update({name: wanted[name].overridden for name in held_up if name not in again})
        for topic, ready in look.ready.items():
            name = ready.state.target_topic
            if name in failures:
                self._problems.put(
                    "target_config_refused",
                    topic,
                    None,
                    f"{self._link.id.target} refuses settings of {name}, {refused[name]}: {failures[name]}",
                    _AGAIN,
                    halted=False,
                )
            elif name in wanted:
                changes = ", ".join(f"{key}={value}" for key, value in sorted(wanted[name].all.items()))
                self._say_once(f"{name}:{changes}", f"{self._link.id}: {name} is set: {changes}")
                self._problems.settle(topic, kinds=_CONFIG_KINDS)

    def read_again(self) -> None:
        """Another worker leads: forget what was read of the notes."""
        self._changes.read_again()

    def watch(self, look: TopicSnapshot) -> None:
        """As who doesn't lead: note what shows later which settings somebody changed on the source."""
        self._changes.saw(look)

    def as_followed(self, topic: str, settings: Mapping[str, str]) -> dict[str, str]:
        """The source's settings of a topic, with the former values of those that don't follow."""
        return self._changes.as_followed(topic, settings)

    def _without_removing(self, look: TopicSnapshot, wanted: Mapping[str, SettingChanges]) -> dict[str, SettingChanges]:
        """The changes that are put now: without those that remove records, where the source's logs may have been set
        back."""
        put = dict(wanted)
        kept = {name: settings.keeping_records() for name, settings in put.items()}
        if kept == put:
            return put
        parted = self._problems.parted()
        why = f"{parted[0]} may hold other records on {self._link.id.source} than were mirrored" if parted else None
        why = why or self._why_set_back({topic: ready.state for topic, ready in look.ready.items()})
        if why is None:
            return put
        return {name: self._held_back(name, settings, why) for name, settings in put.items()}

    def _held_back(self, name: str, settings: SettingChanges, why: str) -> SettingChanges:
        """A topic's changes without those of the source's by which records are removed, which is told once."""
        if held := ", ".join(sorted(settings.followed.keys() & set(REMOVING))):
            self._say_once(f"{name}:{held}:{why}", f"{self._link.id}: {held} of {name} stay for now: {why}")
        return settings.keeping_records()

    def _note_unknown(self, topic: str, settings: SettingChanges) -> None:
        if not settings.unknown:
            self._problems.settle(topic, kinds=frozenset({"setting_unknown"}))
            return
        self._problems.put(
            "setting_unknown",
            topic,
            None,
            f"the brokers of {self._link.id.target} know no topic setting {', '.join(settings.unknown)}, which "
            "topic_settings puts on this topic",
            "Correct its name in the overrides of the link, and restart the mirror",
            halted=False,
        )

    def _say_once(self, key: str, message: str) -> None:
        if key not in self._said:
            self._said.add(key)
            log.info("%s", message)

"""A snapshot of a link's topics on both sides, and what topic sync decides from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.admin.topic_requests import Teller
from drkit.model.link_state import TopicState
from drkit.model.topology import TopicPartition


@dataclass(frozen=True, slots=True)
class ReadyTopic:
    """A topic that may be mirrored, with what the engine must know of it.

    `preserve`: match holes of the source so that offsets stay equal. `alignable`: fill an empty partition up to the
    offset where the source begins.
    """

    state: TopicState
    partitions: int
    max_message_bytes: int
    compacted: bool
    preserve: bool = False
    alignable: bool = False

    def tps(self) -> list[TopicPartition]:
        """Its partitions that may be mirrored, by the source's name."""
        return [TopicPartition(self.state.topic, number) for number in range(self.partitions)]


@dataclass(slots=True)
class TopicSnapshot:
    """The topics as observed, and the decisions about them. Dictionaries are by source topic, except for the target's.

    `brokers` counts the target's; `source_topics` all topics of the source that aren't
    internal, nor drkit's canaries.
    `source_denied`, `target_denied`: topics that drkit's principal may not see on that side (or not their settings);
    they are in none of the others. `source_tellers`: the broker that told the source's settings (or none). `ready`: the
    topics that may be mirrored. `changed`: states to store.
    """

    source: dict[str, TopicInfo]
    target: dict[str, TopicInfo]
    states: dict[str, TopicState]
    source_settings: dict[str, dict[str, str]]
    target_settings: dict[str, dict[str, str]]
    brokers: int
    source_topics: int
    source_denied: set[str] = field(default_factory=set)
    target_denied: set[str] = field(default_factory=set)
    ready: dict[str, ReadyTopic] = field(default_factory=dict)
    changed: dict[str, TopicState] = field(default_factory=dict)
    source_tellers: frozenset[Teller] = frozenset()

    def keep(self, state: TopicState) -> None:
        """Note a state to be stored at the end of the look."""
        self.states[state.topic] = state
        self.changed[state.topic] = state

"""Compacted topics whose partitions are being aligned: they get `cleanup.policy=compact` only afterwards.

A compacted topic refuses filler (records without a key) and DeleteRecords. So if a source topic is compacted and
doesn't begin at offset 0, its target topic is created with `cleanup.policy=delete` and without any retention. That is
noted first, and lasts until every partition begins where its source begins
(`drkit.mirror.resume.offset_alignment.align_partition`). A failback notes the topics that it recreates likewise; where
nothing configures these afterwards, with their own settings, which they get back then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.topics.topic_snapshot import ReadyTopic, TopicSnapshot
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topics.removing import is_compacted
from drkit.model.topics.standby import ALIGNING, OWN_SETTINGS, UNCOMPACTED, own_settings
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import alignments, forget_alignments

log = logging.getLogger(__name__)


class AlignedTopics:
    """The topics that are being aligned. Not thread-safe.

    Args:
        link: the link.
        source: the source cluster.
        target: the target cluster.
        store: notes, watermarks and rows.
    """

    def __init__(self, link: Link, source: ClusterAdmin, target: ClusterAdmin, store: Store) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._topics: set[str] | None = None
        self._own: dict[str, str] | None = None
        self._known: dict[str, tuple[int, str]] = {}

    @property
    def topics(self) -> set[str]:
        """The topics, by their source's names."""
        if self._topics is None:
            self._topics = set(self._store.notes(self._link.id, ALIGNING))
        return self._topics

    def read_again(self) -> None:
        """Another worker leads, and notes other topics: forget what was read of them."""
        self._topics = self._own = None

    def begin(self, look: TopicSnapshot, topics: Iterable[str]) -> None:
        """Note which of these topics (about to be created) are to be aligned before they are compacted."""
        compacted = [topic for topic in topics if is_compacted(look.source_settings.get(topic, {}))]
        tps = [TopicPartition(topic, number) for topic in compacted for number in range(look.source[topic].partitions)]
        begun = {tp.topic for tp, start in self._source.start_offsets(tps).items() if start > 0} - self.topics
        if begun:
            self._store.put_notes(self._link.id, ALIGNING, dict.fromkeys(begun, ""))
            self.topics.update(begun)

    def settle(self, ready: dict[str, ReadyTopic]) -> None:
        """Forget alignments of earlier topics, and topics whose partitions all begin where their source begins: they
        get their own policy now.
        """
        self._forget_earlier(ready)
        waiting = [topic for topic in self.topics if topic in ready]
        if not waiting:
            return
        watermarks = self._store.watermarks(self._link.id)
        done = []
        for topic in waiting:
            epoch = ready[topic].state.epoch
            for tp in ready[topic].tps():
                mark = watermarks.get(tp)
                if mark is None or mark.epoch != epoch:
                    break
                row = self._store.floor_mapping(self._link.id, tp, epoch, mark.source_through)
                if row is None or not _is_aligned(mark, row):
                    break
            else:
                done.append(topic)
        if done:
            self._forget(done)
            log.info("%s: aligned with their source: %s", self._link.id, ", ".join(sorted(done)))

    def _forget_earlier(self, ready: dict[str, ReadyTopic]) -> None:
        """Forget alignments of recreated topics. Others stay: a broker may forget that filler was removed."""
        now = {topic: (each.state.epoch, each.state.target_topic_id) for topic, each in ready.items()}
        if now.items() <= self._known.items():
            return
        self._known.update(now)
        noted = alignments(self._store, self._link.id)
        earlier = [
            tp for tp, each in noted.items() if tp.topic in now and now[tp.topic] != (each.epoch, each.target_topic_id)
        ]
        forget_alignments(self._store, self._link.id, earlier)

    def give_up(self) -> None:
        """Stop waiting for noted topics: offsets aren't preserved here."""
        if self.topics:
            self._forget(sorted(self.topics))

    def give_back(self, look: TopicSnapshot) -> None:
        """Restore the own settings of topics that are aligned and have their final clean-up policy.

        Not on a way back, where all settings follow the source: once the configuration names this direction.
        """
        if self._link.inverse:
            return
        if self._own is None:
            self._own = self._store.notes(self._link.id, OWN_SETTINGS)
        waiting = [topic for topic in self._own if topic in look.ready and topic in look.source_settings]
        names = {topic: look.ready[topic].state.target_topic for topic in waiting if topic not in self.topics}
        if not names:
            return
        effective = self._target.topic_configs(names.values(), keys=tuple(UNCOMPACTED))
        due: dict[str, dict[str, str]] = {}
        for topic, name in names.items():
            source, policy = look.source_settings[topic], self._link.settings_policy
            own = own_settings(self._own[topic], topic, source, effective.get(name, {}), policy)
            if own is not None:
                due[topic] = own
        failures = self._target.set_many_topic_configs({names[topic]: own for topic, own in due.items()})
        for name, why in failures.items():
            log.warning("%s: %s refuses its own settings: %s", self._link.id, name, why)
        done = [topic for topic in due if names[topic] not in failures]
        self._store.forget_notes(self._link.id, OWN_SETTINGS, done)
        for topic in done:
            del self._own[topic]

    def _forget(self, topics: Sequence[str]) -> None:
        self._store.forget_notes(self._link.id, ALIGNING, topics)
        self.topics.difference_update(topics)


def _is_aligned(mark: Watermark, row: OffsetMapping) -> bool:
    """Whether a partition is filled and the filler removed: records were mirrored, or the log starts after it."""
    begun = mark.source_through > row.source_offset
    return mark.target_end >= row.target_offset and (begun or mark.target_start >= row.target_offset)

"""An offset alignment: which stretch of a target partition may hold filler. Pure.

It is noted before the first filler is written, and stays noted as long as the topic is mirrored: a broker that is
killed may show again what was removed. So whoever comes later (the next mirror, a failover) knows what may be removed.
What isn't noted here is nobody's filler.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from drkit.model.topology import TopicPartition


@dataclass(frozen=True, slots=True)
class Alignment:
    """The target partition is filled from `begin` (its log end at the start) up to `end` (exclusive).

    `tp` is the source's partition. `epoch`, `target_topic_id`: the incarnations that it holds for; `producer_id`: the
    link's, with which all of the filler is written.
    """

    tp: TopicPartition
    epoch: int
    target_topic: str
    target_topic_id: str
    producer_id: int
    begin: int
    end: int

    @property
    def target_tp(self) -> TopicPartition:
        """The partition that is filled."""
        return TopicPartition(self.target_topic, self.tp.partition)

    @property
    def name(self) -> str:
        """The note's name: no topic's name holds a colon."""
        return note_name(self.tp)

    def note(self) -> str:
        """The note's text."""
        return json.dumps(asdict(self) | {"tp": list(self.tp)}, sort_keys=True)


def note_name(tp: TopicPartition) -> str:
    """The name of a partition's note."""
    return f"{tp.topic}:{tp.partition}"


def read_alignment(text: str) -> Alignment:
    """What `Alignment.note` wrote."""
    fields = json.loads(text)
    return Alignment(**fields | {"tp": TopicPartition(*fields["tp"])})

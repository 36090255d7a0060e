"""An offset alignment: the range of a target partition that may hold filler. Pure.

It is noted before the first filler is written, and the note stays as long as the topic is mirrored: a broker that is
killed may show removed filler again. The note tells the next mirror or a failover what it may remove. Filler exists
only where a note says so.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from drkit.model.topology import TopicPartition


@dataclass(frozen=True, slots=True)
class Alignment:
    """The target partition is filled from `begin` (its log end at the start) up to `end` (exclusive).

    `tp` is the source's partition. `epoch`, `target_topic_id`: the incarnations that it is valid for; `producer_id`:
    the link's producer id, which wrote all of the filler.
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
        """The note's name; unambiguous, because topic names hold no colon."""
        return note_name(self.tp)

    def note(self) -> str:
        """The note's text."""
        return json.dumps(asdict(self) | {"tp": list(self.tp)}, sort_keys=True)


def note_name(tp: TopicPartition) -> str:
    """The name of a partition's note."""
    return f"{tp.topic}:{tp.partition}"


def read_alignment(text: str) -> Alignment:
    """Read what `Alignment.note` wrote."""
    fields = json.loads(text)
    return Alignment(**fields | {"tp": TopicPartition(*fields["tp"])})

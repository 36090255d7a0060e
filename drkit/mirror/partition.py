"""What the record engine keeps of one partition while it mirrors it."""

from __future__ import annotations

from confluent_kafka import Message

from drkit.mirror.engine import Incident, PartitionStart
from drkit.mirror.inflight import InFlight
from drkit.mirror.producers import Producers


class MirroredPartition:
    """One partition since it was started; starting it anew makes a new object, so late reports can't mix in.

    `outstanding`: stretches handed over whose delivery report hasn't come, counted whatever becomes of
    the window. `incident`: why it stands still; told to the runtime once nothing is outstanding.
    """

    __slots__ = (
        "batch",
        "batch_bytes",
        "delta",
        "end",
        "epoch",
        "gentle",
        "held",
        "incident",
        "next_source",
        "next_target",
        "outstanding",
        "reading",
        "target_topic",
        "tp",
        "window",
    )

    def __init__(self, start: PartitionStart, gently: int) -> None:
        self.tp = start.tp
        self.target_topic = start.target_topic
        self.epoch = start.epoch
        self.batch_bytes = Producers.batch_bytes(start.max_message_bytes)
        self.delta = start.delta
        self.next_source = start.source_offset
        self.next_target = start.target_offset
        self.window = InFlight(start.source_offset, start.target_offset)
        self.gentle = gently
        self.batch: list[Message] = []
        self.end = -1
        self.outstanding = 0
        self.incident: Incident | None = None
        self.reading = False
        self.held = False

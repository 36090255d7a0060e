"""Groups that drkit can't move because their positions aren't committed offsets: above all share groups (KIP-932).

Share consumers acknowledge single records; for each partition the brokers keep the offset below which all are done
(the share-partition start offset) and the state of the records above it. No request moves that state to another
cluster. An operator can only set the start offset there, by time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from drkit.model.topology import TopicPartition

SHARE = "share"


@dataclass(frozen=True, slots=True)
class UnmovableGroup:
    """One such group as last seen on the source.

    Args:
        type: as the coordinator lists it: ``share``, or a type unknown to this version of drkit.
        starts: for a share group, by partition (source topic), the offset below which all records are done, or None.
    """

    group: str
    type: str
    starts: Mapping[TopicPartition, int | None]
    captured_at: datetime

    def why(self, target: str, tp: TopicPartition | None = None) -> str:
        """Why it has no position on the target, and what an operator can do there (`tp`: the partition, by target
        topic)."""
        if self.type != SHARE:
            return (
                f"a group of type {self.type}, which this drkit doesn't know: its position isn't captured; set it "
                f"on {target} with the tool for that type before its members start"
            )
        topic = "TOPIC" if tp is None else f"{tp.topic}:{tp.partition}"
        return (
            "a share group (KIP-932): it keeps no committed offset, and the state of its records can't be moved. "
            f"Before its consumers start on {target}: kafka-share-groups.sh --bootstrap-server SERVERS-OF-{target} "
            f"--group {self.group} --topic {topic} --reset-offsets --to-earliest (or --to-datetime TIME: before the "
            "first record that is not done) --execute; else its share.auto.offset.reset decides (latest, unless set)"
        )

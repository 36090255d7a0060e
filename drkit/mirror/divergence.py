"""Whether a source lost what was mirrored of it, told by leader epochs; never guessed.

A log that ends below what was mirrored was cut: everybody can see that. Once it has grown beyond that
point again, its end says nothing; its history of leader epochs (KIP-101) does. Every batch below a
watermark's `source_through` is of its `leader_epoch` or an older one. So on a source that is whole, that
epoch ends at or above `source_through`. Where it ends below, a leader was elected that hadn't got the
records between (an unclean election), and what stands at their offsets now, on the source, are others.

    mirrored        0 ─── epoch 3 ─── 80 ─── epoch 3 ─── 100        source_through 100, leader_epoch 3
    source now      0 ─── epoch 3 ─── 80 ─── epoch 4 ─────────── 130        epoch 3 ends at 80: 20 lost

A leader that keeps no such history (it was cut off by retention, old log formats) proves nothing: no
divergence is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from drkit.kafka.admin import ClusterAdmin
from drkit.kafka.epochs import EpochEnd
from drkit.model.links import SOURCE_TRUNCATED
from drkit.model.topology import LinkId, TopicPartition

KIND = SOURCE_TRUNCATED
"""Kind of the problem; the partition stands still."""


class Mirrored(NamedTuple):
    """How far a partition is mirrored (exclusive), and the leader epoch of the last batch (None: not known)."""

    through: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Divergence:
    """A partition whose source lost offsets `kept` to `through` - 1 after they were mirrored.

    `epoch`: the leader epoch that they were written in.
    """

    tp: TopicPartition
    through: int
    kept: int
    epoch: int

    def reason(self, link: LinkId) -> str:
        """What happened, for the problem."""
        return (
            f"{self.tp} on {link.source} lost offsets {self.kept} to {self.through - 1} after they were mirrored: "
            f"leader epoch {self.epoch} ends at {self.kept} there, and other records may stand in their place"
        )

    @property
    def unsure(self) -> tuple[int, None]:
        """The source offsets whose place on the target isn't exact (`Problem.unsure_from`)."""
        return (self.kept, None)

    def remedy(self, link: LinkId) -> str:
        """What to do, for the problem."""
        return (
            f"The lost records are on {link.target}, and the two sides differ from offset {self.kept} on. Find out why "
            f"{link.source} lost them (an unclean leader election?); then fail over, or start anew with "
            f"`drkit link resume '{link}' --topic {self.tp.topic} --accept-recreated`"
        )


def diverged(mirrored: Mapping[TopicPartition, Mirrored], ends: Mapping[TopicPartition, EpochEnd]) -> list[Divergence]:
    """Those that lost something, given where the source says that their epochs end. Pure."""
    found = []
    for tp, (through, epoch) in sorted(mirrored.items()):
        end = ends.get(tp)
        if epoch is not None and end is not None and end.end < through:
            found.append(Divergence(tp, through, end.end, epoch))
    return found


def find_divergences(source: ClusterAdmin, mirrored: Mapping[TopicPartition, Mirrored]) -> list[Divergence]:
    """Ask the source where the epochs of these partitions end, and compare.

    Partitions without a known epoch, without a leader, or gone are passed over.

    Raises:
        Unreachable: nobody answers.
    """
    epochs = {tp: each.leader_epoch for tp, each in mirrored.items() if each.leader_epoch is not None}
    return diverged(mirrored, source.epoch_ends(epochs)) if epochs else []

"""Whether a source lost what was mirrored of it, told by leader epochs; never guessed. Pure.

A log that ends below what was mirrored was cut: everybody can see that. Once it has grown beyond that point again, its
end says nothing; its history of leader epochs (KIP-101) does. A watermark keeps the leader epoch of the last batch
below its `source_through`. On a source that is whole that epoch is known and ends there or above. Where it ends below,
a leader was elected that hadn't got the records between (an unclean election), and what stands at their offsets now, on
the source, are others. Where it isn't known although the log is long enough, an older log came back.

    mirrored        0 ─── epoch 3 ─── 80 ─── epoch 3 ─── 100        source_through 100, leader_epoch 3
    source now      0 ─── epoch 3 ─── 80 ─── epoch 4 ─────────── 130        epoch 3 ends at 80: 20 lost
    or              0 ─── epoch 2 ───────────────── 110 ─ epoch 4 ── 130        epoch 3 isn't known: some lost

While a partition is read, the broker itself compares with each Fetch (KIP-595) and gives nothing of a log that differs;
before it is read, wherever it goes on, this is asked. A leader without any history of epochs (old log formats) proves
nothing: no divergence is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkit.kafka.admin.leader_epochs import EpochEnd, KeptEpochs, kept_of
from drkit.model.link_state import SOURCE_TRUNCATED
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

KIND = SOURCE_TRUNCATED
"""Kind of the problem; the partition stands still until an operator decides."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A partition whose source lost what was mirrored of it, through offset `through` - 1 and from `kept` on.

    `epoch`: the leader epoch of the last batch mirrored; None where only the log's end tells.
    """

    tp: TopicPartition
    through: int
    target_end: int
    kept: KeptEpochs
    epoch: int | None

    def reason(self, link: LinkId) -> str:
        """What happened, for the problem."""
        first, last = self.kept.offset, self.through - 1
        if self.epoch is None:
            why = f"its log ends at {first} there"
        elif self.kept.exact:
            why = f"leader epoch {self.epoch} ends at {first} there, and other records may stand in their place"
        else:
            why = f"its log there doesn't know leader epoch {self.epoch}, in which the last of them was written"
        lost = f"offsets {first} to {last}" if first <= last else f"offsets below {self.through}"
        also = "" if self.kept.exact else ", and maybe earlier ones,"
        return f"{self.tp} on {link.source} lost {lost}{also} after they were mirrored: {why}"

    @property
    def unsure(self) -> tuple[int, None]:
        """The source offsets whose place on the target isn't exact (`Problem.unsure_from`)."""
        return (self.kept.offset if self.kept.exact else 0, None)

    def remedy(self, link: LinkId) -> str:
        """What to do, for the problem."""
        return (
            f"The lost records are on {link.target} only. Find out why {link.source} lost them (an unclean leader "
            f"election, a disk?). To continue with what {link.target} holds: `drkit failover --to {link.target}`. To "
            f"continue with what {link.source} has: `drkit link resume '{link}' --topic {self.tp.topic} "
            f"--accept-recreated` mirrors the whole topic again, behind what {link.target} holds of it "
            f"({self.target_end} offsets of "
            f"partition {self.tp.partition}, which stay); to have exactly the source's records there, delete the topic "
            f"on {link.target} first"
        )


def divergence(mirrored: Watermark, end: EpochEnd | None, log_end: int) -> Divergence | None:
    """Whether a source lost something of what was mirrored.

    Args:
        mirrored: the watermark.
        end: what the source's leader answers for the watermark's leader epoch; None where that isn't known.
        log_end: the source's high watermark.
    """
    epoch = mirrored.leader_epoch
    if epoch is not None and end is not None and end.end >= 0:
        kept = kept_of(mirrored.source_through, epoch, end)
        return None if kept is None else _divergence(mirrored, kept, epoch)
    if log_end < mirrored.source_through:
        return _divergence(mirrored, KeptEpochs(log_end, exact=True), None)
    return None


def _divergence(mirrored: Watermark, kept: KeptEpochs, epoch: int | None) -> Divergence:
    return Divergence(mirrored.tp, mirrored.source_through, mirrored.target_end, kept, epoch)

"""Digests of ranges that a mirror forwarded: with them an audit can prove the target by reading it alone.

A range covers record batches that were forwarded byte for byte with one delta. Its digest is the sum (modulo 2**128)
of its batches' digests, each over the batch's first target offset, the header fields that its records are read by, and
the records' bytes (`drkit.kafka.protocol.record_batch`). So it binds every record and its offset, and ignores what
lies between batches (markers, which hold no records).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from drkit.model.offsets import SourceBatch
from drkit.model.topology import TopicPartition

DIGEST_MASK = (1 << 128) - 1
"""Digests are added modulo this and one."""


@dataclass(frozen=True, slots=True, order=True)
class RangeDigest:
    """One range: target offsets [target_start, target_end), whose only content is batches with `records` records.

    The record at `source_start` is at `target_start`, and the delta holds for the whole range. `batch_crc`: the
    checksum of the source's batch that ends the range (`source_batch`). `generation`: that of the claim under which it
    was written; the store fills it in.
    """

    topic: str
    partition: int
    epoch: int
    target_start: int
    target_end: int
    source_start: int
    batches: int
    records: int
    digest: int
    batch_crc: int
    generation: int = 0

    @property
    def tp(self) -> TopicPartition:
        """The partition, by its source topic."""
        return TopicPartition(self.topic, self.partition)

    @property
    def delta(self) -> int:
        """Target offset minus source offset, for the whole range."""
        return self.target_start - self.source_start

    @property
    def source_end(self) -> int:
        """The source offset (exclusive) at which it ends."""
        return self.target_end - self.delta

    @property
    def source_batch(self) -> SourceBatch:
        """The source's batch that ends it: a source that still holds it holds all of the range (or has removed its
        beginning, as retention does)."""
        return SourceBatch(self.source_end - 1, self.batch_crc)


class Uncovered(StrEnum):
    """Why records were compared on both sides although the audit was to use digests."""

    NO_DIGEST = "no_digest"  # the mirror kept none of them
    DIFFERS = "differs"  # the target's batches don't add up to the digest
    BEYOND_END = "beyond_end"  # a log ends within the range
    TARGET_RETIRED = "target_retired"  # the target's log begins within the range
    COMPACTED = "compacted"  # the topic is compacted, so records in the range may be removed
    MAPPING = "mapping"  # the mapping rows place the range elsewhere
    SOURCE_DIVERGED = "source_diverged"  # nothing shows that the source still holds what the mirror read there


@dataclass(frozen=True, slots=True)
class NotCovered:
    """How many source offsets, in how many ranges, were compared on both sides for this reason."""

    reason: Uncovered
    stretches: int
    offsets: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an audit by digest read only on the target (`proven` records in `ranges`), and what it read on both
    sides."""

    proven: int
    ranges: int
    not_covered: tuple[NotCovered, ...]

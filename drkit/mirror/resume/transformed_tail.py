"""Verifies the tail of a link that alters records: that the target holds what the link makes of its source.

With provenance each record on the target names its source record. That record may have been replaced (a source that
lost its end and grew again), so the comparison is always with what the link makes of the current source record: its
callables are called again, and must always give the same result.
"""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Message

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.transform.provenance import Hop, last_hop
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed, as_record
from drkit.mirror.resume.copied_run import CopiedRun
from drkit.mirror.resume.offset_alignment.shifted_tail import Realigned
from drkit.mirror.resume.tail_verification import Difference, Tail, TailVerifier, compare
from drkit.model.topology import Link


class AlteredTailVerifier(TailVerifier):
    """Like `TailVerifier`.

    Args:
        source, target: the clusters.
        link: the link.
        alteration: what the link changes in records.
    """

    alteration: Alteration

    def __init__(self, source: ClusterConfig, target: ClusterConfig, link: Link, alteration: Alteration) -> None:
        super().__init__(source, target, committed=link.committed)
        self._link = link
        self.alteration = alteration

    def difference(self, tail: Tail, mirrored: int) -> Difference | None:
        """See `TailVerifier.difference`."""
        begin = max(tail.begin, tail.target_start)
        if begin >= tail.end:
            return None
        if self._link.provenance:
            named = compare_provenance(tail, begin, self._ours(tail, begin, mirrored), self.alteration.source_id)
            if named is not None:
                return named
        first, last = max(tail.source_of(begin), tail.source_start), tail.source_of(tail.end - 1)
        end = min(last + 1, tail.source_end)
        theirs = self._read(self._source, tail.tp.topic, tail.tp.partition, first, end, self._isolation)
        try:
            found = compare(tail, begin, self._ours(tail, begin, mirrored), altered(theirs, self.alteration))
        except AlterationFailed as error:
            return Difference(begin, f"what it holds can't be checked: {error}")
        if found is None:
            return None
        if not self.alteration.callables:
            return found
        why = "compared with what filter and transform answer now: they must always answer the same"
        return Difference(found.target_offset, f"{found.what} ({why})")

    def copied_run(
        self,
        tail: Tail,  # noqa: ARG002 - as the base's
        source_offset: int,  # noqa: ARG002 - as above
        source_end: int,  # noqa: ARG002 - as above
    ) -> CopiedRun | None:
        """None: altered records can't be found by the source's content; the partition fails closed."""
        return None

    def realigned(
        self,
        tail: Tail,  # noqa: ARG002 - as the base's
        source_offset: int,  # noqa: ARG002 - as above
        source_end: int,  # noqa: ARG002 - as above
        delta: int | None,  # noqa: ARG002 - as above
    ) -> Realigned | None:
        """None: such links write no markers that could shift it."""
        return None


def altered(records: Iterator[Message], alteration: Alteration) -> Iterator[Message]:
    """These source records as the link makes them, without those that it leaves out.

    Raises:
        AlterationFailed: a callable raised or returned something else.
    """
    for message in records:
        record = alteration.apply(as_record(message))
        if record is None:
            continue
        message.set_key(record.key)
        message.set_value(record.value)
        message.set_headers(list(record.headers))
        yield message


def compare_provenance(tail: Tail, begin: int, ours: Iterator[Message], source_id: str) -> Difference | None:
    """Walk the target's records from `begin` on: each must name the source record that the mapping gives it."""
    due = begin
    for record in ours:
        offset = int(record.offset() or 0)
        if offset != due and not tail.compacted:
            return Difference(due, f"target offset {due} holds no record")
        due = offset + 1
        wanted = Hop(source_id, tail.tp.topic, tail.tp.partition, tail.source_of(offset))
        found = last_hop(record.headers() or [])  # type: ignore[arg-type]  # bytes, as they were consumed
        if found != wanted:
            what = "names no record that it was mirrored from" if found is None else f"was mirrored from {found}"
            return Difference(offset, f"target offset {offset} stands for source offset {wanted.offset}, but {what}")
    if due < tail.end and not tail.compacted:
        return Difference(due, f"target offset {due} holds no record")
    return None

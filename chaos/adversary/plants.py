"""Planted defects: small patches of drkit, each of which the adversary must find (seeds: docs/soak.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from chaos.adversary.fault_points import patch

_PATCHED: list[Callable[[], None]] = []


def _put(place: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    _PATCHED.append(patch(place, make))


def _answers(result: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace a function with one that returns this value."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(plain)(lambda *_, **__: result)

    return make


def epochs_not_compared() -> None:
    """Neither a start nor the broker at each Fetch compares leader epochs, and no start compares the last record."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda partition, offset, max_bytes, *_, **__: plain(partition, offset, max_bytes)

    _put("drkit.mirror.resume.partition_resume:divergence", _answers(None))
    _put("drkit.mirror.resume.partition_resume:Resumer._doubted", _answers(frozenset()))
    _put("drkit.mirror.engine.fetcher:FetchPlace", make)


def filler_too_large() -> None:
    """Filler has the maximum size, regardless of the topic's limit; refused filler stays so large, unreported."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, *wanted: plain(10_000_000, *wanted)

    _put("drkit.mirror.resume.offset_alignment.align_partition:filler_count", make)
    _put("drkit.mirror.resume.offset_alignment.fill_decision:filler_count", make)
    _put("drkit.mirror.engine.engine_state:BatchLimits.lower", _answers(None))
    _put("drkit.mirror.health.stalls:Stalls.check", _answers(None))


def ends_not_looked_at() -> None:
    """The target's log end is never read, when idle or before the first append, and every batch counts as appended at
    its expected offset.
    """

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def acknowledge(window: Any, mark: Any, _: int) -> Any:
            return plain(window, mark, mark.after.target_end - 1)

        return acknowledge

    _put("drkit.mirror.health.truncation_watches:TargetEnds.check", _answers(()))
    _put("drkit.mirror.engine.partition_state:BatchPartition.end_is_known", _answers(True))
    _put("drkit.mirror.engine.inflight_window:InFlight.acknowledge", make)


def appends_without_a_condition() -> None:
    """Batches have no producer id, so that a broker accepts those of a late worker."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def header(**fields: Any) -> Any:
            return plain(**fields | {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1})

        return header

    _put("drkit.mirror.engine.partition_state:header", make)


def trimmed_without_proof() -> None:
    """All records below the source's start count as filler, regardless of their writer and of what is recorded."""

    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.model.link_state import Alignment  # noqa: PLC0415 - after the clocks are set

        def begun(decision: Any, seen: Any) -> Alignment:
            state = seen.topic.state
            below = seen.source_start if seen.watermark is None else seen.watermark.source_through
            number = decision._producer.id()  # noqa: SLF001 - it stands in its place
            return Alignment(seen.tp, state.epoch, state.target_topic, state.target_topic_id, number, 0, below)

        return begun

    _put("drkit.mirror.resume.offset_alignment.fill_decision:FillDecision._begun", make)
    _put("drkit.kafka.client.filler:FillerTrimmer._stranger", _answers(None))


def filler_stays() -> None:
    """The filler of an alignment isn't removed."""
    _put("drkit.kafka.client.filler:FillerTrimmer.trim", _answers(None))


def _compression_followed() -> None:
    """A standby's topics have the `compression.type` of the source or of the link's overrides, not `producer`."""
    nothing: Any = "-"
    _put("drkit.model.topics.standby:COMPRESSION", lambda _: nothing)


def filler_stays_at_failover() -> None:
    """The filler of an alignment that isn't finished is left to consumers by a failover."""
    _put("drkit.failover.stages.failover_stages:trim_filler", _answers(""))
    _put("drkit.failover.stages.failover_stages:trimmed_again", _answers(""))


def filler_known_by_its_bytes() -> None:
    """Filler that the target's broker compressed again isn't recognised."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.kafka.client.filler import filler_payload  # noqa: PLC0415 - after the clocks are set

        @wraps(plain)
        def is_filler(batch: Any, producers: Any) -> bool:
            return bool(plain(batch, producers)) and batch.records == filler_payload(batch.records_count)

        return is_filler

    _compression_followed()
    _put("drkit.kafka.client.filler:is_filler", make)


def compressed_by_the_target() -> None:
    """The target's broker compresses batches again, which may make them too large; a refused size is tried again,
    unreported.
    """
    _compression_followed()
    _put("drkit.mirror.engine.engine_state:BatchLimits.lower", _answers(None))
    _put("drkit.mirror.health.stalls:Stalls.check", _answers(None))


def digests_believed() -> None:
    """An audit by digests doesn't ask whether the source still holds what they were made of, nor compares it."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def source_held(*known: Any) -> dict[Any, int]:
            return dict.fromkeys(plain(*known), 2**63 - 1)

        return source_held

    _put("drkit.audit.compare.scope:source_held", make)


def problems_not_heeded() -> None:
    """A position that is exact by the mapping is reported as exact, regardless of recorded problems."""
    _put("drkit.mapping.store_translator:heed", lambda _: lambda answer, *__: answer)


def ends_always_stable() -> None:
    """The source ends at its last stable offset, even if a link mirrors uncommitted records."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def end_offsets(admin: Any, tps: Any, *, partial: bool = False, **_: Any) -> Any:
            return plain(admin, tps, committed=True, partial=partial)

        return end_offsets

    _put("drkit.kafka.admin.cluster_admin:ClusterAdmin.end_offsets", make)


def purges_not_seen() -> None:
    """The target's log start is never checked."""
    _put("drkit.mirror.health.purge_watch:PurgeWatch.check", _answers(None))


def held_not_compared() -> None:
    """Partitions that no mirror fetches are never compared with their source."""
    _put("drkit.lag.problems_now:_unwatched", _answers(False))


def read_past_what_is_refused() -> None:
    """Records after one that can't be appended are appended, and that one counts as a hole."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def follows(admission: Any, read: Any) -> bool:
            partition = read.partition
            ending, partition.ending = partition.ending, None
            try:
                return bool(plain(admission, read))
            finally:
                partition.ending = partition.ending or ending

        return follows

    _put("drkit.mirror.engine.admission:Admission._follows", make)


def away_not_looked_at() -> None:
    """Reading from a broker that was down continues as if nothing had happened to it."""
    _put("drkit.mirror.engine.fetcher:Fetcher._look_again_where_away", _answers(None))


PLANTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        epochs_not_compared,
        filler_too_large,
        ends_not_looked_at,
        appends_without_a_condition,
        trimmed_without_proof,
        filler_stays,
        filler_stays_at_failover,
        filler_known_by_its_bytes,
        compressed_by_the_target,
        digests_believed,
        problems_not_heeded,
        ends_always_stable,
        purges_not_seen,
        held_not_compared,
        read_past_what_is_refused,
        away_not_looked_at,
    )
}
"""The functions that plant a defect in this process, by its name."""


def plant(names: str) -> None:
    """Plant defects (names separated by commas) in this process; "-": none."""
    for name in names.split(",") if names != "-" else ():
        PLANTS[name]()


def unplant() -> None:
    """Remove the planted defects from this process."""
    while _PATCHED:
        _PATCHED.pop()()

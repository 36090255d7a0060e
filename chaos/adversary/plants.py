"""Defects put back on purpose, as small patches of drkit: the adversary must find each (seeds: docs/soak.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from chaos.adversary.fault_points import patch

_PATCHED: list[Callable[[], None]] = []


def _put(place: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    _PATCHED.append(patch(place, make))


def _answers(result: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Instead of what a function does: this answer."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(plain)(lambda *_, **__: result)

    return make


def epochs_not_compared() -> None:
    """Neither a start nor the broker with each Fetch compares leader epochs, and no start compares the last record."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda partition, offset, max_bytes, *_, **__: plain(partition, offset, max_bytes)

    _put("drkit.mirror.resume.partition_resume:divergence", _answers(None))
    _put("drkit.mirror.resume.partition_resume:Resumer._doubted", _answers(frozenset()))
    _put("drkit.mirror.engine.fetcher:FetchPlace", make)


def filler_too_large() -> None:
    """Filler is as large as it can be, whatever the topic takes; what is refused stays so large, and nobody is told."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, *wanted: plain(10_000_000, *wanted)

    _put("drkit.mirror.resume.offset_alignment.align_partition:filler_count", make)
    _put("drkit.mirror.resume.offset_alignment.fill_decision:filler_count", make)
    _put("drkit.mirror.engine.engine_state:BatchLimits.lower", _answers(None))
    _put("drkit.mirror.health.stalls:Stalls.check", _answers(None))


def ends_not_looked_at() -> None:
    """Nobody asks where the target's log ends, at rest or before the first append, and all counts as landed at its
    place.
    """

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def acknowledge(window: Any, mark: Any, _: int) -> Any:
            return plain(window, mark, mark.after.target_end - 1)

        return acknowledge

    _put("drkit.mirror.health.truncation_watches:TargetEnds.check", _answers(()))
    _put("drkit.mirror.engine.partition_queue:BatchPartition.end_is_known", _answers(True))
    _put("drkit.mirror.engine.inflight_window:InFlight.acknowledge", make)


def appends_without_a_condition() -> None:
    """Batches carry no producer id, so that a broker takes those of a late worker."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def header(**fields: Any) -> Any:
            return plain(**fields | {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1})

        return header

    _put("drkit.mirror.engine.partition_queue:header", make)


def trimmed_without_proof() -> None:
    """What lies below the place where a source begins counts as filler, whoever wrote it and whatever is noted."""

    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.model.alignment import Alignment  # noqa: PLC0415 - after the clocks are set

        def begun(decision: Any, seen: Any) -> Alignment:
            state = seen.topic.state
            below = seen.source_start if seen.watermark is None else seen.watermark.source_through
            number = decision._producer.id()  # noqa: SLF001 - it stands in its place
            return Alignment(seen.tp, state.epoch, state.target_topic, state.target_topic_id, number, 0, below)

        return begun

    _put("drkit.mirror.resume.offset_alignment.fill_decision:FillDecision._begun", make)
    _put("drkit.kafka.client.filler:FillerTrimmer._stranger", _answers(None))


def filler_stays() -> None:
    """What an alignment has filled isn't removed."""
    _put("drkit.kafka.client.filler:FillerTrimmer.trim", _answers(None))


def problems_not_heeded() -> None:
    """A position that the mapping calls exact is exact, whatever problem is on record."""
    _put("drkit.mapping.store_translator:heed", lambda _: lambda answer, *__: answer)


def ends_always_stable() -> None:
    """The source ends at its last stable offset, also where a link mirrors what isn't committed."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def end_offsets(admin: Any, tps: Any, *, partial: bool = False, **_: Any) -> Any:
            return plain(admin, tps, committed=True, partial=partial)

        return end_offsets

    _put("drkit.kafka.admin.cluster_admin:ClusterAdmin.end_offsets", make)


def purges_not_seen() -> None:
    """Nobody looks where the target's log begins."""
    _put("drkit.mirror.health.purge_watch:PurgeWatch.check", _answers(None))


def held_not_compared() -> None:
    """What no mirror fetches isn't compared with its source by whoever looks."""
    _put("drkit.lag.problems_now:_unwatched", _answers(False))


def read_past_what_is_refused() -> None:
    """What was read behind a record that can't be appended is appended, and the record counts as a hole."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def follows(sequencer: Any, read: Any) -> bool:
            partition = read.partition
            ending, partition.ending = partition.ending, None
            try:
                return bool(plain(sequencer, read))
            finally:
                partition.ending = partition.ending or ending

        return follows

    _put("drkit.mirror.engine.sequencer:Sequencer._follows", make)


def away_not_looked_at() -> None:
    """What was read from a broker that was away is read on as if nothing had happened to it."""
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
        problems_not_heeded,
        ends_always_stable,
        purges_not_seen,
        held_not_compared,
        read_past_what_is_refused,
        away_not_looked_at,
    )
}
"""By name: what patches the defect into this process."""


def plant(names: str) -> None:
    """Put defects (names with commas) into this process; "-": none."""
    for name in names.split(",") if names != "-" else ():
        PLANTS[name]()


def unplant() -> None:
    """Take out of this process what was planted."""
    while _PATCHED:
        _PATCHED.pop()()

"""Defects put back on purpose, as small patches of drkit: the adversary must find each."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from chaos.adversary.fault_points import patch


def _answers(result: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Instead of what a function does: this answer."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(plain)(lambda *_, **__: result)

    return make


def epochs_not_compared() -> None:
    """Neither a start nor the broker with each Fetch compares leader epochs, and no start compares the last record."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda partition, offset, max_bytes, *_, **__: plain(partition, offset, max_bytes)

    patch("drkit.mirror.resume:divergence", _answers(None))
    patch("drkit.mirror.resume:Resumer._doubted", _answers(frozenset()))
    patch("drkit.mirror.batch_reader:FetchPlace", make)


def ends_not_looked_at() -> None:
    """Nobody asks where the target's log ends before the first append, and all counts as landed at its place."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def acknowledge(window: Any, mark: Any, _: int) -> Any:
            return plain(window, mark, mark.after.target_end - 1)

        return acknowledge

    patch("drkit.mirror.batch_writer:Sender._end_is_known", _answers(True))
    patch("drkit.mirror.inflight:InFlight.acknowledge", make)


def appends_without_a_condition() -> None:
    """Batches carry no producer id, so that a broker takes those of a late worker."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def header(**fields: Any) -> Any:
            return plain(**fields | {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1})

        return header

    patch("drkit.mirror.batch_partition:header", make)


def filler_stays() -> None:
    """What an alignment has filled isn't removed."""
    patch("drkit.kafka.filler:FillerTrimmer.trim", _answers(None))


PLANTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        epochs_not_compared,
        ends_not_looked_at,
        appends_without_a_condition,
        filler_stays,
    )
}
"""By name: what patches the defect into this process."""


def plant(names: str) -> None:
    """Put defects (names with commas) into this process; "-": none."""
    for name in names.split(",") if names != "-" else ():
        PLANTS[name]()

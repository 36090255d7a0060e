from __future__ import annotations

import pytest

from drkit.mirror.producers import Fatal, Producers


@pytest.mark.parametrize(
    ("limit", "batch"),
    [(100_000_000, 1_000_000), (1_048_588, 1_000_000), (1_000_000, 1_000_000), (999_999, 524_288), (5_000, 4_096)],
)
def test_a_batch_fits_what_the_topic_takes(limit: int, batch: int) -> None:
    assert Producers.batch_bytes(limit) == batch
    assert batch <= limit


def test_a_batch_has_a_least_size() -> None:
    assert Producers.batch_bytes(10) == 1_024


def test_the_refused_request_is_read_from_the_reason() -> None:
    reason = (
        "Gap-less ordering would not be guaranteed if proceeding: ProduceRequest for a.topic-1 [7] with 12 message(s) "
        "failed: Broker: Message size too large (broker 1 PID{Id:1,Epoch:0}, base seq 0): unable to satisfy"
    )
    error = Fatal(reason)
    assert (error.topic, error.partition, error.count) == ("a.topic-1", 7, 12)
    assert Fatal("something else").topic is None

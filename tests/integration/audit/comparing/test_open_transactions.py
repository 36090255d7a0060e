"""What stands behind a transaction that nobody ends: no audit calls it compared, on either side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from drkit.kafka.config.client_config import confluent_config
from drkit.model.audit.audit_result import ANY_AGE, Verdict
from drkit.model.topology import TopicPartition
from tests.support.audits.damage import Bench, dense, records, seeded
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]
HELD, BEHIND = 30, 12


@contextmanager
def open_transaction(bench: Bench, alias: str, topic: str) -> Iterator[None]:
    """A transaction with one record, ended (aborted) at the end: its marker is there then, which comes a moment after
    the coordinator's answer."""
    producer = Producer(confluent_config(bench.config.clusters[alias]) | {"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in the transaction", partition=0)
    assert producer.flush(30) == 0
    yield
    producer.abort_transaction(30)
    tps = [TopicPartition(topic, 0)]
    with bench.admin(alias) as admin:
        wait_until(
            lambda: admin.end_offsets(tps, committed=True) == admin.end_offsets(tps, committed=False),
            what="the transaction's marker",
        )


def mirrored(bench: Bench, topic: str) -> None:
    bench.create(topic)
    bench.produce("primary", topic, 0, records(HELD, rng=seeded(1)))
    source = bench.read("primary", topic, 0)
    bench.forward(topic, 0, source, [each.record for each in source])
    bench.remember(topic, {0: dense(source)})


def test_records_of_the_source_behind_an_open_transaction_are_told_and_count_as_unseen(bench, audit, unique_name):
    mirrored(bench, unique_name)
    with open_transaction(bench, "primary", unique_name):
        bench.produce("primary", unique_name, 0, records(BEHIND, rng=seeded(2)))
        told, counted, recent = (
            audit(unique_name, unseen_since=since) for since in (None, ANY_AGE, datetime.now(UTC) - timedelta(hours=1))
        )
    ended = audit(unique_name, unseen_since=ANY_AGE)

    note = (
        f"{unique_name}:0: offsets {HELD} to {HELD + BEHIND} of primary stand behind a transaction that is open there"
    )
    assert all(any(each.startswith(note) for each in result.notes) for result in (told, counted, recent))
    assert [each.verdict for each in (told, counted, recent)] == [Verdict.CLEAN, Verdict.DEVIATED, Verdict.CLEAN]
    assert (counted.overdue, recent.overdue) == (BEHIND + 1, 0)
    assert (ended.counts.unseen, ended.overdue, ended.notes) == (BEHIND, BEHIND, ())


def test_nothing_behind_an_open_transaction_on_the_target_is_called_clean(bench, audit, unique_name):
    """Not what has its place there only: copies at the end were passed over."""
    mirrored(bench, unique_name)
    with open_transaction(bench, "dr", unique_name):
        bench.produce("dr", unique_name, 0, records(BEHIND, rng=seeded(1)))
        hidden = audit(unique_name)
    ended = audit(unique_name)

    assert hidden.verdict is Verdict.INCOMPLETE
    assert any(f"a transaction is open there, and {BEHIND + 1} offsets" in each for each in hidden.incomplete)
    assert (ended.verdict, ended.counts.duplicated) == (Verdict.DEVIATED, BEHIND)

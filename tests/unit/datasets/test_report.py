"""The books of a load: what is acknowledged, aborted, and neither."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from drkit.lab.datasets.report import LoadLedger, LoadProgress


@dataclass
class Delivered:
    """What the delivery callback is given, as far as it looks at it."""

    _topic: str
    _partition: int
    _offset: int

    def topic(self):
        return self._topic

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset


def _deliver(ledger, topic, partition, offset):
    ledger.sent[topic] += 1
    ledger.delivered(None, Delivered(topic, partition, offset))


def test_outside_transactions_a_delivery_is_an_acknowledgement():
    ledger = LoadLedger()
    _deliver(ledger, "t", 0, 4)
    _deliver(ledger, "t", 1, 9)
    _deliver(ledger, "t", 0, 5)
    ledger.sent["t"] += 1
    (report,) = ledger.topic_reports(("t",))
    assert (report.sent, report.acknowledged, report.aborted, report.unacknowledged) == (4, 3, 0, 1)
    assert [(p.partition, p.acknowledged, p.end_offset) for p in report.partitions] == [(0, 2, 6), (1, 1, 10)]


def test_the_first_error_is_kept_in_words_and_all_are_counted():
    ledger = LoadLedger()
    ledger.delivered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Delivered("t", 0, -1))
    ledger.delivered(KafkaError(KafkaError._MSG_TIMED_OUT), Delivered("t", 0, -1))
    ledger.delivered(KafkaError(KafkaError._MSG_TIMED_OUT), Delivered("t", 0, -1))
    assert ledger.errors == {"MSG_SIZE_TOO_LARGE": 1, "_MSG_TIMED_OUT": 2}
    assert "too large" in ledger.first_error.lower()
    assert ledger.acknowledged.total == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["commit", "abort", "unknown"]), st.lists(st.integers(0, 2), max_size=5)), max_size=12
    )
)
def test_records_are_counted_where_their_transaction_ended(transactions):
    ledger = LoadLedger()
    ends = {0: 0, 1: 0, 2: 0}
    expected = {"commit": 0, "abort": 0, "unknown": 0}
    last_committed = {}
    for outcome, partitions in transactions:
        ledger.begin()
        for partition in partitions:
            _deliver(ledger, "t", partition, ends[partition])
            ends[partition] += 1
        {"commit": ledger.committed, "abort": ledger.rolled_back, "unknown": ledger.unresolved}[outcome]()
        expected[outcome] += len(partitions)
        if outcome == "commit":
            last_committed.update({partition: ends[partition] for partition in partitions})
        for partition in set(partitions):
            ends[partition] += 1  # the marker
    (report,) = ledger.topic_reports(("t",))
    assert (report.acknowledged, report.aborted, report.unacknowledged) == tuple(expected.values())
    assert {p.partition: p.end_offset for p in report.partitions if p.end_offset is not None} == last_committed
    outcomes = [outcome for outcome, _ in transactions]
    assert ledger.committed_transactions == outcomes.count("commit")
    assert ledger.aborted_transactions == outcomes.count("abort")
    assert ledger.unknown_transactions == outcomes.count("unknown")


def test_a_topic_never_sent_to_has_zeros():
    (report,) = LoadLedger().topic_reports(("t",))
    assert (report.sent, report.acknowledged, report.partitions) == (0, 0, ())


def test_the_rate_of_a_load_that_has_not_begun_is_zero():
    assert LoadProgress(10, 0, 0, 0, 0.0).rate == 0
    assert LoadProgress(10, 10, 30, 30, 1.5).rate == 20

"""The consumer of a drill notes the positions that the cluster confirmed in the order of its commits."""

import pytest
from confluent_kafka import TopicPartition

from drkit.drill.workload import consumer as consumer_module
from drkit.drill.workload.client_files import ClientSpec

SPEC = ClientSpec(
    drill="d",
    ledger="",
    properties={},
    topic="t",
    partitions=1,
    group="g",
    keys=1,
    rate=1.0,
    value_bytes=100,
    commit_every_seconds=0.5,
    flush_seconds=1.0,
    parent=1,
    next_seqs={},
    offset_reset="earliest",
    key_prefix="k",
)


class LateResponses:
    """A consumer whose client hands over the responses to commits in the background only as it is closed."""

    def __init__(self, settings):
        self.on_commit = settings["on_commit"]
        self.waiting = []

    def subscribe(self, *_, **__):
        pass

    def commit(self, *, offsets, asynchronous):
        if asynchronous:
            self.waiting.append(offsets)
        return offsets

    def close(self):
        for offsets in self.waiting:
            self.on_commit(None, offsets)


class Ledger:
    def __init__(self):
        self.rows = []

    def add(self, table, row):
        self.rows.append((table, *row))

    def keep(self, *, now=False):
        pass


@pytest.mark.parametrize(("last", "noted"), [(799, [794, 799]), (794, [794])])
def test_the_last_commit_is_noted_after_those_before_it(monkeypatch, last, noted):
    monkeypatch.setattr(consumer_module, "Consumer", LateResponses)
    ledger = Ledger()
    reader = consumer_module._Reader(SPEC, ledger)
    reader.positions[0] = 794
    reader.commit()
    reader.positions[0] = last
    reader.close()
    assert [(table, partition, offset) for table, partition, offset, _ in ledger.rows] == [
        ("positions", 0, offset) for offset in noted
    ]
    times = [at for *_, at in ledger.rows]
    assert times == sorted(times)
    assert reader.last == ([TopicPartition("t", 0, 799)] if last == 799 else [])

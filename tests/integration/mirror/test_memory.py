"""Memory stays within its bound where a little of each answer waits, and the rest goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from drkit.kafka import line
from drkit.model.offsets import OffsetMapping
from tests.support.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

SMALL = 40
STEP = 12
BUFFER = 8 << 20
_MIB = 1 << 20


class StalledRows:
    """A store that keeps no mapping rows of one topic until it is told to; all else is real."""

    def __init__(self, store: Any, topic: str) -> None:
        self._store = store
        self._topic = topic
        self.stalls, self.goes_on = threading.Event(), threading.Event()

    def append_mappings(self, link: Any, rows: Sequence[OffsetMapping], *more: Any) -> None:
        if self.stalls.is_set() and any(row.topic == self._topic for row in rows):
            assert self.goes_on.wait(120)
        self._store.append_mappings(link, rows, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def in_blocks() -> int:
    """Bytes of the blocks that large answers lie in."""
    return sum(map(len, line._FRAMES._blocks))


def ends_at(mirrored: Mirrored, topic: str, offset: int) -> bool:
    return mirrored.target.end(topic) == offset


def test_a_little_of_each_answer_that_waits_doesnt_keep_all_of_it(mirrored: Mirrored) -> None:
    mirrored.configure(f'offsets = "translate"\nbuffer_bytes = {BUFFER}')
    busy, quiet = mirrored.name("busy"), mirrored.name("quiet")
    mirrored.source.create(busy)
    mirrored.source.create(quiet, SMALL)
    transactions = mirrored.source.producer(transactional_id=mirrored.prefix)
    transactions.init_transactions(30)
    transactions.begin_transaction()
    for partition in range(SMALL):
        transactions.produce(quiet, b"before the marker", partition=partition)
    transactions.commit_transaction(30)
    producer = mirrored.source.producer(batch_size=900_000, linger_ms=20, queue_buffering_max_kbytes=200_000)
    store = mirrored.store = StalledRows(mirrored.store, quiet)
    with mirrored.running() as running:
        for partition in range(SMALL):
            mirrored.wait_through(quiet, partition)
        store.stalls.set()
        most = 0
        for partition in range(SMALL):  # each in another answer, among a lot of what goes on
            for number in range(STEP):
                producer.produce(busy, bytes(250_000), partition=0)
                if number == STEP // 2:
                    producer.produce(quiet, b"behind the marker", partition=partition)
            assert producer.flush(30) == 0
            due = STEP * (partition + 1)
            wait_until(partial(ends_at, mirrored, busy, due), what=f"{due} records of the busy topic")
            most = max(most, in_blocks())
        store.goes_on.set()
        for partition in range(SMALL):
            mirrored.wait_through(quiet, partition)
    assert running.error is None
    wait_until(lambda: mirrored.target.end(quiet, 0) > 0, what="the quiet topic")
    assert [record.value for record in mirrored.target.read(quiet)] == [b"before the marker", b"behind the marker"]
    assert most < 4 * BUFFER, f"{most / _MIB:.0f} MiB"

"""SIGKILL at random moments under load: nothing lost, nothing twice, every position right.

`TEST_KILLS` sets how many moments are tried (each with its own seed).
"""

from __future__ import annotations

import os
import random
import threading

import pytest

from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

KILLS = int(os.environ.get("TEST_KILLS", "5"))
PARTITIONS = 3


class Load(threading.Thread):
    """Writes plain records and transactions (some aborted) until told to end."""

    def __init__(self, mirrored: Mirrored, plain: str, transactional: str, seed: int) -> None:
        super().__init__(name="test-load")
        self.ending = threading.Event()
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._plain = plain
        self._transactional = transactional
        self._producer = mirrored.source.producer(compression_type="lz4", linger_ms=5)
        self._transactions = mirrored.source.producer(transactional_id=transactional)
        self._transactions.init_transactions(30)

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            for _ in range(self._random.randint(1, 200)):
                self._producer.produce(
                    self._plain, value=b"%09d" % number, key=b"%d" % (number % 97), partition=number % PARTITIONS
                )
                number += 1
            self._producer.poll(0)
            self._transactions.begin_transaction()
            for step in range(self._random.randint(1, 30)):
                self._transactions.produce(self._transactional, value=b"t%d-%d" % (number, step))
            self._transactions.flush(20)
            if self._random.random() < 0.3:
                self._transactions.abort_transaction(20)
            else:
                self._transactions.commit_transaction(20)
        self._producer.flush(30)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, KILLS))])
def test_sigkill_under_load(mirrored: Mirrored, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - as above
    plain, transactional = mirrored.name("plain"), mirrored.name("tx")
    mirrored.source.create(plain, PARTITIONS)
    mirrored.source.create(transactional)
    load = Load(mirrored, plain, transactional, seed)
    load.start()
    try:
        landed = 0
        for _ in range(2):
            process = mirrored.process()
            moment = landed + chance.randint(1, 6_000)

            def reached(process=process, moment=moment) -> bool:
                assert process.poll() is None, process.communicate()
                return mirrored.target.partitions(plain) > 0 and mirrored.target.end(plain) * PARTITIONS >= moment

            wait_until(reached, 60, f"{moment} records on the target")
            mirrored.kill(process)
            landed = mirrored.target.end(plain) * PARTITIONS
    finally:
        load.ending.set()
        load.join(60)
    last = mirrored.process("--until-caught-up")
    output, errors = last.communicate(timeout=120)
    assert last.returncode == 0, (output, errors)
    for partition in range(PARTITIONS):
        records = mirrored.assert_same(plain, partition)
        assert len(records) > 1
        mirrored.assert_translates(plain, partition, [r.offset for r in records[:: max(1, len(records) // 200)]])
    mirrored.assert_same(transactional)
    mirrored.assert_translates(transactional)
    assert not mirrored.problems(), mirrored.problems()

"""Several processes and threads on one store, and a process that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from tests.support.links.store_worker import AT

ROOT = Path(__file__).parents[2]
WORKERS = 3

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(verb: str, url: str, name: str, worker: int, count: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.links.store_worker", verb, url, name, str(worker), str(count)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def finish(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return said.splitlines()


def test_what_append_returned_for_survives_sigkill(store, store_url, name, start):
    process = start("append", store_url, name, 0, 1_000_000)
    assert process.stdout is not None
    returned = [int(process.stdout.readline()) for _ in range(60)]
    process.send_signal(signal.SIGKILL)
    returned += [int(line) for line in process.stdout.read().splitlines() if line]
    assert process.wait() == -signal.SIGKILL
    kept = store.mappings(LinkId("primary", name), TopicPartition("t", 0), 0)
    assert [row.source_offset for row in kept][: len(returned)] == returned
    assert len(kept) - len(returned) in (0, 1), "at most the one whose call had not returned"


def test_processes_append_at_once(store, store_url, name, start):
    running = [start("append", store_url, name, worker, 50) for worker in range(WORKERS)]
    for process in running:
        assert len(finish(process)) == 50
    link = LinkId("primary", name)
    for worker in range(WORKERS):
        assert store.mappings(link, TopicPartition("t", worker), 0) == [
            OffsetMapping("t", worker, 0, number, 2 * number) for number in range(50)
        ]


def test_no_change_of_a_link_is_lost_between_processes(store, store_url, name, start):
    running = [start("change", store_url, name, worker, 15) for worker in range(WORKERS)]
    changes = [line.split(" ", 1) for process in running for line in finish(process)]
    assert sorted(int(version) for version, _ in changes) == list(range(1, 15 * WORKERS + 1)), "each version once"
    kept = store.link_control(LinkId("primary", name))
    assert (str(kept.version), kept.reason) == max(map(tuple, changes), key=lambda change: int(change[0]))


def test_a_lease_has_one_holder_whom_all_processes_name(store, store_url, name, start):
    running = [start("lease", store_url, name, worker, 20) for worker in range(WORKERS)]
    answers = [finish(process) for process in running]
    assert answers.count(answers[0]) == WORKERS
    for number, holder in enumerate(answers[0]):
        kept = store.lease(f"{name}-{number}")
        assert (kept.owner, kept.epoch) == (holder, 1)


def test_each_journal_entry_is_kept_by_one_process(store, store_url, name, start):
    running = [start("journal", store_url, name, worker, 20) for worker in range(WORKERS)]
    winners = {int(seq): f"worker {worker}" for worker, process in enumerate(running) for seq in finish(process)}
    entries = store.entries(name)
    assert [entry.seq for entry in entries] == list(range(20))
    assert {entry.seq: entry.payload for entry in entries} == winners


def test_threads_share_a_store(store, link):
    def work(worker: int) -> None:
        tp = TopicPartition(f"topic-{worker}", worker)
        for number in range(25):
            store.append_mappings(link, [OffsetMapping(*tp, 0, number, number)])
            store.put_watermarks(link, [Watermark(*tp, 0, number + 1, number + 1, 0, number + 1, 0, AT)])
            floor = store.floor_mapping(link, tp, 0, number)
            assert floor is not None
            assert floor.source_offset == number
            assert store.watermarks(link)[tp].source_through == number + 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert len(store.watermarks(link)) == 6


def test_threads_compete_for_leases(store):
    names = [uuid.uuid4().hex for _ in range(10)]

    def ask(owner: str) -> list[str]:
        return [store.acquire_lease(name, owner, 60, AT).owner for name in names]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, ["a", "b", "c", "d"]))
    assert answers.count(answers[0]) == 4

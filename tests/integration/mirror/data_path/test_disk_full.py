"""A target whose disk is full: on a small file system of its own, which needs the right to mount one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from drkit.mirror.runtime.events import ProgressEvent
from tests.support.clusters.guard import Guard
from tests.support.links.mirroring import Mirrored, Pair
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

_MIB = 1 << 20


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """A cluster `small` of one broker; its lab's folder is a file system of 192 MiB."""
    disk = tmp_path_factory.mktemp("small")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=192m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        lab_guard.watch(disk / "lab")
        lab = Lab.up(disk / "lab", brokers=1, store="sqlite", clusters=("small",))
        try:
            yield lab
        finally:
            lab.down()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def to_small(small: Lab, lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link to it."""
    world = Mirrored(Pair(lab.bootstrap("primary"), small.bootstrap("small")), tmp_path, unique_name)
    yield world
    world.close()


def _write(world: Mirrored, topic: str, count: int) -> None:
    producer = world.source.producer(acks="all")
    for _ in range(count):
        producer.produce(topic, value=os.urandom(100_000), partition=0)
    assert producer.flush(60) == 0


def test_a_full_disk_is_no_loss_and_no_copy(small: Lab, to_small: Mirrored) -> None:
    """Kafka's broker gives its only log directory up and ends; what it had acknowledged has to be there later."""
    topic = to_small.name("disk")
    to_small.source.create(topic)
    _write(to_small, topic, 20)
    ballast = small.dir.parent / "ballast"
    with to_small.running() as running:
        to_small.wait_through(topic)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(ballast.parent).free - 8 * _MIB)
        _write(to_small, topic, 200)
        wait_until(lambda: [node.state for node in small.status()] == ["down"], what="the broker to give up")
        seen = len(running.events)

        def told() -> bool:
            states = [event.state for event in running.events[seen:] if isinstance(event, ProgressEvent)]
            return bool(states) and states[-1] in {"waiting", "degraded"}

        wait_until(told, what="the mirror to say that it waits")
        assert to_small.through(topic) < 220
        ballast.unlink()
        small.restart("small")
        to_small.wait_through(topic)
        wait_until(lambda: not to_small.problems(), what="the problems to clear by themselves")
    assert running.error is None
    to_small.assert_same(topic)
    to_small.assert_translates(topic, commits=range(0, 220, 20))

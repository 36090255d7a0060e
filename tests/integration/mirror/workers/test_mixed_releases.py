"""Workers of different releases: side by side where the store's schema is the same, and only there.

There is no second release yet: the other one is this code with another name or schema version (`other_release.py`).
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drkit.lab import Lab
from drkit.model.clock import now
from drkit.store import version
from drkit.store.open import open_schema
from drkit.store.workers import live_workers
from tests.support.commands.other_release import newer, run, start
from tests.support.killing.frozen_worker import freeze_between_writes
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

PARTITIONS = 4


def write(mirrored: Mirrored, topic: str, words: range) -> None:
    producer = mirrored.source.producer()
    for number in words:
        producer.produce(topic, value=b"%06d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def wait_mirrored(mirrored: Mirrored, topic: str) -> None:
    for partition in range(PARTITIONS):
        mirrored.wait_through(topic, partition)


def pids(mirrored: Mirrored) -> dict[int, int]:
    """Partitions of each live worker, by process id."""
    found = live_workers(mirrored.store, mirrored.link.id, now())
    return {int(note.owner.split(":")[1]): note.partitions for note in found}


def ended(process: subprocess.Popen[str], code: int) -> str:
    said = process.communicate(timeout=90)
    assert process.returncode == code, said
    return said[1]


@pytest.fixture(params=["sqlite", pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.long])])
def mirrored(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link of its own, with a store in each of the backends."""
    url = request.getfixturevalue("cassandra_url") if request.param == "cassandra" else None
    with closing(Mirrored(lab, tmp_path, unique_name, url)) as own:
        yield own


@pytest.fixture
def mirror(mirrored: Mirrored):
    """Starts `drkit mirror` of a release; what still runs at the end is killed."""
    started = []

    def of(schema: int, *words: str) -> subprocess.Popen[str]:
        started.append(start(schema, "mirror", "--config", str(mirrored.config_path), *words))
        return started[-1]

    yield of
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


def test_releases_of_one_schema_share_a_link_and_others_take_turns_by_a_migration(mirrored, mirror, tmp_path):
    topic, settings = mirrored.name("rolling"), ("--config", str(mirrored.config_path))
    mirrored.source.create(topic, PARTITIONS)
    write(mirrored, topic, range(200))
    old, next_release = mirrored.process(), mirror(1)
    wait_until(lambda: pids(mirrored) == {old.pid: 2, next_release.pid: 2}, 120, "both share the link")
    write(mirrored, topic, range(200, 400))
    wait_mirrored(mirrored, topic)

    refused = mirror(2)
    assert "An older drkit wrote it" in ended(refused, 3)
    copy = tmp_path / "copy.gz"
    assert run(1, "store", "backup", "--out", str(copy), *settings).returncode == 0
    used = run(2, "store", "migrate", "--backup", str(copy), *settings)
    assert used.returncode == 3
    assert "is in use: " in used.stderr
    write(mirrored, topic, range(400, 500))
    wait_mirrored(mirrored, topic)  # the two were not disturbed

    next_release.terminate()
    assert ended(next_release, 0) is not None
    freeze_between_writes(old, mirrored.folder / "drkit.db")
    copy = tmp_path / "frozen.gz"
    assert run(1, "store", "backup", "--out", str(copy), *settings).returncode == 0
    with newer(), closing(open_schema(mirrored.config.store.plain_url)) as schema:
        wait_until(lambda: not schema.users(), 90, "the frozen worker's lease has expired")
    done = run(2, "store", "migrate", "--backup", str(copy), *settings)
    assert done.returncode == 0, done.stderr
    third = mirror(2, "--log-format", "json")
    write(mirrored, topic, range(500, 700))
    with newer():
        wait_mirrored(mirrored, topic)
    old.send_signal(signal.SIGCONT)
    assert "schema version 2, this drkit works with version 1" in ended(old, 3)
    assert "A newer drkit wrote it" in ended(mirror(1), 3)
    write(mirrored, topic, range(700, 800))
    assert version.SCHEMA_VERSION == 1
    with newer():
        wait_mirrored(mirrored, topic)
        third.terminate()
        events = [json.loads(line) for line in ended(third, 0).splitlines()]
        assert {"at", "level", "logger", "message", "link", "topic", "partition", "run"} <= set.intersection(
            *(set(event) for event in events)
        )
        assert {event["link"] for event in events if event["logger"].startswith("drkit.mirror")} == {"primary->dr"}
        for partition in range(PARTITIONS):
            assert len(mirrored.assert_same(topic, partition)) == 200
            mirrored.assert_translates(topic, partition)
        assert not mirrored.problems()

"""SIGHUP: the mirror and the page read their configuration again, and continue with what of it can take effect."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drkit.model.clock import now
from drkit.store.workers import live_workers
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@contextmanager
def command(mirrored: Mirrored, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A command of drkit's as a process of its own, and the file that holds its log; killed if it still runs."""
    log = mirrored.folder / f"{arguments[0]}.log"
    line = [sys.executable, "-m", "drkit", *arguments, "--config", str(mirrored.config_path)]
    with log.open("w") as file:
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=file, stdin=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            yield process, log
        except BaseException as error:
            error.add_note(log.read_text())
            raise
        finally:
            process.kill()
            process.communicate(timeout=30)


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%06d" % number, partition=0)
    assert producer.flush(30) == 0


def said(log: Path) -> str:
    """The log, its lines joined: a long one may be broken."""
    return " ".join(log.read_text().split())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mirror_takes_what_may_change_and_keeps_the_rest(mirrored: Mirrored, processes: int) -> None:
    first, later = mirrored.name("first"), mirrored.name("later")
    for topic in (first, later):
        mirrored.source.create(topic)
        write(mirrored, topic, 200)
    text = mirrored.config_path.read_text().replace(f'topics = ["{mirrored.prefix}.*"]', f'topics = ["{first}"]')
    mirrored.config_path.write_text(text)
    with command(mirrored, "mirror", "--processes", str(processes)) as (process, log):
        mirrored.wait_through(first)
        wait_until(lambda: len(live_workers(mirrored.store, mirrored.link.id, now())) == processes, 60, "its workers")
        assert mirrored.target.partitions(later) == 0

        wider = text.replace(
            f'topics = ["{first}"]', f'topics = ["{first}", "{later}"]\nisolation = "read_uncommitted"'
        )
        mirrored.config_path.write_text(wider)
        process.send_signal(signal.SIGHUP)
        write(mirrored, first, 200)
        mirrored.wait_through(first)
        mirrored.wait_through(later)
        wait_until(lambda: said(log).count("is reloaded; changed: links.0.topics") == processes, 60, "its log")
        assert said(log).count("links.0.isolation (primary->dr) is not changed while drkit runs") == processes

        mirrored.config_path.write_text(wider + 'policy = "sideways"\n')
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: said(log).count("is not reloaded, the old one stays") == processes, 60, "its refusal")
        assert f"{mirrored.config_path}:" in "".join(log.read_text().split())
        assert "links.0.policy" in said(log)

        write(mirrored, later, 200)
        mirrored.wait_through(later)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    for topic in (first, later):
        assert len(mirrored.assert_same(topic)) == 400
    assert not mirrored.problems(), mirrored.problems()


def test_a_run_that_catches_up_keeps_its_configuration(mirrored: Mirrored) -> None:
    """It waits for a topic that is held until the signal has been answered."""
    topic = mirrored.name("topic")
    mirrored.source.create(topic)
    write(mirrored, topic, 100)
    text = mirrored.config_path.read_text()
    slow = text + "max_bytes_per_second = 1\n"
    mirrored.config_path.write_text(slow)
    with command(mirrored, "mirror", "--until-caught-up") as (process, log):
        wait_until(lambda: mirrored.target.partitions(topic) == 1, 60, "the topic on the target")
        mirrored.config_path.write_text(text)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "a run --until-caught-up keeps the one" in said(log), 60, "its refusal")
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) is not None


def test_the_page_shows_new_objectives_and_keeps_the_old_where_the_file_is_broken(mirrored: Mirrored) -> None:
    text = mirrored.config_path.read_text()
    mirrored.config_path.write_text(text + "[objectives]\nrto_seconds = 61\n")
    with command(mirrored, "serve", "--listen", "127.0.0.1:0", "--output", "json") as (process, log):
        assert process.stdout is not None
        document = ""
        while not document.rstrip().endswith("}"):
            document += process.stdout.readline()
        url = json.loads(document)["url"]

        def shown() -> int:
            with urllib.request.urlopen(f"{url}/api/summary", timeout=60) as answer:
                found: int = json.load(answer)["objectives"]["rto_seconds"]
                return found

        assert shown() == 61
        mirrored.config_path.write_text(text + "[objectives]\nrto_seconds = 62\n[serve]\nlisten = '127.0.0.1:1'\n")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: shown() == 62, 60, "the new objective")
        wait_until(lambda: "serve.listen is not changed while drkit runs" in said(log), 60, "its refusal")
        mirrored.config_path.write_text(text + "[objectives]\nrto_seconds = 'soon'\n")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "is not reloaded, the old one stays" in said(log), 60, "its refusal of the file")
        assert shown() == 62
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

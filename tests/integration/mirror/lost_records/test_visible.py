"""What a running mirror shows, on real brokers: latency of the canary, numbers in the store, a stuck partition."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from itertools import count
from pathlib import Path

import jsonschema
import pytest

from drkit.mirror.control import Orders
from drkit.mirror.runtime.events import ProgressEvent
from drkit.mirror.runtime.session import Session
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.statistics import WorkerStatistics
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from drkit.store.workers import fresh, worker_statistics
from tests.support.links.mirroring import Mirrored, Running
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def numbers(mirrored: Mirrored) -> list[WorkerStatistics]:
    return fresh(worker_statistics(mirrored.store, mirrored.link.id), now())


def progress(running: Running) -> ProgressEvent | None:
    """The newest report."""
    found = [event for event in running.events if isinstance(event, ProgressEvent)]
    return found[-1] if found else None


def test_the_canary_measures_the_way_from_end_to_end(mirrored: Mirrored) -> None:
    mirrored.link = replace(mirrored.link, canary=True)
    topic = mirrored.link.canary_topic
    assert topic is not None
    with mirrored.running() as running:

        def measured() -> bool:
            latest = progress(running)
            return latest is not None and latest.latency is not None and latest.latency.samples >= 3

        wait_until(measured, 60, "three arrivals")
        latest = progress(running)
        assert latest is not None
        assert latest.latency is not None
        assert latest.latency.p50 is not None
        assert latest.latency.p99 is not None
        assert 0 < latest.latency.p50 <= latest.latency.p99
        wait_until(
            lambda: any(each.latency is not None and each.latency.samples for each in numbers(mirrored)),
            what="the latency in the store",
        )
        (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
        assert topic not in {partition.topic for partition in status.partitions}
        assert [worker.worker for worker in status.statistics] == [worker.owner for worker in status.workers]
        lab = mirrored.lab
        lab.pause("dr")
        try:

            def waits() -> bool:
                newest = progress(running)
                return newest is not None and newest.latency is not None and newest.latency.waiting_seconds > 3

            wait_until(waits, 60, "the age of what doesn't arrive")
        finally:
            lab.resume("dr")
        arrived = latest.latency.arrived

        def arrives_again() -> bool:
            newest = progress(running)
            assert newest is not None
            assert newest.latency is not None
            return newest.latency.arrived > arrived and newest.latency.waiting_seconds < 3

        wait_until(arrives_again, 60, "arrivals after the pause")
    assert running.error is None
    assert numbers(mirrored) == []  # a run that ends in order takes its numbers away
    values = [record.value for record in mirrored.target.read(topic, committed=False)]
    assert len(values) == len(set(values))


def test_throughput_and_what_is_in_flight_are_in_the_store(mirrored: Mirrored) -> None:
    topic = mirrored.name("t")
    mirrored.source.create(topic)
    producer = mirrored.source.producer()
    with mirrored.running():
        for number in range(5000):
            producer.produce(topic, value=b"%08d" % number)
        assert producer.flush(20) == 0
        mirrored.wait_through(topic)
        wait_until(lambda: [each.statistics.records for each in numbers(mirrored)] == [5000], what="5000 records")
        (worker,) = numbers(mirrored)
        assert worker.statistics.bytes > 0
        assert worker.statistics.in_flight_records == 0
        assert (worker.state, worker.partitions, worker.latency) == ("mirroring", 1, None)
        assert worker.records_per_second >= 0


def test_a_partition_that_its_engine_forgets_ends_the_run(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is told behind the run's back to read one partition no more: the others continue, it is stuck, also
    while one look in four at the target fails."""
    good, bad = mirrored.name("good"), mirrored.name("bad")
    for topic in (good, bad):
        mirrored.source.create(topic)
    obey = Session._obey
    wedged = threading.Event()

    def obey_and_wedge(self: Session, orders: Orders) -> None:
        obey(self, orders)
        if wedged.is_set():
            self._engine.hold([TopicPartition(bad, 0)])

    watch_target, looks = Session._watch_target, count()

    def watch_target_mostly(self: Session) -> None:
        if wedged.is_set() and next(looks) % 4 == 0:
            raise Unreachable("it does not answer for a moment")
        watch_target(self)

    monkeypatch.setattr(Session, "_obey", obey_and_wedge)
    monkeypatch.setattr(Session, "_watch_target", watch_target_mostly)
    producer = mirrored.source.producer()

    def write(topic: str) -> None:
        producer.produce(topic, value=b"x")
        assert producer.flush(20) == 0

    with mirrored.running(watchdog_seconds=6.0) as running:
        for topic in (good, bad):
            write(topic)
            mirrored.wait_through(topic)
        wedged.set()
        mirrored.hold(good)  # orders that change are obeyed, and so is the wedge
        told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", good)
        assert told.returncode == 0, told.stderr
        stuck_at = mirrored.through(bad)
        write(bad)
        write(good)
        mirrored.wait_through(good)
        wait_until(lambda: running.error is not None, 60, "the watchdog")
    assert isinstance(running.error, DrkitError)
    message = str(running.error)
    assert f"{bad}:0 of link primary->dr is stuck at source offset {stuck_at} of {stuck_at + 1}" in message
    assert "waiting for" in message
    assert mirrored.through(bad) == stuck_at
    wedged.clear()
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(bad)
    mirrored.assert_same(good)


_BLOCKED = """
import sys, threading
from drkit.cli.process import worker_processes
from drkit.mirror.runtime.session import Session

round_once = Session._round

def blocks(self):
    if self._engine.positions():
        self._engine.hold(self._engine.positions())
        print("wedged", file=sys.stderr, flush=True)
        threading.Event().wait()
    return round_once(self)

Session._round = blocks
worker_processes.wait_for.__kwdefaults__["grace_seconds"] = 2.0
from drkit.cli.application import application
application()()
"""


def test_a_process_whose_data_thread_never_returns_ends_with_exit_code_1(mirrored: Mirrored) -> None:
    """What a supervisor sees: a real process, blocked for good in the middle of a call, is gone with code 1."""
    topic, said = mirrored.name("t"), mirrored.folder / "stderr"
    mirrored.source.create(topic)
    command = [sys.executable, "-c", _BLOCKED, "mirror", "--watchdog", "4", "--config", str(mirrored.config_path)]
    with said.open("w") as stderr, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr) as process:
        try:
            wait_until(lambda: "wedged" in said.read_text(), 60, "the wedge")
            producer = mirrored.source.producer()
            producer.produce(topic, value=b"x")
            assert producer.flush(20) == 0
            code = wait_until(lambda: None if process.poll() is None else (process.returncode,), 60, "its end")
        finally:
            process.kill()
    assert code == (1,)
    text = " ".join(said.read_text().split())
    assert f"{topic}:0 of link primary->dr is stuck at source offset 0 of 1" in text
    assert "Traceback" not in text
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(topic)


def test_a_process_serves_its_metrics_and_its_lines_are_as_documented(mirrored: Mirrored) -> None:
    topic = mirrored.name("t")
    mirrored.source.create(topic)
    producer = mirrored.source.producer()
    for number in range(300):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(20) == 0
    lines, said = mirrored.folder / "lines", mirrored.folder / "said"
    command = [sys.executable, "-m", "drkit", "mirror", "--config", str(mirrored.config_path)]
    with lines.open("w") as stdout, said.open("w") as stderr:
        process = subprocess.Popen([*command, "--output", "json", "--metrics-port", "0"], stdout=stdout, stderr=stderr)
        try:
            url = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+/metrics", said.read_text()), 60, "the port")

            def scraped() -> str | None:
                with urllib.request.urlopen(url.group(), timeout=20) as answer:
                    text: str = answer.read().decode()
                return text if re.search(r"drkit_mirror_records_total\{.*\} 300\.0", text) else None

            text = wait_until(scraped, 60, "300 records in the metrics")
            assert re.search(rf'drkit_mirrored_through\{{.*topic="{topic}"\}} 300\.0', text)
            assert "drkit_mirror_in_flight_records{" in text
        finally:
            process.terminate()
            assert process.wait(60) == 0
    schema = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "mirror.schema.json").read_text())
    documents = [json.loads(line) for line in lines.read_text().splitlines()]
    for document in documents:
        jsonschema.validate(document, schema)
    assert documents[-1]["type"] == "done"
    progress_lines = [document for document in documents if document["type"] == "progress"]
    assert progress_lines[-1]["statistics"]["records"] == 300
    assert progress_lines[-1]["latency"] is None


@pytest.mark.long
def test_an_outage_and_a_pause_are_not_stuck(mirrored: Mirrored) -> None:
    topic = mirrored.name("t")
    mirrored.source.create(topic)
    producer = mirrored.source.producer()
    producer.produce(topic, value=b"1")
    assert producer.flush(20) == 0
    with mirrored.running(watchdog_seconds=3.0) as running:
        mirrored.wait_through(topic)
        mirrored.hold(topic)
        looked = progress(running)
        assert looked is not None

        def later(seconds: float) -> bool:
            newest = progress(running)
            return newest is not None and (newest.at - looked.at).total_seconds() > seconds

        wait_until(lambda: later(8), 60, "a pause longer than the watchdog's patience")
        assert running.error is None
        mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic)
        mirrored.lab.kill("dr")
        try:
            wait_until(lambda: running.events[-1].document().get("state") == "waiting", 60, "the outage told")
            looked = progress(running)
            assert looked is not None
            wait_until(lambda: later(8), 60, "an outage longer than the watchdog's patience")
            assert running.error is None
        finally:
            mirrored.lab.restart("dr")
        mirrored.wait_through(topic)
    assert running.error is None


def test_a_topic_that_the_link_no_longer_names_has_no_lag_that_could_be_wrong(mirrored: Mirrored) -> None:
    kept, dropped = mirrored.name("kept"), mirrored.name("dropped")
    producer = mirrored.source.producer()
    for topic in (kept, dropped):
        mirrored.source.create(topic)
        producer.produce(topic, value=b"mirrored")
    assert producer.flush(20) == 0
    mirrored.catch_up()
    producer.produce(dropped, value=b"never mirrored")
    assert producer.flush(20) == 0

    narrowed = replace(mirrored.link, topics=(re.escape(kept),))
    shown = [link_statuses(mirrored.config, mirrored.store, [link])[0] for link in (mirrored.link, narrowed)]

    assert [{each.topic: each.lag_records for each in status.partitions} for status in shown] == [
        {kept: 0, dropped: 1},
        {kept: 0},
    ]

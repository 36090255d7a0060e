"""`drkit audit watch` beside a mirror: every record counted once, a loss told at once, also after SIGKILL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import jsonschema
import pytest

from drkit.audit.continuous.continuous_audit import STREAM, ContinuousAudit, ContinuousRequest
from drkit.audit.spark.session import SparkRuntime
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.audit.continuous_audit import Reconciled, Sample
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_state import AUDIT_DEVIATION
from drkit.model.offsets import Watermark
from drkit.model.runs import verify_chain
from drkit.model.topology import TopicPartition
from tests.support.audits.damage import Bench, records, seeded
from tests.support.collection.sampling import among
from tests.support.links.estates import OwnLink, mirror, mirroring, open_link, own_link, texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

DRAWN = among("a continuous audit", ["each range", "made anew", "killed"], 1)

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "audit-continuous.schema.json").read_text())


@dataclass
class Running:
    """The verb as a process of its own."""

    process: subprocess.Popen[str]
    log: Path

    def said(self) -> str:
        """Its stderr up to now."""
        return self.log.read_text()

    def wait_for(self, words: str) -> str:
        """Wait until it says so; returns all that it said."""

        def heard() -> str | None:
            if self.process.poll() is not None:
                pytest.fail(self.said())
            return self.said() if words in self.said() else None

        return wait_until(heard, timeout=240, what=f"the audit to say {words!r}")

    def metrics(self) -> dict[str, float]:
        """What it exports, by name and labels, without the link."""
        found = re.search(r"metrics at (http\S+)", self.said())
        assert found is not None
        with urllib.request.urlopen(found.group(1), timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {re.sub(r'link="[^"]*",?', "", name): float(value) for name, value in samples}


@contextmanager
def continuous(own: OwnLink, folder: Path) -> Iterator[Running]:
    command = [sys.executable, "-m", "drkit", "audit", "watch", "--interval", "1", "--output", "json"]
    command += [
        "--checkpoint",
        str(folder / "checkpoint"),
        "--metrics",
        "127.0.0.1:0",
        "--config",
        str(own.config_path),
    ]
    log = folder / f"audit-{len(list(folder.glob('audit-*.log')))}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ, cwd=folder
        )
        try:
            yield Running(process, log)
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=240)


def drop_one(own: OwnLink, bench: Bench, topic: str, count: int) -> None:
    """As a mirror that loses a record of partition 0 would: writes all but the last, and says that all are there."""
    tp = TopicPartition(topic, 0)
    (mark,) = (each for each in own.store.watermarks(own.link.id).values() if each.tp == tp)
    written = records(count, rng=seeded(1))
    bench.produce("primary", topic, 0, written)
    with ClusterAdmin("dr", own.config.clusters["dr"]) as admin:
        before = admin.end_offsets([tp], committed=True)[tp]
    assert before == mark.target_end
    bench.produce("dr", topic, 0, written[:-1])
    through = mark.source_through + count
    own.store.put_watermarks(
        own.link.id,
        [
            Watermark(
                topic=topic,
                partition=0,
                epoch=mark.epoch,
                source_through=through,
                target_end=before + count - 1,
                source_start=0,
                source_end=through,
                target_start=0,
                observed_at=now(),
            )
        ],
    )


@contextmanager
def here(own: OwnLink, spark: SparkRuntime, checkpoint: Path) -> Iterator[tuple[ContinuousAudit, list[Reconciled]]]:
    """The audit on a thread of this process, and all that it tells; stopped at the end."""
    told: list[Reconciled] = []
    request = ContinuousRequest(own.link, checkpoint, own.config.store.plain_url, interval_seconds=0.3)
    audit = ContinuousAudit(request, own.store, own.config, spark, lambda found, _: told.extend(found), print)
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(audit.run, stop)
        try:
            yield audit, told
        finally:
            stop.set()
            running.result(60)


def moved_back(own: OwnLink, topic: str) -> None:
    """As a mirror whose target lost data begins again: what was audited already is claimed no more."""
    (mark,) = (each for each in own.store.watermarks(own.link.id).values() if each.tp == TopicPartition(topic, 0))
    own.store.put_watermarks(own.link.id, [replace(mark, source_through=mark.source_through - 100)])


def ranges(told: list[Reconciled]) -> dict[tuple[int, int], str]:
    """What was told of each range, by partition and first offset; each is told once."""
    found = {(each.closed.partition, each.closed.first): str(each).partition(": ")[2] for each in told}
    assert len(found) == len(told)
    return found


@DRAWN("each range")
def test_each_closed_range_is_told_once_and_what_is_lost_or_gone_is_an_alert(lab, spark, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t", partitions=2, retention_bytes="1")
        own.produce("primary", topic, texts("early", 300))
        with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
            admin.delete_records({TopicPartition(topic, 1): 10})  # before the audit begins: nobody's loss
        mirror(own)
        again = tmp_path / "checkpoint"
        with here(own, spark, again) as (audit, told):
            wait_until(lambda: len(told) == 2, timeout=240, what="the first ranges")
            assert ranges(told) == {(0, 0): "equal", (1, 10): "equal"}
            with pytest.raises(Refused, match="another continuous audit is running"), here(own, spark, again):
                pass
            drop_one(own, Bench(lab, own.store), topic, 20)
            wait_until(lambda: len(told) == 3, timeout=240, what="the alert")
            assert ranges(told)[0, 300] == "1 lost"
            assert told[-1].first == (Sample("lost", 319, None),)
            copies = Bench(lab, own.store)
            read = copies.read("dr", topic, 0)
            copies.produce("dr", topic, 0, [each.record for each in read[:5]])  # behind the last place: no range's
            wait_until(lambda: len(told) == 4, timeout=240, what="what is behind the last mirrored record")
            assert (told[-1].behind, str(told[-1]).partition(": ")[2]) == ((319, 324), "5 duplicated")
            assert told[-1].first[0] == Sample("duplicated", 0, 319)
            copies.produce("dr", topic, 0, [each.record for each in read[5:7]])
            wait_until(lambda: len(told) == 5, timeout=240, what="what came behind it since")
            assert (told[-1].behind, told[-1].counts.duplicated) == ((324, 326), 2)
        assert audit.progress.verdict == "deviated"
        assert audit.progress.counts.duplicated == 7
        own.produce("primary", topic, {1: [f"late-{number}" for number in range(50)]})
        assert (
            MirrorRuntime(own.config, own.link, own.store).run(until_caught_up=True).halted
        )  # partition 0: the copies
        with ClusterAdmin("dr", own.config.clusters["dr"]) as admin:
            target_end = admin.end_offsets([TopicPartition(topic, 1)], committed=True)[TopicPartition(topic, 1)]
            admin.delete_records({TopicPartition(topic, 1): target_end - 20})
        moved_back(own, topic)
        with here(own, spark, again) as (audit, told):
            wait_until(lambda: told, timeout=240, what="what was mirrored meanwhile")
            assert ranges(told) == {(1, 300): "30 gone from the target"}
        newest = max((again / STREAM / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        through = json.loads(newest.read_text().splitlines()[-1])["through"]
        places = {name.partition("/")[2].partition(" ")[0]: at for name, at in through.items()}
        assert places == {f"0/{topic}": 220, f"1/{topic}": 350}  # what is mirrored again will be compared again
        counts = audit.progress.counts
        assert (counts.source_records, counts.matched, counts.lost) == (630, 629, 1)
        assert (audit.progress.gone, audit.progress.ranges, audit.progress.alerts) == (30, 4, 4)
        assert audit.progress.counts.duplicated == 7  # told once, although partition 0 was looked at again
        assert audit.progress.through == {f"{topic}:0": 320, f"{topic}:1": 350}
    finally:
        own.store.close()


@DRAWN("made anew")
def test_a_topic_that_was_made_anew_while_nobody_looked_is_audited_from_its_start(lab, spark, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic, _ = own.create("primary", "t"), own.create("primary", "kept")  # or the link's record would seem lost
        own.produce("primary", topic, texts("former", 30))
        mirror(own)
        bench, checkpoint = Bench(lab, own.store), tmp_path / "checkpoint"
        with here(own, spark, checkpoint) as (audit, told):
            wait_until(lambda: len(told) == 2, timeout=240, what="the former topic's ranges")
            read = bench.read("dr", topic, 0)
            bench.produce("dr", topic, 0, [each.record for each in read[:5]])
            wait_until(lambda: len(told) == 3, timeout=240, what="the copies")
            assert [str(each).partition(": ")[2] for each in told] == ["equal", "equal", "5 duplicated"]
        for alias in ("primary", "dr"):  # as a deletion that is mirrored, and the topic is in epoch 1 again
            with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
                admin.delete_topics([topic])
        own.store.forget_topic(own.link.id, topic)
        assert own.create("primary", "t") == topic
        own.produce("primary", topic, texts("latter", 25))
        mirror(own)
        drop_one(own, bench, topic, 5)  # within what was reconciled of the former topic
        bench.produce("dr", topic, 0, records(6, rng=seeded(2)))  # where copies were told of
        with here(own, spark, checkpoint) as (audit, told):
            wait_until(lambda: len(told) == 2, timeout=100, what="the latter topic's ranges")
        assert [each.closed[3:5] for each in told] == [(0, 30), (0, 25)]
        counts = told[0].counts
        assert (counts.matched, counts.lost + counts.corrupted, counts.foreign + counts.corrupted) == (29, 1, 6)
        assert told[1].counts.matched == 25
        assert audit.progress.through == {f"{topic}:0": 30, f"{topic}:1": 25}
    finally:
        own.store.close()


def test_an_audit_that_is_stopped_while_a_cluster_does_not_answer_is_not_clean(lab, spark, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    try:
        own.produce("primary", own.create("primary", "t", partitions=2), texts("x", 30))
        mirror(own)
        request = ContinuousRequest(own.link, tmp_path / "checkpoint", own.config.store.plain_url, interval_seconds=0.3)
        audit = ContinuousAudit(request, own.store, without_primary(own), spark, lambda *_: None, print)
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=1) as pool:
            running = pool.submit(audit.run, stop)
            try:
                wait_until(lambda: audit.problem or running.done(), timeout=240, what="that it waits")
            finally:
                stop.set()
            progress = running.result(60)
        assert (progress.verdict, progress.ranges) == ("unknown", 0)
        assert "primary" in progress.waiting
    finally:
        own.store.close()


def test_an_audit_of_a_topic_that_the_link_does_not_have_is_refused(lab, spark, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    try:
        own.create("primary", "t")
        request = ContinuousRequest(
            own.link, tmp_path / "checkpoint", own.config.store.plain_url, wanted=(own.topic("typo"),)
        )
        audit = ContinuousAudit(request, own.store, own.config, spark, lambda *_: None, print)
        with pytest.raises(ConfigError, match="has no such topic"):
            audit.run(threading.Event())
    finally:
        own.store.close()


@pytest.mark.long
def test_what_a_link_filters_and_transforms_is_reconciled_with_what_it_makes_of_the_source(
    lab, spark, tmp_path, unique_name
):
    plain = own_link(lab, tmp_path, unique_name)
    plain.store.close()
    module = "tests.support.links.callables"
    altering = f'[[links]]\nfilter = "{module}:keeps_two_of_three"\ntransform = "{module}:redacts"'
    plain.config_path.write_text(plain.config_path.read_text().replace("[[links]]", altering))
    own = open_link(plain.config_path, unique_name)
    try:
        topic = own.create("primary", "t", partitions=2)
        own.produce("primary", topic, texts("text", 60))
        mirror(own)
        with here(own, spark, tmp_path / "checkpoint") as (audit, told):
            wait_until(lambda: len(told) == 2, timeout=240, what="both ranges")
        assert ranges(told) == {(0, 0): "equal", (1, 0): "equal"}
        assert (audit.progress.counts.source_records, audit.progress.counts.matched) == (80, 80)
    finally:
        own.store.close()


@DRAWN("killed")
def test_a_loss_is_told_while_the_mirror_works_and_a_killed_audit_goes_on_where_it_was(lab, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t", partitions=2)
        own.produce("primary", topic, texts("early", 300))
        mirror(own)

        with continuous(own, tmp_path) as first:
            first.wait_for("records in 2 ranges are equal")
            with mirroring(own):
                own.produce("primary", topic, texts("live", 500))
                wait_until(
                    lambda: first.metrics().get(f'drkit_audit_through{{partition="1",topic="{topic}"}}') == 800,
                    timeout=240,
                    what="what was mirrored live to be reconciled",
                )
            assert first.metrics()["drkit_audit_up{}"] == 1
            first.process.send_signal(signal.SIGKILL)
            first.process.wait(30)
        run = json.loads((tmp_path / "checkpoint" / "progress.json").read_text())["run"]
        assert verify_chain(own.store.entries(run)) is None
        assert own.store.problems(own.link.id) == []

        drop_one(own, Bench(lab, own.store), topic, 20)
        with continuous(own, tmp_path) as second:
            said = second.wait_for("ALERT")
            assert f"{topic}:0 source offsets 800 to 819: 1 lost" in said
            wait_until(
                lambda: second.metrics().get(f'drkit_audit_records_total{{outcome="lost",topic="{topic}"}}') == 1,
                timeout=60,
                what="the metrics to have what was just told",
            )
            wait_until(lambda: own.store.problems(own.link.id), timeout=60, what="the problem to be on record")
            found = second.metrics()
            assert found["drkit_audit_mismatches_total{}"] == 1
            assert found["drkit_audit_latency_seconds{}"] > 0
            (problem,) = own.store.problems(own.link.id)
            assert (problem.kind, problem.topic, problem.partition) == (AUDIT_DEVIATION, topic, 0)
            second.process.terminate()
            output, _ = second.process.communicate(timeout=240)
        assert second.process.returncode == 5, second.said()
        assert "Traceback" not in second.said()
        document = json.loads(output)
        jsonschema.validate(document, SCHEMA)
        assert (document["verdict"], document["run"], document["deviating_ranges"]) == ("deviated", run, 1)
        totals = document["totals"]
        assert (totals["source_records"], totals["lost"], totals["matched"]) == (1620, 1, 1619)  # each counted once
        assert document["through"] == {f"{topic}:0": 820, f"{topic}:1": 800}
        (entry,) = own.store.entries(run)
        assert json.loads(entry.payload)["first"] == [{"kind": "lost", "source_offset": 819, "target_offset": None}]
        summary = next(each for each in own.store.runs() if each.run == run)
        assert (summary.kind, summary.state) == ("audit", "deviated")
    finally:
        own.store.close()

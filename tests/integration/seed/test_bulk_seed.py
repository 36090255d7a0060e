"""A bulk seed by Spark's tasks is the mirror's own work: same records, same offsets, same mapping rows."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.health import stalls
from drkit.mirror.runtime.events import ProblemEvent, ProgressEvent
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from drkit.seed.run import SparkJobs, bulk_seed
from tests.support.collection.sampling import sampled
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]

PARTITIONS = 3


def write(world: Mirrored, topic: str, first: int, count: int) -> None:
    chance = random.Random(first)  # noqa: S311 - repeatable, not secret
    producer = world.source.producer(batch_num_messages=50)
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=b"%d" % (number % 7) if number % 5 else None,
            value=chance.randbytes(300) if number % 11 else None,
            headers=[("n", b"%d" % number)] if number % 3 else None,
            partition=number % PARTITIONS,
            timestamp=1_600_000_000_000 + number,
        )
    assert producer.flush(30) == 0


def transactions(world: Mirrored, topic: str, pattern: str) -> None:
    producer = world.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    for letter in pattern:
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, value=letter.encode() + b"%d" % number, partition=0)
        producer.flush(20)
        (producer.abort_transaction if letter == "a" else producer.commit_transaction)(20)


def rows(world: Mirrored, topic: str, partition: int) -> list[tuple[int, int]]:
    state = world.store.topic_states(world.link.id)[topic]
    found = world.store.mappings(world.link.id, TopicPartition(topic, partition), state.epoch)
    return [(row.source_offset, row.target_offset) for row in found]


@pytest.mark.parametrize("offsets", sampled("a bulk seed", ["preserve", "translate"], 1))
def test_it_writes_what_the_mirror_would_have_written(
    mirrored: Mirrored, lab, spark, tmp_path, monkeypatch, offsets: str
) -> None:
    mirrored.configure(f'offsets = "{offsets}"\nbuffer_bytes = 1048576')  # so that a range is not read at once
    plain, exact = mirrored.name("plain"), mirrored.name("tx")
    mirrored.source.create(plain, PARTITIONS)
    mirrored.source.create(exact)
    write(mirrored, plain, 0, 24_000)
    transactions(mirrored, exact, "caaccacc")
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.delete_records({TopicPartition(plain, 1): 700})  # its log doesn't begin at 0

    tasks: list[str] = []
    submit = SparkJobs.submit
    monkeypatch.setattr(SparkJobs, "submit", lambda self, *given: (tasks.append(given[0]), submit(self, *given)))

    report = bulk_seed(mirrored.config, mirrored.link, mirrored.store, spark, range_offsets=600)

    assert len(tasks) > PARTITIONS + 1, "partitions were handed from task to task"
    assert report.caught_up
    assert not report.halted
    for partition in range(PARTITIONS):
        ours = mirrored.assert_same(plain, partition)
        if offsets == "preserve":
            assert mirrored.target.read(plain, partition, committed=False) == ours
        assert mirrored.through(plain, partition) == mirrored.source.end(plain, partition)
        mirrored.assert_translates(plain, partition, [*range(900, 2_000, 97)])
    mirrored.assert_same(exact)
    mirrored.assert_translates(exact)
    assert mirrored.problems() == []

    (tmp_path / "again").mkdir()
    other = Mirrored(lab, tmp_path / "again", mirrored.prefix)
    try:
        # another link: with the same patterns its copy on the target would be taken for this one's
        other.configure(f'offsets = "{offsets}"\npolicy = "prefix"\nexclude_topics = ["none"]')
        mirrored_there = other.catch_up()
        assert mirrored_there.caught_up
        assert mirrored_there.records == report.records
        for topic, partition in [(exact, 0), *((plain, number) for number in range(PARTITIONS))]:
            assert rows(mirrored, topic, partition) == rows(other, topic, partition)
    finally:
        other.close()

    write(mirrored, plain, 24_000, 300)  # the mirror continues where the seed ended
    assert mirrored.catch_up().records == 300
    for partition in range(PARTITIONS):
        mirrored.assert_same(plain, partition)


def test_a_killed_task_costs_no_record_and_doubles_none(mirrored: Mirrored, spark) -> None:
    mirrored.configure("max_bytes_per_second = 800000")
    topic = mirrored.name("slow")
    mirrored.source.create(topic, PARTITIONS)
    write(mirrored, topic, 0, 9_000)
    stop, moved = threading.Event(), threading.Event()

    def watch(event: object) -> None:
        if isinstance(event, ProgressEvent) and event.records:
            moved.set()

    with ThreadPoolExecutor(max_workers=1) as pool:
        seeding = pool.submit(
            bulk_seed, mirrored.config, mirrored.link, mirrored.store, spark, stop=stop, on_progress=watch
        )
        try:
            assert moved.wait(60)
            before = sum(max(0, mirrored.through(topic, number)) for number in range(PARTITIONS))
            assert before < 9_000, "midway"
            killed = kill_workers()
            report = seeding.result(120)
        finally:
            stop.set()
    assert killed
    assert report.caught_up
    for partition in range(PARTITIONS):
        assert mirrored.target.read(topic, partition, committed=False) == mirrored.assert_same(topic, partition)
    assert mirrored.problems() == []


def test_what_is_copied_or_waits_for_a_task_does_not_count_as_stuck_while_the_source_grows(
    mirrored: Mirrored, spark, monkeypatch
) -> None:
    monkeypatch.setattr(stalls, "SILENT_SECONDS", 3.0)  # half a minute otherwise
    mirrored.configure("max_bytes_per_second = 300000")
    topic = mirrored.name("grows")
    mirrored.source.create(topic, PARTITIONS + 1)
    write(mirrored, topic, 0, 12_000)  # the last partition gets what `grow` writes alone, and is soon copied
    producer = mirrored.source.producer(linger_ms=0)
    told: list[ProblemEvent] = []

    def grow(event: object) -> None:
        """With each report."""
        if isinstance(event, ProblemEvent):
            told.append(event)
        for number in range(PARTITIONS + 1):
            producer.produce(topic, value=b"later", partition=number)
        producer.flush(30)

    grow(None)
    report = bulk_seed(mirrored.config, mirrored.link, mirrored.store, spark, on_progress=grow, range_offsets=1_500)
    assert report.caught_up
    assert [event.problem.reason for event in told] == []
    assert not report.halted
    assert mirrored.source.end(topic, PARTITIONS) > mirrored.through(topic, PARTITIONS) > 0, "it grew past its goal"
    assert mirrored.catch_up().caught_up
    for number in range(PARTITIONS + 1):
        mirrored.assert_same(topic, number)
    assert mirrored.problems() == []


def kill_workers() -> list[int]:
    """SIGKILL the Python processes in which Spark's tasks run now."""

    def workers() -> list[psutil.Process]:
        daemons = [each for each in psutil.Process().children(recursive=True) if is_daemon(each)]
        known = {each.pid for each in daemons}
        return [each for each in daemons if each.ppid() in known]

    def is_daemon(process: psutil.Process) -> bool:
        try:
            return "drkit.audit.spark.python_daemon" in process.cmdline()
        except psutil.Error:  # gone meanwhile, or about to be
            return False

    found: list[psutil.Process] = wait_until(workers, what="tasks of Spark")
    for each in found:
        each.kill()
    return [each.pid for each in found]


def test_a_link_that_alters_records_is_not_seeded_by_spark(mirrored: Mirrored, spark) -> None:
    mirrored.configure("provenance = true")
    with pytest.raises(Refused, match=r"can't be seeded by Spark: every batch is rebuilt: provenance alters"):
        bulk_seed(mirrored.config, mirrored.link, mirrored.store, spark)

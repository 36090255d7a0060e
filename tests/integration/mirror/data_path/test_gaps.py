"""What a broker skips of a topic that isn't compacted is no hole, on real brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import flip
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.engine.interface import NOT_MOVING
from drkit.mirror.runtime.events import ProblemEvent
from drkit.model.link_state import RECORDS_GIVEN_UP, SOURCE_GAP
from drkit.observe.status import link_statuses
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("gaps of a log that can have none", 2)]

LENGTH_AT = 8
STAMP, HOUR = 1_700_000_000_000, 3_600_000
EAGER = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.0001",
    "segment_ms": "100",
    "max_compaction_lag_ms": "500",
    "min_compaction_lag_ms": "0",
}


def _write(
    mirrored: Mirrored, topic: str, numbers: Sequence[int], hour: int | None = 0, *, keys: int | None = None
) -> None:
    """Batches of ten records, stamped a second apart; `segment.ms` says which are in a segment."""
    producer = mirrored.source.producer(linger_ms=5_000)
    for begin in range(0, len(numbers), 10):
        stamp = 0 if hour is None else STAMP + hour * HOUR + begin * 100  # 0: now
        for number in numbers[begin : begin + 10]:
            key = b"%d" % (number if keys is None else number % keys)
            producer.produce(topic, key=key, value=b"%d" % number, partition=0, timestamp=stamp)
        assert producer.flush(20) == 0


def _damage(mirrored: Mirrored, topic: str, offset: int) -> None:
    """The length of the batch reaches beyond its segment: the broker answers with the next one, and no error."""
    folder = Path(mirrored.lab.dir) / "nodes" / "primary-1" / "data" / f"{topic}-0"
    flip(folder, offset, LENGTH_AT, mask=0x7F)


def _state(mirrored: Mirrored) -> str:
    (found,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    return found.state


def _set(mirrored: Mirrored, topic: str, **settings: str) -> None:
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.set_topic_configs(topic, {name.replace("_", "."): value for name, value in settings.items()})


def _values(records: Sequence) -> list[int]:
    return [int(record.value) for record in records]


def _acknowledge(mirrored: Mirrored, topic: str, *flags: str) -> None:
    told = mirrored.drkit("link", "acknowledge", str(mirrored.link.id), SOURCE_GAP, "--topic", topic, *flags)
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("altered", [False, True], ids=["as it is", "altered"])
def test_offsets_that_a_broker_skips_halt_the_partition_until_an_operator_goes_on(
    mirrored: Mirrored, altered: bool
) -> None:
    if altered:
        mirrored.configure('transform = "tests.support.links.callables:redacts"')
    topic, other = mirrored.name("skipped"), mirrored.name("other")
    mirrored.source.create(topic, segment_ms="60000")
    mirrored.source.create(other)
    _write(mirrored, topic, range(40))
    _write(mirrored, topic, range(40, 60), hour=1)
    _damage(mirrored, topic, 25)
    with mirrored.running() as running:
        (problem,) = wait_until(lambda: mirrored.problems(SOURCE_GAP), what="the gap to be named")
        assert problem.halted
        assert "offsets 20 to 39" in problem.reason
        assert f"{SOURCE_GAP} --topic {topic}" in problem.remedy
        assert _state(mirrored) == "degraded"
        assert mirrored.through(topic) == 20
        _write(mirrored, other, range(10))
        mirrored.wait_through(other)
        assert mirrored.through(topic) == 20
        _acknowledge(mirrored, topic)
        mirrored.wait_through(topic)
        wait_until(lambda: not mirrored.problems(SOURCE_GAP), what="the problem to clear")
    assert running.error is None
    assert _values(mirrored.target.read(topic)) == [*range(20), *range(40, 60)]
    (given_up,) = mirrored.problems(RECORDS_GIVEN_UP)
    assert (given_up.unsure_from, given_up.unsure_until) == (20, 40)


def test_an_accepted_gap_says_nothing_of_the_next_one(mirrored: Mirrored) -> None:
    topic = mirrored.name("two")
    mirrored.source.create(topic, segment_ms="60000")
    for hour in range(4):
        _write(mirrored, topic, range(20 * hour, 20 * hour + 20), hour)
    for damaged in (15, 55):
        _damage(mirrored, topic, damaged)
    for first in (10, 50):
        report = mirrored.catch_up()
        assert [each.kind for each in report.halted] == [SOURCE_GAP]
        assert f"offsets {first} to {first + 9}" in report.halted[0].reason
        _acknowledge(mirrored, topic)
    assert not mirrored.catch_up().halted
    assert _values(mirrored.target.read(topic)) == [*range(10), *range(20, 50), *range(60, 80)]


def test_compaction_that_begins_later_explains_no_gap_that_was_told(mirrored: Mirrored) -> None:
    topic = mirrored.name("later")
    mirrored.source.create(topic, segment_ms="60000")
    _write(mirrored, topic, range(20))
    _write(mirrored, topic, range(20, 40), hour=1)
    _damage(mirrored, topic, 15)
    assert [each.kind for each in mirrored.catch_up().halted] == [SOURCE_GAP]
    _set(mirrored, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    report = mirrored.catch_up()
    assert [each.kind for each in report.halted] == [SOURCE_GAP]
    assert "offsets 10 to 19" in report.halted[0].reason
    assert mirrored.through(topic) == 10
    _acknowledge(mirrored, topic)
    assert not mirrored.catch_up().halted
    assert _values(mirrored.target.read(topic)) == [*range(10), *range(20, 40)]


def test_a_batch_whose_offset_is_damaged_hides_nothing_that_follows(mirrored: Mirrored) -> None:
    """No checksum covers a base offset: the broker serves the batch with a later one, and others behind it."""
    topic = mirrored.name("offset")
    mirrored.source.create(topic)
    _write(mirrored, topic, range(50))
    flip(Path(mirrored.lab.dir) / "nodes" / "primary-1" / "data" / f"{topic}-0", 25, 6, mask=0x04)  # 1,024 more
    report = mirrored.catch_up()
    assert [each.kind for each in report.halted] == ["source_unreadable"]
    assert mirrored.through(topic) == 20
    assert _values(mirrored.target.read(topic)) == [*range(20)]


def test_a_batch_whose_offset_is_damaged_gives_its_records_no_offsets_of_others(mirrored: Mirrored) -> None:
    """One that is too low: the broker serves it for what was asked for, though other records have its first offsets."""
    topic, link = mirrored.name("low"), str(mirrored.link.id)
    mirrored.source.create(topic)
    _write(mirrored, topic, range(40))
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        assert mirrored.drkit("link", "pause", link, "--topic", topic).returncode == 0
        _write(mirrored, topic, range(40, 50))
        flip(Path(mirrored.lab.dir) / "nodes" / "primary-1" / "data" / f"{topic}-0", 45, 7, mask=0x0B)  # 35
        assert mirrored.drkit("link", "resume", link, "--topic", topic).returncode == 0
        wait_until(lambda: mirrored.problems("source_unreadable"), what="the problem")
    assert running.error is None
    assert _values(mirrored.target.read(topic)) == [*range(40)]


def test_a_log_whose_last_batch_a_broker_does_not_find_moves_on_only_by_an_operator(mirrored: Mirrored) -> None:
    """It answers with nothing, for ever; once there is another segment, it skips the batch."""
    topic = mirrored.name("last")
    mirrored.source.create(topic, segment_ms="60000")
    _write(mirrored, topic, range(40))
    _damage(mirrored, topic, 35)
    with mirrored.running() as running:
        (problem,) = wait_until(lambda: mirrored.problems(NOT_MOVING), 60, "the partition that doesn't move")
        assert "deliver from source offset 30 on" in problem.reason
        _write(mirrored, topic, range(40, 50), hour=1)
        (problem,) = wait_until(lambda: mirrored.problems(SOURCE_GAP), what="the gap to be named")
        assert "offsets 30 to 39" in problem.reason
        _acknowledge(mirrored, topic)
        mirrored.wait_through(topic)
    assert running.error is None
    assert _values(mirrored.target.read(topic)) == [*range(30), *range(40, 50)]


def _cleaned(mirrored: Mirrored, topic: str, *, now: bool = False) -> None:
    """Wait until the cleaner has left gaps between batches."""

    hours = count(10)

    def gone() -> bool:
        _write(
            mirrored, topic, [1], None if now else next(hours), keys=1
        )  # rolls the segment, so that it may be cleaned
        return len(mirrored.source.read(topic)) < 60

    wait_until(gone, 90, "the cleaner")


def test_a_topic_that_was_compacted_before_goes_on_once_an_operator_says_so(mirrored: Mirrored) -> None:
    topic = mirrored.name("compacted")
    mirrored.source.create(topic, **EAGER)
    for first in (0, 100):
        _write(mirrored, topic, range(first, first + 100), first // 50, keys=20)
        _write(mirrored, topic, [1_000 + first], first // 50 + 1)
    _cleaned(mirrored, topic)
    _set(mirrored, topic, cleanup_policy="delete", segment_ms="604800000")
    report = mirrored.catch_up()
    assert [each.kind for each in report.halted] == [SOURCE_GAP]
    _acknowledge(mirrored, topic, "--compacted")
    assert not mirrored.catch_up().halted
    mirrored.assert_same(topic)


def test_a_topic_that_the_mirror_saw_compacted_has_holes_up_to_where_it_ended_then(mirrored: Mirrored) -> None:
    topic = mirrored.name("compacted")
    mirrored.source.create(topic, **EAGER)
    _write(mirrored, topic, range(500, 510))  # whose keys don't come again: the last mirrored batch stays as it is
    assert mirrored.catch_up().caught_up
    for first in (0, 100):
        _write(mirrored, topic, range(first, first + 100), first // 50, keys=20)
        _write(mirrored, topic, [1_000 + first], first // 50 + 1)
    _cleaned(mirrored, topic)
    _set(mirrored, topic, cleanup_policy="delete", segment_ms="60000")
    assert mirrored.catch_up().caught_up
    assert not [each for each in mirrored.problems() if each.halted]
    end = mirrored.source.end(topic)
    assert mirrored.through(topic) == end
    _write(mirrored, topic, range(20), hour=1_000)
    _write(mirrored, topic, range(20, 30), hour=1_001)
    _damage(mirrored, topic, end + 15)
    report = mirrored.catch_up()
    assert [each.kind for each in report.halted] == [SOURCE_GAP]
    assert mirrored.through(topic) == end + 10


@contextmanager
def _held(mirrored: Mirrored, topic: str) -> Iterator[None]:
    mirrored.hold(topic)
    yield
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic)
    assert told.returncode == 0, told.stderr


def test_a_topic_that_becomes_compacted_under_a_running_mirror_is_no_alarm(mirrored: Mirrored) -> None:
    topic = mirrored.name("becomes")
    mirrored.source.create(topic)
    _write(mirrored, topic, range(10), keys=20)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        with _held(mirrored, topic):
            _write(mirrored, topic, range(100), None, keys=20)
            _set(mirrored, topic, **EAGER)
            _cleaned(mirrored, topic, now=True)
        mirrored.wait_through(topic)
    assert running.error is None
    assert SOURCE_GAP not in [each.problem.kind for each in running.events if isinstance(each, ProblemEvent)]

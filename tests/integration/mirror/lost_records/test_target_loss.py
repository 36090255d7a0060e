"""A target that lost the tail of its log, and the producer's state with it: the broker takes any sequence number."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.mapping import Translator
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from tests.support.links.log_reader import Record
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

OF_2013 = 1_370_000_000_000
BATCH = 10


def write(side: Side, topic: str, numbers: Iterable[int], *, stamped: int) -> None:
    """Records in batches of ten."""
    producer = side.producer(linger_ms=50)
    for count, number in enumerate(numbers, start=1):
        producer.produce(topic, value=b"%06d" % number, partition=0, timestamp=stamped + number)
        if count % BATCH == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def land(side: Side, topic: str, records: Sequence[Record]) -> None:
    """Append copies of records, as a mirror does."""
    producer = side.producer(linger_ms=50)
    for record in records:
        producer.produce(topic, record.value, record.key, partition=0, timestamp=record.timestamp)
    assert producer.flush(30) == 0


def test_after_a_lost_tail_nothing_lands_below_its_place(mirrored: Mirrored) -> None:
    """All of one log lost, stamped now; of the other the last 30 records, which then are as many as come next."""
    topics = {mirrored.name("disk"): (int(time.time() * 1000), 0), mirrored.name("archive"): (OF_2013, 70)}
    for topic, (stamped, _) in topics.items():
        mirrored.source.create(topic)
        write(mirrored.source, topic, range(70), stamped=stamped)
    assert mirrored.catch_up().caught_up
    with mirrored.running() as running:
        for topic, (stamped, _) in topics.items():
            write(mirrored.source, topic, range(70, 100), stamped=stamped)
            mirrored.wait_through(topic)
        with stopped(mirrored.lab, "dr-1", cleanly=False) as disk:
            for topic, (stamped, kept) in topics.items():
                assert disk.cut(topic, 0, kept) == kept
                for snapshot in disk.partition(topic, 0).glob("*.snapshot"):
                    snapshot.unlink()  # the broker forgets the producers
                write(mirrored.source, topic, range(100, 130), stamped=stamped)
        for topic in topics:
            mirrored.wait_through(topic, offset=130)
    assert running.error is None
    for topic, (_, kept) in topics.items():
        mirrored.assert_same(topic)
        mirrored.assert_translates(topic)
        (problem,) = [each for each in mirrored.problems() if each.topic == topic]
        assert problem.kind == "target_lost_data"
        assert f"lost {100 - kept} acknowledged offsets" in problem.reason


def test_a_tail_that_is_lost_while_nothing_is_written_is_copied_again(mirrored: Mirrored) -> None:
    """No append comes that would notice it."""
    topics = {mirrored.name("all"): 0, mirrored.name("tail"): 40}
    for topic in topics:
        mirrored.source.create(topic)
    with mirrored.running() as running:
        for first, end in (
            (0, 40),
            (40, 70),
        ):  # the mirror makes one batch of what it finds: the log is cut between two
            for topic in topics:
                write(mirrored.source, topic, range(first, end), stamped=int(time.time() * 1000))
            for topic in topics:
                mirrored.wait_through(topic, offset=end)
        with stopped(mirrored.lab, "dr-1", cleanly=False) as disk:
            for topic, kept in topics.items():
                assert disk.cut(topic, 0, kept) == kept
        for topic in topics:
            wait_until(lambda t=topic: mirrored.target.end(t) == 70, 60, f"{topic} copied again")
            mirrored.wait_through(topic, offset=70)
    assert running.error is None
    for topic, kept in topics.items():
        mirrored.assert_same(topic)
        (problem,) = [each for each in mirrored.problems() if each.topic == topic]
        assert problem.kind == "target_lost_data"
        assert f"lost {70 - kept} acknowledged offsets" in problem.reason


def test_what_landed_below_its_place_is_found_told_and_copied_anew(mirrored: Mirrored) -> None:
    """As a mirror leaves it that was killed before it heard where its records had landed."""
    topics = {
        mirrored.name(f"kept{kept}-landed{landed}"): (kept, landed) for kept, landed in ((0, 30), (70, 30), (70, 50))
    }
    for topic in topics:
        mirrored.source.create(topic)
        write(mirrored.source, topic, range(70), stamped=OF_2013)
    assert mirrored.catch_up().caught_up
    for topic in topics:
        write(mirrored.source, topic, range(70, 100), stamped=OF_2013)
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "dr-1", cleanly=False) as disk:
        for topic, (kept, landed) in topics.items():
            assert disk.cut(topic, 0, kept) == kept
            write(mirrored.source, topic, range(100, 100 + landed + 10), stamped=OF_2013)
    for topic, (_, landed) in topics.items():
        land(mirrored.target, topic, mirrored.source.read(topic)[100 : 100 + landed])
    assert mirrored.catch_up().caught_up
    for topic, (kept, landed) in topics.items():
        ours = [record.content for record in mirrored.source.read(topic)]
        theirs = [record.content for record in mirrored.target.read(topic)]
        assert theirs == [*ours[:kept], *ours[100 : 100 + landed], *ours[kept:]], "all that was lost, behind"
        (problem,) = [each for each in mirrored.problems() if each.topic == topic]
        assert (problem.kind, problem.halted) == ("records_misplaced", False)
        assert f"source offsets 100 to {99 + landed} were written there" in problem.reason
        assert f"target offsets {kept} to {kept + landed - 1} hold records" in problem.reason
        assert f"up to {kept + landed} removes them" in problem.remedy
        translator = Translator(mirrored.store, mirrored.link.id)
        for offset in range(len(ours) + 1):
            answer = translator.translate(TopicPartition(topic, 0), offset)
            assert answer.target_offset == (offset if offset < kept else offset + landed)
            assert answer.certainty is (Certainty.CONSERVATIVE if offset < kept else Certainty.EXACT)
    write(mirrored.source, topic, range(200, 230), stamped=OF_2013)
    assert mirrored.catch_up().caught_up, "it isn't found again"
    assert len(mirrored.target.read(topic)) == len(mirrored.source.read(topic)) + 50


def test_of_a_link_that_alters_records_a_tail_that_others_replaced_is_found(mirrored: Mirrored) -> None:
    """The log ends where it did. What callables that were changed since would make of a record says nothing of it."""
    callables = "tests.support.links.callables"
    mirrored.configure(f'transform = "{callables}:redacts"')
    replaced, whole = mirrored.name("replaced"), mirrored.name("whole")
    for topic in (replaced, whole):
        mirrored.source.create(topic)
    for first, end in ((0, 70), (70, 100)):  # so that the log can be cut between two batches
        for topic in (replaced, whole):
            write(mirrored.source, topic, range(first, end), stamped=OF_2013)
        assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "dr-1", cleanly=False) as disk:
        assert disk.cut(replaced, 0, 70) == 70
    write(mirrored.target, replaced, range(30), stamped=int(time.time() * 1000))
    assert [(each.topic, each.kind) for each in mirrored.catch_up().halted] == [(replaced, "foreign_writer")]
    assert mirrored.problems()[0].unsure_from == 70
    mirrored.configure(f'filter = "{callables}:keeps_none"')
    write(mirrored.source, whole, range(100, 110), stamped=OF_2013)
    assert [each.topic for each in mirrored.catch_up().halted] == [replaced]
    assert mirrored.through(whole) == 110

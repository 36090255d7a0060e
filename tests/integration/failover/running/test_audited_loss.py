"""What a failover lost, counted on the old primary once it answers again."""

import pytest
from confluent_kafka import Producer

from drkit.drill.environment.log_surgery import flip, stopped
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.lag.batch_comparison import compare_batches
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import some_of
from tests.support.links.estates import TIMEOUT, mirror, own_link, texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("audited losses", 2)]

LENGTH_AT = 8
CALLABLES = "tests.support.links.callables"


def away(own):
    """Fail over from a primary that doesn't answer: nothing is known to be lost. Then clients write to dr."""
    with own.estate(without_primary(own)) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    for tp in own.store.watermarks(own.link.id):  # its clients write there now
        if tp.topic.startswith(own.name):
            own.produce("dr", tp.topic, texts("written on dr", 30, [tp.partition]))
    return result.evidence


def audited(own):
    """How many records are lost; whether it may be more, and fewer; and why."""
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
    assert loss.basis == "audited"
    return (loss.records, loss.lower_bound, loss.upper_bound), loss.reason


def write(own, topic, what, first, end):
    """Records at these offsets, in batches of 10, all of them different."""
    for begin in range(first, end, 10):
        own.produce("primary", topic, {0: [f"{what}-{number}" for number in range(begin, begin + 10)]})


def test_what_a_primary_that_was_set_back_holds_instead_is_lost(own, lab, tmp_path):
    """All of it, its controllers too: no leader epoch tells, and its log ends where it did."""
    topic, copy = own.create("primary", "t", partitions=1), tmp_path / "copy"
    write(own, topic, "mirrored", 0, 60)
    with stopped(lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(own, topic, "mirrored", 60, 100)
    mirror(own)
    with stopped(lab, "primary-1") as disk:
        disk.set_back(copy)
    write(own, topic, "other", 60, 100)
    evidence = away(own)
    assert (evidence.rpo_records, evidence.rpo_lower_bound) == (0, True)
    counted, reason = audited(own)
    assert counted == (40, False, False), reason


def test_a_primary_that_lost_its_tail_and_was_set_back_further_has_lost_more(own, lab, tmp_path):
    """The loss of its tail is on record; the other one nobody has seen."""
    topic, copy = own.create("primary", "t", partitions=1), tmp_path / "copy"
    write(own, topic, "mirrored", 0, 30)
    with stopped(lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(own, topic, "mirrored", 30, 100)
    mirror(own)
    with stopped(lab, "primary-1") as disk:
        assert disk.cut(topic, 0, 60) == 60
    write(own, topic, "second", 60, 100)
    with own.estate() as estate:
        for problem in observe(estate, own.link).problems:
            own.store.put_problem(own.link.id, problem)
    assert [each.unsure_from for each in own.store.problems(own.link.id)] == [60]
    with stopped(lab, "primary-1") as disk:
        disk.set_back(copy)
    write(own, topic, "third", 30, 100)
    away(own)
    (records, lower, _upper), reason = audited(own)
    assert (records, lower) == (70, False), reason


def test_records_that_the_broker_passes_over_without_an_error_may_be_lost_too(own, lab):
    """The length of the last batch reaches beyond the log: its offsets are no hole of a topic that isn't compacted."""
    topic = own.create("primary", "t", partitions=1)
    write(own, topic, "mirrored", 0, 30)
    mirror(own)
    write(own, topic, "left", 30, 100)
    away(own)
    flip(lab.dir / "nodes" / "primary-1" / "data" / f"{topic}-0", 95, LENGTH_AT, mask=0x7F)
    (records, lower, upper), reason = audited(own)
    assert (records, lower, upper) == (60, True, False), reason
    assert f"{topic}:0" in reason


def test_where_both_sides_part_may_be_unknown(own, lab, tmp_path):
    """The target no longer holds what would tell: as much as the primary holds is lost at most."""
    topic, copy = own.create("primary", "t", partitions=1), tmp_path / "copy"
    write(own, topic, "mirrored", 0, 60)
    with stopped(lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(own, topic, "mirrored", 60, 100)
    mirror(own)
    with stopped(lab, "primary-1") as disk:
        disk.set_back(copy)
    write(own, topic, "other", 60, 100)
    away(own)
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 100})
    counted, reason = audited(own)
    assert counted == (100, False, True)
    assert "from where on" in reason


def test_where_both_cleaners_have_worked_nobody_says_that_the_primary_was_set_back(own):
    """Clients of dr wrote its keys again, and late ones of the primary most of them: nothing is left to compare."""
    eager = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.0001"}
    topic = own.create("primary", "t", partitions=1, **eager)
    own.produce("primary", topic, texts("mirrored", 50, [0]))
    mirror(own)
    mark = own.store.watermarks(own.link.id)[TopicPartition(topic, 0)]
    away(own)
    own.produce("dr", topic, texts("again", 50, [0]))
    own.produce("primary", topic, texts("late", 45, [0]))
    with own.estate() as estate:

        def cleaned():
            for alias in ("primary", "dr"):
                own.produce(alias, topic, {0: ["rolls a segment"]})
            written_anew = mark.tp in compare_batches(estate.admin("primary"), [mark]).rewritten
            return written_anew and min(own.records("dr", topic)[0]) >= 50

        wait_until(cleaned, 90, "the cleaners")

    def late():
        return sum(place >= 50 for place in own.records("primary", topic)[0])

    most = late()
    (records, lower, upper), reason = audited(own)
    assert (lower, upper) == (True, False)
    assert late() <= records <= most, "its cleaner works on"
    assert "its cleaner" in reason or "the cleaner of" in reason


def transaction(own, topic, values):
    """A producer with an open transaction of these records."""
    producer = Producer({**own.client("primary"), "transactional.id": f"{own.name}.app", "linger.ms": 0})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(TIMEOUT)
    return producer


@pytest.mark.parametrize("end", ["abort", "commit", None])
def test_what_a_transaction_aborts_is_no_loss(own, end):
    topic = own.create("primary", "t", partitions=1)
    write(own, topic, "mirrored", 0, 10)
    mirror(own)
    producer = transaction(own, topic, [b"pending"] * 50)
    away(own)
    if end is not None:
        getattr(producer, f"{end}_transaction")(TIMEOUT)
    counted, reason = audited(own)
    assert counted == {"abort": (0, False, False), "commit": (50, False, False), None: (50, False, True)}[end]
    assert ("behind open transactions" in reason) == (end is None)
    if end is None:
        producer.abort_transaction(TIMEOUT)
        assert audited(own)[0] == (0, False, False), "once it is over"


def test_what_the_link_leaves_out_is_no_loss(lab, tmp_path, unique_name):
    own = own_link(lab, tmp_path, unique_name, extra=f'filter = "{CALLABLES}:keeps_two_of_three"')
    try:
        topic = own.create("primary", "t", partitions=1)
        write(own, topic, "mirrored", 0, 30)
        mirror(own)
        write(own, topic, "late", 30, 60)
        away(own)
        counted, reason = audited(own)
        assert counted == (20, False, False), reason
    finally:
        own.store.close()

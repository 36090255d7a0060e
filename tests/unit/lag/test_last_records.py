"""What counts as equal, gone, different and unread where records of both sides are compared."""

from itertools import count

from crc32c import crc32c

from drkit.kafka.client.record_probe import NOTHING, LogPosition, ProbedRecord
from drkit.kafka.protocol import record_body
from drkit.kafka.transform.record_transform import Alteration
from drkit.lag.last_records import altered, judge_records
from drkit.model.topology import Link, LinkId, TopicPartition

TP = TopicPartition("t", 0)


def test_what_was_read_is_judged():
    copies = {
        LogPosition(TP, 0): ProbedRecord(0, 1, 11),
        LogPosition(TP, 1): ProbedRecord(1, 1, 12),
        LogPosition(TP, 2): ProbedRecord(2, 1, 13),
        LogPosition(TP, 3): ProbedRecord(4, 1, 14),  # a marker: the next record was found
        LogPosition(TP, 4): ProbedRecord(4, 1, 15),
        LogPosition(TP, 5): NOTHING,
        LogPosition(TP, 6): ProbedRecord(reason="not read in time"),
        LogPosition(TP, 7): ProbedRecord(7, 1, 16),
    }
    places = {there: LogPosition(TP, there.offset + 100) for there in copies}
    ours = {
        LogPosition(TP, 100): ProbedRecord(100, 1, 11),
        LogPosition(TP, 101): ProbedRecord(101, 1, 99),
        LogPosition(TP, 102): ProbedRecord(105, 1, 13),  # compacted away meanwhile
        LogPosition(TP, 104): ProbedRecord(104, 1, 98),
        LogPosition(TP, 107): ProbedRecord(107, 2, 16),  # a heartbeat that was written again
    }
    found = judge_records(ours, copies, places)
    assert (found.equal, found.gone) == (1, 1)
    assert [(here.offset, there.offset) for here, there in found.differ] == [(101, 1), (104, 4), (107, 7)]
    assert found.differs_from() == {TP: 101}
    assert found.unread == [(LogPosition(TP, 106), "t:0 at 6: not read in time")]
    unread = judge_records({**ours, LogPosition(TP, 100): ProbedRecord(reason="no leader")}, copies, places)
    assert [why for _, why in unread.unread] == ["t:0 at 100: no leader", "t:0 at 6: not read in time"]


LINK = Link(LinkId("primary", "dr"), topics=(".*",), filter="m:keeps", transform="m:louder")


def read_with_body(value: bytes) -> ProbedRecord:
    body = record_body.encode(None, value, ())
    return ProbedRecord(7, 1, crc32c(body), body=body)


def test_a_record_is_compared_as_its_link_makes_it():
    louder = Alteration(
        LINK, lambda record: record.value != b"no", lambda record: record.replace(value=record.value.upper())
    )
    assert altered(TP, read_with_body(b"yes"), louder).crc == read_with_body(b"YES").crc
    assert altered(TP, read_with_body(b"no"), louder).crc is None, "the target can't have it from there"
    unread = ProbedRecord(reason="no leader")
    assert altered(TP, unread, louder) == unread


def test_what_a_link_makes_of_a_record_is_not_known_where_its_callables_fail_or_change_their_mind():
    numbers = count()
    fickle = Alteration(LINK, None, lambda record: record.replace(value=b"%d" % next(numbers)))
    assert "another result if called again" in (altered(TP, read_with_body(b"a"), fickle).reason or "")
    failing = Alteration(LINK, None, lambda record: record.value.decode("ascii"))
    assert "UnicodeDecodeError" in (altered(TP, read_with_body(b"\xff"), failing).reason or "")

"""Batches that a consumer which checks CRCs can't read: findings of their own, and everything else is audited."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from drkit.audit.salvage.replay import replay
from drkit.audit.salvage.salvage import salvage
from drkit.drill.environment.log_surgery import flip
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.protocol.record_batch import CRC_FROM, HEADER_BYTES, parse
from drkit.model.audit.audit_result import AuditRequest, SalvageClass, SalvageKind, TopicChoice, Verdict
from drkit.model.errors import Refused
from tests.support.audits.damage import STAMP, Record, dense, forwarded, records, seeded
from tests.support.clusters import raw
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.batches import batch_bytes, retouched
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("unreadable batches", 3)]

LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 8, 16, 17, CRC_FROM, 43
CODEC_BITS = 0x07


def mirrored(bench, name: str, *, count: int = 1_200, size: int = 100) -> None:
    """A topic of one partition that is on both sides, batch by batch."""
    bench.create(name)
    bench.produce("primary", name, 0, records(count, rng=seeded(name[-1])), batched=size)
    source = bench.read("primary", name, 0)
    bench.forward(name, 0, source, [each.record for each in source])
    bench.remember(name, {0: dense(source)})


def folder(bench, alias: str, name: str):
    return bench.lab.dir / "nodes" / f"{alias}-1" / "data" / f"{name}-0"


def of(result, topic: str):
    return next(each.counts for each in result.partitions if each.topic == topic)


def test_a_batch_that_fails_its_checksum_is_unreadable_and_all_else_is_audited(bench, audit, unique_name):
    places = {"crc": CRC_AT, "payload": HEADER_BYTES + 3, "attributes": ATTRIBUTES_AT + 1, "producer": PRODUCER_AT}
    names = {kind: f"{unique_name}.{kind}" for kind in places}
    healthy = f"{unique_name}.healthy"
    for name in (*names.values(), healthy):
        mirrored(bench, name)
    spoilt = {kind: flip(folder(bench, "dr", names[kind]), 350, at, mask=0x01) for kind, at in places.items()}

    result, full = (audit(*names.values(), healthy, full=full) for full in (False, True))

    assert result.verdict is Verdict.DEVIATED
    assert (result.partitions, set(result.findings)) == (full.partitions, set(full.findings))
    assert (of(result, healthy).clean, of(result, healthy).matched) == (True, 1_200)
    for kind, batch in spoilt.items():
        expected = list(range(batch.base_offset, batch.last_offset + 1))
        found = [each for each in result.findings if each.topic == names[kind]]
        assert [(each.kind.value, each.source_offset, each.target_offset) for each in found] == [
            ("unreadable", offset, offset) for offset in expected
        ]
        assert of(result, names[kind]).matched == 1_200 - len(expected)
        assert of(result, names[kind]).source_records == of(result, names[kind]).target_records == 1_200


@pytest.mark.parametrize(
    ("offset", "mask"),
    sampled(
        "a damaged length",
        [
            pytest.param(350, 0x7F, id="longer"),
            pytest.param(350, 0x80, id="negative"),
            pytest.param(1_199, 0x7F, id="longer, nothing behind it"),
        ],
        1,
    ),
)
def test_a_batch_whose_length_is_damaged_ends_neither_the_audit_nor_the_rest_of_its_log(
    bench, audit, unique_name, offset, mask
):
    mirrored(bench, unique_name)
    batch = flip(folder(bench, "dr", unique_name), offset, LENGTH_AT, mask=mask)

    counts = of(audit(unique_name), unique_name)

    assert counts.unreadable >= batch.records_count  # the broker finds what is behind it by its index: some more go
    assert (counts.lost, counts.foreign, counts.corrupted) == (0, 0, 0)
    assert counts.matched + counts.unreadable == 1_200
    assert counts.matched > 300  # what is behind it is read again


@pytest.mark.parametrize("last", [599, 1_199], ids=["of a segment", "of the log"])
def test_what_a_broker_skips_without_an_error_is_no_hole_unless_the_topic_is_compacted(
    bench, audit, spark, unique_name, tmp_path, last
):
    """A length that reaches beyond its segment: the broker answers with the next segment, or with nothing."""
    bench.create(unique_name, config={"segment.ms": "60000"})
    rows = records(1_200, rng=seeded(5))
    for some, stamp in ((rows[:600], STAMP), (rows[600:], STAMP + 3_600_000)):
        bench.produce("primary", unique_name, 0, [replace(each, stamp=stamp) for each in some], batched=100)
    source = bench.read("primary", unique_name, 0)
    bench.forward(unique_name, 0, source[:300], [each.record for each in source[:300]])
    bench.remember(unique_name, {0: dense(source[:300])})
    batch = flip(folder(bench, "primary", unique_name), last, LENGTH_AT, mask=0x7F)
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(unique_name),))

    found = audit(unique_name)
    kept = salvage(request, bench.store, bench.config, spark)

    assert found.verdict is Verdict.INCOMPLETE
    assert f"{unique_name}:0 from offset {batch.base_offset} to {last}" in found.incomplete[0]
    assert kept.unreadable == {f"{unique_name}:0": [(batch.base_offset, last + 1)]}
    assert kept.total == 900 - batch.records_count


def test_a_batch_whose_format_is_damaged_is_unreadable_wherever_reading_begins(bench, audit, unique_name):
    """The broker answers a server error to whoever begins at that batch, or behind it before the next index entry.

    It takes the batch for one of the format before: that has its attributes where this one's CRC begins, so in one of
    eight cases they say "not compressed", which is one record. Whoever begins behind it is then given the next batch.
    """
    mirrored(bench, unique_name)
    batch = flip(folder(bench, "dr", unique_name), 350, MAGIC_AT, mask=0x03)
    stepped_over = batch.whole[CRC_AT] & CODEC_BITS == 0

    for first in (0, batch.base_offset, batch.base_offset + 1):
        with LogReader("dr", bench.config.clusters["dr"]) as reader:
            found = [each for some in reader.read(unique_name, 0, first, 1_200) for each in some]
        damaged = [each.base_offset for each in found if not each.readable]
        unseen = stepped_over and first > batch.base_offset
        assert damaged == ([] if unseen else [max(first, batch.base_offset)])
        assert (found[0].base_offset, found[-1].last_offset) == (batch.last_offset + 1 if unseen else first, 1_199)
    counts = of(audit(unique_name), unique_name)
    assert counts.unreadable >= batch.records_count
    assert (counts.lost, counts.foreign, counts.corrupted, counts.matched + counts.unreadable) == (0, 0, 0, 1_200)


def test_many_unreadable_batches_among_much_damage_are_told_from_what_is_lost(bench, audit, unique_name):
    bench.create(unique_name)
    bench.produce("primary", unique_name, 0, records(9_000, rng=seeded(3)), batched=500)
    source = bench.read("primary", unique_name, 0)
    lost = {each.offset for each in source[2_000:8_000]}  # more than a task hands over itself
    bench.forward(unique_name, 0, source, [each.record for each in source[:2_000] + source[8_000:]])
    bench.remember(unique_name, {0: {each.offset: n for n, each in enumerate(source[:2_000] + source[8_000:])}})
    batch = flip(folder(bench, "dr", unique_name), 2_300, CRC_AT)

    result = audit(unique_name)

    counts = of(result, unique_name)
    assert counts.lost == len(lost)
    assert counts.unreadable == batch.records_count
    assert counts.matched == 3_000 - batch.records_count


def test_what_the_source_can_t_give_is_incomplete_not_clean_and_nothing_foreign(bench, audit, unique_name):
    mirrored(bench, unique_name)
    batch = flip(folder(bench, "primary", unique_name), 350, HEADER_BYTES + 3, mask=0x01)

    result = audit(unique_name)

    assert result.verdict is Verdict.INCOMPLETE
    assert of(result, unique_name).clean
    assert of(result, unique_name).matched == 1_200 - batch.records_count
    assert f"{unique_name}:0 from offset {batch.base_offset} to {batch.last_offset}" in result.incomplete[0]


def test_timestamps_that_are_no_dates_are_numbers(bench, audit, unique_name):
    micros, nanos, year_58863 = STAMP * 1_000, STAMP * 1_000_000, 1_795_366_980_000_000
    odd = [Record(f"k{at}".encode(), b"v", stamp) for at, stamp in enumerate((micros, nanos, year_58863, STAMP))]
    bench.create(unique_name, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    bench.produce("primary", unique_name, 0, odd)
    source = bench.read("primary", unique_name, 0)
    bench.remember(unique_name, {0: dense(source)})

    result = audit(unique_name)

    assert {(each.timestamp_ms, each.timestamp is None) for each in result.findings} == {
        (micros, True),
        (nanos, True),
        (year_58863, True),
        (STAMP, False),
    }


def test_header_names_that_differ_only_in_bytes_that_are_no_text_are_not_equal(bench, audit, unique_name):
    names = (b"\xfex", b"\xffx")
    bench.create(unique_name)
    for alias, name in zip(("primary", "dr"), names, strict=True):
        data = retouched(batch_bytes([(STAMP, b"k", b"v", [("xx", b"1")])]).replace(b"xx", name))
        batch = next(parse(memoryview(data)))
        raw.produce(bench.config.clusters[alias].bootstrap_servers, unique_name, 0, forwarded(batch))
    bench.remember(unique_name, {0: {0: 0}})

    result = audit(unique_name)

    assert (result.counts.matched, result.counts.corrupted) == (0, 1)


def test_without_a_mapping_an_audit_is_incomplete(bench, audit, unique_name):
    bench.create(unique_name)
    rows = records(50, rng=seeded(1))
    bench.produce("primary", unique_name, 0, rows)
    bench.produce("dr", unique_name, 0, rows)

    result = audit(unique_name)

    assert (result.verdict, result.counts.matched) == (Verdict.INCOMPLETE, 50)
    assert unique_name in result.incomplete[0]


def test_a_salvage_keeps_what_the_target_can_t_give_and_names_what_the_source_can_t(
    bench, spark, unique_name, tmp_path
):
    mirrored(bench, unique_name)
    gone = flip(folder(bench, "primary", unique_name), 350, HEADER_BYTES + 3, mask=0x01)
    hidden = flip(folder(bench, "dr", unique_name), 850, CRC_AT)
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(unique_name),))

    result = salvage(request, bench.store, bench.config, spark)

    where = f"{unique_name}:0"
    assert result.unreadable == {where: [(gone.base_offset, gone.last_offset + 1)]}
    (listed,) = json.loads(Path(result.manifest).read_text())["partitions"]
    assert listed["unreadable"] == [[gone.base_offset, gone.last_offset + 1]]
    assert (result.total, result.records[SalvageKind.UNREADABLE]) == (hidden.records_count, hidden.records_count)
    rows = pq.read_table(Path(result.path) / "records.parquet").to_pylist()
    assert [row["offset"] for row in rows] == list(range(hidden.base_offset, hidden.last_offset + 1))
    # a later value of any key may hide in that batch
    stands = Counter((row["key"] is None, row["standing"]) for row in rows)
    assert {standing for keyless, standing in stands if not keyless} == {SalvageClass.CONFLICTING}
    assert {standing for keyless, standing in stands if keyless} <= {SalvageClass.NEW}


def test_a_replay_writes_stamps_as_they_are_and_nothing_where_it_can_t_read_what_is_there(
    bench, spark, unique_name, tmp_path
):
    """A stamp of 0, one before 1970, a null header, neither key nor value; then a bit of what was written is turned."""
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    rows = [(0, b"a", b"zero", []), (-5_000, b"b", b"before", [("h", None)]), (STAMP, None, None, [])]
    batch = next(parse(memoryview(batch_bytes(rows))))
    raw.produce(bench.config.clusters["primary"].bootstrap_servers, topic, 0, forwarded(batch))
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))
    assert salvage(request, bench.store, bench.config, spark).total == 3
    what = (tmp_path / "kept", into, bench.link.id, bench.config, bench.store)

    assert replay(*what).written == 3

    # a transaction's commit is answered before its marker is written: the records are to be read a moment later
    wait_until(lambda: len(bench.read("dr", into, 0)) == 3, what="the marker of the replay's transaction")
    there = [each.record for each in bench.read("dr", into, 0)]
    assert [(each.stamp, each.key, each.value, list(each.headers)[:-1]) for each in there] == rows
    assert replay(*what).written == 0
    flip(folder(bench, "dr", into), 0, HEADER_BYTES + 3, mask=0x01)
    with pytest.raises(Refused, match=f"{into}:0 on dr can't be read at offset"):
        replay(*what)

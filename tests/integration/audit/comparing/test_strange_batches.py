"""Batches on the target that a consumer reads otherwise than a mirror wrote them, by every way of comparing.

What an audit must find follows from what a plain consumer that checks CRCs reads of both sides, record for record. Each
topic was mirrored, so that digests are kept of it; then stored batches are altered behind the broker's back.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from drkit.drill.environment.log_surgery import flip, rewrite
from drkit.kafka.config.client_config import confluent_config
from drkit.kafka.protocol.record_batch import CRC_FROM, DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, parse
from drkit.lab import Lab
from drkit.mirror.engine import range_digests
from drkit.model.audit.audit_result import DEVIATIONS, AuditResult, Counts, Verdict
from drkit.model.audit.continuous_audit import AuditProgress
from drkit.store import open_store
from tests.support.audits.audit_ways import continuously, every_way, mirrored, rows
from tests.support.audits.damage import STAMP, Bench, Record, forwarded
from tests.support.clusters import raw
from tests.support.clusters.guard import Guard
from tests.support.collection.sampling import some_of
from tests.support.links.batches import batch_bytes, retouched
from tests.support.links.log_reader import read_partition, read_until_refused
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("strange batches", 1)]

COUNT, BATCH, AT = 1_000, 25, 510
"""Records of a topic, of a batch; a record in the batch that is altered, from 500 to 524 where there are no markers."""
CRC_AT = CRC_FROM - 4
CONTROL, TRANSACTIONAL = 0x20, 0x10


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """A lab of its own: a broker that is restarted with such logs may not load them (a batch that claims to be of a
    transaction: InvalidTxnStateException), and ends; so would each later test on a shared one."""
    folder = tmp_path_factory.mktemp("strange")
    lab_guard.watch(folder)
    own = Lab.up(folder, brokers=1, store="sqlite")
    yield own
    own.down()


@dataclass(frozen=True)
class Place:
    """A topic on the target, and its log on the disk."""

    bench: Bench
    topic: str
    folder: Path

    def stored(self, **fields: int) -> None:
        """Fields of a batch's header changed, with a checksum that fits."""
        rewrite(self.folder, AT, lambda data: retouched(data, **fields))

    def based(self, offset: int) -> None:
        """A batch that says that it begins elsewhere, which no checksum covers."""
        rewrite(self.folder, AT, lambda data: struct.pack(">q", offset) + data[8:])

    def appended(self, *rows: Record) -> int:
        """A batch that somebody else wrote at the end."""
        made = [(each.stamp, each.key, each.value, list(each.headers)) for each in rows]
        batch = next(parse(memoryview(batch_bytes(made))))
        servers = self.bench.config.clusters["dr"].bootstrap_servers
        return raw.produce(servers, self.topic, 0, forwarded(batch))[0]


def attributes(flag: int) -> Callable[[Place], None]:
    return lambda place: place.stored(attributes=flag)


def strange_and_unreadable(place: Place) -> None:
    flip(place.folder, place.appended(Record(b"stranger", b"of nobody", STAMP)), CRC_AT)


def marker_unreadable(place: Place) -> None:
    flip(place.folder, BATCH, CRC_AT)  # the first transaction's


def no_utf8_and_cut(place: Place) -> None:
    """The name of a header is no UTF-8, and a record ends within its headers; the checksum fits."""

    def torn(data: bytes) -> bytes:
        at = data.index(b"name", HEADER_BYTES)
        return retouched(data[: at - 1] + b"\x7e\xff" + data[at + 1 :])

    rewrite(place.folder, AT, torn)


ACTS: dict[str, Callable[[Place], None]] = {
    "unharmed": lambda _: None,
    "base-1-higher": lambda place: place.based(501),
    "base-far-higher": lambda place: place.based(756),
    "base-lower": lambda place: place.based(244),
    "base-1-lower": lambda place: place.based(499),
    "control": attributes(CONTROL),
    "control-of-a-transaction": attributes(CONTROL | TRANSACTIONAL),
    "transactional": attributes(TRANSACTIONAL),
    "append-time": attributes(LOG_APPEND_TIME),
    "delete-horizon": attributes(DELETE_HORIZON),
    "highest-stamp": lambda place: place.stored(max_timestamp=STAMP + 1_000_000),
    "stamps-shifted": lambda place: place.stored(base_timestamp=STAMP),
    "count-less": lambda place: place.stored(count=BATCH - 1),
    "count-more": lambda place: place.stored(count=BATCH + 1),
    "cut-and-no-utf8": no_utf8_and_cut,
    "crc": lambda place: flip(place.folder, AT, CRC_AT),  # type: ignore[dict-item, return-value]
    "strange-and-unreadable": strange_and_unreadable,
    "marker-unreadable": marker_unreadable,
}
TRANSACTIONS = {"marker-unreadable"}
CLEAN = {"unharmed", "transactional", "delete-horizon", "highest-stamp"}
"""What a consumer reads as if nothing had been done."""
HIDDEN = {act for act in ACTS if act.startswith(("base", "count", "cut", "crc"))}
"""Where the batch is a finding, and nothing beside it. What a consumer skips with it goes by where it begins to read,
and librdkafka takes some of what Java's client refuses."""


def counts_of(result: AuditResult, topic: str) -> Counts:
    return next(each.counts for each in result.partitions if each.topic == topic)


def test_what_a_consumer_of_the_target_reads_is_what_an_audit_says(
    lab, audit, spark, unique_name, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(range_digests, "MOST_RECORDS", 200)
    url = f"sqlite:///{tmp_path / 'mapping.db'}"
    bench = Bench(lab, open_store(url))
    topics = {act: f"{unique_name}.{act}" for act in ACTS}
    source = [Record(b"key %d" % n, b"value %d" % n, STAMP + n, (("name", b"%d" % n),)) for n in range(COUNT)]
    for act, topic in topics.items():
        bench.create(topic, on=["primary"])
        kind = {"transactions": "c", "transaction": BATCH} if act in TRANSACTIONS else {}
        bench.produce("primary", topic, 0, source, batched=BATCH, **kind)
    link = mirrored(bench, re.escape(unique_name) + "[.].*")
    for act, topic in topics.items():
        ACTS[act](Place(bench, topic, lab.dir / "nodes" / "dr-1" / "data" / f"{topic}-0"))

    found = every_way(audit, *topics.values(), link=link, store=bench.store)

    client = {alias: confluent_config(bench.config.clusters[alias]) for alias in ("primary", "dr")}
    wrong: list[str] = []
    as_if_unharmed: set[str] = set()
    for act, topic in topics.items():
        there = Counter(each.content for each in read_partition(client["primary"], topic))
        read, to_the_end = read_until_refused(client["dr"], topic)
        if act in HIDDEN:
            batch = {("unreadable", n, n) for n in range(500, 525)}
            for way, result in found.items():
                told = {(row["kind"], row["source_offset"], row["target_offset"]) for row in rows(result, topic)}
                wrong += [f"{act} by {way}: {told ^ batch}"] if told != batch else []
            continue
        got = Counter(each.content for each in read)
        if to_the_end and got == there:
            as_if_unharmed.add(act)
        for way, result in found.items():
            told = counts_of(result, topic)
            reasons = [each for each in result.incomplete if topic in each]
            wrong += [
                f"{act} by {way}: {text}; {told}; {reasons}"
                for text in misjudged(told, reasons, there, got, to_the_end)
            ]
        first, *others = (rows(result, topic) for result in found.values())
        wrong += [f"{act}: ways differ" for each in others if each != first]
    assert (wrong, as_if_unharmed) == ([], CLEAN), "\n".join(wrong)
    audited = found["default"]
    numbers = {each.topic: deviations(each.counts) for each in audited.partitions}

    def agrees(progress: AuditProgress) -> None:
        assert {topic: deviations(counts) for topic, counts in progress.topics.items()} == numbers
        assert progress.unknown == len(audited.incomplete), audited.incomplete

    continuously(bench, link, spark, tmp_path / "checkpoint", url, agrees)
    bench.store.close()


def deviations(counts: Counts) -> dict[str, int]:
    return {kind: number for kind in DEVIATIONS if (number := getattr(counts, kind))}


def test_what_stands_behind_an_open_transaction_is_not_compared(bench, audit, unique_name):
    """Somebody's producer died on the target within a transaction: readers of committed records get no further."""
    bench.create(unique_name)
    source = [Record(b"key %d" % n, b"value %d" % n, STAMP + n) for n in range(100)]
    bench.produce("primary", unique_name, 0, source)
    bench.produce("dr", unique_name, 0, source[:50])
    settings = {"transactional.id": unique_name, "transaction.timeout.ms": 900_000}
    stranger = Producer(confluent_config(bench.config.clusters["dr"]) | settings)
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(unique_name, b"never committed", partition=0)
    assert stranger.flush(30) == 0
    bench.produce("dr", unique_name, 0, source[50:])
    bench.remember(unique_name, {0: {n: n + (n >= 50) for n in range(100)}})

    found = every_way(audit, unique_name, digests=False)
    stranger.abort_transaction(30)
    after = wait_until(lambda: settled(audit(unique_name)), what="the transaction's end")

    for result in found.values():
        assert (result.verdict, result.counts) == (Verdict.INCOMPLETE, Counts(50, 50, 50))
        assert f"{unique_name}:0 on dr can be read only up to offset 49" in result.incomplete[0]
        assert "50 records" in result.incomplete[0]
    assert after.counts == Counts(100, 100, 100)


def settled(result: AuditResult) -> AuditResult:
    assert result.verdict is Verdict.CLEAN, result
    return result


def misjudged(told: Counts, reasons: list[str], there: Counter, got: Counter, to_the_end: bool) -> list[str]:
    """What of an audit's counts a consumer's reading contradicts."""
    clean = told.clean and not reasons and not told.unseen
    if not to_the_end:
        return ["is clean where a consumer stops"] if clean else []
    missing, more = (there - got).total(), (got - there).total()
    found = []
    if clean != (not missing and not more):
        found.append(f"clean is {clean}, and {missing} are missing, {more} more than there should be")
    if (lacks := told.lost + told.corrupted + told.unseen + told.unreadable) != missing and not reasons:
        found.append(f"{lacks} missing, not {missing}")
    if (extra := told.duplicated + told.corrupted + told.foreign) != more and not reasons:
        found.append(f"{extra} too many, not {more}")
    return found


def test_of_a_link_without_topics_nothing_was_compared(bench, audit):
    """Its source was emptied and its store lost, or its patterns are wrong: nothing compared is not clean."""
    result = audit(link=replace(bench.link, topics=("no-topic-of-this-name",)))

    assert (result.verdict, result.counts, result.partitions) == (Verdict.INCOMPLETE, Counts(), ())
    assert "match none on primary" in result.incomplete[0]

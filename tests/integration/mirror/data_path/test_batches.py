"""What the batch engine does with each kind of batch, on real brokers: seen in the target's log itself."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from drkit.kafka.protocol.record_batch import Batch, parse
from drkit.mirror.runtime.events import ProgressEvent
from drkit.model.topology import TopicPartition
from tests.support.clusters.raw import fetch, produce
from tests.support.collection.sampling import sampled
from tests.support.links.batches import CODECS, batch_bytes, thinned
from tests.support.links.mirroring import Mirrored

pytestmark = pytest.mark.lab

PAIRS = [pytest.param(1, 0, id="1-0"), pytest.param(1, 3, id="1-3"), pytest.param(4, 4, id="4-4")]
"""Records a batch, and its codec."""


def _log(bootstrap: str, topic: str) -> list[Batch]:
    return list(parse(memoryview(fetch(bootstrap, topic, 0))))


def _write(mirrored: Mirrored, topic: str, sizes: list[int], codec: int = 0) -> None:
    """Batches of so many records each."""
    rows = iter([(1_700_000_000_000 + n, b"k%d" % n, b"v%d" % n * 9, []) for n in range(sum(sizes))])
    batches = [batch_bytes(list(islice(rows, size)), codec=codec) for size in sizes]
    produce(mirrored.source.bootstrap, topic, 0, *((data[:61], data[61:]) for data in batches))


def _replace_log(mirrored: Mirrored, topic: str, data: bytes) -> None:
    """Have the source's log of partition 0 be exactly these bytes: its broker is killed and started again."""
    mirrored.lab.kill("primary")
    try:
        (folder,) = Path(mirrored.lab.dir).glob(f"**/{topic}-0")
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        (folder / f"{0:020}.log").write_bytes(data)
    finally:
        mirrored.lab.restart("primary")


@pytest.mark.parametrize("codec", sampled("forwarded batches by codec", CODECS, 2), ids=CODECS.get)
def test_records_are_forwarded_byte_for_byte(mirrored: Mirrored, codec: int) -> None:
    topic = mirrored.name("same")
    mirrored.source.create(topic)
    _write(mirrored, topic, [40, 100, 25, 1, 300], codec)
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(topic)
    ours, theirs = _log(mirrored.source.bootstrap, topic), _log(mirrored.target.bootstrap, topic)
    assert [bytes(batch.records) for batch in theirs] == [bytes(batch.records) for batch in ours]
    assert [batch.base_offset for batch in theirs] == [batch.base_offset for batch in ours]
    assert {batch.codec for batch in theirs} == {codec}


@pytest.mark.usefixtures("joining")
@pytest.mark.parametrize(("each", "codec"), sampled("merged batches", PAIRS, 1))
def test_runs_of_tiny_batches_are_merged_and_keep_their_codec(mirrored: Mirrored, each: int, codec: int) -> None:
    topic = mirrored.name("tiny")
    mirrored.source.create(topic)
    _write(mirrored, topic, [each] * 300, codec)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
    mirrored.assert_same(topic)
    theirs = _log(mirrored.target.bootstrap, topic)
    assert len(theirs) < 30
    assert sum(batch.records_count for batch in theirs) == 300 * each
    assert {batch.codec for batch in theirs} == {codec}
    told = [event.statistics for event in running.events if isinstance(event, ProgressEvent)]
    assert told


def test_read_uncommitted_carries_aborted_records_too(mirrored: Mirrored) -> None:
    mirrored.configure('isolation = "read_uncommitted"')
    topic = mirrored.name("all")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(4):
            producer.produce(topic, value=b"%d" % number, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    assert mirrored.catch_up().caught_up
    ours = mirrored.source.read(topic, committed=False)
    assert len(ours) == 12
    assert mirrored.target.read(topic) == ours, "at the same offsets, for every consumer: nothing is aborted there"


def test_read_uncommitted_counts_what_an_open_transaction_holds_back(mirrored: Mirrored) -> None:
    """The end of the source is its high watermark then, wherever it is told and in what is waited for."""
    mirrored.configure('isolation = "read_uncommitted"')
    topic = mirrored.name("open")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(40):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    told = mirrored.drkit("status", "-o", "json")
    (partition,) = json.loads(told.stdout)["links"][0]["partitions"]
    assert (partition["source_end"], partition["lag_records"]) == (40, 40)
    assert mirrored.catch_up().caught_up
    mark = mirrored.store.watermarks(mirrored.link.id)[TopicPartition(topic, 0)]
    assert (mark.source_through, mark.source_end, mark.lag_records) == (40, 40, 0)
    assert len(mirrored.target.read(topic)) == 40
    producer.abort_transaction(30)


def test_messages_of_the_old_formats_become_format_2(mirrored: Mirrored) -> None:
    """Brokers no longer write them; a log kept since then is made by putting a segment into the source's log."""
    topic = mirrored.name("old")
    mirrored.source.create(topic)
    _write(mirrored, topic, [1])
    rows = [(1_400_000_000_000 + n, b"k%d" % n, b"v%d" % n, []) for n in range(30)]
    plain = batch_bytes(rows[:10], magic=1)
    wrapped = batch_bytes(rows[10:20], magic=1, codec=1)
    wrapped = (19).to_bytes(8, "big") + wrapped[8:]
    zero = b"".join((20 + n).to_bytes(8, "big") + batch_bytes([row], magic=0)[8:] for n, row in enumerate(rows[20:]))
    _replace_log(mirrored, topic, plain + wrapped + zero)
    assert [batch.magic for batch in _log(mirrored.source.bootstrap, topic)][-1] == 0
    assert mirrored.catch_up().caught_up
    ours, theirs = mirrored.source.read(topic), mirrored.target.read(topic)
    assert [(r.offset, r.key, r.value) for r in theirs] == [(n, row[1], row[2]) for n, row in enumerate(rows)]
    assert [r[:3] for r in theirs] == [r[:3] for r in ours]
    assert [r.timestamp for r in theirs[:20]] == [row[0] for row in rows[:20]]
    assert {batch.magic for batch in _log(mirrored.target.bootstrap, topic)} == {2}


def test_a_batch_that_the_cleaner_thinned_is_rebuilt(mirrored: Mirrored) -> None:
    """A batch with holes inside, as compaction leaves it, put into the source's log; offsets stay equal."""
    topic = mirrored.name("thinned")
    mirrored.source.create(topic)
    _write(mirrored, topic, [1])
    _replace_log(mirrored, topic, thinned([0, 1, 4, 8], codec=3))
    assert mirrored.catch_up().caught_up
    ours, theirs = mirrored.source.read(topic), mirrored.target.read(topic)
    assert [record.offset for record in ours] == [0, 1, 4, 8]
    assert theirs == ours
    assert mirrored.target.end(topic) == 10
    mirrored.assert_translates(topic)
